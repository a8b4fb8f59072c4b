package cas

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrLease says that a sweep has waited in vain for this writer: what it has put
// and not published may be gone, and nothing that rests on it may be published.
// Put it again.
var ErrLease = errors.New("the writer's lease was lost to a sweep")

// Leases is the book in which writers stand while they hold objects that nothing
// refers to yet. A sweep ([Store.Sweep]) reads it. The catalogue keeps it.
//
// A lease ends with CloseLease, or when its process ends, however it ends. The
// epoch is a number that a sweep raises. Which objects are condemned is the
// other half of the book: those may be deleted once every lease has acknowledged
// a later epoch than the one in which they were condemned.
type Leases interface {
	// OpenLease enters a lease that has acknowledged the present epoch.
	OpenLease(ctx context.Context) (id string, err error)
	// View returns the present epoch and the names of all condemned objects,
	// those that were condemned before this epoch without exception. When the
	// epoch is still have, it may return have and no names.
	View(ctx context.Context, have int64) (epoch int64, condemned []string, err error)
	// Acknowledge strikes the spared off the condemned and notes that the lease
	// has seen the epoch, both or neither. A lease that was lost is ErrLease.
	Acknowledge(ctx context.Context, lease string, epoch int64, spared []string) error
	// CloseLease ends a lease. One that is gone is no error.
	CloseLease(ctx context.Context, lease string) error
}

// pollEvery is how often a process that holds a lease looks for a new epoch.
const pollEvery = 50 * time.Millisecond

// keeper holds the leases of one Store: a current one for what begins now, and
// those from before the last epoch for what began then and has not ended.
//
// Its rule is the whole of the protection. An object is used only under a pin,
// and a pin is given only while the object is not condemned in the view at hand.
// When the view changes, what is pinned and condemned is spared in the same
// transaction that acknowledges the epoch. A sweep deletes only what was
// condemned before the epoch that all have acknowledged. So what is pinned is
// never deleted, and what may be deleted is never pinned.
type keeper struct {
	book Leases
	// changed is called when the epoch has changed: what was known of objects
	// that nobody pinned may be wrong.
	changed func()

	refreshing sync.Mutex // one refresh or opening at a time; taken before mu

	mu        sync.Mutex
	epoch     int64
	condemned map[Name]bool
	views     int    // counts the views
	current   *lease // nil until somebody needs one
	all       []*lease
	closed    bool
	stop      context.CancelFunc // ends the goroutine that polls; nil without one
	polling   sync.WaitGroup
}

// lease is one row of the book.
type lease struct {
	id    string
	holds int
	pins  map[Name]int // how many holds need it
	lost  bool
}

func newKeeper(book Leases, changed func()) *keeper {
	if book == nil {
		return nil
	}
	return &keeper{book: book, changed: changed, epoch: -1}
}

// hold is what one batch relies on. The methods of a nil hold, that of a Store
// without Leases, pin everything and cost nothing.
type hold struct {
	k *keeper

	mu       sync.Mutex // taken before k.mu
	l        *lease     // nil before the first pin
	pins     map[Name]bool
	released bool
}

func (k *keeper) hold() *hold {
	if k == nil {
		return nil
	}
	return &hold{k: k, pins: make(map[Name]bool)}
}

// pin protects an object from now on, whether it exists or will exist under this
// name. It reports false when the object is condemned: it is as good as deleted.
// Pin first and look at the object then.
func (h *hold) pin(ctx context.Context, name Name) (bool, error) {
	if h == nil {
		return true, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.open(ctx); err != nil {
		return false, err
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return h.pinLocked(name)
}

func (h *hold) pinLocked(name Name) (bool, error) {
	switch {
	case h.l.lost:
		return false, ErrLease
	case h.pins[name]:
		return true, nil
	case h.k.condemned[name]:
		return false, nil
	}
	h.pins[name] = true
	h.l.pins[name]++
	return true, nil
}

// free returns the first generation from name on that is not condemned, pinned:
// a name that may be written.
func (h *hold) free(ctx context.Context, name Name) (Name, error) {
	for {
		ok, err := h.pin(ctx, name)
		if ok || err != nil {
			return name, err
		}
		if name.Gen++; name.Gen == 0 {
			return name, &Error{Op: "put", Name: name, Err: errors.New("no generation is left")}
		}
	}
}

// begin puts the hold under a lease. What is written from now on is not taken for
// a dead writer's.
func (h *hold) begin(ctx context.Context) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.open(ctx); err != nil {
		return err
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.l.lost {
		return ErrLease
	}
	return nil
}

// hit pins what find finds: an object whose name is known only after it was
// looked at. find must have read from the object what it needs, and is called
// again when a sweep came between. It reports false when the object is condemned.
func (h *hold) hit(ctx context.Context, find func() (Name, error)) (Name, bool, error) {
	if h == nil {
		name, err := find()
		return name, err == nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if err := h.open(ctx); err != nil {
			return Name{}, false, err
		}
		h.k.mu.Lock()
		before := h.k.views
		h.k.mu.Unlock()
		name, err := find()
		if err != nil {
			return name, false, err
		}
		h.k.mu.Lock()
		if h.k.views == before {
			ok, err := h.pinLocked(name)
			h.k.mu.Unlock()
			return name, ok, err
		}
		h.k.mu.Unlock()
	}
}

// lease returns the id of the lease that the hold stands under, "" when it has
// pinned nothing.
func (h *hold) lease() string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.l == nil {
		return ""
	}
	return h.l.id
}

// release ends the hold. Only the first call does anything.
func (h *hold) release() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return
	}
	h.released = true
	if h.l == nil {
		return
	}
	k := h.k
	k.mu.Lock()
	for name := range h.pins {
		if h.l.pins[name]--; h.l.pins[name] == 0 {
			delete(h.l.pins, name)
		}
	}
	h.pins = nil
	h.l.holds--
	over := h.l.holds == 0 && h.l != k.current
	k.mu.Unlock()
	if over {
		// A failure leaves a row, whose lock ends with the process at the latest.
		_ = k.end(context.Background(), h.l)
	}
}

