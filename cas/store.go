package cas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"leafproof/merkle"
)

// Placement says how a blob is stored. It does not show in the blob's root or
// in anything that is read back.
type Placement string

// The placements.
const (
	// Auto is Packed up to one group (16 KiB) and Whole above: what the bytes
	// are is for the caller to know.
	Auto Placement = "auto"
	// Packed puts a blob of at most one group into a pack with others.
	Packed Placement = "packed"
	// Whole gives a blob one object, and one more for its outboard if it has
	// more than one group.
	Whole Placement = "whole"
	// Chunked cuts a blob by its content into chunks of some 64 KiB, which are
	// deduplicated and compressed in packs. A blob of at most one group is Packed
	// all the same.
	Chunked Placement = "chunked"
	// ChunkedRecords is Chunked into chunks of some 7 KiB, for bytes of which
	// many versions come that differ here and there: records of any format.
	ChunkedRecords Placement = "chunked-records"
)

// check returns ErrPlacement for all that a Put cannot do. The empty Placement
// is Auto.
func (p Placement) check() error {
	switch p {
	case "", Auto, Packed, Whole, Chunked, ChunkedRecords:
		return nil
	}
	return fmt.Errorf("%w: %q is not auto, packed, whole, chunked or chunked-records", ErrPlacement, string(p))
}

// Info describes a stored blob. Placement is where it lies now, Packed, Whole or
// Chunked: a small blob that was there before stays where it was.
type Info struct {
	Root      merkle.Root
	Size      int64 // bytes
	Placement Placement
}

// DefaultCacheBytes is the room for verified bytes when Options asks for none.
const DefaultCacheBytes = 16 << 20

// DefaultIndexBytes is the room for the index over packs when Options asks for
// none.
const DefaultIndexBytes = 32 << 20

// Options adjusts a Store. The zero Options is a good one.
type Options struct {
	// CacheBytes bounds the verified bytes kept in memory for further reads:
	// 0 is DefaultCacheBytes, a negative number is none.
	CacheBytes int64
	// IndexBytes is about what the index over packs takes in memory, for each
	// tenant that is in use and however many blobs there are: 0 is
	// DefaultIndexBytes. Some 200 bytes for each pack come on top.
	IndexBytes int64
	// Leases keeps what batches have put from a sweep. Without it the Store must
	// not be swept while it is written.
	Leases Leases
}

// Store keeps blobs on a Backend. It is safe for concurrent use; any number of
// Stores, in any number of processes, may share what the Backend stands on.
type Store struct {
	b      Backend
	cache  *cache
	runs   *runCache
	index  int64   // bytes of memory for the index over one tenant's packs
	leases *keeper // nil without Leases

	// A chunked blob of more than streamFrom bytes does not collect its runs in
	// memory: they go into packs of up to streamPack bytes in the backend.
	streamFrom int64
	streamPack int
	coarseFrom int64 // see the constant

	mu    sync.Mutex
	packs map[Tenant]*packs
}

// New returns a Store over b. It reads nothing yet: no damage of what is stored
// stops a Store from opening.
func New(b Backend, opts Options) *Store {
	s := &Store{
		b:     b,
		cache: newCache(cmp.Or(opts.CacheBytes, DefaultCacheBytes)),
		runs:  newRunCache(runCacheBytes),
		index: max(0, cmp.Or(opts.IndexBytes, DefaultIndexBytes)),
		packs: make(map[Tenant]*packs),

		streamFrom: maxWaiting,
		streamPack: maxPending,
		coarseFrom: coarseFrom,
	}
	s.leases = newKeeper(opts.Leases, s.doubtDurable)
	return s
}

// Close ends the Store's leases: what was put and not published is left to the
// sweep, and a batch that is still open can be committed no more. Without
// Options.Leases it does nothing.
func (s *Store) Close() error { return s.leases.close() }

// doubtDurable forgets which packs this process knows to be durable: a sweep may
// have deleted one, and another process may be about to write it anew.
func (s *Store) doubtDurable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.packs {
		x.mu.Lock()
		for i := range x.infos {
			x.infos[i].durable = false
		}
		x.mu.Unlock()
	}
}

func (s *Store) packsOf(tenant Tenant) *packs {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.packs[tenant]
	if x == nil {
		x = newPacks(s.b, tenant, newPageCache(s.index/2), limitsOf(s.index))
		x.leased = s.leases != nil
		s.packs[tenant] = x
	}
	return x
}

