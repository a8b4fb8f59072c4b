package leafproof_test

import (
	"bytes"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"os"
	"slices"
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

// TestLogRestart: a catalogue that is made anew begins another log, whose first
// leaf names the last checkpoint that is known; bundles of the first stay good.
func TestLogRestart(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, []byte("one\n"), leafproof.PutOptions{}, leafproof.Facts{})
	var before bytes.Buffer
	if _, err := s.Prove(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &before); err != nil {
		t.Fatal(err)
	}
	old, err := s.LogHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		damage func(path string) error
		last   string
	}{
		"lost":         {os.Remove, ""},
		"a bad index":  {func(path string) error { breakIndex(t, path); return nil }, old.String()},
		"lost, no key": {os.Remove, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, dir)
			if err := test.damage(dir + "/catalogue.db"); err != nil {
				t.Fatal(err)
			}
			if r, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{}); err != nil || r.Restored == nil {
				t.Fatalf("repair: %+v, %v", r, err)
			}
			if name == "lost, no key" {
				if err := os.Rename(dir+"/keys/policy", dir+"/policy.away"); err != nil {
					t.Fatal(err)
				}
				s := openStore(t, dir)
				put(t, s, []byte("two\n"), leafproof.PutOptions{}, leafproof.Facts{})
				if _, err := s.LogHead(t.Context()); !errors.Is(err, leafproof.ErrNoLog) {
					t.Errorf("a second history is signed: %v", err)
				}
				if err := errors.Join(s.Close(), os.Rename(dir+"/policy.away", dir+"/keys/policy")); err != nil {
					t.Fatal(err)
				}
				// The version that names the new log waits for its signature.
				s = openStore(t, dir)
				if c, err := s.SignPolicy(t.Context(), leafproof.SignOptions{}); err != nil || !c.InForce {
					t.Fatalf("sign: %+v, %v", c, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				s := openStore(t, dir)
				two := put(t, s, []byte("two\n"), leafproof.PutOptions{}, leafproof.Facts{})
				head, err := s.LogHead(t.Context())
				if err != nil || head.Origin != old.Origin+"/2" {
					t.Fatalf("the head is of %s, %v", head.Origin, err)
				}
				leaves, err := s.LogLeaves(t.Context(), 0, 1)
				if err != nil || leaves[0].Leaf != tlog.LeafOf(tlog.KindPrevious, []byte(test.last)) {
					t.Errorf("the first leaf is %+v, %v", leaves, err)
				}
				policy := policyOf(t, dir)
				if len(policy.Logs()) != 2 || tlog.Admit(head, policy) != nil || tlog.Admit(old, policy) != nil {
					t.Errorf("the policy names %d logs", len(policy.Logs()))
				}
				for _, id := range []string{id, two} {
					if f := proven(t, s, id, policy); f.State != manifest.Attested || f.By != head.Origin {
						t.Errorf("commit is %s by %s", f, f.By)
					}
				}
				res, err := bundle.Verify(bytes.NewReader(before.Bytes()), int64(before.Len()), bundle.Options{Policy: policy, At: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				if f, _ := res.Verdict.Fact(manifest.FactCommit); f.State != manifest.Attested || f.By != old.Origin {
					t.Errorf("the bundle of before: commit is %s", f)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if r := mustCheck(t, dir, leafproof.CheckOptions{}); r.Damaged() {
				t.Errorf("check finds %+v", r.Findings)
			}
		})
	}
}

// TestLogWithoutKey: a store whose log key is not at hand publishes; its log goes on
// with the next one.
func TestLogWithoutKey(t *testing.T) {
	s, dir := newStore(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(dir+"/keys/log"), os.Remove(dir+"/keys/log.pub")); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, dir)
	id := put(t, s, []byte("one\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if f := proven(t, s, id, policyOf(t, dir)); f.State != manifest.NotClaimed {
		t.Errorf("commit is %s", f)
	}
	if _, err := s.LogProof(t.Context(), leafproof.Owner, id); !errors.Is(err, leafproof.ErrNoLog) {
		t.Errorf("a proof: %v", err)
	}
	if _, err := s.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{manifest.RoleLog}}); err != nil {
		t.Fatal(err)
	}
	put(t, s, []byte("two\n"), leafproof.PutOptions{}, leafproof.Facts{})
	if f := proven(t, s, id, policyOf(t, dir)); f.State != manifest.Attested {
		t.Errorf("commit is %s", f)
	}
}

