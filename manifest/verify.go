package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NoPolicy is the reason of facts that rest on a signature, for a reader without a policy.
const NoPolicy = "no policy"

// signedFacts rest on a signature by a key that the policy admits.
var signedFacts = []string{FactSignature, FactKey, FactScope, FactCapture, FactSource, FactTimes, FactExpiry, FactSupersession}

// VerifyEnvelope judges a signed manifest as of a time: the DSSE envelope, the
// armored SSH signature that stands beside it ("" for none), and the reader's
// policy (nil for none). It sets no fact about bytes.
//
// The signatures are checked over the payload's bytes before these are parsed.
// The facts returned are signature, key, scope, commit, capture, source, times,
// expiry and supersession. A signature by a key of the policy that does not
// verify, or an SSH signature that is not by the same key over the same payload,
// is a [Mismatch]; without a policy that lets the key speak for that scope, or
// without the issuer's key to check the issuer's signature by, all of them are
// [Unverifiable] with the reason.
//
// The manifest is nil exactly when err is not. The error is about the form: an
// envelope or payload that is malformed. Where the signature is wrong as well,
// the error wraps [ErrSignature] and the facts say so.
func VerifyEnvelope(env Envelope, ssh string, policy *Policy, at time.Time) (*Manifest, []Fact, error) {
	if err := env.Check(); err != nil {
		return nil, nil, err
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		return nil, nil, err
	}
	j := judgement{env: env, payload: payload, policy: policy, at: at}
	badSSH := j.parseSSH(ssh)
	j.checkSignatures()
	if badSSH == nil {
		badSSH = j.checkSSH()
	}
	if badSSH != nil { // the DSSE signature, which is normative, has the first word
		j.mismatch("the SSH signature%v", badSSH)
	}
	m, err := ParseManifest(payload)
	if err != nil {
		if j.bad != "" {
			err = fmt.Errorf("%w, and the payload is damaged: %w", ErrSignature, err)
		}
		return nil, j.all(Mismatch, j.bad), &Error{Op: "verify manifest", Err: err}
	}
	return m, j.facts(m), nil
}

// judgement is one call of VerifyEnvelope.
type judgement struct {
	env     Envelope
	payload []byte
	policy  *Policy
	at      time.Time

	ssh  *SSHSignature
	good map[string]bool // fingerprints of the keys whose signature verified
	bad  string          // why the signature is a MISMATCH; empty: it is not
}

func (j *judgement) mismatch(format string, args ...any) {
	if j.bad == "" {
		j.bad = fmt.Sprintf(format, args...)
	}
}

// checkSignatures checks every signature of the envelope whose key is at hand:
// in the policy or, only to find it wrong, in the SSH signature.
func (j *judgement) checkSignatures() {
	j.good = map[string]bool{}
	message := PAE(PayloadType, j.payload)
	for _, g := range j.env.Signatures {
		var pub PublicKey
		if j.policy != nil {
			k, _ := j.policy.key(g.KeyID)
			pub = k.Public
		}
		if pub.IsZero() && j.ssh != nil && j.ssh.Key().Fingerprint() == g.KeyID {
			pub = j.ssh.Key()
		}
		if pub.IsZero() {
			continue
		}
		sig, err := decodeBase64(g.Sig)
		if err == nil {
			err = pub.Verify(message, sig)
		}
		if err != nil {
			j.mismatch("the signature by %s does not verify", g.KeyID)
			continue
		}
		j.good[g.KeyID] = true
	}
}

func (j *judgement) parseSSH(armored string) error {
	if armored == "" {
		return nil
	}
	s, err := ParseSSH(armored)
	if err != nil {
		return fmt.Errorf(": %w", errors.Unwrap(err))
	}
	if s.Armor() != armored { // other spellings are read elsewhere, not beside an envelope
		return fmt.Errorf(": %w: the armor is not spelled as ssh-keygen writes it", ErrMalformed)
	}
	j.ssh = &s
	return nil
}

