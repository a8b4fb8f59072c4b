package cas

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"leafproof/merkle"
)

// Roots says what a sweep must keep. The root package implements it over the
// catalogue and the manifests.
type Roots interface {
	// Tenants returns all tenants that something was ever published in.
	Tenants(ctx context.Context) ([]Tenant, error)
	// Roots calls keep with the root of every blob that something published and
	// not ended needs, of what was published in the tenant behind the position
	// after (0: from the beginning), and returns the position to go on from. What
	// was published before the call is seen without exception. If it cannot be
	// told what something needs, that is an error.
	Roots(ctx context.Context, tenant Tenant, after int64, keep func(...merkle.Root)) (int64, error)
}

// Epochs is the part of the book in which a sweep meets those who write.
type Epochs interface {
	// Advance raises the epoch by one and returns it.
	Advance(ctx context.Context) (int64, error)
	// Holders returns all leases.
	Holders(ctx context.Context) ([]Holder, error)
	// Lose marks a lease lost: nothing can be published under it any more.
	Lose(ctx context.Context, lease string) error
}

// Holder is a lease as a sweep sees it.
type Holder struct {
	Lease  string
	Opened int64 // the epoch in which it was opened
	Seen   int64 // the latest epoch that it has acknowledged
	Lost   bool
	Dead   bool // the process that opened it has ended
}

// Sentences is the list of condemned objects. An object whose name is on it is
// not used by anybody who came to know of it, and its name is not written.
type Sentences interface {
	// Condemn enters objects in the present epoch; those that are condemned
	// already keep theirs. When it returns, the entries survive a crash.
	Condemn(ctx context.Context, names []string) error
	// Condemned returns at most limit of the names behind after, ascending, that
	// were condemned before an epoch and are not claimed.
	Condemned(ctx context.Context, before int64, after string, limit int) ([]string, error)
	// Pardon strikes off what is not claimed.
	Pardon(ctx context.Context, names []string) error
	// Claim gives what was condemned before an epoch and is not claimed to one
	// lease, which alone may delete it then, and returns what it got. A lost
	// lease is ErrLease. A claim ends with its lease.
	Claim(ctx context.Context, lease string, before int64, names []string) ([]string, error)
	// Forget strikes off what a lease has claimed and deleted.
	Forget(ctx context.Context, lease string, names []string) error
}

// Book is all of the book: [Leases] for those who write, the rest for sweeps.
type Book interface {
	Leases
	Epochs
	Sentences
}

// StrayRemover is a [Backend] that can remove what [StrayLister] lists.
type StrayRemover interface {
	// RemoveStray removes an unfinished object by its [Stray.Path]. A missing
	// one is no error.
	RemoveStray(ctx context.Context, path string) error
}

// DefaultPatience is how long a sweep waits for those who write.
const DefaultPatience = 10 * time.Second

// SweepOptions adjusts [Store.Sweep].
type SweepOptions struct {
	// Book is the Store's own [Options.Leases], with the sweep's side of it.
	Book Book
	// Roots says what to keep.
	Roots Roots
	// Thorough, where set, says of which tenants every hole in a pack is closed,
	// and not only where there are many: what nothing needs there is gone after the
	// sweep.
	Thorough func(Tenant) bool
	// Patience is how long to wait for a living writer's acknowledgement of an
	// epoch before its lease is lost; 0 is DefaultPatience. It is measured by a
	// clock that nobody can set.
	Patience time.Duration
}

// SweepReport is what a sweep did.
type SweepReport struct {
	Epoch     int64 // the last one
	Marked    int64 // blobs that are needed, of the tenants that were looked at
	Condemned int64 // objects that are to be deleted in a later epoch
	Spared    int64 // condemned objects that turned out to be needed
	Deleted   int64 // objects, packs and leftovers
	Bytes     int64 // of what was deleted
	Rewritten int64 // packs that were written anew without their holes
	Written   int64 // bytes of the packs written for that
	Leftovers int64 // unfinished objects of dead writers, among the deleted
	Ended     int64 // leases of processes that are dead
	Lost      int64 // leases that were lost because their holders kept silent
	// Kept says what was left alone because something could not be read or
	// written. Whatever it concerns is kept whole.
	Kept []error
}

// sweptKinds are the kinds of which an object is needed if, and only if, the
// blob of its ID is. Kinds that are in neither this list nor packs are left
// alone.
var sweptKinds = []Kind{KindBlob, KindOutboard, KindRecipe, KindCache}

// A referrer reads which further blobs an object refers to: they are needed as
// long as the object is.
type referrer func(ctx context.Context, s *Store, name Name) iter.Seq2[merkle.Root, error]

// referrers are the kinds of objects that refer to blobs: a recipe needs its
// pages, and the chunks that they list.
var referrers = map[Kind]referrer{KindRecipe: recipeRefs}

// leftover begins the entries of unfinished objects among the condemned.
const leftover = "leftover "

const (
	// sweepStep is how many names a sweep handles at once.
	sweepStep = 256
	// packLive is the part of a pack, in percent, below which it is written anew.
	packLive = 70
)

