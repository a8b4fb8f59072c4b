package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"leafproof/merkle"
)

// ErrBusy says that somebody else is at work on the same upload.
var ErrBusy = errors.New("the upload is in use")

// Upload is a blob that arrives in parts, over any number of connections and
// processes: what was synced before something stopped it is not sent again. It is
// kept in the Backend under a key that its caller chose, until it is put into a
// batch or aborted, or a sweep finds that nobody has touched it for
// [UploadKept]. One process at a time works on it. It is not safe for concurrent
// use.
type Upload struct {
	s       *Store
	keeper  Uploader
	tenant  Tenant
	key     UploadKey
	mark    uploadMark // as it was written last
	resumed bool       // some of its bytes are an earlier process's

	data, log PartStage // nil once closed
	builder   *merkle.Builder
	broken    error // why it cannot be used any more
}

// syncEvery is after how many bytes an upload is synced at the latest.
const syncEvery = 64 << 20

// Upload begins an upload, or goes on with the one that was begun under this id,
// a text of the caller's choice. Size tells where to go on. A backend that
// cannot keep unfinished objects is [errors.ErrUnsupported].
func (s *Store) Upload(ctx context.Context, tenant Tenant, id string) (*Upload, error) {
	keeper, ok := s.b.(Uploader)
	if !ok {
		return nil, &Error{Op: "upload", Err: fmt.Errorf("%w by this backend", errors.ErrUnsupported)}
	}
	u := &Upload{s: s, keeper: keeper, tenant: tenant, key: uploadKey(id)}
	err := u.resume(ctx)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		err = u.begin(ctx)
	}
	if err != nil {
		u.Close()
		return nil, &Error{Op: "upload", Err: plain(err)}
	}
	return u, nil
}

// begin makes the parts of a new try.
func (u *Upload) begin(ctx context.Context) (err error) {
	u.Close()
	u.mark, u.resumed, u.broken = uploadMark{nonce: 1 + rand.Uint64()>>1}, false, nil
	if u.data, err = u.keeper.CreatePart(ctx, u.tenant, u.key, UploadPart{Nonce: u.mark.nonce}); err != nil {
		return err
	}
	if u.log, err = u.keeper.CreatePart(ctx, u.tenant, u.key, UploadPart{Nonce: u.mark.nonce, Log: true}); err != nil {
		return err
	}
	u.builder = merkle.NewBuilder(u.log)
	u.mark.root = u.builder.Root()
	// Until this mark stands, another try counts; then only its leftovers stay.
	if err := u.keeper.SetMark(ctx, u.tenant, u.key, u.mark.bytes()); err != nil {
		return err
	}
	return u.keeper.RemoveUpload(ctx, u.tenant, u.key, u.mark.nonce)
}

// resume opens the parts that the mark speaks of. ErrNotFound and ErrCorrupt say
// that there is nothing to go on with.
func (u *Upload) resume(ctx context.Context) (err error) {
	if u.mark, err = u.readMark(ctx); err != nil {
		return err
	}
	if u.mark.done {
		return ErrNotFound
	}
	if u.data, err = u.keeper.OpenPart(ctx, u.tenant, u.key, UploadPart{Nonce: u.mark.nonce}); err != nil {
		return err
	}
	// Before the data were locked, another process may have gone on with them.
	if u.mark, err = u.readMark(ctx); err != nil || u.mark.done {
		return errors.Join(err, ErrBusy)
	}
	u.log, err = u.keeper.OpenPart(ctx, u.tenant, u.key, UploadPart{Nonce: u.mark.nonce, Log: true})
	if errors.Is(err, ErrNotFound) { // its name was not synced; it follows from the data
		u.log, err = u.keeper.CreatePart(ctx, u.tenant, u.key, UploadPart{Nonce: u.mark.nonce, Log: true})
	}
	if err != nil {
		return err
	}
	have, err := u.data.Length()
	if err != nil {
		return err
	}
	if have < u.mark.size {
		return fmt.Errorf("%w: %d bytes are left of an upload of %d", ErrCorrupt, have, u.mark.size)
	}
	// What is behind the mark was not synced.
	if err := u.data.Truncate(u.mark.size); err != nil {
		return err
	}
	n, err := u.log.Length()
	if err != nil {
		return err
	}
	// A log that was not synced may be a mixture of old and new that is sound in
	// itself. Then all of it is made anew.
	for _, n := range []int64{n, 0} {
		if u.builder, _, err = merkle.RecoverLog(ctx, u.data, u.mark.size, u.log, n); err != nil {
			return err
		}
		if u.builder.Root() == u.mark.root {
			u.resumed = u.mark.size > 0
			// Whoever wrote the mark may not have come to its last flush.
			return errors.Join(u.cutLog(), u.keeper.SetMark(ctx, u.tenant, u.key, u.mark.bytes()))
		}
	}
	return fmt.Errorf("%w: the bytes of the upload are not those that were synced", ErrCorrupt)
}

