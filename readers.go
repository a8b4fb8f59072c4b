package leafproof

import (
	"context"
	"sync"
	"time"

	"leafproof/cas"
	"leafproof/merkle"
)

// What is kept open of artifacts' bytes that were read a moment ago: opening them
// takes longer than a read of a few KiB. It is no leave, and says nothing of whether
// the artifact still stands: both are asked each time.
const (
	keptReaders = 32
	keptFor     = 2 * time.Second
)

// readers lends open blobs to several at once.
type readers struct {
	mu     sync.Mutex
	of     map[readerKey]*lentReader
	timer  *time.Timer // nil: nothing is kept
	closed bool
}

type readerKey struct {
	tenant cas.Tenant
	root   merkle.Root
}

// lentReader is an open blob. It is closed when nobody uses it any more and it is not
// kept.
type lentReader struct {
	*cas.Reader
	key    readerKey
	users  int
	unused time.Time // since when
	kept   bool
}

// take opens a blob, or lends it again.
func (r *readers) take(ctx context.Context, objects *cas.Store, key readerKey, size int64) (*lentReader, error) {
	r.mu.Lock()
	if l := r.of[key]; l != nil && l.Size() == size {
		l.users++
		r.mu.Unlock()
		return l, nil
	}
	r.mu.Unlock()
	data, err := objects.Open(ctx, key.tenant, key.root, size)
	if err != nil {
		return nil, err
	}
	return &lentReader{Reader: data, key: key, users: 1}, nil
}

// give gives it back. One that failed is not kept: the next try opens it anew. Nor is
// one that holds all of its blob: damage must show at the next read.
func (r *readers) give(l *lentReader, failed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (failed || r.closed) && l.kept {
		l.kept = false
		delete(r.of, l.key)
	}
	l.users--
	if l.users > 0 {
		return nil
	}
	if !l.kept && !failed && !r.closed && !l.InMemory() && r.of[l.key] == nil && len(r.of) < keptReaders {
		if r.of == nil {
			r.of = map[readerKey]*lentReader{}
		}
		r.of[l.key], l.kept = l, true
	}
	if !l.kept {
		return l.Reader.Close()
	}
	l.unused = time.Now()
	if r.timer == nil {
		r.timer = time.AfterFunc(keptFor, r.tidy)
	}
	return nil
}

// tidy closes what nobody has used for a while.
func (r *readers) tidy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(time.Now().Add(-keptFor))
	r.timer = nil
	if len(r.of) > 0 {
		r.timer = time.AfterFunc(keptFor, r.tidy)
	}
}

// drop closes what was not used since a time, with r.mu locked.
func (r *readers) drop(since time.Time) {
	for key, l := range r.of {
		if l.users == 0 && !l.unused.After(since) {
			delete(r.of, key)
			l.kept = false
			l.Reader.Close()
		}
	}
}

// forget closes all that nobody uses; with close, nothing is kept any more.
func (r *readers) forget(closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = r.closed || closed
	r.drop(time.Now())
	if r.timer != nil && len(r.of) == 0 {
		r.timer.Stop()
		r.timer = nil
	}
}

// atEpoch remembers what was found in the catalogue at one policy epoch, and is right
// about what no change reaches that does not raise it: whose a token is, since the
// removal of a principal raises it, and that an artifact was not deleted.
type atEpoch[K comparable, V any] struct {
	mu    sync.Mutex
	epoch int64
	of    map[K]V
}

// maxAtEpoch is how many are remembered.
const maxAtEpoch = 1024

func (t *atEpoch[K, V]) get(epoch int64, key K) (value V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch != epoch {
		return value, false
	}
	value, ok = t.of[key]
	return value, ok
}

// put remembers what was found at an epoch that was read before.
func (t *atEpoch[K, V]) put(epoch int64, key K, value V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || t.epoch < epoch || len(t.of) >= maxAtEpoch {
		t.of = map[K]V{}
		t.epoch = epoch
	}
	if t.epoch == epoch {
		t.of[key] = value
	}
}