// TestCheckLog: what somebody did to the log in the catalogue is found.
func TestCheckLog(t *testing.T) {
	s, dir := newStore(t)
	for _, text := range []string{"one\n", "two\n", "three\n"} {
		put(t, s, []byte(text), leafproof.PutOptions{}, leafproof.Facts{})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{}); r.Damaged() {
		t.Fatalf("check finds %+v", r.Findings)
	}
	for name, test := range map[string]struct{ sql, fault, detail string }{
		"last leaf removed":  {`DELETE FROM log_leaves WHERE idx = 3`, "damaged", "a checkpoint of 4 leaves, and the log has 3"},
		"leaf removed":       {`DELETE FROM log_leaves WHERE idx = 1`, "damaged", "the log has no leaf 1"},
		"leaf altered":       {`UPDATE log_leaves SET digest = CAST(zeroblob(31) || x'01' AS BLOB) WHERE idx = 1`, "damaged", "another hash than its kind and digest"},
		"hash altered":       {`UPDATE log_leaves SET hash = CAST(zeroblob(31) || x'01' AS BLOB) WHERE idx = 1`, "damaged", "has another root than they have"},
		"leaves exchanged":   {`UPDATE log_leaves SET idx = CASE idx WHEN 1 THEN 101 ELSE 1 END WHERE idx IN (1, 2); UPDATE log_leaves SET idx = 2 WHERE idx = 101`, "damaged", "has another root than they have"},
		"row removed":        {`DELETE FROM artifacts WHERE seq = 2`, "lost", "leaf 2 of the log is a manifest that the catalogue has no row of"},
		"checkpoint altered": {`UPDATE log_heads SET note = CAST(replace(CAST(note AS TEXT), '` + "\n3\n" + `', '` + "\n2\n" + `') AS BLOB) WHERE size = 3`, "damaged", "the checkpoint of 3 leaves"},
		"checkpoint moved":   {`UPDATE log_heads SET size = 9 WHERE size = 4`, "damaged", "a checkpoint of 9 leaves, and the log has 4"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, dir)
			db, err := sql.Open("sqlite", dir+"/catalogue.db")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(test.sql); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			r := mustCheck(t, dir, leafproof.CheckOptions{})
			found := slices.ContainsFunc(r.Findings, func(f leafproof.CheckFinding) bool {
				return f.Damage && f.Fault == test.fault && strings.Contains(f.Detail, test.detail)
			})
			if !found {
				t.Errorf("check finds %+v", r.Findings)
			}
		})
	}
}

// TestCosignedAgain: a witness that cosigns an idle log again and again adds one
// signature, of the earliest time, and the note stays one that is read.
func TestCosignedAgain(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("one\n"), leafproof.PutOptions{}, leafproof.Facts{})
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := manifest.PublicKeyOf(key)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := manifest.WitnessKey("w.example", pub)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ChangePolicy(t.Context(), manifest.AddWitness(manifest.Witness{Name: "w", Key: witness})); err != nil {
		t.Fatal(err)
	}
	head, err := s.LogHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	for i := range 2 * tlog.MaxSignatures {
		sig, err := head.Cosign("w.example", now.Add(time.Duration(i)*time.Hour), key)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Cosigned(t.Context(), head.Size, []tlog.Signature{sig}); err != nil || len(c.Signatures) != 3 {
			t.Fatalf("the %dth time: %d signatures, %v", i, len(c.Signatures), err)
		}
	}
	again, err := s.LogHead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := again.SignedBy(witness); err != nil || !at.Equal(now) {
		t.Errorf("cosigned at %v, %v, want %v", at, err, now)
	}
	if _, err := s.LogProof(t.Context(), leafproof.Owner, id); err != nil {
		t.Error(err)
	}
}

// TestQuorumLater: a checkpoint that one witness of two cosigned does not stand in the
// way of a later one that both did.
func TestQuorumLater(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, []byte("one\n"), leafproof.PutOptions{}, leafproof.Facts{})
	var changes []manifest.Change
	keys := map[string]ed25519.PrivateKey{}
	for _, name := range []string{"v", "w"} {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		pub, err := manifest.PublicKeyOf(key)
		if err != nil {
			t.Fatal(err)
		}
		witness, err := manifest.WitnessKey(name+".example", pub)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = key
		changes = append(changes, manifest.AddWitness(manifest.Witness{Name: name, Key: witness}))
	}
	changes = append(changes, manifest.AddGroup(manifest.Group{Name: "both", Least: 2, Members: []string{"v", "w"}}), manifest.DemandQuorum("both"))
	if _, err := s.ChangePolicy(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	policy := policyOf(t, dir)
	cosign := func(names ...string) {
		head, err := s.LogHead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			sig, err := head.Cosign(name+".example", time.Now(), keys[name])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Cosigned(t.Context(), head.Size, []tlog.Signature{sig}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cosign("v")
	if fact := proven(t, s, id, policy); fact.State != manifest.Unverifiable {
		t.Errorf("one of two: commit is %s", fact)
	}
	put(t, s, []byte("two\n"), leafproof.PutOptions{}, leafproof.Facts{})
	cosign("v", "w")
	if fact := proven(t, s, id, policy); fact.State != manifest.Attested || !strings.Contains(fact.Detail, "by v+w") {
		t.Errorf("both: commit is %s: %s", fact, fact.Detail)
	}
}
