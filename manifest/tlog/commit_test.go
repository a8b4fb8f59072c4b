package tlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/tlog"
)

func TestCommit(t *testing.T) {
	l := newLog(11)
	proof, leaf := l.prove(6, 11), l.leaves[6]
	_, logPub := testKey("log")
	_, w1 := testKey("w1")
	cosigned := func(p tlog.Proof, at time.Time, names ...string) tlog.Proof {
		for _, name := range names {
			w, _ := testKey(name)
			s, err := p.Checkpoint.Cosign(name+".example", at, w)
			if err != nil {
				t.Fatal(err)
			}
			p.Checkpoint = p.Checkpoint.With(s)
			at = at.Add(time.Minute)
		}
		return p
	}
	untimed := proof
	untimed.Checkpoint.Signatures = proof.Checkpoint.Signatures[:1]
	badSig := proof
	badSig.Checkpoint.Root, badSig.Checkpoint = proof.Checkpoint.Root, cosigned(proof, noon, "w1").Checkpoint
	badSig.Checkpoint.Signatures[2].Sig = append([]byte(nil), badSig.Checkpoint.Signatures[2].Sig...)
	badSig.Checkpoint.Signatures[2].Sig[9] ^= 1
	timeOnly := proof
	timeOnly.Checkpoint.Signatures = proof.Checkpoint.Signatures[1:]

	// The thief of the log's key signs what a witness saw again, with an earlier time.
	antedated := cosigned(proof, noon, "w1")
	stolen, _ := testKey("log")
	early, err := proof.Checkpoint.Cosign(origin, noon.Add(-24*time.Hour), stolen)
	if err != nil {
		t.Fatal(err)
	}
	antedated.Checkpoint = antedated.Checkpoint.With(early)

	// The path alone does not tell a tree of 11 from one of 12; the signature does.
	resized, moved := proof, proof
	resized.Checkpoint.Size = 12
	moved.Checkpoint.Origin = "leafproof/st_other"

	log := "log " + logKey("log", origin).String()
	witnesses := func(n int) (lines []string) {
		for i := 1; i <= n; i++ {
			lines = append(lines, fmt.Sprintf("witness w%d %s", i, witnessKey(fmt.Sprintf("w%d", i))))
		}
		return lines
	}
	all := append([]string{log}, witnesses(3)...)
	two := append(all, "group g 2 w1 w2 w3", "quorum g")
	end := func(word string, pub manifest.PublicKey, option string, at time.Time) string {
		return word + " " + pub.Fingerprint() + " " + option + "=" + manifest.FormatTime(at)
	}
	const second = time.Second - time.Nanosecond
	for name, test := range map[string]struct {
		proof             tlog.Proof
		policy            *manifest.Policy
		state             manifest.State
		says              string
		logged, witnessed time.Time
	}{
		"signed and timed":            {proof, policy(t, log), manifest.Attested, "leaf 6 of 11, logged at 2026-11-06T12:00:00Z", noon.Add(second), time.Time{}},
		"no time":                     {untimed, policy(t, log), manifest.Attested, "leaf 6 of 11", time.Time{}, time.Time{}},
		"a time and no log":           {timeOnly, policy(t, log), manifest.Unverifiable, "no signature by its key", time.Time{}, time.Time{}},
		"no policy":                   {proof, nil, manifest.Unverifiable, "no policy", time.Time{}, time.Time{}},
		"ad-hoc key":                  {proof, manifest.AdHoc(logPub), manifest.NotClaimed, "ad-hoc key", time.Time{}, time.Time{}},
		"no log":                      {proof, policy(t, witnesses(1)...), manifest.NotClaimed, "names no log", time.Time{}, time.Time{}},
		"unknown log":                 {proof, policy(t, "log "+logKey("log", "leafproof/x").String()), manifest.Unverifiable, "unknown log", time.Time{}, time.Time{}},
		"other key":                   {proof, policy(t, "log "+logKey("thief", origin).String()), manifest.Unverifiable, "no signature by its key", time.Time{}, time.Time{}},
		"two keys":                    {proof, policy(t, "log "+logKey("new", origin).String(), log), manifest.Attested, "logged at", noon.Add(second), time.Time{}},
		"unknown witness":             {cosigned(proof, noon, "w9"), policy(t, all...), manifest.Attested, "leaf 6 of 11, logged at 2026-11-06T12:00:00Z", noon.Add(second), time.Time{}},
		"witnessed":                   {cosigned(proof, noon, "w1"), policy(t, all...), manifest.Attested, "witnessed at 2026-11-06T12:00:00Z by w1", noon.Add(second), noon.Add(second)},
		"another size":                {resized, policy(t, log), manifest.Mismatch, "signature does not verify", time.Time{}, time.Time{}},
		"another origin":              {moved, policy(t, log), manifest.Unverifiable, "unknown log", time.Time{}, time.Time{}},
		"two logs, one's text":        {moved, policy(t, log, "log "+logKey("other", "leafproof/st_other").String()), manifest.Unverifiable, "no signature by its key", time.Time{}, time.Time{}},
		"bad cosignature":             {badSig, policy(t, all...), manifest.Mismatch, "the cosignature by w1.example", time.Time{}, time.Time{}},
		"bad and unknown":             {badSig, policy(t, log), manifest.Attested, "logged at", noon.Add(second), time.Time{}},
		"quorum not met":              {cosigned(proof, noon, "w1", "w9"), policy(t, two...), manifest.Unverifiable, "too few witnesses: the policy asks for g", time.Time{}, time.Time{}},
		"quorum":                      {cosigned(proof, noon, "w1", "w3"), policy(t, two...), manifest.Attested, "witnessed at 2026-11-06T12:01:00Z by w1+w3", noon.Add(second), noon.Add(time.Minute + second)},
		"one witness twice":           {cosigned(proof, noon, "w1", "w1"), policy(t, two...), manifest.Unverifiable, "too few witnesses", time.Time{}, time.Time{}},
		"stolen witness":              {cosigned(proof, noon, "w1", "w3"), policy(t, append(two, end("compromised", w1, "since", noon.Add(time.Hour)))...), manifest.Unverifiable, "too few witnesses", time.Time{}, time.Time{}},
		"retired log":                 {proof, policy(t, log, end("retired", logPub, "at", noon.Add(time.Hour))), manifest.Unverifiable, "retired key, no time evidence", time.Time{}, time.Time{}},
		"retired log, seen":           {cosigned(proof, noon, "w1"), policy(t, append(all, end("retired", logPub, "at", noon.Add(time.Hour)))...), manifest.Attested, "leaf 6 of 11, witnessed at", time.Time{}, noon.Add(second)},
		"retired log, in that second": {cosigned(proof, noon, "w1"), policy(t, append(all, end("retired", logPub, "at", noon.Add(time.Second/2)))...), manifest.Unverifiable, "the key had ended", time.Time{}, time.Time{}},
		"stolen log, signed again":    {antedated, policy(t, append(all, end("compromised", logPub, "since", noon.Add(time.Hour)))...), manifest.Attested, "leaf 6 of 11, witnessed at", time.Time{}, noon.Add(second)},
		"retired log, too late":       {cosigned(proof, noon.Add(2*time.Hour), "w1"), policy(t, append(all, end("retired", logPub, "at", noon.Add(time.Hour)))...), manifest.Unverifiable, "the key had ended", time.Time{}, time.Time{}},
		"stolen log":                  {proof, policy(t, log, end("compromised", logPub, "since", noon.Add(time.Hour))), manifest.Unverifiable, "compromised key, no time evidence", time.Time{}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			fact, evidence := tlog.Commit(test.proof, leaf, test.policy)
			if fact.Name != manifest.FactCommit || fact.State != test.state || !strings.Contains(fact.Reason+fact.Detail, test.says) {
				t.Errorf("fact %+v, want %v with %q", fact, test.state, test.says)
			}
			if !evidence.Logged.Equal(test.logged) || !evidence.Witnessed.Equal(test.witnessed) {
				t.Errorf("evidence %v, want %v and %v", evidence, test.logged, test.witnessed)
			}
			if f, e := tlog.Commit(test.proof, l.leaves[5], test.policy); f.State != manifest.Mismatch || e != (manifest.Evidence{}) {
				t.Errorf("another leaf: %+v, %v", f, e)
			}
		})
	}
}

