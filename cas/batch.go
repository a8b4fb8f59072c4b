package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"leafproof/merkle"
)

// Batch is a group commit: the small blobs put into it, and the chunks of chunked
// ones up to 4 MiB, become durable together, in one pack, when [Batch.Commit]
// returns. Larger blobs are durable when their Put returns. It buffers at most 16 MiB, keys included: when more is put, it
// writes a pack early. It is safe for concurrent use.
//
// Blobs that were written, but whose batch was discarded, stay in the store
// until a sweep finds that nobody refers to them.
type Batch struct {
	s      *Store
	tenant Tenant
	hold   *hold // what was put is kept from a sweep until Discard

	mu      sync.Mutex
	closed  bool
	w       packWriter
	waiting map[merkle.Root]*chunkedBlob // by root
	waits   int                          // bytes in memory for them
	grouped map[merkle.Root]*stagedWhole // whole blobs that wait, by root
	broken  error                        // why some of them are lost
}

// Begin starts a batch. It must end in Discard, also after Commit.
func (s *Store) Begin(_ context.Context, tenant Tenant) *Batch {
	return &Batch{s: s, tenant: tenant, hold: s.leases.hold()}
}

// Lease returns the id of the lease that keeps what was put from a sweep, ""
// without [Options.Leases] or before the first Put. Whoever publishes what rests
// on the batch does it in one transaction with a look whether this lease was
// lost, and calls Discard after that.
func (b *Batch) Lease() string { return b.hold.lease() }

// heads are buffers for the first bytes of a blob, which tell small from large.
var heads = sync.Pool{New: func() any { return new([merkle.GroupSize + 1]byte) }}

// Put takes the bytes of r to their end. Memory is bounded whatever their
// number. A blob that is in the store already is read back in full: if it is
// sound nothing is written, if it is damaged it is written anew beside the
// damaged one, and if it cannot be read for another reason that is the error.
// place may be empty, for Auto.
func (b *Batch) Put(ctx context.Context, r io.Reader, place Placement) (Info, error) {
	return b.PutAs(ctx, r, place, Durable)
}

// PutAs is Put with another durability. The placement of a Cached blob is Whole,
// whatever is asked for.
func (b *Batch) PutAs(ctx context.Context, r io.Reader, place Placement, d Durability) (Info, error) {
	if err := errors.Join(ctx.Err(), place.check(), d.check()); err != nil {
		return Info{}, &Error{Op: "put", Err: err}
	}
	if b.isClosed() {
		return Info{}, &Error{Op: "put", Err: ErrClosed}
	}
	if err := b.hold.begin(ctx); err != nil {
		return Info{}, &Error{Op: "put", Err: err}
	}
	buf := heads.Get().(*[merkle.GroupSize + 1]byte)
	defer heads.Put(buf) // both ways below copy it
	n, err := fillFrom(r, buf[:])
	head := buf[:n]
	switch {
	case d == Cached && (err == nil || err == io.EOF):
		return b.putCached(ctx, head, r)
	case err == nil: // more than one group
		if place == Packed {
			return Info{}, &Error{Op: "put", Err: fmt.Errorf("%w: packed is for at most %d bytes", ErrPlacement, merkle.GroupSize)}
		}
		switch place {
		case Chunked:
			return b.putChunked(ctx, &byteChunker, head, r)
		case ChunkedRecords:
			return b.putChunked(ctx, &recordChunker, head, r)
		}
		if d == Grouped {
			return b.putGrouped(ctx, head, r)
		}
		return b.s.putWhole(ctx, b.tenant, b.hold, head, r)
	case err != io.EOF:
		return Info{}, &Error{Op: "put", Err: err}
	}
	return b.putSmall(ctx, head, place)
}

