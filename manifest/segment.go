package manifest

import (
	"fmt"
	"strconv"
	"time"
)

// PredicateSegment is the predicateType of what closes a segment of a store's audit
// log. It is about no artifact, and so none of [Kinds].
const PredicateSegment = "urn:x-leafproof:audit-segment/v1"

// Segment says which records a segment of a store's audit log has. It is signed in
// the role audit, by a key for all tenants.
type Segment struct {
	StoreID  string  `json:"store_id"`
	Number   int64   `json:"number"` // from 1, without gaps
	First    int64   `json:"first"`  // the numbers of its first and last record
	Last     int64   `json:"last"`
	Records  int64   `json:"records"`
	Digest   string  `json:"digest"`   // of the records and of the segment before, 64 hex digits
	Previous *string `json:"previous"` // the digest of the segment before; null for the first
	ClosedAt string  `json:"closed_at"`
	Issuer   Issuer  `json:"issuer"`
	Nonce    string  `json:"nonce"`
}

// segmentStatement is the statement around it.
type segmentStatement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     *Segment  `json:"predicate"`
}

func (s *Segment) subject() Subject {
	return Subject{Name: s.StoreID + "/audit/" + strconv.FormatInt(s.Number, 10), Digest: map[string]string{"blake3": s.Digest}}
}

func (s *Segment) check(c *checker) {
	c.name(s.StoreID, "/store_id")
	c.must(s.Number >= 1, "/number", "%d", s.Number)
	c.must(s.First >= 1 && s.Last >= s.First, "/last", "from %d to %d", s.First, s.Last)
	c.must(s.Records >= 1 && s.Records <= s.Last-s.First+1, "/records", "%d from %d to %d", s.Records, s.First, s.Last)
	c.digest(&s.Digest, "/digest")
	c.must((s.Previous != nil) == (s.Number > 1), "/previous", "all but the first have one before")
	if s.Previous != nil {
		c.digest(s.Previous, "/previous")
	}
	c.time(s.ClosedAt, "/closed_at")
	c.text(s.Issuer.ID, "/issuer/id")
	c.must(isFingerprint(s.Issuer.KeyID), "/issuer/key_id", "%s is not a SHA256: fingerprint", quote(s.Issuer.KeyID))
	c.must(isHex(s.Nonce, 32), "/nonce", "not 32 lower-case hex digits")
}

// EncodeSegment checks a segment and returns the payload to sign.
func EncodeSegment(s *Segment) ([]byte, error) {
	c := checker{op: "make a segment"}
	if s.check(&c); c.err != nil {
		return nil, c.err
	}
	return Canonical(segmentStatement{StatementType, []Subject{s.subject()}, PredicateSegment, s})
}

// ParseSegment reads what [EncodeSegment] makes, and nothing else.
func ParseSegment(payload []byte) (*Segment, error) {
	const op = "parse segment"
	if err := checkCanonical(payload, MaxPayload, MaxDepth); err != nil {
		return nil, err
	}
	var st segmentStatement
	if err := DecodeLimit(payload, &st, MaxPayload, MaxDepth); err != nil {
		return nil, err
	}
	c := checker{op: op}
	switch {
	case st.Type != StatementType:
		c.fail("/_type", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(st.Type), StatementType))
	case st.PredicateType != PredicateSegment:
		c.fail("/predicateType", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(st.PredicateType), PredicateSegment))
	case st.Predicate == nil:
		c.fail("/predicate", fmt.Errorf("%w: there is none", ErrMalformed))
	default:
		st.Predicate.check(&c)
		want := st.Predicate.subject()
		if len(st.Subject) != 1 || st.Subject[0].Name != want.Name || len(st.Subject[0].Digest) != 1 || st.Subject[0].Digest["blake3"] != st.Predicate.Digest {
			c.fail("/subject", fmt.Errorf("%w: it is not what the predicate is about", ErrDigest))
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return st.Predicate, nil
}

// VerifySegment verifies the statement that closes a segment: the key that it names
// signed it, and may speak as audit for all tenants.
func VerifySegment(env Envelope, policy *Policy, at time.Time) (*Segment, Key, error) {
	const op = "verify segment"
	if err := env.Check(); err != nil {
		return nil, Key{}, err
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		return nil, Key{}, err
	}
	s, err := ParseSegment(payload)
	if err != nil {
		return nil, Key{}, err
	}
	if policy == nil {
		return nil, Key{}, &Error{Op: op, Err: ErrNoPolicy}
	}
	k, err := policy.Judge(RoleAudit, "*", "", s.Issuer.KeyID, at)
	if err != nil {
		return nil, k, &Error{Op: op, Err: err}
	}
	for _, g := range env.Signatures {
		if g.KeyID != s.Issuer.KeyID {
			continue
		}
		sig, err := decodeBase64(g.Sig)
		if err == nil {
			err = k.Public.Verify(PAE(PayloadType, payload), sig)
		}
		if err != nil {
			return nil, k, &Error{Op: op, Err: fmt.Errorf("%w: that by %s", ErrSignature, g.KeyID)}
		}
		return s, k, nil
	}
	return nil, k, &Error{Op: op, Err: fmt.Errorf("%w: the statement names the issuer %s, which did not sign it", ErrSignature, s.Issuer.KeyID)}
}