// checkSSH checks the SSH signature by the key that it carries: over the same
// payload, and a key that signed the envelope too. Whether anybody trusts that
// key is another question.
func (j *judgement) checkSSH() error {
	if j.ssh == nil {
		return nil
	}
	if err := j.ssh.Verify(j.payload, NamespaceManifest, j.ssh.Key()); err != nil {
		return fmt.Errorf(": %w", err)
	}
	if fp := j.ssh.Key().Fingerprint(); !j.signedBy(fp) {
		return fmt.Errorf(" is by %s, which did not sign the envelope", fp)
	}
	return nil
}

func (j *judgement) signedBy(fingerprint string) bool {
	return slices.ContainsFunc(j.env.Signatures, func(g Signature) bool { return g.KeyID == fingerprint })
}

// all gives every fact that rests on a signature one state and reason.
func (j *judgement) all(state State, reason string) []Fact {
	facts := []Fact{noCommit()}
	if state == Mismatch && reason == "" {
		return nil
	}
	for _, name := range signedFacts {
		f := Fact{Name: name, State: state, Reason: reason}
		if state == Mismatch && name != FactSignature {
			f = Fact{Name: name, State: Unverifiable, Reason: "bad signature"}
		}
		facts = append(facts, f)
	}
	return facts
}

func noCommit() Fact {
	return Fact{Name: FactCommit, State: NotClaimed, Reason: "no proof of it"}
}

func (j *judgement) facts(m *Manifest) []Fact {
	issuer := m.Predicate.Issuer.KeyID
	if !j.signedBy(issuer) {
		j.mismatch("the manifest names the issuer %s, which did not sign it", issuer)
	}
	if j.ssh != nil && j.ssh.Key().Fingerprint() != issuer {
		j.mismatch("the SSH signature is not by the issuer %s", issuer)
	}
	switch {
	case j.bad != "":
		return j.all(Mismatch, j.bad)
	case j.policy == nil:
		return j.all(Unverifiable, NoPolicy)
	case !j.good[issuer]:
		// A keyid is only a claim: anybody whom the policy admits can name another
		// issuer and put 64 bytes of nothing under its fingerprint.
		return j.all(Unverifiable, fmt.Sprintf("%v %s", ErrUnknownKey, issuer))
	}
	keys, err := j.admitted(m)
	if err != nil {
		return j.all(Unverifiable, err.Error())
	}
	return j.attested(m, keys)
}

// admitted returns the keys that signed and may speak for the manifest: at least
// as many as the policy's threshold, each of 32 bytes of its own. The reason it
// gives for too few is that of the issuer where there is one.
func (j *judgement) admitted(m *Manifest) ([]Key, error) {
	ref := &m.Predicate.ArtifactRef
	source := ""
	if ref.SourceVersion.SourceID != nil {
		source = *ref.SourceVersion.SourceID
	}
	keys := map[PublicKey]Key{}
	var reason error
	for _, g := range j.env.Signatures {
		k, err := j.policy.Judge(RoleManifest, ref.Scope.TenantID, source, g.KeyID, j.at)
		switch {
		case err == nil && j.good[g.KeyID]:
			keys[k.Public] = k
		case reason == nil || g.KeyID == m.Predicate.Issuer.KeyID:
			reason = err
		}
	}
	if want := j.policy.Threshold(RoleManifest); len(keys) < want {
		if len(keys) == 0 && reason != nil {
			return nil, reason
		}
		return nil, fmt.Errorf("%w: %d of %d that the policy asks for", ErrThreshold, len(keys), want)
	}
	return slices.SortedFunc(maps.Values(keys), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }), nil
}

