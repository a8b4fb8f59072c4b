package leafproof_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"leafproof"
)

// irrelevant says of a byte of a file, whose change no check reports, why it does
// not matter: what the store answers is the same with and without it.
var irrelevant = map[string]string{
	"leafproof.json":    "the names of members may be in another case",
	"trust.policy":      "",
	"policy/1":          "",
	"policy/1.sig":      "",
	"keys/manifest":     "the comment, and copies of the public key that nothing reads",
	"keys/cursor":       "another key is as good: only queries under way end",
	"keys/manifest.pub": "",
	"lock":              "",
	"catalogue.db":      "free space and counters of SQLite, the order of rows, the epoch, a reason for a deletion",
}

// One bit of each byte of the files beside the objects is flipped. Either a check
// finds it or the store does not open, or it makes no difference: the same
// artifacts are listed and read, to the byte. (Of objects no byte is irrelevant:
// see the same test in cas.) Without LEAFPROOF_EXHAUSTIVE, which takes
// many minutes, it is some bytes only.
func TestCheckEveryFile(t *testing.T) {
	base, want := checked(t)
	s := openStore(t, base)
	if err := s.Delete(t.Context(), leafproof.Owner, slices.Sorted(maps.Keys(want))[0], "a reason"); err != nil {
		t.Fatal(err)
	}
	before := answers(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for file, why := range irrelevant {
		text, err := os.ReadFile(filepath.Join(base, file))
		if err != nil {
			t.Fatal(err)
		}
		flips := rand.New(rand.NewPCG(1, 2)).Perm(len(text))
		if os.Getenv("LEAFPROOF_EXHAUSTIVE") == "" {
			most := 30
			if testing.Short() { // under the race detector
				most = 4
			}
			// Most of a small database is free space.
			flips = slices.DeleteFunc(flips, func(at int) bool { return text[at] == 0 })
			flips = flips[:min(len(flips), most)]
		}
		t.Run(file, func(t *testing.T) {
			var silent, total atomic.Int64
			work := make(chan int)
			var workers sync.WaitGroup
			for range 4 {
				dir := copyDir(t, base)
				workers.Go(func() {
					for at := range work {
						total.Add(1)
						if !flipFile(t, dir, file, text, at, before, want) {
							silent.Add(1)
						}
					}
				})
			}
			for _, at := range flips {
				work <- at
			}
			close(work)
			workers.Wait()
			if why == "" && silent.Load() > 0 {
				t.Errorf("%d of %d bytes go unnoticed", silent.Load(), total.Load())
			}
			t.Logf("%d bytes flipped, %d of them make no difference", total.Load(), silent.Load())
		})
	}
}

// flipFile reports whether a flipped bit is noticed. If not, the store must answer
// as before.
func flipFile(t *testing.T, dir, file string, text []byte, at int, before string, want map[string][]byte) bool {
	path := filepath.Join(dir, file)
	changed := bytes.Clone(text)
	changed[at] ^= 1 << (at % 8)
	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(path + suffix)
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Error(err)
		return true
	}
	defer os.WriteFile(path, text, 0o600)
	r, err := leafproof.Check(t.Context(), dir, leafproof.CheckOptions{Deep: true})
	found := err != nil || r.Damaged()
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		return true
	}
	defer s.Close()
	if after := answers(t, s, want); !found && after != before {
		t.Errorf("byte %d of %s was changed, no check found it, and the store answers\n%s, not\n%s", at, file, after, before)
	}
	return found
}

// answers is all that a store lists and gives out. Wrong bytes fail the test.
func answers(t *testing.T, s *leafproof.Store, want map[string][]byte) string {
	var out bytes.Buffer
	for _, tenant := range []string{"local", "other"} {
		list, _, err := s.List(t.Context(), leafproof.Owner, tenant, 0, 100)
		ids := make([]string, 0, len(list))
		for _, e := range list {
			ids = append(ids, fmt.Sprint(e.ArtifactID, e.Size, e.CreatedAt.UnixMicro()))
		}
		slices.Sort(ids)
		fmt.Fprintln(&out, tenant, ids, err)
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		var got bytes.Buffer
		_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &got)
		if !bytes.HasPrefix(want[id], got.Bytes()) || err == nil && got.Len() != len(want[id]) {
			t.Errorf("%s gave wrong bytes", id)
		}
		fmt.Fprintln(&out, id, got.Len(), leafproof.CodeOf(err), err == nil)
	}
	return out.String()
}
