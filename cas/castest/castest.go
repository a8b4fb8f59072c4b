// Package castest holds a [cas.Backend] to its contract: one subtest per
// promise, each named after it.
//
// What passes keeps the promises that a running process can see. That a Put is
// durable shows here only as far as a second Backend over the same place sees
// it at once; what is left after a power cut is tested where the backend is.
package castest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// Run runs the suite. open returns an empty Backend for each subtest. The suite
// runs a second time with the optional abilities hidden, so that the fallbacks
// of [cas.NewStage] and [cas.OpenObject] are held to the same promises. What a
// Backend cannot do and nothing stands in for is skipped.
func Run(t *testing.T, open func(t *testing.T) cas.Backend) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
	t.Run("fallback", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) { test.run(t, struct{ cas.Backend }{open(t)}) })
		}
	})
}

var tests = []struct {
	name string
	run  func(*testing.T, cas.Backend)
}{
	{"Put/then Get gives the bytes", putGet},
	{"Put/empty object", putEmpty},
	{"Put/taken name stays and reads nothing", putTaken},
	{"Put/short reader leaves nothing", putShort},
	{"Put/long reader leaves nothing", putLong},
	{"Put/failing reader leaves nothing", putFailing},
	{"Put/negative size is refused", putNegative},
	{"Put/cancelled context leaves nothing", putCancelled},
	{"Put/many writers of one name", putConcurrent},
	{"Put/kinds, tenants and generations are apart", putApart},
	{"Get/missing is ErrNotFound", getMissing},
	{"Get/ranges", getRanges},
	{"Get/reader outlives Delete", getAfterDelete},
	{"Get/cancelled context", getCancelled},
	{"List/ascending, once, one kind of one tenant", listAll},
	{"List/prefix", listPrefix},
	{"List/stops when the caller does", listStop},
	{"List/cancelled context yields the error", listCancelled},
	{"Delete/removes and forgives the missing", deleteBoth},
	{"Delete/name can be put again", deleteReput},
	{"Stage/commit publishes", stageCommit},
	{"Stage/nothing shows before commit", stageHidden},
	{"Stage/discard leaves nothing", stageDiscard},
	{"Stage/wrong size is refused", stageSize},
	{"Stage/taken name stays", stageTaken},
	{"Stage/cancelled context leaves nothing", stageCancelled},
	{"Stage/used up after commit", stageUsedUp},
	{"Stage/loose commit publishes", stageLoose},
	{"Stage/commit of many publishes each", stageMany},
	{"Open/missing is ErrNotFound", openMissing},
	{"Open/size and ReadAt", openReadAt},
	{"Open/parallel reads", openParallel},
	{"Upload/parts are kept and go on", uploadParts},
	{"Upload/one at a time", uploadBusy},
	{"Upload/commit and discard end a part", uploadEnds},
	{"Upload/marks are replaced", uploadMarks},
	{"Upload/remove all but a try", uploadRemove},
	{"Upload/cancelled context", uploadCancelled},
	{"Tenants/each with objects, ascending", tenantsAll},
	{"Strays/objects are none", straysNone},
}

var (
	tenant = cas.TenantOf("castest")
	other  = cas.TenantOf("castest other")
)

// blob is an object name for data.
func blob(data []byte) cas.Name {
	return cas.Name{Tenant: tenant, Kind: cas.KindBlob, ID: merkle.Sum(data)}
}

// numbered is a name whose ID begins with the bytes of i.
func numbered(kind cas.Kind, i uint32, gen uint32) cas.Name {
	n := cas.Name{Tenant: tenant, Kind: kind, Gen: gen}
	binary.BigEndian.PutUint32(n.ID[:], i)
	n.ID[31] = 1
	return n
}

func random(seed uint64, size int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	data := make([]byte, size)
	rand.NewChaCha8(key).Read(data)
	return data
}

func put(t *testing.T, b cas.Backend, name cas.Name, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("Put(%v): %v", name, err)
	}
}