func (u *Upload) readMark(ctx context.Context) (uploadMark, error) {
	p, err := u.keeper.Mark(ctx, u.tenant, u.key)
	if err != nil {
		return uploadMark{}, err
	}
	return parseUploadMark(p)
}

// Size is how many bytes of the blob are here: where to go on.
func (u *Upload) Size() int64 { return u.builder.Size() }

// Synced is how many bytes of the blob survive a crash.
func (u *Upload) Synced() int64 { return u.mark.size }

// Root is the root of the bytes that are here.
func (u *Upload) Root() merkle.Root { return u.builder.Root() }

// ReadAt implements [io.ReaderAt] for the bytes that are here, as they lie on the
// disk: nobody has checked them since they came.
func (u *Upload) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case u.data == nil:
		return 0, u.fail("read", ErrClosed)
	case off < 0:
		return 0, u.fail("read", fmt.Errorf("%w: offset %d", ErrRange, off))
	case off >= u.Size():
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), u.Size()-off)]
	if err := readFullAt(u.data, want, off); err != nil {
		return 0, u.fail("read", err)
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// ready returns why the upload cannot be used.
func (u *Upload) ready(ctx context.Context) error {
	switch {
	case u.broken != nil:
		return u.broken
	case u.data == nil:
		return ErrClosed
	}
	return ctx.Err()
}

func (u *Upload) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Err: plain(err)}
}

