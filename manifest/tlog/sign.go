package tlog

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"leafproof/manifest"
)

// cosignHead begins what a cosignature covers. A log has no such name, so that no
// note is also a cosignature of another.
const cosignHead = "cosignature/v1"

// NewCheckpoint signs the state of a log at a time with the log's key, whose
// name is the origin, in two lines: an Ed25519 signature over the text, and a
// cosignature/v1 by the same key, which holds the time in whole seconds (C2SP
// tlog-cosignature; signed-note allows one key in two kinds of signatures where
// they cannot be taken for each other).
func NewCheckpoint(origin string, size int64, root Hash, at time.Time, log crypto.Signer) (Checkpoint, error) {
	c := Checkpoint{Origin: origin, Size: size, Root: root}
	plain, err := c.sign(at, log)
	if err != nil {
		return Checkpoint{}, &Error{Op: "sign checkpoint", At: origin, Err: err}
	}
	c.Signatures = plain
	return c, nil
}

func (c Checkpoint) sign(at time.Time, log crypto.Signer) ([]Signature, error) {
	if c.Size < 0 || c.Size > MaxSize || c.Origin == cosignHead {
		return nil, fmt.Errorf("%w: no log has %d leaves, or this name", ErrMalformed, c.Size)
	}
	pub, err := manifest.PublicKeyOf(log)
	if err != nil {
		return nil, err
	}
	key, err := manifest.LogKey(c.Origin, pub)
	if err != nil {
		return nil, err
	}
	sig, err := sign([]byte(c.Text()), log, pub)
	if err != nil {
		return nil, err
	}
	timed, err := c.Cosign(c.Origin, at, log)
	return []Signature{{key.Name, key.ID(), sig}, timed}, err
}

// Cosign makes the signature line of a witness of that name: "as of this time I
// have seen no larger tree of this log, and it is consistent with all that I saw".
// Whether that is so is for [Witness].
func (c Checkpoint) Cosign(name string, at time.Time, witness crypto.Signer) (Signature, error) {
	pub, err := manifest.PublicKeyOf(witness)
	if err != nil {
		return Signature{}, err
	}
	key, err := manifest.WitnessKey(name, pub)
	if err != nil {
		return Signature{}, err
	}
	if at.Unix() < 0 {
		return Signature{}, fmt.Errorf("%w: a time before 1970", ErrMalformed)
	}
	sig, err := sign(c.cosigned(uint64(at.Unix())), witness, pub)
	return Signature{key.Name, key.ID(), append(binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), sig...)}, err
}

// cosigned is what a cosignature/v1 covers.
func (c Checkpoint) cosigned(seconds uint64) []byte {
	return []byte(cosignHead + "\ntime " + strconv.FormatUint(seconds, 10) + "\n" + c.Text())
}

// sign checks what another process answered before it is kept.
func sign(message []byte, s crypto.Signer, pub manifest.PublicKey) ([]byte, error) {
	sig, err := s.Sign(rand.Reader, message, crypto.Hash(0))
	if err != nil {
		return nil, err
	}
	if _, here := s.(ed25519.PrivateKey); here {
		return sig, nil
	}
	return sig, pub.Verify(message, sig)
}

// With adds signatures of others, each once.
func (c Checkpoint) With(sigs ...Signature) Checkpoint {
	c.Signatures = slices.Clone(c.Signatures)
	for _, s := range sigs {
		same := func(o Signature) bool { return o.String() == s.String() }
		if !slices.ContainsFunc(c.Signatures, same) {
			c.Signatures = append(c.Signatures, s)
		}
	}
	return c
}

// SignedBy checks the signatures by a key. Of a log's key it checks both kinds:
// at is the time that the log stated, zero where it stated none. Of a witness's
// key it is the time of its cosignature; of several, the earliest. The error is
// [ErrUnsigned] where there is no signature that counts, and [ErrSignature] where
// one does not verify.
func (c Checkpoint) SignedBy(key manifest.VerifierKey) (at time.Time, err error) {
	timed := key
	if !key.Cosigns() {
		if timed, err = manifest.WitnessKey(key.Name, key.Public); err != nil {
			return time.Time{}, err
		}
	}
	signed := false
	for _, s := range c.Signatures {
		switch {
		case s.Name != key.Name:
		case s.ID == timed.ID():
			t, err := c.cosignedAt(s, key.Public)
			if err != nil {
				return time.Time{}, err
			}
			if at.IsZero() || t.Before(at) {
				at = t
			}
			signed = signed || key.Cosigns()
		case s.ID == key.ID():
			if key.Public.Verify([]byte(c.Text()), s.Sig) != nil {
				return time.Time{}, fmt.Errorf("%w: by %s", ErrSignature, key.Name)
			}
			signed = true
		}
	}
	if !signed {
		return time.Time{}, fmt.Errorf("%w: %s", ErrUnsigned, key.Name)
	}
	return at, nil
}

// maxSeconds is the end of the year 9999, behind which no time is written.
const maxSeconds = 253402300799

func (c Checkpoint) cosignedAt(s Signature, k manifest.PublicKey) (time.Time, error) {
	if len(s.Sig) != 8+ed25519.SignatureSize {
		return time.Time{}, fmt.Errorf("%w: the cosignature by %s has %d bytes", ErrSignature, s.Name, len(s.Sig))
	}
	seconds := binary.BigEndian.Uint64(s.Sig)
	if seconds > maxSeconds || k.Verify(c.cosigned(seconds), s.Sig[8:]) != nil {
		return time.Time{}, fmt.Errorf("%w: the cosignature by %s", ErrSignature, s.Name)
	}
	return time.Unix(int64(seconds), 0).UTC(), nil
}