// attested writes down what the admitted keys said.
func (j *judgement) attested(m *Manifest, keys []Key) []Fact {
	names := make([]string, len(keys))
	prints := make([]string, len(keys))
	for i, k := range keys {
		names[i], prints[i] = k.Name, k.Public.Fingerprint()
	}
	said := func(name, detail string) Fact {
		return Fact{Name: name, State: Attested, By: strings.Join(names, "+"), Role: RoleManifest, Detail: detail}
	}
	ref := &m.Predicate.ArtifactRef
	signature := "DSSE"
	if j.ssh != nil {
		signature = "DSSE and SSH"
	}
	scope := said(FactScope, "tenant "+ref.Scope.TenantID+optional(", run ", ref.Scope.RunID)+optional(", source ", ref.SourceVersion.SourceID))
	times := said(FactTimes, "created "+ref.CreatedAt+", issued "+m.Predicate.IssuedAt)
	if t, err := ParseTime(m.Predicate.IssuedAt); err != nil || j.at.Before(t) {
		times.Detail += ", after " + FormatTime(j.at) + ", as of which this is judged"
	}
	if j.policy.adHoc {
		scope = Fact{Name: FactScope, State: NotClaimed, Reason: "ad-hoc key"}
		times = Fact{Name: FactTimes, State: NotClaimed, Reason: "ad-hoc key"}
	}
	key := said(FactKey, strings.Join(prints, ", "))
	if err := j.policy.Expired(j.at); err != nil { // there may be a newer one
		key.Detail, key.Lapsed = key.Detail+"; "+err.Error()+": ask for a newer one", true
	}
	facts := []Fact{
		said(FactSignature, signature), key, scope, noCommit(),
		said(FactCapture, captureText(&ref.Completeness)), times,
	}
	source := Fact{Name: FactSource, State: NotClaimed, Reason: "no source is named"}
	if v := ref.SourceVersion; v != (SourceVersion{}) {
		text := optional(", source ", v.SourceID) + optional(", snapshot ", word(v.SnapshotID)) + optional(", observed ", v.ObservedAt)
		source = said(FactSource, strings.TrimPrefix(text, ", "))
	}
	expiry := Fact{Name: FactExpiry, State: NotClaimed, Reason: "it does not expire"}
	if ref.ExpiresAt != nil {
		expiry = said(FactExpiry, "expires at "+*ref.ExpiresAt)
		if t, err := ParseTime(*ref.ExpiresAt); err != nil || !j.at.Before(t) {
			expiry.Detail, expiry.Lapsed = "expired at "+*ref.ExpiresAt, true
		}
	}
	supersession := Fact{Name: FactSupersession, State: NotClaimed, Reason: "no later statement at hand"}
	if s := m.Predicate.Supersedes; len(s) > 0 {
		ids := make([]string, len(s))
		for i := range s {
			ids[i] = s[i].ArtifactID
		}
		supersession = said(FactSupersession, "it supersedes "+strings.Join(ids, ", "))
	}
	return append(facts, source, expiry, supersession)
}

// word is text that a statement may choose freely, as it stands inside a sentence of
// ours: in quotes, unless it is made of what cannot pass for more of the sentence.
func word(s *string) *string {
	if s == nil || *s != "" && !strings.ContainsFunc(*s, func(r rune) bool {
		return r >= 0x80 || !isAlnum(byte(r)) && !strings.ContainsRune("._:-@/+", r)
	}) {
		return s
	}
	return new(strconv.Quote(cut(*s, maxField)))
}

func optional(before string, s *string) string {
	if s == nil {
		return ""
	}
	return before + *s
}

// captureText says what the producer captured, in the order of the document.
func captureText(c *Completeness) string {
	text := c.Status
	if c.Coverage != nil {
		if b, err := Canonical(c.Coverage); err == nil {
			text += ", coverage " + string(b)
		}
	}
	if c.Records != nil {
		text += fmt.Sprintf(", %d records", *c.Records)
	}
	if n := len(c.Omissions); n > 0 {
		text += fmt.Sprintf(", %d omitted", n)
	}
	if n := len(c.Redactions); n > 0 {
		text += fmt.Sprintf(", %d redacted", n)
	}
	return text
}
