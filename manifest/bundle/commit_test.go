package bundle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/manifest/tlog"
	"leafproof/merkle"
)

const logOrigin = "leafproof/st_test"

// committed is a bundle whose manifest is the only leaf of a log, signed at a time
// and cosigned at others (zero: not).
func committed(t *testing.T, src bundle.Source, logged, witnessed time.Time, leaf tlog.Leaf) (*bundle.Bundle, tlog.Proof) {
	t.Helper()
	c, err := tlog.NewCheckpoint(logOrigin, 1, leaf.Hash(), logged, signer("log"))
	if err != nil {
		t.Fatal(err)
	}
	if !witnessed.IsZero() {
		s, err := c.Cosign("w.example", witnessed, signer("witness"))
		if err != nil {
			t.Fatal(err)
		}
		c = c.With(s)
	}
	b, err := bundle.Bytes(src, merkle.Range{Start: 0, End: 10})
	if err != nil {
		t.Fatal(err)
	}
	p := tlog.Proof{Checkpoint: c}
	if err := b.Commit(p); err != nil {
		t.Fatal(err)
	}
	return b, p
}

// TestCommit: what a retired or stolen key signed counts when a log, or a witness,
// shows that it is older, and never more than that.
func TestCommit(t *testing.T) {
	src := source(t, lines(50), "")
	ended := at.Add(-30 * time.Minute)
	before, after := ended.Add(-time.Minute), ended.Add(time.Minute)
	one, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	logPub, err := manifest.PublicKeyOf(signer("log"))
	if err != nil {
		t.Fatal(err)
	}
	witnessPub, err := manifest.PublicKeyOf(signer("witness"))
	if err != nil {
		t.Fatal(err)
	}
	logKey, err := manifest.LogKey(logOrigin, logPub)
	if err != nil {
		t.Fatal(err)
	}
	witnessKey, err := manifest.WitnessKey("w.example", witnessPub)
	if err != nil {
		t.Fatal(err)
	}
	with := func(changes ...manifest.Change) *manifest.Policy {
		p, err := policy(t, "one").With(append([]manifest.Change{
			manifest.AddLog(logKey), manifest.AddWitness(manifest.Witness{Name: "w", Key: witnessKey}),
		}, changes...)...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	active := with()
	retired := with(manifest.Retire(one.Fingerprint(), ended))
	stolen := with(manifest.Compromise(one.Fingerprint(), ended))
	noLog, err := policy(t, "one").With(manifest.Retire(one.Fingerprint(), ended))
	if err != nil {
		t.Fatal(err)
	}
	good := tlog.LeafOf("manifest", src.Manifest.Payload)
	var never time.Time
	for name, test := range map[string]struct {
		logged, witnessed time.Time
		leaf              tlog.Leaf
		policy            *manifest.Policy
		commit, key       string
		exit              int
	}{
		"an active key":                {before, never, good, active, "attested(" + logOrigin + ", log)", "attested(one, manifest)", 0},
		"made before the retirement":   {before, never, good, retired, "attested(" + logOrigin + ", log)", "attested(one, manifest)", 0},
		"made after it, with old date": {after, never, good, retired, "attested(" + logOrigin + ", log)", "unverifiable(the key had ended: logged at", 2},
		"retired in the same second":   {ended, never, good, retired, "attested(" + logOrigin + ", log)", "unverifiable(the key had ended: logged at", 2},
		"retired, no log trusted":      {before, never, good, noLog, "not-claimed(the policy names no log)", "unverifiable(retired key, no time evidence)", 2},
		"stolen, the log's word":       {before, never, good, stolen, "attested(" + logOrigin + ", log)", "unverifiable(compromised key, no time evidence)", 2},
		"stolen, witnessed before":     {before, before, good, stolen, "attested(" + logOrigin + ", log)", "attested(one, manifest)", 0},
		"stolen, witnessed after":      {before, after, good, stolen, "attested(" + logOrigin + ", log)", "unverifiable(the key had ended: witnessed at", 2},
		"another statement":            {before, never, tlog.LeafOf("manifest", []byte("other")), active, "MISMATCH(the leaf is not in the tree", "attested(one, manifest)", 3},
		"another kind":                 {before, never, tlog.LeafOf("tombstone", src.Manifest.Payload), active, "MISMATCH(the leaf is not in the tree", "attested(one, manifest)", 3},
		"another's proof, retired":     {before, never, tlog.LeafOf("manifest", []byte("other")), retired, "MISMATCH(the leaf is not in the tree", "unverifiable(retired key, no time evidence)", 3},
		"no policy":                    {before, never, good, nil, "unverifiable(no policy)", "unverifiable(no policy)", 2},
		"a key of one's own":           {before, never, good, manifest.AdHoc(one), "not-claimed(ad-hoc key)", "attested(", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, proof := committed(t, src, test.logged, test.witnessed, test.leaf)
			res, err := verify(write(t, b, nil), test.policy, nil)
			if err != nil {
				t.Fatal(err)
			}
			for fact, want := range map[string]string{manifest.FactCommit: test.commit, manifest.FactKey: test.key} {
				if f, _ := res.Verdict.Fact(fact); !strings.HasPrefix(f.String(), want) {
					t.Errorf("%s is %s, want %s", fact, f, want)
				}
			}
			if got := res.Verdict.Exit(); got != test.exit {
				t.Errorf("exit %d, want %d", got, test.exit)
			}
			if res.Commit == nil || res.Commit.String() != proof.String() {
				t.Errorf("the result has the proof %v", res.Commit)
			}
		})
	}
	t.Run("malformed", func(t *testing.T) {
		b, _ := committed(t, src, before, never, good)
		file := write(t, b, nil)
		bad := reseal([]byte(strings.Replace(string(file), `index 0\n`, `index 00\n`, 1)))
		if _, err := verify(bad, active, nil); !errors.Is(err, bundle.ErrMalformed) || !strings.HasPrefix(err.Error(), "header/commit: ") {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("without", func(t *testing.T) {
		b, err := bundle.Bytes(src, merkle.Range{Start: 0, End: 10})
		res, err := verify(write(t, b, err), retired, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f, _ := res.Verdict.Fact(manifest.FactCommit); f.State != manifest.NotClaimed || res.Commit != nil {
			t.Errorf("commit is %s", f)
		}
		if f, _ := res.Verdict.Fact(manifest.FactKey); f.String() != "unverifiable(retired key, no time evidence)" {
			t.Errorf("key is %s", f)
		}
	})
}