// open puts the hold under a lease. h.mu is held.
func (h *hold) open(ctx context.Context) error {
	if h.released {
		return ErrClosed
	}
	if h.l != nil {
		return nil
	}
	k := h.k
	for {
		k.mu.Lock()
		if l := k.current; l != nil && !l.lost {
			l.holds++
			h.l = l
			k.mu.Unlock()
			return nil
		}
		k.mu.Unlock()
		if err := k.begin(ctx); err != nil {
			return err
		}
	}
}

// alone returns a hold under a lease that it shares with no other one.
func (k *keeper) alone(ctx context.Context) (*hold, error) {
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	l, err := k.enter(ctx)
	if err != nil {
		return nil, err
	}
	h := k.hold()
	h.l = l
	return h, nil
}

// begin opens a lease and makes it the current one.
func (k *keeper) begin(ctx context.Context) error {
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	k.mu.Lock()
	done := k.current != nil && !k.current.lost
	k.mu.Unlock()
	if done {
		return nil // another one was faster
	}
	l, err := k.enter(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l.holds--
	k.current = l
	return nil
}

// enter opens a lease, with one hold. k.refreshing is held.
func (k *keeper) enter(ctx context.Context) (*lease, error) {
	k.mu.Lock()
	closed := k.closed
	k.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	id, err := k.book.OpenLease(ctx)
	if err != nil {
		return nil, err
	}
	l := &lease{id: id, holds: 1, pins: make(map[Name]int)}
	k.mu.Lock()
	k.all = append(k.all, l)
	k.mu.Unlock()
	// What was condemned before the lease began must be in the view.
	if err := k.refresh(ctx); err != nil {
		return nil, errors.Join(err, k.end(context.WithoutCancel(ctx), l))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop == nil {
		poll, stop := context.WithCancel(context.Background())
		k.stop = stop
		k.polling.Go(func() { k.poll(poll) })
	}
	return l, nil
}

// poke acknowledges a new epoch now.
func (k *keeper) poke(ctx context.Context) error {
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	return k.refresh(ctx)
}

// poll acknowledges each new epoch as long as there are leases.
func (k *keeper) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		k.refreshing.Lock()
		// A failure is tried again at the next tick, until the sweep's patience
		// ends.
		_ = k.refresh(ctx)
		k.mu.Lock()
		idle := len(k.all) == 0
		if idle {
			k.stop()
			k.stop = nil
		}
		k.mu.Unlock()
		k.refreshing.Unlock()
		if idle {
			return
		}
	}
}

// refresh brings the view up to date and acknowledges its epoch for every lease.
// k.refreshing is held.
func (k *keeper) refresh(ctx context.Context) error {
	k.mu.Lock()
	have := k.epoch
	k.mu.Unlock()
	epoch, names, err := k.book.View(ctx, have)
	if err != nil || epoch == have {
		return err
	}
	condemned := make(map[Name]bool, len(names))
	for _, text := range names {
		if name, err := ParseName(text); err == nil { // others are no objects, but leftovers
			condemned[name] = true
		}
	}
	k.mu.Lock()
	k.condemned = condemned
	k.views++
	// What begins now stands under a lease of its own, so that no lease lives
	// longer than what began before one epoch.
	k.current = nil
	leases := slices.Clone(k.all)
	spared := make([][]string, len(leases))
	for i, l := range leases {
		for name := range l.pins {
			if condemned[name] {
				spared[i] = append(spared[i], name.String())
			}
		}
	}
	k.mu.Unlock()
	k.changed()
	for i, l := range leases {
		err := k.book.Acknowledge(ctx, l.id, epoch, spared[i])
		switch {
		case errors.Is(err, ErrLease):
			k.mu.Lock()
			l.lost = true
			k.mu.Unlock()
		case err != nil:
			return err // the epoch stays the old one, and all is done again
		default:
			k.mu.Lock()
			for name := range l.pins {
				delete(k.condemned, name)
			}
			k.mu.Unlock()
		}
	}
	k.mu.Lock()
	k.epoch = epoch
	var over []*lease
	for _, l := range k.all {
		if l.holds == 0 && slices.Contains(leases, l) {
			over = append(over, l)
		}
	}
	k.mu.Unlock()
	for _, l := range over {
		if err := k.end(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// end closes a lease that nothing stands under.
func (k *keeper) end(ctx context.Context, l *lease) error {
	k.mu.Lock()
	k.all = slices.DeleteFunc(k.all, func(other *lease) bool { return other == l })
	k.mu.Unlock()
	return k.book.CloseLease(ctx, l.id)
}

// close ends all leases, also those that something still stands under: it can
// pin no more, and nothing of it can be published.
func (k *keeper) close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	k.closed = true
	if k.stop != nil {
		k.stop()
	}
	k.mu.Unlock()
	k.polling.Wait()
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	k.mu.Lock()
	leases := slices.Clone(k.all)
	k.current = nil
	for _, l := range leases {
		l.lost = true
	}
	k.mu.Unlock()
	var errs []error
	for _, l := range leases {
		errs = append(errs, k.end(context.Background(), l))
	}
	return errors.Join(errs...)
}