func (b *Batch) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// putSmall takes a blob of at most one group.
func (b *Batch) putSmall(ctx context.Context, data []byte, place Placement) (Info, error) {
	root := merkle.Sum(data)
	info := Info{root, int64(len(data)), Packed}
	fail := func(err error) (Info, error) {
		return Info{}, &Error{Op: "put", Root: root, Err: err}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fail(ErrClosed)
	}
	if _, ok := b.w.get(root); ok {
		return info, nil
	}
	found, err := b.resident(ctx, root)
	if err != nil {
		return fail(err)
	}
	if found {
		return info, nil
	}
	// It may lie in an object of its own. Listing for each small blob would
	// cost more than a second copy of 16 KiB, so only a Whole asks.
	if place == Whole {
		return b.s.putWhole(ctx, b.tenant, b.hold, data, nil)
	}
	if b.w.size+len(data)+keyEntrySize > maxPending {
		if err := b.flush(ctx); err != nil {
			return fail(err)
		}
	}
	b.w.add(root, data)
	return info, nil
}

// resident reports whether a sound copy of the blob is in a pack, and makes
// sure that this pack is durable.
func (b *Batch) resident(ctx context.Context, root merkle.Root) (bool, error) {
	x := b.s.packsOf(b.tenant)
	// No look for packs that other processes have added since: listing for
	// each batch costs more than a second copy of what they added.
	if err := x.load(ctx); err != nil {
		return false, err
	}
	return b.relies(ctx, x, func() (Name, error) {
		_, pack, err := x.read(ctx, root)
		return pack, err
	})
}

// relies reports whether find finds a sound copy of something in a pack that will
// stay, and makes sure that this pack is durable.
func (b *Batch) relies(ctx context.Context, x *packs, find func() (Name, error)) (bool, error) {
	pack, ok, err := b.hold.hit(ctx, find)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, unlessDamage(err) // every copy is damaged: write it
	case !ok:
		return false, nil // condemned: as good as deleted
	}
	switch err := x.confirm(ctx, pack); {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// flush writes what is buffered as one pack. On error the buffer is kept.
func (b *Batch) flush(ctx context.Context) error {
	if len(b.w.keys) == 0 {
		return nil
	}
	if err := b.s.packsOf(b.tenant).commit(ctx, b.hold, &b.w); err != nil {
		return err
	}
	b.w = packWriter{}
	return nil
}

// Open is [Store.Open] that also sees what this batch holds.
func (b *Batch) Open(ctx context.Context, root merkle.Root, size int64) (*Reader, error) {
	b.mu.Lock()
	data, ok := b.w.get(root)
	waiting := b.waiting[root]
	if b.grouped[root] != nil {
		if err := b.settleGrouped(ctx); err != nil {
			b.mu.Unlock()
			return nil, &Error{Op: "open", Root: root, Err: plain(err)}
		}
	}
	b.mu.Unlock()
	switch {
	case !ok && waiting == nil:
		return b.s.Open(ctx, b.tenant, root, size)
	case !ok:
		return b.openWaiting(waiting, size)
	}
	if int64(len(data)) != size {
		return nil, &Error{Op: "open", Root: root, Err: fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, len(data), size)}
	}
	return newMemoryReader(root, data), nil
}

// Commit makes everything put so far durable, but for what is Cached, and ends
// the batch. After an error it may be tried again, unless whole blobs that were
// Grouped are lost: then it fails with the same error. Until Discard, no sweep takes what was put.
func (b *Batch) Commit(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &Error{Op: "commit", Err: ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "commit", Err: err}
	}
	if err := b.settleAll(ctx); err != nil {
		return &Error{Op: "commit", Err: err}
	}
	b.closed = true
	return nil
}

// Discard ends the batch and drops what is buffered. What is durable stays, and
// from now on a sweep takes it unless something published refers to it.
func (b *Batch) Discard() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold.release()
	b.closed, b.w = true, packWriter{}
	var errs []error
	for _, c := range b.waiting {
		errs = append(errs, c.nodes.Discard())
	}
	for _, w := range b.grouped {
		errs = append(errs, w.discard())
	}
	b.waiting, b.waits, b.grouped = nil, 0, nil
	return errors.Join(errs...)
}
