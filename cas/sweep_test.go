package cas_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/merkle"
)

func TestSweep(t *testing.T) {
	for where, open := range map[string]func(*testing.T) cas.Backend{
		"memory": func(*testing.T) cas.Backend { return memory.New() },
		"disk":   func(t *testing.T) cas.Backend { return onDiskBackend(t) },
	} {
		for name, test := range map[string]func(*testing.T, *swept){
			"the needed stays, the rest goes":          sweepBasic,
			"what two share stays for the other":       sweepShared,
			"chunks stay with their recipes":           sweepChunked,
			"a pack with holes is written anew":        sweepHoles,
			"many small packs become one":              sweepSmall,
			"what a batch holds stays":                 sweepHeld,
			"a dedup hit of the condemned is no hit":   sweepCondemnedHit,
			"a damaged generation is superseded":       sweepGenerations,
			"unknown needs keep all":                   sweepUnknown,
			"a damaged pack stays":                     sweepDamaged,
			"the only sound copy of two stays":         sweepOnlyCopy,
			"a dead writer's lease ends":               sweepDead,
			"a sweep that was killed is finished":      sweepKilled,
			"a tenant of which nothing is needed goes": sweepOtherTenant,
		} {
			t.Run(where+"/"+name, func(t *testing.T) { test(t, newSwept(t, open(t))) })
		}
	}
}

