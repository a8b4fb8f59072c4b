package fuzz_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/tlog"

	"golang.org/x/mod/sumdb/note"
	xtlog "golang.org/x/mod/sumdb/tlog"
)

const logOrigin = "leafproof/st_fuzz"

// logKeys are the log's key and a witness's.
func logKeys(tb testing.TB) (log, witness ed25519.PrivateKey, keys []manifest.VerifierKey) {
	tb.Helper()
	a, b := sha256.Sum256([]byte("log")), sha256.Sum256([]byte("witness"))
	log, witness = ed25519.NewKeyFromSeed(a[:]), ed25519.NewKeyFromSeed(b[:])
	logPub, err := manifest.PublicKeyOf(log)
	if err != nil {
		tb.Fatal(err)
	}
	witnessPub, err := manifest.PublicKeyOf(witness)
	if err != nil {
		tb.Fatal(err)
	}
	logKey, err := manifest.LogKey(logOrigin, logPub)
	if err != nil {
		tb.Fatal(err)
	}
	witnessKey, err := manifest.WitnessKey("w.example", witnessPub)
	if err != nil {
		tb.Fatal(err)
	}
	return log, witness, []manifest.VerifierKey{logKey, witnessKey}
}

// logged is a log of some leaves.
func logged(tb testing.TB, n int64) (leaves []tlog.Leaf, stored xtlog.HashReaderFunc, at func(size int64) tlog.Checkpoint) {
	tb.Helper()
	log, witness, _ := logKeys(tb)
	var list []xtlog.Hash
	stored = func(indexes []int64) ([]xtlog.Hash, error) {
		out := make([]xtlog.Hash, len(indexes))
		for i, x := range indexes {
			if x < 0 || x >= int64(len(list)) {
				return nil, errors.New("no such hash")
			}
			out[i] = list[x]
		}
		return out, nil
	}
	for i := range n {
		leaves = append(leaves, tlog.LeafOf("manifest", []byte{byte(i)}))
		h, err := xtlog.StoredHashes(i, leaves[i].Data(), stored)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, h...)
	}
	at = func(size int64) tlog.Checkpoint {
		root, err := xtlog.TreeHash(size, stored)
		if err != nil {
			tb.Fatal(err)
		}
		now := time.Unix(1_800_000_000, 0)
		c, err := tlog.NewCheckpoint(logOrigin, size, root, now, log)
		if err != nil {
			tb.Fatal(err)
		}
		s, err := c.Cosign("w.example", now, witness)
		if err != nil {
			tb.Fatal(err)
		}
		return c.With(s)
	}
	return leaves, stored, at
}

// FuzzNote: a checkpoint has one spelling, and whose it is is what x/mod's note
// says, for what both read.
func FuzzNote(f *testing.F) {
	_, _, keys := logKeys(f)
	_, _, at := logged(f, 5)
	f.Add([]byte(at(0).String()))
	f.Add([]byte(at(5).String()))
	verifier, err := note.NewVerifier(keys[0].String())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := tlog.ParseCheckpoint(text)
		if err != nil {
			if !errors.Is(err, tlog.ErrMalformed) && !errors.Is(err, tlog.ErrTooLarge) {
				t.Errorf("an error without a reason: %v", err)
			}
			return
		}
		if c.String() != string(text) {
			t.Fatalf("a second spelling:\n%s", c)
		}
		_, err = c.SignedBy(keys[0])
		_, theirs := note.Open(text, note.VerifierList(verifier))
		if err == nil && theirs != nil {
			t.Errorf("note.Open refuses what is taken here: %v", theirs)
		}
		_, _ = c.SignedBy(keys[1])
	})
}

// FuzzTlogProof: a proof has one spelling, and what it proves is in the tree.
func FuzzTlogProof(f *testing.F) {
	leaves, stored, at := logged(f, 12)
	_, _, keys := logKeys(f)
	for _, p := range [][2]int64{{0, 1}, {6, 11}, {11, 12}} {
		path, err := tlog.ProveLeaf(p[0], p[1], stored)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(tlog.Proof{Index: p[0], Path: path, Checkpoint: at(p[1])}.String()))
		f.Add([]byte(tlog.Request{Old: p[0], Proof: path, Checkpoint: at(p[1])}.String()))
	}
	policy, err := manifest.ParsePolicy([]byte("policy p version 1\nlog " + keys[0].String() + "\nwitness w " + keys[1].String() + "\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := tlog.ParseRequest(text); err == nil && r.String() != string(text) {
			t.Fatalf("a second spelling:\n%s", r)
		}
		p, err := tlog.ParseProof(text)
		if err != nil {
			return
		}
		if p.String() != string(text) {
			t.Fatalf("a second spelling:\n%s", p)
		}
		for i, leaf := range leaves {
			fact, _ := tlog.Commit(p, leaf, policy)
			if fact.State == manifest.Attested && p.Index != int64(i) {
				t.Errorf("leaf %d is attested at %d", i, p.Index)
			}
		}
	})
}

// FuzzTiles: whatever the files of an exported log hold, no leaf and no root comes
// out of them that its checkpoint does not cover.
func FuzzTiles(f *testing.F) {
	leaves, stored, at := logged(f, 5)
	files := map[string][]byte{}
	data := func(from, to int64) (list [][]byte, err error) {
		for _, l := range leaves[from:to] {
			list = append(list, l.Data())
		}
		return list, nil
	}
	put := func(path string, b []byte) error { files[path] = b; return nil }
	if err := tlog.WriteTiles(0, 5, stored, data, put); err != nil {
		f.Fatal(err)
	}
	f.Add(files["tile/0/000.p/5"], files["tile/entries/000.p/5"])
	head := at(5)
	f.Fuzz(func(t *testing.T, tile, entries []byte) {
		tiles := tlog.NewTiles(head, func(path string, _ int64) ([]byte, error) {
			if path == "tile/0/000.p/5" {
				return tile, nil
			}
			return entries, nil
		})
		for i, want := range leaves {
			if got, err := tiles.Leaf(int64(i)); err == nil && got != want {
				t.Errorf("leaf %d is %v", i, got)
			}
		}
		if root, err := tiles.Root(3); err == nil && root != at(3).Root {
			t.Errorf("another root of 3 leaves")
		}
	})
}

// FuzzRemembered: the file of a reader's checkpoints has one spelling.
func FuzzRemembered(f *testing.F) {
	_, stored, at := logged(f, 5)
	m := &tlog.Memory{}
	prove := func(a, b tlog.Checkpoint) ([]tlog.Hash, error) { return tlog.ProveTree(a.Size, b.Size, stored) }
	for _, size := range []int64{5, 3} {
		_ = m.SeeHead(at(size), prove)
	}
	f.Add([]byte(m.String()))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := tlog.ParseMemory(text); err == nil && len(text) > 0 && m.String() != string(text) {
			t.Fatalf("a second spelling:\n%s", m)
		}
	})
}
