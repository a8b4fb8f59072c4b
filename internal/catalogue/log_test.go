package catalogue_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/merkle"

	"golang.org/x/mod/sumdb/tlog"
)

func leaf(n int) catalogue.Leaf {
	data := fmt.Appendf(nil, "leaf %d", n)
	return catalogue.Leaf{Kind: "manifest", Digest: merkle.Sum(data), Hash: tlog.RecordHash(data)}
}

// leafRow is the n-th row, with its leaf.
func leafRow(n int) catalogue.Artifact {
	a := artifact(n)
	a.Leaf = leaf(n)
	return a
}

// sealed is a sealer that keeps what it was asked to sign.
type sealed struct {
	mu    sync.Mutex
	roots map[int64]tlog.Hash
	err   error
}

func (s *sealed) seal(size int64, root tlog.Hash, at time.Time) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if s.roots == nil {
		s.roots = map[int64]tlog.Hash{}
	}
	s.roots[size] = root
	return fmt.Appendf(nil, "%d %s %d", size, root, at.Unix()), nil
}

// checkLog holds the log to x/mod's own hashing of its leaves: every root that was
// sealed, and a proof of some leaves in the newest tree.
func checkLog(t *testing.T, c catalogue.Catalogue, s *sealed) {
	t.Helper()
	var want []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			out[i] = want[x]
		}
		return out, nil
	})
	n, err := c.LogSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from < n; {
		list, err := c.Leaves(t.Context(), from, 1000)
		if err != nil || len(list) == 0 {
			t.Fatalf("leaves from %d: %v", from, err)
		}
		for _, l := range list {
			if l.Index != from {
				t.Fatalf("leaf %d stands at %d", l.Index, from)
			}
			h, err := tlog.StoredHashesForRecordHash(from, l.Hash, read)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, h...)
			from++
		}
	}
	hashes := c.LogHashes(t.Context())
	if n > 0 {
		all := make([]int64, len(want))
		for i := range all {
			all[i] = int64(i)
		}
		got, err := hashes.ReadHashes(all)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("stored hashes differ: %v", err)
		}
	}
	for size, root := range s.roots {
		if size > n {
			t.Errorf("a head of %d leaves, of %d", size, n)
			continue
		}
		if got, err := tlog.TreeHash(size, read); err != nil || got != root {
			t.Fatalf("the root of %d is %v, and %v was sealed", size, got, root)
		}
	}
	for i := int64(0); i < n; i += 1 + n/7 {
		p, err := tlog.ProveRecord(n, i, hashes)
		if err != nil {
			t.Fatal(err)
		}
		root, err := tlog.TreeHash(n, hashes)
		if err != nil || tlog.CheckRecord(p, n, root, i, want[tlog.StoredHashIndex(0, i)]) != nil {
			t.Fatalf("proof of %d in %d: %v", i, n, err)
		}
	}
}

func logGrows(t *testing.T, c catalogue.Catalogue) {
	s := &sealed{}
	if _, err := c.NewestHead(t.Context()); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("the head of no log: %v", err)
	}
	publish(t, c, leafRow(0)) // nobody seals yet
	if _, err := c.NewestHead(t.Context()); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("a head that nobody sealed: %v", err)
	}
	c.Seal(s.seal)
	publish(t, c, leafRow(1), artifact(2), leafRow(3))
	for n, want := range map[int]int64{0: 0, 1: 1, 3: 2} {
		got, err := c.LeafOf(t.Context(), artifact(n).ArtifactID)
		if err != nil || got.Index != want || got.Digest != leaf(n).Digest || got.Hash != leaf(n).Hash || got.Kind != "manifest" {
			t.Errorf("leaf of %d: %+v, %v", n, got, err)
		}
	}
	if _, err := c.LeafOf(t.Context(), artifact(2).ArtifactID); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("leaf of what was not logged: %v", err)
	}
	publish(t, c, leafRow(3)) // again, which changes nothing
	bad := leafRow(3)
	bad.ManifestID = "mf_other"
	if err := c.Publish(t.Context(), bad); !errors.Is(err, catalogue.ErrExists) {
		t.Errorf("published twice: %v", err)
	}
	if n, err := c.LogSize(t.Context()); err != nil || n != 3 {
		t.Errorf("%d leaves, %v", n, err)
	}
	if h, err := c.HeadOf(t.Context(), 0, false); err != nil || h.Size != 2 || h.Witnessed {
		t.Errorf("the first head with leaf 0: %+v, %v", h, err)
	}
	if h, err := c.NewestHead(t.Context()); err != nil || h.Size != 3 || string(h.Note) == "" || time.Since(h.At) > time.Minute {
		t.Errorf("the newest head: %+v, %v", h, err)
	}
	if _, err := c.HeadOf(t.Context(), 3, false); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("a head with a leaf that is not there: %v", err)
	}
	if row, err := c.Artifact(t.Context(), artifact(3).ArtifactID); err != nil || row.Leaf != (catalogue.Leaf{}) {
		t.Errorf("the leaf comes back: %+v, %v", row, err)
	}
	checkLog(t, c, s)
}

func logSkips(t *testing.T, c catalogue.Catalogue) {
	s := &sealed{err: errors.New("the agent is away")}
	c.Seal(s.seal)
	publish(t, c, leafRow(1))
	s.err = nil
	publish(t, c, leafRow(2))
	if h, err := c.HeadOf(t.Context(), 0, false); err != nil || h.Size != 2 {
		t.Errorf("the head after one that failed: %+v, %v", h, err)
	}
	checkLog(t, c, s)
}