// Append adds the bytes of r to their end. They begin at the blob's byte off,
// which must be Size, so that a sender and a receiver who disagree notice: any
// other is ErrRange. It syncs now and then, and at the end, also when r fails: its
// error is returned, and what came before it is kept.
func (u *Upload) Append(ctx context.Context, off int64, r io.Reader) error {
	if err := u.ready(ctx); err != nil {
		return u.fail("append", err)
	}
	if off != u.Size() {
		return u.fail("append", fmt.Errorf("%w: bytes from %d on, and there are %d", ErrRange, off, u.Size()))
	}
	buf := copyRooms.Get().(*[copySize]byte)
	defer copyRooms.Put(buf)
	for {
		n, err := fillFrom(r, buf[:])
		if n > 0 {
			if err := u.write(buf[:n]); err != nil {
				return u.fail("append", err)
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		switch {
		case err == io.EOF:
			return u.Sync(ctx)
		case err != nil:
			return errors.Join(err, u.Sync(context.WithoutCancel(ctx)))
		case u.Size()-u.mark.size >= syncEvery:
			if err := u.Sync(ctx); err != nil {
				return err
			}
		}
	}
}

func (u *Upload) write(p []byte) error {
	if _, err := u.data.WriteAt(p, u.Size()); err != nil {
		// Bytes behind Size may be there; they are written again or cut off.
		return err
	}
	if _, err := u.builder.Write(p); err != nil {
		u.broken = err
		return err
	}
	return nil
}

// Fill makes the upload what r holds from its first byte on: what is here and the
// same is kept, and from the first byte that differs on all is written anew. It is
// Append for a sender that begins from the start each time.
func (u *Upload) Fill(ctx context.Context, r io.Reader) error {
	if err := u.ready(ctx); err != nil {
		return u.fail("fill", err)
	}
	const step = copySize / 2
	buf := copyRooms.Get().(*[copySize]byte)
	defer copyRooms.Put(buf)
	for at := int64(0); at < u.Size(); {
		if err := ctx.Err(); err != nil {
			return u.fail("fill", err)
		}
		want := buf[:min(step, u.Size()-at)]
		n, err := fillFrom(r, buf[step:step+len(want)])
		if err != nil && err != io.EOF {
			return err
		}
		got := buf[step : step+n]
		if err := readFullAt(u.data, want, at); err != nil {
			return u.fail("fill", err)
		}
		same := 0
		for same < n && want[same] == got[same] {
			same++
		}
		if same < len(want) { // they differ there, or r ends
			if err := u.cut(ctx, at+int64(same)); err != nil {
				return u.fail("fill", err)
			}
			r = io.MultiReader(bytes.NewReader(bytes.Clone(got[same:])), r)
			break
		}
		at += int64(n)
	}
	return u.Append(ctx, u.Size(), r)
}

// Cut drops what is behind the first size bytes.
func (u *Upload) Cut(ctx context.Context, size int64) error {
	if err := u.ready(ctx); err != nil {
		return u.fail("cut", err)
	}
	if size < 0 || size > u.Size() {
		return u.fail("cut", fmt.Errorf("%w: the first %d bytes, and there are %d", ErrRange, size, u.Size()))
	}
	if err := u.cut(ctx, size); err != nil {
		return u.fail("cut", err)
	}
	return nil
}

// cut drops what is behind the first size bytes.
func (u *Upload) cut(ctx context.Context, size int64) error {
	builder, _, err := merkle.RecoverLog(ctx, u.data, size, u.log, merkle.OutboardSize(size))
	if err != nil {
		return err
	}
	u.builder = builder
	if err := u.cutLog(); err != nil {
		return err
	}
	// The mark first: no byte that it covers is ever changed.
	if err := u.setMark(ctx, uploadMark{u.mark.nonce, min(size, u.mark.size), false, u.mark.root}); err != nil {
		return err
	}
	return u.data.Truncate(size)
}

// cutLog drops the nodes behind those of the bytes that are here, so that none of
// other bytes is ever taken for one that comes.
func (u *Upload) cutLog() error { return u.log.Truncate(merkle.OutboardSize(u.Size())) }

// setMark replaces the mark, unless somebody began another try.
func (u *Upload) setMark(ctx context.Context, m uploadMark) error {
	have, err := u.readMark(ctx)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrCorrupt), err == nil && have.nonce != u.mark.nonce:
		u.broken = ErrBusy
		return ErrBusy
	case err != nil:
		return err
	}
	if m.size != u.mark.size || m.root.IsZero() {
		m.root = u.builder.Root() // of Size bytes
	}
	if err := u.keeper.SetMark(ctx, u.tenant, u.key, m.bytes()); err != nil {
		u.broken = err // it is not known which one stands
		return err
	}
	u.mark = m
	return nil
}

// Sync makes all that is here survive a crash.
func (u *Upload) Sync(ctx context.Context) error {
	if err := u.ready(ctx); err != nil {
		return u.fail("sync", err)
	}
	if u.Size() == u.mark.size {
		return nil
	}
	// The log follows from the data: it spares hashing them again, and need not
	// survive.
	if _, err := u.builder.Seal(); err != nil {
		u.broken = err
		return u.fail("sync", err)
	}
	if err := u.data.Sync(); err != nil {
		u.broken = err // final for the file
		return u.fail("sync", err)
	}
	return u.fail("sync", u.setMark(ctx, uploadMark{nonce: u.mark.nonce, size: u.Size()}))
}