func get(t *testing.T, b cas.Backend, name cas.Name, off, n int64) ([]byte, error) {
	t.Helper()
	r, err := b.Get(t.Context(), name, off, n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func wantBytes(t *testing.T, b cas.Backend, name cas.Name, want []byte) {
	t.Helper()
	got, err := get(t, b, name, 0, -1)
	if err != nil {
		t.Fatalf("Get(%v): %v", name, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("Get(%v) = %d bytes that differ from the %d put", name, len(got), len(want))
	}
}

func wantNothing(t *testing.T, b cas.Backend, name cas.Name) {
	t.Helper()
	if _, err := get(t, b, name, 0, -1); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("Get error = %v, want ErrNotFound", err)
	}
	for _, kind := range cas.Kinds() {
		if names := list(t, b, tenant, kind, nil); len(names) != 0 {
			t.Errorf("List(%v) = %v, want nothing", kind, names)
		}
	}
}

func list(t *testing.T, b cas.Backend, tenant cas.Tenant, kind cas.Kind, prefix []byte) []cas.Name {
	t.Helper()
	var names []cas.Name
	for name, err := range b.List(t.Context(), tenant, kind, prefix) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		names = append(names, name)
	}
	return names
}

func putGet(t *testing.T, b cas.Backend) {
	for _, size := range []int{1, 1023, 64 << 10, 1<<20 + 1} {
		data := random(uint64(size), size)
		put(t, b, blob(data), data)
		wantBytes(t, b, blob(data), data)
	}
}

func putEmpty(t *testing.T, b cas.Backend) {
	put(t, b, blob(nil), nil)
	wantBytes(t, b, blob(nil), nil)
}

// untouchable fails the test when it is read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("Put of a taken name read from its reader")
	return 0, io.EOF
}

func putTaken(t *testing.T, b cas.Backend) {
	data := random(1, 1000)
	put(t, b, blob(data), data)
	if err := b.Put(t.Context(), blob(data), untouchable{t}, 1000); err != nil {
		t.Errorf("second Put: %v", err)
	}
	wantBytes(t, b, blob(data), data)
}

func putShort(t *testing.T, b cas.Backend) {
	for _, have := range []int{0, 1, 99_999} {
		data := random(2, have)
		if err := b.Put(t.Context(), blob(data), bytes.NewReader(data), 100_000); !errors.Is(err, cas.ErrSize) {
			t.Errorf("Put of %d bytes as 100000: error = %v, want ErrSize", have, err)
		}
		wantNothing(t, b, blob(data))
	}
}

func putLong(t *testing.T, b cas.Backend) {
	for _, stated := range []int64{0, 1, 99_999} {
		data := random(3, 100_000)
		if err := b.Put(t.Context(), blob(data), bytes.NewReader(data), stated); !errors.Is(err, cas.ErrSize) {
			t.Errorf("Put of 100000 bytes as %d: error = %v, want ErrSize", stated, err)
		}
		wantNothing(t, b, blob(data))
	}
}

var errReader = errors.New("reader failed")

type failing struct{ r io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errReader
	}
	return n, err
}

func putFailing(t *testing.T, b cas.Backend) {
	data := random(4, 300_000)
	err := b.Put(t.Context(), blob(data), failing{bytes.NewReader(data[:200_000])}, 300_000)
	if !errors.Is(err, errReader) {
		t.Errorf("Put error = %v, want the reader's own", err)
	}
	wantNothing(t, b, blob(data))
}

func putNegative(t *testing.T, b cas.Backend) {
	for _, size := range []int64{-1, math.MinInt64} {
		if err := b.Put(t.Context(), blob(nil), bytes.NewReader(nil), size); err == nil {
			t.Errorf("Put with size %d succeeded", size)
		}
		wantNothing(t, b, blob(nil))
	}
}

// cancelling cancels a context in the middle of a stream.
type cancelling struct {
	r      io.Reader
	left   int
	cancel context.CancelFunc
}

func (c *cancelling) Read(p []byte) (int, error) {
	n, err := c.r.Read(p[:min(len(p), 4096)])
	if c.left -= n; c.left < 0 {
		c.cancel()
	}
	return n, err
}

