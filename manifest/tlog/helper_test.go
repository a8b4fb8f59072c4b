package tlog_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/tlog"

	xtlog "golang.org/x/mod/sumdb/tlog"
)

const origin = "leafproof/st_test"

// noon is when most of these tests happen.
var noon = time.Date(2026, 11, 6, 12, 0, 0, 0, time.UTC)

// vector reads a file of the shared test vectors, or skips.
func vector(t testing.TB, name string) []byte {
	t.Helper()
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "vectors")
	}
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Skipf("test vectors are absent: %v", err)
	}
	return b
}

// testKey makes the same key for the same name.
func testKey(name string) (crypto.Signer, manifest.PublicKey) {
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		panic(err)
	}
	return key, pub
}

func logKey(name, origin string) manifest.VerifierKey {
	_, pub := testKey(name)
	key, err := manifest.LogKey(origin, pub)
	if err != nil {
		panic(err)
	}
	return key
}

func witnessKey(name string) manifest.VerifierKey {
	_, pub := testKey(name)
	key, err := manifest.WitnessKey(name+".example", pub)
	if err != nil {
		panic(err)
	}
	return key
}

// testLog is a log in memory, whose hashes x/mod keeps.
type testLog struct {
	leaves []tlog.Leaf
	stored hashes
}

type hashes []xtlog.Hash

func (h hashes) ReadHashes(indexes []int64) ([]xtlog.Hash, error) {
	list := make([]xtlog.Hash, len(indexes))
	for i, x := range indexes {
		if x >= int64(len(h)) {
			return nil, fmt.Errorf("no hash %d", x)
		}
		list[i] = h[x]
	}
	return list, nil
}

// newLog has n leaves, all different.
func newLog(n int) *testLog {
	l := &testLog{}
	for i := range n {
		l.add(tlog.LeafOf("manifest", fmt.Appendf(nil, "payload %d", i)))
	}
	return l
}

func (l *testLog) add(leaf tlog.Leaf) {
	h, err := xtlog.StoredHashes(int64(len(l.leaves)), leaf.Data(), l.stored)
	if err != nil {
		panic(err)
	}
	l.leaves, l.stored = append(l.leaves, leaf), append(l.stored, h...)
}

func (l *testLog) root(size int64) xtlog.Hash {
	h, err := xtlog.TreeHash(size, l.stored)
	if err != nil {
		panic(err)
	}
	return h
}

func (l *testLog) checkpoint(size int64, at time.Time) tlog.Checkpoint {
	key, _ := testKey("log")
	c, err := tlog.NewCheckpoint(origin, size, l.root(size), at, key)
	if err != nil {
		panic(err)
	}
	return c
}

func (l *testLog) prove(index, size int64) tlog.Proof {
	path, err := tlog.ProveLeaf(index, size, l.stored)
	if err != nil {
		panic(err)
	}
	return tlog.Proof{Index: index, Path: path, Checkpoint: l.checkpoint(size, noon)}
}

// slowRoot is MTH of RFC 6962 section 2.1, word for word.
func slowRoot(data [][]byte) [32]byte {
	switch len(data) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256(append([]byte{0}, data[0]...))
	}
	k := 1
	for 2*k < len(data) {
		k *= 2
	}
	left, right := slowRoot(data[:k]), slowRoot(data[k:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

func (l *testLog) data() [][]byte {
	var list [][]byte
	for _, leaf := range l.leaves {
		list = append(list, leaf.Data())
	}
	return list
}

func policy(t testing.TB, lines ...string) *manifest.Policy {
	t.Helper()
	p, err := manifest.ParsePolicy([]byte("policy p version 1\n" + strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