func TestWitness(t *testing.T) {
	l := newLog(11)
	key, _ := testKey("w1")
	w := &tlog.Witness{Name: "w1.example", Key: key, Logs: []manifest.VerifierKey{logKey("log", origin)}, Memory: &tlog.Memory{}}
	ask := func(l *testLog, old, size int64) tlog.Request {
		path, err := tlog.ProveTree(old, size, l.stored)
		if err != nil {
			t.Fatal(err)
		}
		r := tlog.Request{Old: old, Proof: path, Checkpoint: l.checkpoint(size, noon)}
		again, err := tlog.ParseRequest([]byte(r.String()))
		if err != nil || again.String() != r.String() {
			t.Fatalf("%v\n%s", err, r)
		}
		return again
	}
	forged := newLog(0)
	for range 9 {
		forged.add(tlog.LeafOf("manifest", []byte("other")))
	}
	thief := ask(l, 0, 5)
	stolen, _ := testKey("thief")
	thief.Checkpoint, _ = tlog.NewCheckpoint(origin, 5, l.root(5), noon, stolen)
	elsewhere := thief
	elsewhere.Checkpoint, _ = tlog.NewCheckpoint("leafproof/x", 5, l.root(5), noon, stolen)
	for i, step := range []struct {
		r   tlog.Request
		err error
	}{
		{elsewhere, tlog.ErrUnknownLog},
		{thief, tlog.ErrUnsigned},
		{ask(l, 3, 5), tlog.ErrStale},
		{ask(l, 0, 5), nil},
		{ask(l, 0, 5), tlog.ErrStale},
		{ask(l, 5, 5), nil},
		{tlog.Request{Old: 5, Checkpoint: forged.checkpoint(5, noon)}, tlog.ErrFork},
		{tlog.Request{Old: 5, Proof: ask(forged, 5, 9).Proof, Checkpoint: forged.checkpoint(9, noon)}, tlog.ErrConsistency},
		{tlog.Request{Old: 5, Checkpoint: l.checkpoint(3, noon)}, tlog.ErrMalformed},
		{ask(l, 5, 11), nil},
	} {
		s, err := w.Cosign(step.r, noon)
		if !errors.Is(err, step.err) {
			t.Fatalf("step %d: error = %v, want %v", i, err, step.err)
		}
		if err != nil {
			continue
		}
		sigs, err := tlog.ParseCosignatures([]byte(s.String()))
		if err != nil {
			t.Fatal(err)
		}
		if at, err := step.r.Checkpoint.With(sigs...).SignedBy(witnessKey("w1")); err != nil || !at.Equal(noon) {
			t.Errorf("step %d: signed at %v, %v", i, at, err)
		}
	}
	if c, ok := w.Memory.Highest(origin); !ok || c.Size != 11 || len(w.Memory.Conflicts()) != 1 {
		t.Errorf("remembered %d leaves and %d conflicts", c.Size, len(w.Memory.Conflicts()))
	}
	for name, text := range map[string]string{"empty": "", "no old": "\n\n", "no end": "— w AAAAAAA=", "words": "hello\n"} {
		if _, err := tlog.ParseCosignatures([]byte(text)); !errors.Is(err, tlog.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tlog.ParseRequest([]byte(text)); !errors.Is(err, tlog.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