func putCancelled(t *testing.T, b cas.Backend) {
	data := random(5, 300_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &cancelling{bytes.NewReader(data), 100_000, cancel}
	if err := b.Put(ctx, blob(data), r, int64(len(data))); !errors.Is(err, context.Canceled) {
		t.Errorf("Put cancelled in the middle: error = %v, want context.Canceled", err)
	}
	if err := b.Put(ctx, blob(data), bytes.NewReader(data), int64(len(data))); !errors.Is(err, context.Canceled) {
		t.Errorf("Put cancelled before: error = %v, want context.Canceled", err)
	}
	wantNothing(t, b, blob(data))
}

func putConcurrent(t *testing.T, b cas.Backend) {
	data := random(6, 100_000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := b.Put(t.Context(), blob(data), bytes.NewReader(data), int64(len(data))); err != nil {
				t.Errorf("Put: %v", err)
			}
			got, err := get(t, b, blob(data), 0, -1)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("Get after own Put: %d bytes, error %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if names := list(t, b, tenant, cas.KindBlob, nil); len(names) != 1 {
		t.Errorf("List has %d names, want 1", len(names))
	}
}

func putApart(t *testing.T, b cas.Backend) {
	base := numbered(cas.KindBlob, 1, 0)
	var names []cas.Name
	for _, ten := range []cas.Tenant{tenant, other} {
		for _, kind := range cas.Kinds() {
			for _, gen := range []uint32{0, 1, math.MaxUint32} {
				name := base
				name.Tenant, name.Kind, name.Gen = ten, kind, gen
				names = append(names, name)
				put(t, b, name, []byte(name.String()))
			}
		}
	}
	for _, name := range names {
		wantBytes(t, b, name, []byte(name.String()))
	}
}

func getMissing(t *testing.T, b cas.Backend) {
	data := random(7, 10)
	put(t, b, blob(data), data)
	missing := blob(data)
	missing.Gen = 1
	for _, n := range []int64{-1, 0, 5} {
		if _, err := get(t, b, missing, 0, n); !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("Get(missing, n=%d) error = %v, want ErrNotFound", n, err)
		}
	}
}

func getRanges(t *testing.T, b cas.Backend) {
	data := random(8, 1000)
	put(t, b, blob(data), data)
	for name, test := range map[string]struct {
		off, n   int64
		from, to int // of data; from < 0: ErrRange
	}{
		"all":               {0, 1000, 0, 1000},
		"to the end":        {10, -1, 10, 1000},
		"middle":            {10, 20, 10, 30},
		"last byte":         {999, 1, 999, 1000},
		"empty at start":    {0, 0, 0, 0},
		"empty at end":      {1000, 0, 1000, 1000},
		"rest at end":       {1000, -1, 1000, 1000},
		"one too long":      {0, 1001, -1, 0},
		"one past the end":  {1000, 1, -1, 0},
		"behind the end":    {1001, 0, -1, 0},
		"rest behind it":    {1001, -1, -1, 0},
		"negative offset":   {-1, 5, -1, 0},
		"sum overflows":     {1, math.MaxInt64, -1, 0},
		"offset very large": {math.MaxInt64, 1, -1, 0},
		"both very large":   {math.MaxInt64, math.MaxInt64, -1, 0},
		"lowest offset":     {math.MinInt64, 1, -1, 0},
		"very negative n":   {990, math.MinInt64, 990, 1000},
	} {
		got, err := get(t, b, blob(data), test.off, test.n)
		if test.from < 0 {
			if !errors.Is(err, cas.ErrRange) {
				t.Errorf("%s: Get(%d, %d) error = %v, want ErrRange", name, test.off, test.n, err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got, data[test.from:test.to]) {
			t.Errorf("%s: Get(%d, %d) = %d bytes, error %v; want bytes %d:%d", name, test.off, test.n, len(got), err, test.from, test.to)
		}
	}
}

func getAfterDelete(t *testing.T, b cas.Backend) {
	data := random(9, 300_000)
	put(t, b, blob(data), data)
	r, err := b.Get(t.Context(), blob(data), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), blob(data)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if got := append(first, rest...); err == nil && !bytes.Equal(got, data) {
		t.Errorf("a reader open across Delete ended without an error after %d bytes of %d", len(got), len(data))
	}
}

func getCancelled(t *testing.T, b cas.Backend) {
	data := random(10, 10)
	put(t, b, blob(data), data)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := b.Get(ctx, blob(data), 0, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("Get error = %v, want context.Canceled", err)
		if err == nil {
			r.Close()
		}
	}
	if err := b.Delete(ctx, blob(data)); !errors.Is(err, context.Canceled) {
		t.Errorf("Delete error = %v, want context.Canceled", err)
	}
	wantBytes(t, b, blob(data), data)
}
