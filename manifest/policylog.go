package manifest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// The kinds of verifier keys (C2SP signed-note): a log signs checkpoints, a
// witness cosigns them.
const (
	noteEd25519     = 0x01
	noteCosignature = 0x04
)

// maxOrigin is the longest name of a log or witness key, in bytes.
const maxOrigin = 255

// VerifierKey is the key of a log or a witness, in the form of C2SP signed-note:
// NAME+HASH+BASE64, where the base64 holds a byte for the kind and the 32 bytes
// of an Ed25519 key, and HASH is the key's id in 8 hex digits.
type VerifierKey struct {
	Name   string // of a log, its origin; printable ASCII without a space and without +
	Public PublicKey
	kind   byte
}

// LogKey is the key of a log with that origin. The error wraps [ErrKey] or [ErrName].
func LogKey(origin string, k PublicKey) (VerifierKey, error) {
	if k.IsZero() {
		return VerifierKey{}, ErrKey
	}
	return VerifierKey{origin, k, noteEd25519}, checkOrigin(origin)
}

// WitnessKey is the key of a witness with that name. The error wraps [ErrKey] or [ErrName].
func WitnessKey(name string, k PublicKey) (VerifierKey, error) {
	if k.IsZero() {
		return VerifierKey{}, ErrKey
	}
	return VerifierKey{name, k, noteCosignature}, checkOrigin(name)
}

// ParseVerifierKey reads the key of a log or a witness in its one spelling.
func ParseVerifierKey(s string) (VerifierKey, error) {
	// The base64 may hold a + itself, the name and the hash may not.
	name, rest, _ := strings.Cut(s, "+")
	id, blob, ok := strings.Cut(rest, "+")
	if !ok {
		return VerifierKey{}, fmt.Errorf("%w: %s is not NAME+HASH+BASE64", ErrKey, quote(s))
	}
	if err := checkOrigin(name); err != nil {
		return VerifierKey{}, err
	}
	b, err := decodeBase64(blob)
	if err != nil {
		return VerifierKey{}, fmt.Errorf("%w: %v", ErrKey, err)
	}
	if len(b) != 1+ed25519.PublicKeySize || b[0] != noteEd25519 && b[0] != noteCosignature {
		return VerifierKey{}, fmt.Errorf("%w: not the Ed25519 key of a log or a witness", ErrKey)
	}
	pub, err := NewPublicKey(b[1:])
	if err != nil {
		return VerifierKey{}, err
	}
	v := VerifierKey{name, pub, b[0]}
	if v.String() != s {
		return VerifierKey{}, fmt.Errorf("%w: the key of %s has the id %08x, not %s", ErrKey, name, v.ID(), quote(id))
	}
	return v, nil
}

// checkOrigin says whether s may name a log or a witness in a signed note.
func checkOrigin(s string) error {
	if s == "" || len(s) > maxOrigin {
		return fmt.Errorf("%w: the name of a log has 1 to %d bytes, not %d", ErrName, maxOrigin, len(s))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '+' {
			return fmt.Errorf("%w: %s names no log: printable ASCII without a space and without + does", ErrName, quote(s))
		}
	}
	return nil
}

// ID is the four bytes that a signature line of a note begins with.
func (v VerifierKey) ID() uint32 {
	sum := sha256.Sum256(append([]byte(v.Name+"\n"), v.blob()...))
	return binary.BigEndian.Uint32(sum[:])
}

// Cosigns reports whether it is the key of a witness, not of a log.
func (v VerifierKey) Cosigns() bool { return v.kind == noteCosignature }

func (v VerifierKey) blob() []byte { return append([]byte{v.kind}, v.Public.Bytes()...) }

// String writes the key as [ParseVerifierKey] reads it.
func (v VerifierKey) String() string {
	id := binary.BigEndian.AppendUint32(nil, v.ID())
	return v.Name + "+" + hex.EncodeToString(id) + "+" + base64.StdEncoding.EncodeToString(v.blob())
}

// Witness is a witness that a policy names.
type Witness struct {
	Name string // a name, unique among the witnesses
	Key  VerifierKey
}

// Logs returns the keys of the logs that the policy names, in the order of the text.
func (p *Policy) Logs() []VerifierKey { return append([]VerifierKey(nil), p.logs...) }

// Witnesses returns the witnesses that the policy names, in the order of the text.
func (p *Policy) Witnesses() []Witness { return append([]Witness(nil), p.witnesses...) }

// distinct refuses a key that stands in the policy already: one key in two places
// would be two voices of one holder.
func (p *Policy) distinct(k PublicKey) error {
	if who := p.holder(k); who != "" {
		return fmt.Errorf("%w: the same key as %s, under a second name", ErrPolicy, who)
	}
	if len(p.keys)+len(p.logs)+len(p.witnesses) >= MaxPolicyKeys {
		return fmt.Errorf("%w: more than %d keys", ErrTooLarge, MaxPolicyKeys)
	}
	return nil
}

// holder is the name that a key has in the policy; "" is none.
func (p *Policy) holder(k PublicKey) string {
	if !p.names(k.Fingerprint()) {
		return ""
	}
	if o, ok := p.key(k.Fingerprint()); ok {
		return o.Name
	}
	for _, l := range p.logs {
		if l.Public == k {
			return "the log " + l.Name
		}
	}
	for _, w := range p.witnesses {
		if w.Key.Public == k {
			return "the witness " + w.Name
		}
	}
	return ""
}

func (p *Policy) addLog(v VerifierKey) error {
	if v.kind != noteEd25519 {
		return fmt.Errorf("%w: %s is the key of a witness, not of a log", ErrKey, v.Name)
	}
	if err := p.distinct(v.Public); err != nil {
		return err
	}
	p.print(v.Public, noSpeaker)
	p.logs = append(p.logs, v)
	return nil
}

func (p *Policy) addWitness(w Witness) error {
	if err := p.newVoice(w.Name); err != nil {
		return err
	}
	if w.Key.kind != noteCosignature {
		return fmt.Errorf("%w: %s is the key of a log, not of a witness", ErrKey, w.Key.Name)
	}
	if err := p.distinct(w.Key.Public); err != nil {
		return err
	}
	p.print(w.Key.Public, noSpeaker)
	p.witnesses = append(p.witnesses, w)
	return nil
}
