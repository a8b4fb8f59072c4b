package manifest

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The limits of [ParseEnvelope].
const (
	MaxSignatures = 16
	// MaxEnvelope is the largest envelope in bytes: the largest payload in
	// base64 and room for the signatures.
	MaxEnvelope = (MaxPayload+2)/3*4 + 8<<10
)

// Envelope is a DSSE envelope (secure-systems-lab/dsse, protocol 1.0.2). Its
// fields are what the JSON says; that they verify is for [VerifyEnvelope] to say.
type Envelope struct {
	PayloadType string      `json:"payloadType"` // always [PayloadType]
	Payload     string      `json:"payload"`     // standard base64 with padding
	Signatures  []Signature `json:"signatures"`  // one to [MaxSignatures], ascending by keyid
}

// Signature is one signature of an envelope.
type Signature struct {
	KeyID string `json:"keyid"` // the fingerprint of the key, see [PublicKey.Fingerprint]
	Sig   string `json:"sig"`   // 64 bytes in standard base64 with padding
}

// PAE is what a DSSE signature covers: the type and the payload, each with its
// length.
func PAE(payloadType string, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+len(payloadType)+48)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(payloadType)), 10)
	b = append(b, ' ')
	b = append(b, payloadType...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	b = append(b, ' ')
	return append(b, payload...)
}

// Sign signs a payload with an Ed25519 key. Unless the key is an
// ed25519.PrivateKey, which signs in this process, the signature is checked before
// it is returned, so that an agent or a KMS that answers wrongly is noticed here.
func Sign(payload []byte, s crypto.Signer) (Envelope, error) {
	sig, pub, err := sign(PAE(PayloadType, payload), s)
	if err != nil {
		return Envelope{}, &Error{Op: "sign", Err: err}
	}
	return Envelope{
		PayloadType: PayloadType,
		Payload:     base64.StdEncoding.EncodeToString(payload),
		Signatures:  []Signature{{KeyID: pub.Fingerprint(), Sig: base64.StdEncoding.EncodeToString(sig)}},
	}, nil
}

func sign(message []byte, s crypto.Signer) ([]byte, PublicKey, error) {
	pub, err := PublicKeyOf(s)
	if err != nil {
		return nil, PublicKey{}, err
	}
	sig, err := s.Sign(rand.Reader, message, crypto.Hash(0))
	if err != nil {
		return nil, PublicKey{}, err
	}
	if _, here := s.(ed25519.PrivateKey); here {
		return sig, pub, nil
	}
	return sig, pub, pub.Verify(message, sig)
}

// Cosign adds the signature of another key over the same payload.
func (e Envelope) Cosign(s crypto.Signer) (Envelope, error) {
	payload, err := e.PayloadBytes()
	if err != nil {
		return Envelope{}, err
	}
	one, err := Sign(payload, s)
	if err != nil {
		return Envelope{}, err
	}
	e.Signatures = append(slices.Clone(e.Signatures), one.Signatures...)
	slices.SortFunc(e.Signatures, func(a, b Signature) int { return strings.Compare(a.KeyID, b.KeyID) })
	return e, e.Check()
}

// ParseEnvelope reads an envelope in canonical JSON and checks its form, not its
// signatures. An envelope has one spelling.
func ParseEnvelope(b []byte) (Envelope, error) {
	var e Envelope
	if err := DecodeLimit(b, &e, MaxEnvelope, MaxDepth); err != nil {
		return Envelope{}, err
	}
	if err := e.Check(); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// Check says whether the envelope has the form that [ParseEnvelope] demands, for
// one that came inside another document.
func (e Envelope) Check() error {
	const op = "parse envelope"
	if e.PayloadType != PayloadType {
		return &Error{op, "/payloadType", fmt.Errorf("%w: %s is not %q", ErrMalformed, quote(e.PayloadType), PayloadType)}
	}
	if _, err := e.PayloadBytes(); err != nil {
		return err
	}
	if n := len(e.Signatures); n < 1 || n > MaxSignatures {
		return &Error{op, "/signatures", fmt.Errorf("%w: %d signatures, one to %d are allowed", ErrMalformed, n, MaxSignatures)}
	}
	for i, s := range e.Signatures {
		at := "/signatures/" + strconv.Itoa(i)
		if !isFingerprint(s.KeyID) {
			return &Error{op, at + "/keyid", fmt.Errorf("%w: %s is not a SHA256: fingerprint", ErrMalformed, quote(s.KeyID))}
		}
		if i > 0 && s.KeyID <= e.Signatures[i-1].KeyID {
			return &Error{op, at + "/keyid", fmt.Errorf("%w: a key stands twice, or the signatures are not sorted by keyid", ErrMalformed)}
		}
		if sig, err := decodeBase64(s.Sig); err != nil || len(sig) != 64 {
			return &Error{op, at + "/sig", fmt.Errorf("%w: not 64 bytes in standard base64 with padding", ErrMalformed)}
		}
	}
	return nil
}

// PayloadBytes decodes the payload.
func (e Envelope) PayloadBytes() ([]byte, error) {
	const op = "parse envelope"
	if len(e.Payload) > (MaxPayload+2)/3*4 {
		return nil, &Error{op, "/payload", fmt.Errorf("%w: at most %d bytes", ErrTooLarge, MaxPayload)}
	}
	b, err := decodeBase64(e.Payload)
	if err != nil {
		return nil, &Error{op, "/payload", err}
	}
	if len(b) > MaxPayload {
		return nil, &Error{op, "/payload", fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), MaxPayload)}
	}
	return b, nil
}

// Bytes writes the envelope in canonical JSON. It returns nil for one that has
// no canonical form, which [Sign] and [ParseEnvelope] never return.
func (e Envelope) Bytes() []byte {
	b, err := Canonical(e)
	if err != nil {
		return nil
	}
	return b
}