// Sweep deletes what nothing published needs: objects, holes in packs, and what
// dead writers left. It works beside puts, reads and other sweeps, in this
// process and in others, and one that was killed is finished by the next.
//
// It runs two rounds. Each raises the epoch and waits until all who write have
// acknowledged it. Then it deletes, after another look, what was condemned in an
// earlier epoch; the first round condemns afterwards what it finds, so that the
// second deletes it.
//
// When in doubt it keeps: a tenant of which it cannot be told what is needed is
// left alone and named in the report, like a pack that cannot be read.
func (s *Store) Sweep(ctx context.Context, o SweepOptions) (SweepReport, error) {
	if s.leases == nil {
		return SweepReport{}, &Error{Op: "sweep", Err: errors.New("the store has no leases")}
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	w := &sweep{s: s, o: o}
	err := w.run(ctx)
	if err != nil {
		err = &Error{Op: "sweep", Err: err}
	}
	return w.report, err
}

// sweep is one run.
type sweep struct {
	s      *Store
	o      SweepOptions
	report SweepReport

	// Of a round. The sweep writes too: it pins what it relies on, and claims
	// what it deletes under the same lease.
	hold  *hold
	epoch int64
	// opened is the oldest epoch in which a lease that stands was opened, its own
	// not counted: what was unfinished before it is nobody's.
	opened int64
}

func (w *sweep) run(ctx context.Context) error {
	if err := w.round(ctx, true); err != nil || w.report.Condemned == 0 {
		return err
	}
	return w.round(ctx, false)
}

func (w *sweep) round(ctx context.Context, condemn bool) (err error) {
	if w.hold, err = w.s.leases.alone(ctx); err != nil {
		return err
	}
	defer w.hold.release()
	if err := w.advance(ctx); err != nil {
		return err
	}
	tenants, err := w.tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := w.tenant(ctx, tenant, condemn); err != nil {
			return err
		}
	}
	return w.leftovers(ctx, condemn)
}

