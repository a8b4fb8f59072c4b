package memory

import (
	"context"
	"io/fs"
	"slices"

	"leafproof/cas"
)

var _ cas.Uploader = (*Backend)(nil)

// uploads are the unfinished objects and the marks. Its lock is the backend's.
type uploads struct {
	parts map[partKey]*part
	marks map[uploadKey][]byte
}

type uploadKey struct {
	tenant cas.Tenant
	key    cas.UploadKey
}

type partKey struct {
	uploadKey
	cas.UploadPart
}

// part is what is kept of a part; partStage is one use of it.
type part struct {
	stage
	busy bool
}

type partStage struct {
	*part
	key  partKey
	open bool
}

// CreatePart implements [cas.Uploader].
func (b *Backend) CreatePart(ctx context.Context, t cas.Tenant, key cas.UploadKey, p cas.UploadPart) (cas.PartStage, error) {
	return b.part(ctx, partKey{uploadKey{t, key}, p}, true)
}

// OpenPart implements [cas.Uploader].
func (b *Backend) OpenPart(ctx context.Context, t cas.Tenant, key cas.UploadKey, p cas.UploadPart) (cas.PartStage, error) {
	return b.part(ctx, partKey{uploadKey{t, key}, p}, false)
}

func (b *Backend) part(ctx context.Context, key partKey, create bool) (cas.PartStage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.uploads.parts[key]
	switch {
	case create && p != nil:
		return nil, &cas.Error{Op: "upload", Err: fs.ErrExist}
	case create:
		if b.uploads.parts == nil {
			b.uploads.parts = make(map[partKey]*part)
		}
		p = &part{stage: stage{b: b}}
		b.uploads.parts[key] = p
	case p == nil:
		return nil, &cas.Error{Op: "upload", Err: cas.ErrNotFound}
	case p.busy:
		return nil, &cas.Error{Op: "upload", Err: cas.ErrBusy}
	}
	p.busy = true
	return &partStage{p, key, true}, nil
}

// end ends a use, and what is kept too if it is not to be kept.
func (p *partStage) end(keep bool) bool {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	was := p.open
	if p.open {
		p.open, p.busy = false, false
		if !keep && p.b.uploads.parts[p.key] == p.part {
			delete(p.b.uploads.parts, p.key)
		}
	}
	return was
}

func (p *partStage) ended() bool {
	p.b.mu.RLock()
	defer p.b.mu.RUnlock()
	return !p.open
}

func (p *partStage) WriteAt(q []byte, off int64) (int, error) {
	if p.ended() {
		return 0, fs.ErrClosed
	}
	return p.part.WriteAt(q, off)
}

func (p *partStage) ReadAt(q []byte, off int64) (int, error) {
	if p.ended() {
		return 0, fs.ErrClosed
	}
	return p.part.ReadAt(q, off)
}

func (p *partStage) Commit(ctx context.Context, name cas.Name, size int64) error {
	if !p.end(false) {
		return fs.ErrClosed
	}
	return p.part.Commit(ctx, name, size)
}

func (p *partStage) Discard() error {
	if p.end(false) {
		return p.part.Discard()
	}
	return nil
}

func (p *partStage) Close() error {
	p.end(true)
	return nil
}

func (p *partStage) Length() (int64, error) {
	if p.ended() {
		return 0, fs.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.data)), nil
}

func (p *partStage) Truncate(size int64) error {
	if p.ended() {
		return fs.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if size < 0 {
		return cas.ErrRange
	}
	if n := size - int64(len(p.data)); n > 0 {
		p.data = append(p.data, make([]byte, n)...)
	}
	p.data = slices.Clip(p.data[:size])
	return nil
}

func (p *partStage) Sync() error {
	if p.ended() {
		return fs.ErrClosed
	}
	return nil
}

// Mark implements [cas.Uploader].
func (b *Backend) Mark(ctx context.Context, t cas.Tenant, key cas.UploadKey) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	mark, ok := b.uploads.marks[uploadKey{t, key}]
	if !ok {
		return nil, &cas.Error{Op: "upload", Err: cas.ErrNotFound}
	}
	return slices.Clone(mark), nil
}

// SetMark implements [cas.Uploader].
func (b *Backend) SetMark(ctx context.Context, t cas.Tenant, key cas.UploadKey, mark []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uploads.marks == nil {
		b.uploads.marks = make(map[uploadKey][]byte)
	}
	b.uploads.marks[uploadKey{t, key}] = slices.Clone(mark)
	return nil
}

// RemoveUpload implements [cas.Uploader].
func (b *Backend) RemoveUpload(ctx context.Context, t cas.Tenant, key cas.UploadKey, keep uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	upload := uploadKey{t, key}
	for k := range b.uploads.parts {
		if k.uploadKey == upload && (keep == 0 || k.Nonce != keep) {
			delete(b.uploads.parts, k)
		}
	}
	if keep == 0 {
		delete(b.uploads.marks, upload)
	}
	return nil
}
