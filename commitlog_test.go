package leafproof_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/manifest/tlog"
)

// TestCommitLog: what a store publishes is in its log, a bundle shows where, and the
// log's key vouches for it.
func TestCommitLog(t *testing.T) {
	s, dir := newStore(t)
	one := put(t, s, []byte("one\n"), leafproof.PutOptions{}, leafproof.Facts{})
	two := put(t, s, []byte("two\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if err := s.Delete(t.Context(), leafproof.Owner, two, "why"); err != nil {
		t.Fatal(err)
	}
	head, err := s.LogHead(t.Context())
	if err != nil || head.Size != 4 || head.Origin != "leafproof/"+s.ID() {
		t.Fatalf("the head has %d leaves of %s, %v", head.Size, head.Origin, err)
	}
	leaves, err := s.LogLeaves(t.Context(), 0, 10)
	kinds := []string{}
	for _, l := range leaves {
		kinds = append(kinds, l.Kind)
	}
	if got := strings.Join(kinds, " "); err != nil || got != "policy manifest manifest tombstone" {
		t.Errorf("the log has %s, %v", got, err)
	}
	policy := policyOf(t, dir)
	if err := tlog.Admit(head, policy); err != nil {
		t.Errorf("the policy does not admit the head: %v", err)
	}
	for _, id := range []string{one, two} {
		p, err := s.LogProof(t.Context(), leafproof.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(leaves[p.Index].Leaf); err != nil || tlog.Admit(p.Checkpoint, policy) != nil {
			t.Errorf("the proof of %s: %v", id, err)
		}
	}
	if _, err := s.LogProof(t.Context(), leafproof.Owner, "art_"+strings.Repeat("a", 32)); err == nil {
		t.Error("a proof of what is not there")
	}
	if res := proven(t, s, one, policy); res.State != manifest.Attested || !strings.Contains(res.Detail, "leaf 1 of 2, logged at ") {
		t.Errorf("commit is %s: %s", res, res.Detail)
	}

	files := map[string][]byte{}
	exported, err := s.ExportLog(t.Context(), 0, func(path string, data []byte) error {
		files[path] = bytes.Clone(data)
		return nil
	})
	if err != nil || string(files["checkpoint"]) != exported.String() {
		t.Fatalf("export: %v", err)
	}
	tiles := tlog.NewTiles(exported, func(path string, _ int64) ([]byte, error) {
		if b, ok := files[path]; ok {
			return b, nil
		}
		return nil, errors.New("no " + path)
	})
	for i := range leaves {
		if l, err := tiles.Leaf(int64(i)); err != nil || l != leaves[i].Leaf {
			t.Errorf("exported leaf %d: %v, %v", i, l, err)
		}
	}
	var m tlog.Memory
	old, err := s.LogProof(t.Context(), leafproof.Owner, one)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []tlog.Checkpoint{old.Checkpoint, head} {
		if err := m.See(c, s.LogProver(t.Context())); err != nil {
			t.Errorf("%d leaves: %v", c.Size, err)
		}
	}
}

// proven is the fact commit of a bundle of all bytes of an artifact.
func proven(t *testing.T, s *leafproof.Store, id string, policy *manifest.Policy) manifest.Fact {
	t.Helper()
	var out bytes.Buffer
	if _, err := s.Prove(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out); err != nil {
		t.Fatal(err)
	}
	res, err := bundle.Verify(bytes.NewReader(out.Bytes()), int64(out.Len()), bundle.Options{Policy: policy, At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	f, _ := res.Verdict.Fact(manifest.FactCommit)
	return f
}

func policyOf(t testing.TB, dir string) *manifest.Policy {
	t.Helper()
	text, err := os.ReadFile(leafproof.PolicyPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