func logStatements(t *testing.T, c catalogue.Catalogue) {
	s := &sealed{}
	c.Seal(s.seal)
	publish(t, c, leafRow(1))
	st := said(1, artifact(1))
	st.Leaf = leaf(7)
	for range 2 {
		if err := c.State(t.Context(), "", st); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.LeafOf(t.Context(), st.StatementID); err != nil || got.Index != 1 || got.Digest != leaf(7).Digest {
		t.Errorf("the statement's leaf: %+v, %v", got, err)
	}
	lost := said(2, artifact(2))
	lost.Leaf = leaf(8)
	if err := c.State(t.Context(), "", lost); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("about nothing: %v", err)
	}
	tomb := said(3, artifact(1))
	tomb.Leaf = leaf(9)
	if err := c.DeleteBy(t.Context(), "", "why", time.Now(), tomb, merkle.Root{}, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Append(t.Context(), catalogue.Leaf{Kind: "policy", Digest: leaf(10).Digest, Hash: leaf(10).Hash}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Append(t.Context(), catalogue.Leaf{Kind: "policy"}); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("half a leaf: %v", err)
	}
	list, err := c.Leaves(t.Context(), 2, 10)
	if err != nil || len(list) != 2 || list[0].Digest != leaf(9).Digest || list[1].Kind != "policy" {
		t.Errorf("leaves from 2: %+v, %v", list, err)
	}
	checkLog(t, c, s)
}

func logBackfills(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1), leafRow(2), artifact(3))
	list, err := c.Unlogged(t.Context(), 0, 10)
	if err != nil || len(list) != 2 || list[0].ArtifactID != artifact(1).ArtifactID {
		t.Fatalf("unlogged: %v, %v", list, err)
	}
	for range 2 {
		if err := c.Backfill(t.Context(), artifact(1).ArtifactID, leaf(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Backfill(t.Context(), "art_unknown", leaf(4)); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("backfill of nothing: %v", err)
	}
	if l, err := c.LeafOf(t.Context(), artifact(1).ArtifactID); err != nil || l.Index != 1 {
		t.Errorf("leaf of 1: %+v, %v", l, err)
	}
	if list, err := c.Unlogged(t.Context(), list[0].Seq, 10); err != nil || len(list) != 1 {
		t.Errorf("unlogged after the first: %v, %v", list, err)
	}
}

func logWitnessed(t *testing.T, c catalogue.Catalogue) {
	s := &sealed{}
	c.Seal(s.seal)
	publish(t, c, leafRow(1), leafRow(2), leafRow(3))
	if err := c.Witnessed(t.Context(), 2, []byte("cosigned")); err != nil {
		t.Fatal(err)
	}
	if h, err := c.HeadOf(t.Context(), 0, true); err != nil || h.Size != 2 || !h.Witnessed || string(h.Note) != "cosigned" {
		t.Errorf("the first witnessed head: %+v, %v", h, err)
	}
	if h, err := c.HeadOf(t.Context(), 0, false); err != nil || h.Size != 1 || h.Witnessed {
		t.Errorf("the first head: %+v, %v", h, err)
	}
	if _, err := c.HeadOf(t.Context(), 2, true); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("a witnessed head of the last leaf: %v", err)
	}
	if err := c.Witnessed(t.Context(), 9, []byte("cosigned")); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("a head that is not there: %v", err)
	}
}

// TestLogEdges holds the tree to x/mod over many leaves in commits of many sizes,
// of two handles on one file and after it was opened again.
func TestLogEdges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &sealed{}
	n := 0
	grow := func(c *catalogue.SQLite, by int) {
		c.Seal(s.seal)
		list := make([]catalogue.Leaf, by)
		for i := range list {
			list[i] = leaf(n)
			n++
		}
		if err := c.Append(t.Context(), list...); err != nil {
			t.Fatal(err)
		}
	}
	other, err := catalogue.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{1, 1, 253, 1, 1, 255, 300, 2} {
		grow(c, by)
		grow(other, 1)
	}
	checkLog(t, c, s)
	if err := errors.Join(c.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if c, err = catalogue.OpenSQLite(path); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	grow(c, 700)
	checkLog(t, c, s)
}

// TestLogMany: a third level of tiles, in the memory engine, which is fast.
func TestLogMany(t *testing.T) {
	if testing.Short() {
		t.Skip("70,000 leaves")
	}
	c := catalogue.NewMemory()
	s := &sealed{}
	c.Seal(s.seal)
	for n := range 66_000 {
		a := leafRow(n)
		if err := c.Publish(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if n%977 != 0 {
			delete(s.roots, int64(n+1))
		}
	}
	checkLog(t, c, s)
}

// logOnce: what several enter at once has one leaf, also where one commit has them
// all, and takes nobody else's publication with it.
func logOnce(t *testing.T, c catalogue.Catalogue) {
	s := &sealed{}
	c.Seal(s.seal)
	publish(t, c, artifact(1)) // without a leaf
	if err := c.Append(t.Context(), leaf(100), leaf(100)); err != nil {
		t.Errorf("one leaf twice: %v", err)
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			if err := c.Backfill(t.Context(), artifact(1).ArtifactID, leaf(1)); err != nil {
				t.Errorf("backfill: %v", err)
			}
			if err := c.Append(t.Context(), leaf(101)); err != nil {
				t.Errorf("append: %v", err)
			}
			if err := c.Publish(t.Context(), leafRow(200+i)); err != nil {
				t.Errorf("publish: %v", err)
			}
		})
	}
	all.Wait()
	if n, err := c.LogSize(t.Context()); err != nil || n != 35 {
		t.Errorf("%d leaves, %v, want 35", n, err)
	}
	checkLog(t, c, s)
}
