package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"leafproof/merkle"
)

// Fault is what a check found to be wrong with an object.
type Fault string

// The faults. Those up to FaultOther are damage: bytes are lost, or cannot be
// read as the object stands.
const (
	FaultEmpty    Fault = "empty"            // it has no bytes
	FaultZeros    Fault = "zero-filled"      // it has nothing but zero bytes
	FaultLength   Fault = "wrong length"     // cut, or longer than it must be
	FaultBytes    Fault = "wrong bytes"      // its bytes are not those of its name
	FaultOutboard Fault = "no outboard"      // a blob whose outboard is missing
	FaultOther    Fault = "not an object"    // something else stands under its name
	FaultUnread   Fault = "unreadable"       // it could not be read: nothing is known of its bytes
	FaultUnknown  Fault = "of unknown kind"  // this version cannot check it
	FaultOrphan   Fault = "without its blob" // an outboard that belongs to nothing
	FaultTemp     Fault = "unfinished"       // a writer's, at work or dead
	FaultForeign  Fault = "foreign"          // it is no object
)

// Damage reports whether the fault makes bytes unreadable or wrong.
func (f Fault) Damage() bool {
	switch f {
	case FaultUnread, FaultUnknown, FaultOrphan, FaultTemp, FaultForeign:
		return false
	}
	return true
}

// BlobDamage says which bytes of a blob an object's damage affects.
type BlobDamage struct {
	Root merkle.Root
	Size int64 // -1 where the object does not tell
	// Ranges are the affected bytes, in order; none means all of them, or that
	// the object does not tell. [Store.Unreadable] tells, given the size.
	Ranges []merkle.Range
}

// Finding is one thing that a check found.
type Finding struct {
	Name  Name   // the object; zero for what is none
	Path  string // what is no object, relative to the backend's folder
	Fault Fault
	// Superseded says that a higher generation of the object stands, which
	// readers take: this one harms nobody.
	Superseded bool
	// Blobs are the blobs that are affected, as far as the object tells.
	Blobs []BlobDamage
	// All says that the object does not tell which blobs it had.
	All bool
	Err error // the details, never nil
}

// Harms reports whether something that should be readable is not.
func (f Finding) Harms() bool { return f.Fault.Damage() && !f.Superseded }

// CheckOptions adjusts [Store.Check]. The zero value is a shallow check of all.
type CheckOptions struct {
	// Deep reads every byte. Without it, only names, lengths, and the headers
	// and footers of packs are looked at.
	Deep bool
	// Tenants are those to check; nil means all, which takes a [TenantLister].
	Tenants []Tenant
	// From is the Position at which an earlier check was interrupted.
	From string
	// BytesPerSecond bounds the rate of reading; 0 is no bound.
	BytesPerSecond int64
	// Progress, where set, is told of what was read since it was last told, from
	// several goroutines at once.
	Progress func(bytes int64)
	// Visit, where set, is told of every object or generation that holds blobs,
	// with their roots: those of a sound pack, that of a blob. Deleted ones are
	// not known here.
	Visit func(name Name, size int64, roots iter.Seq[merkle.Root])
	// Position, where set, is told how far the check has come.
	Position func(string)
}

// checkers is how each kind is checked, in the order of the walk. A kind that is
// not in it is reported as FaultUnknown.
var checkers = []struct {
	kind  Kind
	check func(*check, []Name) []Finding
}{
	{KindPack, (*check).packGroup},
	{KindBlob, (*check).blobGroup},
	{KindRecipe, (*check).recipeGroup},
	{KindOutboard, (*check).outboardGroup},
	{KindIndex, (*check).indexGroup},
	{KindCache, (*check).cacheGroup},
}

// Check looks at every object of the store and yields what is wrong. It changes
// nothing, and goes on behind whatever it finds: an error is yielded only when a
// listing fails or ctx ends, and it is the last. Its memory does not grow with
// the store. Objects that are put or deleted meanwhile may or may not be seen.
//
// A deep check that yields no damage has hashed every byte of every object:
// each blob has its root, whole or put together from its chunks, each outboard
// is to the byte the one of its blob, and each pack has nothing in it but what
// its footer says, key by key.
func (s *Store) Check(ctx context.Context, o CheckOptions) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		c := &check{s: s, ctx: ctx, o: o, pace: &pace{rate: o.BytesPerSecond, start: time.Now()}}
		if o.From != "" {
			from, err := ParseName(o.From)
			if err != nil {
				yield(Finding{}, &Error{Op: "check", Err: fmt.Errorf("the position: %w", err)})
				return
			}
			c.from = &from
		}
		if err := c.run(yield); err != nil && !errors.Is(err, errEnough) {
			yield(Finding{}, err)
		}
	}
}

// errEnough ends the walk of a caller that has seen enough.
var errEnough = errors.New("enough")

type check struct {
	s    *Store
	ctx  context.Context
	o    CheckOptions
	from *Name // the last that an earlier check did; nil once it is behind
	pace *pace
}