// Damaged returns the packs and index files that were passed over so far because
// they could not be read, ordered by name. They are looked at when a small blob
// is first needed; [Store.Scan] looks at once.
func (s *Store) Damaged() []Damage {
	s.mu.Lock()
	all := make([]*packs, 0, len(s.packs))
	for _, x := range s.packs {
		all = append(all, x)
	}
	s.mu.Unlock()
	var out []Damage
	for _, x := range all {
		x.mu.RLock()
		for name, err := range x.damaged {
			out = append(out, Damage{name, err})
		}
		x.mu.RUnlock()
	}
	slices.SortFunc(out, func(a, b Damage) int { return a.Name.Compare(b.Name) })
	return out
}

// Scan reads the footers of a tenant's packs that this Store has not seen and
// that no index file has.
// Damaged ones are no error; see [Store.Damaged].
func (s *Store) Scan(ctx context.Context, tenant Tenant) error {
	return s.packsOf(tenant).refresh(ctx)
}

// Put stores the bytes of r and returns when they survive a crash. It is a
// [Batch] of one.
func (s *Store) Put(ctx context.Context, tenant Tenant, r io.Reader, place Placement) (Info, error) {
	b := s.Begin(ctx, tenant)
	defer b.Discard()
	info, err := b.Put(ctx, r, place)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// Open opens the blob with this root and size, which come from whoever vouches
// for it. A blob that is not there is ErrNotFound; one that is there but
// damaged, or of another size, is ErrCorrupt, here or at the first read that
// meets the damage. When packs of the tenant are damaged, a blob that no other
// pack has is ErrCorrupt too, and the error names a pack; when a pack cannot be
// read for another reason, it is that reason.
func (s *Store) Open(ctx context.Context, tenant Tenant, root merkle.Root, size int64) (*Reader, error) {
	fail := func(name Name, err error) (*Reader, error) {
		return nil, &Error{Op: "open", Root: root, Name: name, Err: plain(err)}
	}
	if size < 0 {
		return fail(Name{}, fmt.Errorf("%w: size %d", ErrRange, size))
	}
	if size > merkle.GroupSize {
		r, err := s.openWhole(ctx, tenant, root, size)
		if err != nil && ctx.Err() == nil {
			c, e := s.openChunked(ctx, tenant, root, size)
			if e == nil || errors.Is(err, ErrNotFound) {
				r, err = c, e
			}
		}
		if err != nil {
			if c, e := s.openCached(ctx, tenant, root, size); e == nil {
				return c, nil
			}
			return fail(Name{}, err)
		}
		return r, nil
	}
	data, pack, err := s.readPacked(ctx, tenant, root)
	if err == nil {
		if int64(len(data)) != size {
			return fail(pack, fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, len(data), size))
		}
		return newMemoryReader(root, data), nil
	}
	r, errWhole := s.openWhole(ctx, tenant, root, size)
	if errWhole != nil {
		if c, e := s.openCached(ctx, tenant, root, size); e == nil {
			return c, nil
		}
	}
	switch {
	case errWhole == nil:
		return r, nil
	case !errors.Is(errWhole, ErrNotFound):
		return fail(Name{}, errWhole)
	case !errors.Is(err, ErrNotFound):
		return fail(pack, err)
	}
	for _, d := range s.Damaged() {
		if d.Name.Tenant != tenant || d.Name.Kind != KindPack {
			continue
		}
		if unlessDamage(d.Err) == nil {
			d.Err = ErrCorrupt
		}
		return fail(d.Name, fmt.Errorf("%w: no readable object has it, and this pack may", d.Err))
	}
	return fail(Name{}, ErrNotFound)
}

// readPacked returns the verified bytes of a packed blob; a miss looks for
// packs that other processes have added, until nothing new comes.
func (s *Store) readPacked(ctx context.Context, tenant Tenant, root merkle.Root) ([]byte, Name, error) {
	x := s.packsOf(tenant)
	if err := x.load(ctx); err != nil {
		return nil, Name{}, err
	}
	data, pack, err := x.read(ctx, root)
	for range maxLooks {
		if err == nil || ctx.Err() != nil {
			break
		}
		changed, e := x.look(ctx)
		if e != nil {
			return nil, Name{}, e
		}
		data, pack, err = x.read(ctx, root)
		if !changed || !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return data, pack, err
}

// maxLooks bounds how often a miss looks again while other processes merge
// packs.
const maxLooks = 50

// plain strips one *Error of this package from err, so that messages do not
// name the operation and the object twice when another one wraps it.
func plain(err error) error {
	if e, ok := err.(*Error); ok && e.Root.IsZero() && e.Name == (Name{}) {
		return e.Err
	}
	return err
}