// advance begins a new epoch: when it returns, every lease has acknowledged it,
// has ended, or is lost.
func (w *sweep) advance(ctx context.Context) (err error) {
	if w.epoch, err = w.o.Book.Advance(ctx); err != nil {
		return err
	}
	w.report.Epoch = w.epoch
	own := w.hold.lease()
	for begin := time.Now(); ; {
		if err := w.s.leases.poke(ctx); err != nil {
			return err
		}
		holders, err := w.o.Book.Holders(ctx)
		if err != nil {
			return err
		}
		waiting := 0
		w.opened = w.epoch
		for _, h := range holders {
			switch {
			case h.Dead:
				if err := w.o.Book.CloseLease(ctx, h.Lease); err != nil {
					return err
				}
				w.report.Ended++
			case h.Lost && h.Lease == own:
				return ErrLease
			case h.Lost:
			case h.Seen >= w.epoch:
				if h.Lease != own {
					w.opened = min(w.opened, h.Opened)
				}
			case time.Since(begin) >= w.o.Patience:
				if err := w.o.Book.Lose(ctx, h.Lease); err != nil {
					return err
				}
				w.report.Lost++
			default:
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := sleep(ctx, min(w.o.Patience, 10*time.Millisecond)); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// tenants returns those that may have objects.
func (w *sweep) tenants(ctx context.Context) ([]Tenant, error) {
	tenants, err := w.o.Roots.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	for tenant, err := range ListTenants(ctx, w.s.b) {
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	// A tenant whose last object was deleted by a sweep that was killed then.
	for after := ""; ; {
		names, err := w.o.Book.Condemned(ctx, w.epoch, after, 1)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			break
		}
		after = names[0]
		if name, err := ParseName(after); err == nil {
			tenants = append(tenants, name.Tenant)
			after = name.Tenant.String() + "0" // behind all names of the tenant
		}
	}
	slices.SortFunc(tenants, func(a, b Tenant) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(tenants), nil
}

// tenant sweeps one tenant. Only what concerns the whole sweep is an error.
func (w *sweep) tenant(ctx context.Context, tenant Tenant, condemn bool) error {
	doomed, err := w.o.Book.Condemned(ctx, w.epoch, tenant.String(), 1)
	if err != nil {
		return err
	}
	if !condemn && (len(doomed) == 0 || !strings.HasPrefix(doomed[0], tenant.String())) {
		return nil
	}
	m := &marks{s: w.s, tenant: tenant, roots: w.o.Roots}
	if err := m.extend(ctx); err != nil {
		return w.keep(ctx, fmt.Errorf("tenant %s: all is kept, since it cannot be told what is needed: %w", tenant, err))
	}
	if condemn {
		w.report.Marked += int64(len(m.all))
	}
	t := &tenantSweep{sweep: w, tenant: tenant, marks: m}
	if err := t.delete(ctx); err != nil {
		return err
	}
	if condemn {
		return t.condemn(ctx)
	}
	return nil
}

// keep notes a failure that concerns a part of the store, and returns one that
// concerns the sweep.
func (w *sweep) keep(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrLease) || errors.Is(err, ErrClosed) {
		return err
	}
	w.report.Kept = append(w.report.Kept, err)
	return nil
}

// destroy deletes condemned objects of which another look said that nobody needs
// them. Those that it cannot claim belong to another sweep. remove is given some
// at a time and says what became of each.
func (w *sweep) destroy(ctx context.Context, names []string, remove func(context.Context, []string) []removal) error {
	for step := range slices.Chunk(names, sweepStep) {
		claimed, err := w.o.Book.Claim(ctx, w.hold.lease(), w.epoch, step)
		if err != nil {
			return err
		}
		var gone []string
		for i, r := range remove(ctx, claimed) {
			if r.err != nil {
				// It stays claimed until this sweep ends: nobody uses it.
				if err := w.keep(ctx, fmt.Errorf("%s: %w", claimed[i], r.err)); err != nil {
					return err
				}
				continue
			}
			if r.size >= 0 {
				w.report.Deleted++
				w.report.Bytes += r.size
			}
			gone = append(gone, claimed[i])
		}
		if err := w.o.Book.Forget(ctx, w.hold.lease(), gone); err != nil {
			return err
		}
	}
	return nil
}

// removal is what became of something that was to be removed.
type removal struct {
	size int64 // of what was removed; -1: it was gone already
	err  error // why it is still there, perhaps
}

// removeObjects deletes objects, all in one call, so that the backend makes the
// end of many durable at once. Only if that fails it is asked for each.
func (w *sweep) removeObjects(ctx context.Context, texts []string) []removal {
	out := make([]removal, len(texts))
	var names []Name
	for i, text := range texts {
		name, err := ParseName(text)
		if err != nil {
			out[i].err = err
			continue
		}
		names = append(names, name)
		switch o, err := OpenObject(ctx, w.s.b, name); {
		case err == nil:
			out[i].size = o.Size()
			o.Close()
		case errors.Is(err, ErrNotFound):
			out[i].size = -1
		}
	}
	if w.s.b.Delete(ctx, names...) == nil {
		return out
	}
	for i, text := range texts {
		if name, err := ParseName(text); err == nil {
			out[i].err = w.s.b.Delete(ctx, name)
		}
	}
	return out
}

// leftovers deletes the unfinished objects of dead writers. One is found in one
// round and deleted in another, when no lease stands any more that was open when
// it was found: every writer opens a lease before it begins an object.
func (w *sweep) leftovers(ctx context.Context, condemn bool) error {
	remover, ok := w.s.b.(StrayRemover)
	if !ok {
		return nil
	}
	var doomed []string
	for after := leftover; ; {
		names, err := w.o.Book.Condemned(ctx, min(w.epoch, w.opened), after, sweepStep)
		if err != nil {
			return err
		}
		for _, name := range names {
			if strings.HasPrefix(name, leftover) {
				doomed = append(doomed, name)
			}
		}
		if len(names) < sweepStep {
			break
		}
		after = names[len(names)-1]
	}
	sizes, err := w.unfinished(ctx)
	if err != nil {
		return w.keep(ctx, fmt.Errorf("leftovers: %w", err))
	}
	err = w.destroy(ctx, doomed, func(ctx context.Context, names []string) []removal {
		out := make([]removal, len(names))
		for i, name := range names {
			size, ok := sizes[name]
			if !ok {
				out[i].size = -1 // its writer has finished it, or given it up
				continue
			}
			out[i] = removal{size, remover.RemoveStray(ctx, strings.TrimPrefix(name, leftover))}
			if out[i].err == nil {
				w.report.Leftovers++
			}
		}
		return out
	})
	if err != nil || !condemn {
		return err
	}
	for _, name := range doomed {
		delete(sizes, name)
	}
	return w.sentence(ctx, slices.Sorted(maps.Keys(sizes)))
}

// UploadKept is how long a sweep leaves an [Upload] alone that nobody touches,
// by the clock of the files. One that goes early, because a clock was set, costs
// sending it again.
const UploadKept = 7 * 24 * time.Hour

// unfinished returns what may be the leftovers of dead writers, by the names
// that it is condemned under, with its size.
func (w *sweep) unfinished(ctx context.Context) (map[string]int64, error) {
	sizes := make(map[string]int64)
	touched := make(map[string]time.Time) // by upload
	uploads := make(map[string]string)    // by name
	for stray, err := range ListStrays(ctx, w.s.b) {
		if err != nil {
			return nil, err
		}
		if !stray.Unfinished {
			continue
		}
		name := leftover + stray.Path
		sizes[name] = stray.Size
		if key := stray.Upload; key != "" {
			uploads[name] = key
			if stray.Modified.After(touched[key]) {
				touched[key] = stray.Modified
			}
		}
	}
	for name, key := range uploads {
		if time.Since(touched[key]) < UploadKept {
			delete(sizes, name)
		}
	}
	return sizes, nil
}

// sentence condemns objects, and counts them.
func (w *sweep) sentence(ctx context.Context, names []string) error {
	for step := range slices.Chunk(names, sweepStep) {
		if err := w.o.Book.Condemn(ctx, step); err != nil {
			return err
		}
		w.report.Condemned += int64(len(step))
	}
	return nil
}