func (c *check) run(yield func(Finding, error) bool) error {
	tenants := c.o.Tenants
	if tenants == nil {
		for t, err := range ListTenants(c.ctx, c.s.b) {
			if err != nil {
				return err
			}
			tenants = append(tenants, t)
		}
	}
	for _, tenant := range tenants {
		if c.from != nil && bytes.Compare(tenant[:], c.from.Tenant[:]) < 0 {
			continue
		}
		for _, k := range checkers {
			if err := c.kind(tenant, k.kind, k.check, yield); err != nil {
				return err
			}
		}
		for _, kind := range Kinds() {
			if !known(kind) {
				if err := c.kind(tenant, kind, (*check).unknownGroup, yield); err != nil {
					return err
				}
			}
		}
	}
	for stray, err := range ListStrays(c.ctx, c.s.b) {
		if err != nil {
			return err
		}
		f := Finding{Path: stray.Path, Fault: FaultForeign, Err: errors.New("no object has such a name")}
		if stray.Unfinished {
			f.Fault, f.Err = FaultTemp, fmt.Errorf("%d bytes that no name was given to", stray.Size)
		}
		if !yield(f, nil) {
			return errEnough
		}
	}
	return nil
}

func known(kind Kind) bool {
	for _, k := range checkers {
		if k.kind == kind {
			return true
		}
	}
	return false
}

// rank is a kind's place in the walk.
func rank(kind Kind) int {
	for i, k := range checkers {
		if k.kind == kind {
			return i
		}
	}
	return len(checkers) + int(kind)
}

// kind checks the objects of one kind, all generations of an ID together.
func (c *check) kind(tenant Tenant, kind Kind, check func(*check, []Name) []Finding, yield func(Finding, error) bool) error {
	first := -1 // the first byte of the IDs to list; -1: all at once
	var after []byte
	if from := c.from; from != nil && tenant == from.Tenant {
		switch {
		case rank(kind) < rank(from.Kind):
			return nil
		case rank(kind) == rank(from.Kind):
			first, after = int(from.ID[0]), slices.Clone(from.ID[:])
		}
	}
	var group []Name
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		found := check(c, group)
		if err := c.ctx.Err(); err != nil {
			return err
		}
		for _, f := range found {
			if !yield(f, nil) {
				return errEnough
			}
		}
		if c.o.Position != nil {
			c.o.Position(group[len(group)-1].String())
		}
		group = group[:0]
		return nil
	}
	list := func(prefix []byte) error {
		for name, err := range c.s.b.List(c.ctx, tenant, kind, prefix) {
			if err != nil {
				return err
			}
			if after != nil && bytes.Compare(name.ID[:], after) <= 0 {
				continue
			}
			if len(group) > 0 && group[0].ID != name.ID {
				if err := flush(); err != nil {
					return err
				}
			}
			group = append(group, name)
		}
		return flush()
	}
	if first < 0 {
		return list(nil)
	}
	for b := first; b < 256; b++ {
		if err := list([]byte{byte(b)}); err != nil {
			return err
		}
	}
	return nil
}

// open opens an object for the check. A second result that is not nil says why
// not; it has no fault when the object is gone.
func (c *check) open(name Name) (Object, *Finding) {
	o, err := OpenObject(c.ctx, c.s.b, name)
	switch {
	case err == nil:
		return pacedObject{o, c}, nil
	case errors.Is(err, ErrNotFound):
		return nil, &Finding{}
	case errors.Is(err, ErrCorrupt):
		return nil, &Finding{Name: name, Fault: FaultOther, Err: err}
	}
	return nil, &Finding{Name: name, Fault: FaultUnread, Err: err}
}

// describe turns what went wrong with an object into a finding: an error of
// reading says nothing about its bytes, and empty and zero-filled files are what
// a crash leaves.
func (c *check) describe(name Name, o Object, fault Fault, err error) Finding {
	if unlessDamage(err) != nil && !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) && !errors.Is(err, merkle.ErrChanged) {
		return Finding{Name: name, Fault: FaultUnread, Err: err}
	}
	f := Finding{Name: name, Fault: fault, Err: err}
	switch size := o.Size(); {
	case size == 0:
		f.Fault = FaultEmpty
	case zeros(o, size):
		f.Fault = FaultZeros
	}
	return f
}

// zeros reports whether an object has nothing but zero bytes.
func zeros(o Object, size int64) bool {
	buf := make([]byte, min(size, 64<<10))
	for off := int64(0); off < size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), size-off)]
		if readFullAt(o, p, off) != nil || len(bytes.Trim(p, "\x00")) > 0 {
			return false
		}
	}
	return true
}

// visit tells of the blobs in an object.
func (c *check) visit(name Name, size int64, roots iter.Seq[merkle.Root]) {
	if c.o.Visit != nil {
		c.o.Visit(name, size, roots)
	}
}

func (c *check) unknownGroup(names []Name) []Finding {
	return []Finding{{Name: names[len(names)-1], Fault: FaultUnknown, Err: errors.New("this version does not know how to check it")}}
}

// pacedObject reads no faster than the check may, and counts.
type pacedObject struct {
	Object
	c *check
}

func (p pacedObject) ReadAt(b []byte, off int64) (int, error) {
	if err := p.c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.Object.ReadAt(b, off)
	if p.c.o.Progress != nil && n > 0 {
		p.c.o.Progress(int64(n))
	}
	if waitErr := p.c.pace.wait(p.c.ctx, n); waitErr != nil && (err == nil || err == io.EOF) {
		return n, waitErr
	}
	return n, err
}

// pace bounds a rate.
type pace struct {
	rate  int64 // bytes a second; 0: any
	start time.Time
	done  atomic.Int64
}

// wait returns when n more bytes are within the rate.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return nil
	}
	due := time.Duration(float64(p.done.Add(int64(n))) / float64(p.rate) * float64(time.Second))
	rest := due - time.Since(p.start)
	if rest <= 0 {
		return nil
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