func sweepBasic(t *testing.T, s *swept) {
	big, small := random(1, 100_000), random(2, 1000)
	s.keep(t, big, small)
	for i := range 3 {
		for _, size := range []int{0, 100, 50_000} {
			if _, err := s.Put(t.Context(), tenant, bytes.NewReader(random(uint64(10+i), size)), cas.Auto); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.names(t)
	r := s.gc(t)
	if got := s.names(t); len(got) != 3 || r.Deleted != int64(len(before)-3) || r.Bytes < 150_000 {
		t.Errorf("of %d objects %q are left; %+v", len(before), got, r)
	}
	for _, data := range [][]byte{big, small} {
		if err := read(t, s.Store, data); err != nil {
			t.Error(err)
		}
	}
	if r := s.gc(t); r.Condemned+r.Deleted+r.Spared != 0 || r.Marked != 2 {
		t.Errorf("the second sweep: %+v", r)
	}
	s.roots.end(0)
	s.roots.end(1)
	s.gc(t)
	if got := s.names(t); len(got) != 0 {
		t.Errorf("at the end there is %q", got)
	}
}

func sweepShared(t *testing.T, s *swept) {
	big, small := random(1, 100_000), random(2, 1000)
	first := s.keep(t, big, small)
	s.keep(t, small, big)
	s.roots.end(first)
	s.roots.end(first + 1)
	if r := s.gc(t); r.Deleted != 0 {
		t.Errorf("%+v", r)
	}
	for _, data := range [][]byte{big, small} {
		if err := read(t, s.Store, data); err != nil {
			t.Error(err)
		}
	}
}

// sweepChunked ends one of two snapshots, and then the other.
func sweepChunked(t *testing.T, s *swept) {
	first := random(1, 900_000)
	second := slices.Concat(first[:400_000], random(2, 100), first[400_000:])
	put := func(data []byte) {
		b := s.Begin(t.Context(), tenant)
		defer b.Discard()
		info, err := b.Put(t.Context(), bytes.NewReader(data), cas.Chunked)
		if err == nil {
			err = b.Commit(t.Context())
		}
		if err == nil {
			err = s.roots.publish(s.book, b.Lease(), info.Root)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(first)
	put(second)
	if r := s.gc(t); r.Deleted != 0 {
		t.Errorf("%+v", r)
	}
	s.roots.end(0)
	s.gc(t)
	for _, store := range []*cas.Store{s.Store, s.another(t)} {
		if err := read(t, store, second); err != nil {
			t.Error(err)
		}
		if err := read(t, store, first); !errors.Is(err, cas.ErrNotFound) {
			t.Errorf("the first one: %v", err)
		}
	}
	put(first)
	s.roots.end(1)
	s.gc(t)
	if err := read(t, s.another(t), first); err != nil {
		t.Error(err)
	}
	s.roots.end(2)
	s.gc(t)
	if got := s.names(t); len(got) != 0 {
		t.Errorf("left is %q", got)
	}
}

func sweepHoles(t *testing.T, s *swept) {
	var blobs [][]byte
	for i := range 100 {
		blobs = append(blobs, random(uint64(i), 1000+i))
	}
	first := s.keep(t, blobs...)
	for i := range 25 {
		s.roots.end(first + i)
	}
	if r := s.gc(t); r.Deleted != 0 {
		t.Errorf("with a quarter of holes: %+v", r)
	}
	for i := range 60 {
		s.roots.end(first + i)
	}
	before := s.names(t)
	r := s.gc(t)
	if got := s.names(t); len(got) != 1 || got[0] == before[0] || r.Rewritten != 1 || r.Bytes <= r.Written {
		t.Errorf("%q became %q: %+v", before, got, r)
	}
	other := s.another(t)
	for i, data := range blobs {
		for _, store := range []*cas.Store{s.Store, other} {
			if err := read(t, store, data); i >= 60 && err != nil || i < 60 && !errors.Is(err, cas.ErrNotFound) {
				t.Fatalf("blob %d: %v", i, err)
			}
		}
	}
}

func sweepSmall(t *testing.T, s *swept) {
	var blobs [][]byte
	for i := range 70 {
		blobs = append(blobs, random(uint64(i), 100))
		s.keep(t, blobs[i])
	}
	s.gc(t)
	if got := s.names(t); len(got) != 1 {
		t.Errorf("there are %d packs", len(got))
	}
	for _, data := range blobs {
		if err := read(t, s.Store, data); err != nil {
			t.Fatal(err)
		}
	}
}

// sweepHeld sweeps while batches hold blobs that are new, that were garbage, and
// that others have published and ended.
func sweepHeld(t *testing.T, s *swept) {
	big, small := random(1, 100_000), random(2, 1000)
	if _, err := s.Put(t.Context(), tenant, bytes.NewReader(big), cas.Auto); err != nil {
		t.Fatal(err)
	}
	ended := s.keep(t, small)
	other := s.another(t)
	b := other.Begin(t.Context(), tenant)
	defer b.Discard()
	fresh := random(3, 200_000)
	var roots []merkle.Root
	for _, data := range [][]byte{big, small, fresh, random(4, 10)} {
		info, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, info.Root)
	}
	s.roots.end(ended)
	for range 3 {
		s.gc(t)
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.gc(t)
	}
	if err := s.roots.publish(s.book, b.Lease(), roots...); err != nil {
		t.Fatal(err)
	}
	b.Discard()
	s.gc(t)
	for _, data := range [][]byte{big, small, fresh, random(4, 10)} {
		if err := read(t, other, data); err != nil {
			t.Error(err)
		}
	}
}

// condemnAll condemns all objects, as a sweep does that has begun and was then
// killed, and lets the others see it.
func condemnAll(t *testing.T, s *swept) []string {
	t.Helper()
	names := s.names(t)
	if err := s.book.Condemn(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	if _, err := s.book.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	return names
}

func sweepCondemnedHit(t *testing.T, s *swept) {
	big, small := random(1, 100_000), random(2, 1000)
	for _, data := range [][]byte{big, small} {
		if _, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	old := condemnAll(t, s)
	other := s.another(t)
	b := other.Begin(t.Context(), tenant)
	defer b.Discard()
	for _, data := range [][]byte{big, small} {
		if _, err := b.Put(t.Context(), bytes.NewReader(data), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := s.names(t)
	if len(now) != 2*len(old) {
		t.Errorf("%q were condemned, and then there are %q", old, now)
	}
	if err := s.roots.publish(s.book, b.Lease(), merkle.Sum(big), merkle.Sum(small)); err != nil {
		t.Fatal(err)
	}
	b.Discard()
	s.gc(t)
	s.gc(t)
	for _, name := range s.names(t) {
		if slices.Contains(old, name) && !strings.Contains(name, "/pack/") {
			t.Errorf("%s is still there", name)
		}
	}
	for _, store := range []*cas.Store{s.Store, other} {
		for _, data := range [][]byte{big, small} {
			if err := read(t, store, data); err != nil {
				t.Error(err)
			}
		}
	}
}

func sweepGenerations(t *testing.T, s *swept) {
	data := random(1, 100_000)
	s.keep(t, data)
	name := cas.Name{Tenant: tenant, Kind: cas.KindBlob, ID: merkle.Sum(data)}
	bad := bytes.Clone(data)
	bad[50_000] ^= 1
	if err := errors.Join(
		s.b.Delete(t.Context(), name),
		s.b.Put(t.Context(), name, bytes.NewReader(bad), int64(len(bad)))); err != nil {
		t.Fatal(err)
	}
	s.keep(t, data)
	if got := s.names(t); len(got) != 3 {
		t.Fatalf("there is %q", got)
	}
	s.gc(t)
	if got := s.names(t); len(got) != 2 || strings.HasSuffix(got[0], "-00000000") {
		t.Errorf("left is %q", got)
	}
	if err := read(t, s.Store, data); err != nil {
		t.Error(err)
	}
	// The other way round, the lower one is the sound one and stays.
	name.Gen = 2
	if err := s.b.Put(t.Context(), name, bytes.NewReader(bad), int64(len(bad))); err != nil {
		t.Fatal(err)
	}
	if r := s.gc(t); r.Deleted != 0 {
		t.Errorf("%+v", r)
	}
}

func sweepUnknown(t *testing.T, s *swept) {
	if _, err := s.Put(t.Context(), tenant, bytes.NewReader(random(1, 100_000)), cas.Auto); err != nil {
		t.Fatal(err)
	}
	s.roots.fail = errors.New("no manifest")
	r, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots})
	if err != nil || len(r.Kept) != 1 || !errors.Is(r.Kept[0], s.roots.fail) || r.Deleted+r.Condemned != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.roots.fail = nil
	s.gc(t)
	if got := s.names(t); len(got) != 0 {
		t.Errorf("there is %q", got)
	}
}

func sweepDamaged(t *testing.T, s *swept) {
	data := random(1, 1000)
	s.keep(t, data)
	name, err := cas.ParseName(s.names(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		s.b.Delete(t.Context(), name),
		s.b.Put(t.Context(), name, bytes.NewReader(random(2, 500)), 500)); err != nil {
		t.Fatal(err)
	}
	r, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots})
	if err != nil || len(r.Kept) == 0 || r.Deleted+r.Condemned != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// sweepOnlyCopy: of two packs with one blob, the one that is to go has the only
// sound copy.
func sweepOnlyCopy(t *testing.T, s *swept) {
	data, other := random(1, 1000), random(2, 4000)
	_, pack := cas.SealPack(data, other)
	id, _ := cas.SealPack(data, other)
	_, rotten := cas.SealPack(data)
	rottenID, _ := cas.SealPack(data)
	at := bytes.Index(rotten, data[:100])
	rotten[at+50] ^= 1
	for id, p := range map[merkle.Root][]byte{id: pack, rottenID: rotten} {
		name := cas.Name{Tenant: tenant, Kind: cas.KindPack, ID: id}
		if err := s.b.Put(t.Context(), name, bytes.NewReader(p), int64(len(p))); err != nil {
			t.Fatal(err)
		}
	}
	s.roots.list = append(s.roots.list, merkle.Sum(data))
	r := s.gc(t)
	if r.Rewritten != 1 {
		t.Errorf("%+v", r)
	}
	if err := read(t, s.another(t), data); err != nil {
		t.Error(err)
	}
}

func sweepDead(t *testing.T, s *swept) {
	other := s.another(t)
	b := other.Begin(t.Context(), tenant)
	defer b.Discard()
	if _, err := b.Put(t.Context(), bytes.NewReader(random(1, 100_000)), cas.Auto); err != nil {
		t.Fatal(err)
	}
	s.book.mu.Lock()
	s.book.dead[b.Lease()] = true
	s.book.mu.Unlock()
	r := s.gc(t)
	if got := s.names(t); len(got) != 0 || r.Ended != 1 || r.Lost != 0 {
		t.Errorf("there is %q: %+v", got, r)
	}
	if err := s.roots.publish(s.book, b.Lease(), merkle.Sum(random(1, 100_000))); !errors.Is(err, cas.ErrLease) {
		t.Errorf("publish: %v", err)
	}
}

// sweepKilled stops a sweep at each claim: nothing is lost, and the next one
// deletes all.
func sweepKilled(t *testing.T, s *swept) {
	data := random(9, 1000)
	s.keep(t, data, random(10, 90_000))
	for i := range 5 {
		if _, err := s.Put(t.Context(), tenant, bytes.NewReader(random(uint64(i), 50_000)), cas.Auto); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		s.book.sweep = cancel
		dying := s.another(t)
		if _, err := dying.Sweep(ctx, cas.SweepOptions{Book: s.book, Roots: s.roots}); !errors.Is(err, context.Canceled) {
			t.Fatalf("error = %v", err)
		}
		s.book.sweep = nil
	}
	s.gc(t)
	if got := s.names(t); len(got) != 3 {
		t.Errorf("left is %q", got)
	}
	if _, names, err := s.book.View(t.Context(), -1); err != nil || len(names) != 0 {
		t.Errorf("condemned are %q, %v", names, err)
	}
	if err := read(t, s.Store, data); err != nil {
		t.Error(err)
	}
}

func sweepOtherTenant(t *testing.T, s *swept) {
	other := cas.TenantOf("another")
	if _, err := s.Put(t.Context(), other, bytes.NewReader(random(1, 100_000)), cas.Auto); err != nil {
		t.Fatal(err)
	}
	if r := s.gc(t); r.Deleted != 2 {
		t.Errorf("%+v", r)
	}
}
