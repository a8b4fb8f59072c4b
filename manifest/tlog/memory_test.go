package tlog_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/manifest/tlog"
)

// export is a log as files.
func export(t testing.TB, l *testLog, steps ...int64) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	old := int64(0)
	for _, size := range steps {
		err := tlog.WriteTiles(old, size, l.stored, func(from, to int64) ([][]byte, error) { return l.data()[from:to], nil },
			func(path string, data []byte) error {
				if before, ok := files[path]; ok && string(before) != string(data) {
					return fmt.Errorf("%s is written twice", path)
				}
				files[path] = data
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		old = size
	}
	return files
}

func reader(l *testLog, size int64, files map[string][]byte) *tlog.Tiles {
	return tlog.NewTiles(l.checkpoint(size, noon), func(path string, _ int64) ([]byte, error) {
		if b, ok := files[path]; ok {
			return b, nil
		}
		return nil, errors.New("no file " + path)
	})
}

func TestTiles(t *testing.T) {
	l := newLog(600)
	files := export(t, l, 1, 300, 600)
	for _, path := range []string{"tile/0/000", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/002.p/88", "tile/0/000.p/1", "tile/0/001.p/44"} {
		if files[path] == nil {
			t.Errorf("no %s among %v", path, slices.Sorted(maps.Keys(files)))
		}
	}
	tiles := reader(l, 600, files)
	for _, i := range []int64{0, 1, 255, 256, 511, 599} {
		if leaf, err := tiles.Leaf(i); err != nil || leaf != l.leaves[i] {
			t.Errorf("leaf %d: %v, %v", i, leaf, err)
		}
		if root, err := tiles.Root(i); err != nil || root != l.root(i) {
			t.Errorf("root of %d: %v", i, err)
		}
		path, err := tlog.ProveLeaf(i, 600, tiles.Hashes())
		if err != nil || (tlog.Proof{Index: i, Path: path, Checkpoint: tiles.Head}).Check(l.leaves[i]) != nil {
			t.Errorf("proof of %d: %v", i, err)
		}
	}
	if _, err := tiles.Leaf(600); !errors.Is(err, tlog.ErrInclusion) {
		t.Errorf("leaf 600: %v", err)
	}
	// The full tile serves for a part that is gone.
	older := reader(l, 300, map[string][]byte{"tile/0/000": files["tile/0/000"], "tile/0/001": files["tile/0/001"], "tile/1/000.p/1": files["tile/1/000.p/2"]})
	if root, err := older.Root(299); err != nil || root != l.root(299) {
		t.Errorf("root of 299: %v", err)
	}
	for path := range files {
		bad := maps.Clone(files)
		bad[path] = slices.Clone(files[path])
		bad[path][len(bad[path])/2] ^= 1
		wrong := reader(l, 600, bad)
		for i := range int64(600) {
			if leaf, err := wrong.Leaf(i); err == nil && leaf != l.leaves[i] {
				t.Fatalf("a flipped bit in %s gives another leaf %d", path, i)
			}
			if i%97 == 0 {
				if root, err := wrong.Root(i); err == nil && root != l.root(i) {
					t.Fatalf("a flipped bit in %s gives another root of %d", path, i)
				}
			}
		}
	}
	if _, err := tlog.ParseEntries([]byte{0, 1}, 1); !errors.Is(err, tlog.ErrMalformed) {
		t.Errorf("an entry that is cut: %v", err)
	}
	if _, err := tlog.ParseEntries([]byte{0, 1, 1, 1}, 1); !errors.Is(err, tlog.ErrMalformed) {
		t.Errorf("bytes behind: %v", err)
	}
}

func TestMemory(t *testing.T) {
	l := newLog(20)
	forged := newLog(8)
	for range 12 {
		forged.add(tlog.LeafOf("manifest", []byte("other")))
	}
	proven := func(l *testLog) tlog.Prover {
		return func(older, newer tlog.Checkpoint) ([]tlog.Hash, error) {
			return tlog.ProveTree(older.Size, newer.Size, l.stored)
		}
	}
	full := reader(forged, 20, export(t, forged, 20)).Prove
	other := l.checkpoint(5, noon)
	other.Origin = "leafproof/st_other"
	m := &tlog.Memory{}
	for i, step := range []struct {
		c         tlog.Checkpoint
		head      bool
		prove     tlog.Prover
		err       error
		highest   int64
		conflicts int
	}{
		{l.checkpoint(8, noon), false, nil, nil, 8, 0},
		{l.checkpoint(8, noon.Add(time.Hour)), false, nil, nil, 8, 0},
		{l.checkpoint(12, noon), false, nil, tlog.ErrConsistency, 8, 0},
		{l.checkpoint(12, noon), false, proven(forged), tlog.ErrConsistency, 8, 0},
		{l.checkpoint(12, noon), false, proven(l), nil, 12, 0},
		{l.checkpoint(4, noon), false, proven(l), nil, 12, 0},
		{l.checkpoint(4, noon), false, nil, tlog.ErrConsistency, 12, 0},
		{l.checkpoint(11, noon), true, proven(l), tlog.ErrRollback, 12, 1},
		{l.checkpoint(11, noon.Add(time.Hour)), true, proven(l), tlog.ErrRollback, 12, 1},
		{forged.checkpoint(12, noon), true, proven(forged), tlog.ErrFork, 12, 2},
		{forged.checkpoint(20, noon), true, proven(forged), tlog.ErrConsistency, 12, 2},
		{forged.checkpoint(20, noon), true, full, tlog.ErrFork, 12, 3},
		{other, true, nil, nil, 12, 3},
		{l.checkpoint(20, noon), true, proven(l), nil, 20, 3},
	} {
		see := m.See
		if step.head {
			see = m.SeeHead
		}
		if err := see(step.c, step.prove); !errors.Is(err, step.err) {
			t.Fatalf("step %d: error = %v, want %v", i, err, step.err)
		}
		if c, _ := m.Highest(origin); c.Size != step.highest || len(m.Conflicts()) != step.conflicts {
			t.Fatalf("step %d: highest %d with %d conflicts", i, c.Size, len(m.Conflicts()))
		}
		again, err := tlog.ParseMemory([]byte(m.String()))
		if err != nil || again.String() != m.String() {
			t.Fatalf("step %d: %v\n%s", i, err, m)
		}
		m = again
	}
	for _, c := range m.Conflicts() {
		for _, side := range []tlog.Checkpoint{c.Before, c.After} {
			if _, err := side.SignedBy(logKey("log", origin)); err != nil {
				t.Errorf("a %s that the log did not sign: %v", c.Kind, err)
			}
		}
	}
	good := m.String()
	for name, text := range map[string]string{
		"version 2":       strings.Replace(good, "v1", "v2", 1),
		"cut":             good[:len(good)-1],
		"more":            good + "x",
		"another word":    strings.Replace(good, "rollback", "sidestep", 1),
		"highest of two":  strings.Replace(good, "rollback", "highest", 1),
		"entry twice":     good + strings.TrimPrefix(good, "leafproof checkpoints v1\n"),
		"a length":        strings.Replace(good, "highest ", "highest 0", 1),
		"beyond the end":  "leafproof checkpoints v1\nhighest 1152921504606846976\n",
		"words":           "leafproof checkpoints v1\nhighest\n",
		"fork of another": strings.Replace(good, "leafproof/st_test\n11", "leafproof/st_tesu\n11", 1),
	} {
		if _, err := tlog.ParseMemory([]byte(text)); !errors.Is(err, tlog.ErrMalformed) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if m, err := tlog.ParseMemory(nil); err != nil || len(m.Conflicts()) != 0 {
		t.Errorf("no text: %v", err)
	}
}

// TestMemoryBounded: notes that somebody made long leave a memory that can be read.
func TestMemoryBounded(t *testing.T) {
	l := newLog(100)
	long := func(c tlog.Checkpoint) tlog.Checkpoint {
		return c.With(tlog.Signature{Name: "nobody", ID: 1, Sig: make([]byte, 80<<10)})
	}
	m := &tlog.Memory{}
	if err := m.See(long(l.checkpoint(100, noon)), nil); err != nil {
		t.Fatal(err)
	}
	for size := range int64(99) {
		if err := m.SeeHead(long(l.checkpoint(size, noon)), nil); !errors.Is(err, tlog.ErrRollback) {
			t.Fatalf("%d leaves: error = %v", size, err)
		}
	}
	if again, err := tlog.ParseMemory([]byte(m.String())); err != nil || len(again.Conflicts()) == 0 || again.String() != m.String() {
		t.Errorf("of %d bytes: %v", len(m.String()), err)
	}
}