// Close ends the use of the upload and keeps what was synced.
func (u *Upload) Close() error {
	var errs []error
	for _, p := range []PartStage{u.data, u.log} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	u.data, u.log = nil, nil
	return errors.Join(errs...)
}

// Abort ends the upload and drops all of it.
func (u *Upload) Abort(ctx context.Context) error {
	if u.data == nil {
		return u.fail("abort", ErrClosed)
	}
	err := u.Close()
	if !errors.Is(u.broken, ErrBusy) { // else it is another one's now
		err = errors.Join(err, u.keeper.RemoveUpload(ctx, u.tenant, u.key, 0))
	}
	return u.fail("abort", err)
}

// PutUpload is [Batch.Put] of what an upload has. If it succeeds the upload is
// over. With placement Whole, or Auto, the bytes are not written again. If it
// fails, or the process ends before whatever rests on it is published, the
// upload may have to begin anew.
func (b *Batch) PutUpload(ctx context.Context, u *Upload, place Placement) (Info, error) {
	fail := func(err error) (Info, error) { return Info{}, u.fail("put", err) }
	if err := errors.Join(u.ready(ctx), place.check()); err != nil {
		return fail(err)
	}
	if u.s != b.s || u.tenant != b.tenant {
		return fail(errors.New("the upload belongs to another store or tenant"))
	}
	size := u.Size()
	if place == Chunked || place == ChunkedRecords || place == Packed || size <= merkle.GroupSize {
		root := u.Root()
		info, err := b.Put(ctx, io.NewSectionReader(u.data, 0, size), place)
		switch {
		case err != nil:
			return Info{}, err
		case info.Root != root || info.Size != size:
			return fail(fmt.Errorf("%w: the bytes of the upload are not those that came", ErrCorrupt))
		}
		return info, u.Abort(ctx)
	}
	if b.isClosed() {
		return fail(ErrClosed)
	}
	if err := b.hold.begin(ctx); err != nil {
		return fail(err)
	}
	info, err := u.publish(ctx, b, size)
	if err != nil {
		return fail(err)
	}
	return info, nil
}

// publish gives the parts their names as a whole blob.
func (u *Upload) publish(ctx context.Context, b *Batch, size int64) (Info, error) {
	root, err := u.builder.Seal()
	if err == nil {
		err = errors.Join(u.data.Truncate(size), u.log.Truncate(merkle.OutboardSize(size)))
	}
	if err != nil {
		u.broken = err
		return Info{}, err
	}
	if u.resumed {
		// What lay here while no process looked after it is trusted no further
		// than anything on a disk.
		got, err := merkle.BuildAt(ctx, u.data, size, nil)
		if err != nil {
			return Info{}, err
		}
		if got != root {
			u.broken = fmt.Errorf("%w: the bytes of the upload are not those that came", ErrCorrupt)
			return Info{}, errors.Join(u.broken, u.Abort(ctx))
		}
	}
	// From here on the files are objects, perhaps: no later process writes them.
	if err := u.setMark(ctx, uploadMark{u.mark.nonce, u.mark.size, true, u.mark.root}); err != nil {
		return Info{}, err
	}
	data, log := u.data, u.log
	u.data, u.log = nil, nil
	err = u.s.settleWhole(ctx, u.tenant, b.hold, &stagedWhole{root: root, size: size, data: data, nodes: log})
	err = errors.Join(err, data.Discard(), log.Discard())
	if err == nil {
		err = u.keeper.RemoveUpload(ctx, u.tenant, u.key, 0)
	}
	if err != nil {
		return Info{}, err
	}
	return Info{root, size, Whole}, nil
}

// PutUpload is [Store.Put] of what an upload has.
func (s *Store) PutUpload(ctx context.Context, u *Upload, place Placement) (Info, error) {
	b := s.Begin(ctx, u.tenant)
	defer b.Discard()
	info, err := b.PutUpload(ctx, u, place)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return Info{}, err
	}
	return info, nil
}
