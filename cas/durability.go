package cas

import (
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/merkle"
)

// Durability says from when on a blob survives a crash.
type Durability string

const (
	// Durable is the default: small blobs and chunked ones up to 4 MiB survive
	// a crash when the batch is committed, all others when their Put returns.
	Durable Durability = "durable"
	// Grouped is for many blobs that are of use only together: none needs to
	// survive a crash before the batch is committed, and the blobs that have
	// objects of their own share what a commit waits for.
	Grouped Durability = "batch"
	// Cached is for what can be made again. Nothing waits for a disk. After a
	// crash the blob is there, whole, or it is not found: what a crash tore is
	// never an error. It is kept apart from what is durable: putting the same
	// bytes as Durable stores them.
	Cached Durability = "cache"
)

// check returns ErrPlacement for an unknown Durability. The empty one is Durable.
func (d Durability) check() error {
	switch d {
	case "", Durable, Grouped, Cached:
		return nil
	}
	return fmt.Errorf("%w: %q is not durable, batch or cache", ErrPlacement, string(d))
}

// PutAs is [Store.Put] with another durability. As a batch of one, Grouped is
// Durable here.
func (s *Store) PutAs(ctx context.Context, tenant Tenant, r io.Reader, place Placement, d Durability) (Info, error) {
	b := s.Begin(ctx, tenant)
	defer b.Discard()
	info, err := b.PutAs(ctx, r, place, d)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// maxGrouped bounds the whole blobs that wait for a batch's commit: each keeps
// two files open.
const maxGrouped = 64

// putGrouped is putWhole that waits for the batch's commit.
func (b *Batch) putGrouped(ctx context.Context, head []byte, r io.Reader) (Info, error) {
	w, err := b.s.stageWhole(ctx, b.tenant, head, r)
	if err != nil {
		return Info{}, &Error{Op: "put", Err: plain(err)}
	}
	fail := func(err error) (Info, error) {
		return Info{}, &Error{Op: "put", Root: w.root, Err: plain(errors.Join(err, w.discard()))}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fail(ErrClosed)
	}
	info := Info{w.root, w.size, Whole}
	if b.grouped[w.root] != nil {
		return info, w.discard()
	}
	if len(b.grouped) >= maxGrouped {
		if err := b.settleGrouped(ctx); err != nil {
			return fail(err)
		}
	}
	if b.grouped == nil {
		b.grouped = make(map[merkle.Root]*stagedWhole)
	}
	b.grouped[w.root] = w
	return info, nil
}

// settleGrouped makes the whole blobs that wait durable; b.mu is held. After an
// error those that are not are lost: the batch cannot be committed any more.
func (b *Batch) settleGrouped(ctx context.Context) error {
	if b.broken != nil {
		return b.broken
	}
	list := make([]*stagedWhole, 0, len(b.grouped))
	for _, w := range b.grouped {
		list = append(list, w)
	}
	b.grouped = nil
	if len(list) == 0 {
		return nil
	}
	err := b.s.settleWhole(ctx, b.tenant, b.hold, list...)
	for _, w := range list {
		w.discard()
	}
	b.broken = err
	return err
}

// A cached blob is one object: its bytes, followed by its sealed outboard if it
// has more than one group.

// putCached stores a blob that need not survive a crash.
func (b *Batch) putCached(ctx context.Context, head []byte, r io.Reader) (Info, error) {
	s := b.s
	w, err := s.stageWhole(ctx, b.tenant, head, r)
	if err != nil {
		return Info{}, &Error{Op: "put", Err: plain(err)}
	}
	defer w.discard()
	n := merkle.OutboardSize(w.size)
	_, err = io.Copy(io.NewOffsetWriter(w.data, w.size), io.NewSectionReader(w.nodes, 0, n))
	var name Name
	if err == nil {
		name, err = s.place(ctx, b.hold, Name{Tenant: b.tenant, Kind: KindCache, ID: w.root}, func(o Object) (bool, error) {
			return soundCached(ctx, w.root, w.size, o)
		})
	}
	if err == nil {
		err = CommitLoose(ctx, w.data, name, w.size+n)
	}
	if err != nil {
		return Info{}, &Error{Op: "put", Root: w.root, Err: plain(err)}
	}
	return Info{w.root, w.size, Whole}, nil
}

// soundCached reads all of a cached blob, and reports whether it is whole.
func soundCached(ctx context.Context, root merkle.Root, size int64, o Object) (bool, error) {
	if size < 0 || o.Size() != size+merkle.OutboardSize(size) {
		return false, nil
	}
	if size <= merkle.GroupSize {
		p := make([]byte, size)
		err := readFullAt(o, p, 0)
		return err == nil && merkle.Sum(p) == root, err
	}
	data, nodes := cachedParts(o, size)
	bad, err := unproven(ctx, root, size, data, nodes)
	return err == nil && len(bad) == 0, err
}

// cachedParts are the bytes and the outboard in the object of a cached blob.
func cachedParts(o Object, size int64) (data, nodes *io.SectionReader) {
	return io.NewSectionReader(o, 0, size), io.NewSectionReader(o, size, merkle.OutboardSize(size))
}

// cachedSize is the size of the blob in the object of a cached one, -1 if no blob
// makes an object of that length.
func cachedSize(length int64) int64 {
	// OutboardSize grows with the size, by some 0.4% of it.
	low, high := length-length/200-64, length
	for low = max(0, low); low <= high; {
		size := low + (high-low)/2
		switch sum := size + merkle.OutboardSize(size); {
		case sum == length:
			return size
		case sum < length:
			low = size + 1
		default:
			high = size - 1
		}
	}
	return -1
}

// wholeMark stands in a runCache for a cached blob that is whole, and for the
// room that its entry takes.
var wholeMark = make([]byte, 128)

// openCached opens a cached blob. All of it is verified when this Store first
// opens it, so that what a crash tore is ErrNotFound, like whatever else is wrong
// with it.
func (s *Store) openCached(ctx context.Context, tenant Tenant, root merkle.Root, size int64) (*Reader, error) {
	miss := func() (*Reader, error) { return nil, errors.Join(ErrNotFound, ctx.Err()) }
	name, err := s.latest(ctx, Name{Tenant: tenant, Kind: KindCache, ID: root})
	if err != nil {
		return miss()
	}
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return miss()
	}
	known := runKey{name.Tenant, name.ID, name.Gen, cachedBlob}
	if _, ok := s.runs.get(known); !ok || o.Size() != size+merkle.OutboardSize(size) {
		if sound, _ := soundCached(ctx, root, size, o); !sound {
			o.Close()
			return miss()
		}
		s.runs.put(known, wholeMark)
	}
	if size <= merkle.GroupSize {
		defer o.Close()
		p := make([]byte, size)
		if err := readFullAt(o, p, 0); err != nil || merkle.Sum(p) != root {
			return miss()
		}
		return newMemoryReader(root, p), nil
	}
	data, nodes := cachedParts(o, size)
	tree := merkle.NewTree(root, size, nodes)
	return &Reader{
		root: root, size: size, tree: tree, s: s, tenant: tenant,
		data: &objectPart{data, o}, nodes: &objectPart{nodes, nil}, proof: merkle.NewVerifier(tree),
	}, nil
}

// objectPart is a part of an object as an Object; closing it closes whole, if
// there is one.
type objectPart struct {
	*io.SectionReader
	whole Object
}

func (p *objectPart) Close() error {
	if p.whole == nil {
		return nil
	}
	return p.whole.Close()
}
