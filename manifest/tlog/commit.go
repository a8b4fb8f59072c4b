package tlog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"leafproof/manifest"
)

// Commit judges the proof that a statement was committed: the fact
// [manifest.FactCommit], and what [manifest.Policy.Given] takes as evidence of the
// statement's age.
//
// The leaf is the one of the statement's payload. A proof that fits it not, or a
// signature by a key of the policy that does not verify, is a MISMATCH. That the
// leaf is in the tree of the checkpoint then follows by calculation; that the tree
// is the log's, and when, is attested by the log's key, and by witnesses where the
// policy names them. A time in whole seconds counts as the end of its second: it
// must not make a statement older than it is.
//
// A log whose key was retired or compromised counts only when witnesses saw the
// checkpoint before: its own time is its own word. Without the quorum that a
// policy asks for there is no evidence.
func Commit(p Proof, l Leaf, policy *manifest.Policy) (manifest.Fact, manifest.Evidence) {
	fact := func(s manifest.State, reason string) (manifest.Fact, manifest.Evidence) {
		return manifest.Fact{Name: manifest.FactCommit, State: s, Reason: reason}, manifest.Evidence{}
	}
	c := p.Checkpoint
	if err := p.Check(l); err != nil {
		return fact(manifest.Mismatch, err.Error())
	}
	switch {
	case policy == nil:
		return fact(manifest.Unverifiable, manifest.NoPolicy)
	case policy.AdHoc():
		return fact(manifest.NotClaimed, "ad-hoc key")
	case len(policy.Logs()) == 0:
		return fact(manifest.NotClaimed, "the policy names no log")
	}
	j := &judgement{c: c, policy: policy}
	if err := j.check(); err != nil {
		if errors.Is(err, ErrSignature) {
			return fact(manifest.Mismatch, err.Error())
		}
		return fact(manifest.Unverifiable, err.Error())
	}
	detail := fmt.Sprintf("leaf %d of %d", p.Index, c.Size)
	evidence := manifest.Evidence{}
	if !j.logged.IsZero() {
		detail += ", logged at " + manifest.FormatTime(j.logged)
		evidence.Logged = endOfSecond(j.logged)
	}
	if !j.witnessed.IsZero() {
		detail += ", witnessed at " + manifest.FormatTime(j.witnessed) + " by " + strings.Join(j.by, "+")
		evidence.Witnessed = j.seen()
	}
	return manifest.Fact{Name: manifest.FactCommit, State: manifest.Attested, By: c.Origin, Role: manifest.RoleLog, Detail: detail}, evidence
}

// Admit says whether a checkpoint is one by the reader's policy: signed by a log
// that it names, and cosigned by its quorum. The errors are reasons as in a verdict;
// they wrap [ErrUnknownLog], [ErrUnsigned], [ErrSignature], [ErrQuorum], or one of
// [manifest.Policy.JudgeLog].
func Admit(c Checkpoint, policy *manifest.Policy) error {
	return (&judgement{c: c, policy: policy}).check()
}

// judgement is one checkpoint under one policy.
type judgement struct {
	c                 Checkpoint
	policy            *manifest.Policy
	logged, witnessed time.Time
	by                []string // the witnesses that cosigned it
}

func (j *judgement) check() error {
	if err := j.witnesses(); err != nil {
		return err
	}
	err := fmt.Errorf("%w %s", ErrUnknownLog, quote(j.c.Origin))
	for _, key := range j.policy.Logs() {
		if key.Name != j.c.Origin {
			continue
		}
		at, bad := j.c.SignedBy(key)
		if bad == nil {
			bad = j.policy.JudgeLog(key.Public, j.seen())
		}
		if bad == nil {
			// Whoever holds a key that has ended may sign a checkpoint again that
			// witnesses saw, with any time.
			if j.policy.JudgeLog(key.Public, time.Time{}) == nil {
				j.logged = at
			}
			return nil
		}
		if err = bad; errors.Is(bad, ErrSignature) {
			return bad
		}
	}
	return err
}

// witnesses sets when the quorum had cosigned.
func (j *judgement) witnesses() error {
	seen := map[string]time.Time{}
	for _, w := range j.policy.Witnesses() {
		at, err := j.c.SignedBy(w.Key)
		switch {
		case errors.Is(err, ErrSignature):
			return err
		case err == nil && j.policy.JudgeLog(w.Key.Public, time.Time{}) == nil:
			seen[w.Name] = at
			j.by = append(j.by, w.Name)
		}
	}
	at, met := j.policy.QuorumMet(seen)
	if !met {
		return fmt.Errorf("%w: the policy asks for %s", ErrQuorum, j.policy.Quorum())
	}
	j.witnessed = at
	return nil
}

// seen is by when witnesses had seen the checkpoint; zero: none did.
func (j *judgement) seen() time.Time {
	if j.witnessed.IsZero() {
		return time.Time{}
	}
	return endOfSecond(j.witnessed)
}

func endOfSecond(t time.Time) time.Time { return t.Add(time.Second - time.Nanosecond) }
