package manifest

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"

	"filippo.io/edwards25519"
)

const (
	sshEd25519 = "ssh-ed25519"
	// maxKeyText bounds the text of a public key, comment included, in bytes.
	maxKeyText = 16 << 10
	// spkiPrefix is the DER of a SubjectPublicKeyInfo up to the 32 bytes of an
	// Ed25519 key (RFC 8410): there is exactly one.
	spkiPrefix = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"
	pemBegin   = "-----BEGIN PUBLIC KEY-----\n"
	pemEnd     = "-----END PUBLIC KEY-----\n"
)

// PublicKey is an Ed25519 public key that was checked: a canonical encoding of a
// point that is not of small order. (Under a small-order key several common
// verifiers accept one signature for any message.) It is comparable. The zero
// PublicKey is no key and verifies nothing.
type PublicKey struct{ b [ed25519.PublicKeySize]byte }

// NewPublicKey checks the 32 bytes of a key (RFC 8032). The error wraps [ErrKey].
func NewPublicKey(b []byte) (PublicKey, error) {
	if len(b) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("%w: %d bytes, not %d", ErrKey, len(b), ed25519.PublicKeySize)
	}
	known := &checkedKeys[b[0]%uint8(len(checkedKeys))]
	if k := known.Load(); k != nil && bytes.Equal(k.b[:], b) {
		return *k, nil
	}
	p, err := new(edwards25519.Point).SetBytes(b)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: not a point of the curve", ErrKey)
	}
	if !bytes.Equal(p.Bytes(), b) {
		return PublicKey{}, fmt.Errorf("%w: a non-canonical encoding", ErrKey)
	}
	if new(edwards25519.Point).MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return PublicKey{}, fmt.Errorf("%w: a point of small order", ErrKey)
	}
	key := PublicKey{[ed25519.PublicKeySize]byte(b)}
	known.Store(&key)
	return key, nil
}

// checkedKeys remembers keys that passed: a store meets the same few all the time,
// and the arithmetic takes as long as a signature.
var checkedKeys [64]atomic.Pointer[PublicKey]

// PublicKeyOf returns the public half of a signer, which must be Ed25519.
func PublicKeyOf(s crypto.Signer) (PublicKey, error) {
	if s == nil {
		return PublicKey{}, fmt.Errorf("%w: no signer", ErrKey)
	}
	pub, ok := s.Public().(ed25519.PublicKey)
	if !ok {
		return PublicKey{}, fmt.Errorf("%w: the signer has a %T", ErrKey, s.Public())
	}
	return NewPublicKey(pub)
}

// ParsePublicKey reads the text of a public-key file: one OpenSSH line
// (`ssh-ed25519 AAAA… comment`) or one PEM block of an Ed25519
// SubjectPublicKeyInfo. Lines that are empty or begin with # are passed over.
// The error wraps [ErrKey].
func ParsePublicKey(text []byte) (PublicKey, error) {
	if len(text) > maxKeyText {
		return PublicKey{}, fmt.Errorf("%w: %d bytes of text", ErrKey, len(text))
	}
	s := strings.ReplaceAll(string(text), "\r\n", "\n")
	if strings.HasPrefix(s, pemBegin) {
		return parsePEM(s)
	}
	if strings.Contains(s, "PRIVATE KEY-----") {
		return PublicKey{}, fmt.Errorf("%w: a private key; the public one is wanted", ErrKey)
	}
	var line string
	for l := range strings.Lines(s) {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '#' {
			continue
		}
		if line != "" {
			return PublicKey{}, fmt.Errorf("%w: more than one line", ErrKey)
		}
		line = l
	}
	kind, rest, _ := strings.Cut(line, " ")
	if kind != sshEd25519 {
		return PublicKey{}, fmt.Errorf("%w: neither a line that begins with %s nor a PEM block of a public key", ErrKey, sshEd25519)
	}
	blob, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	return parseSSHBlob64(blob)
}

func parsePEM(s string) (PublicKey, error) {
	body, rest, ok := strings.Cut(strings.TrimPrefix(s, pemBegin), "\n")
	if !ok || strings.TrimRight(rest, "\n") != strings.TrimRight(pemEnd, "\n") {
		return PublicKey{}, fmt.Errorf("%w: not one PEM block of an Ed25519 key", ErrKey)
	}
	der, err := decodeBase64(body)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: %v", ErrKey, err)
	}
	key, ok := strings.CutPrefix(string(der), spkiPrefix)
	if !ok {
		return PublicKey{}, fmt.Errorf("%w: the PEM block holds a key of another type than Ed25519", ErrKey)
	}
	return NewPublicKey([]byte(key))
}

func parseSSHBlob64(s string) (PublicKey, error) {
	blob, err := decodeBase64(s)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%w: %v", ErrKey, err)
	}
	return parseSSHBlob(blob)
}

// parseSSHBlob reads string "ssh-ed25519", string key (RFC 8709 section 4).
func parseSSHBlob(blob []byte) (PublicKey, error) {
	r := sshReader{b: blob}
	kind, key := r.string(), r.string()
	switch {
	case r.bad || len(r.b) > 0:
		return PublicKey{}, fmt.Errorf("%w: the SSH encoding is damaged", ErrKey)
	case string(kind) != sshEd25519:
		return PublicKey{}, fmt.Errorf("%w: the SSH encoding holds a key of another type than %s", ErrKey, sshEd25519)
	}
	return NewPublicKey(key)
}

// IsZero reports whether k is no key.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// Bytes returns the 32 bytes of the key.
func (k PublicKey) Bytes() []byte { return k.b[:] }

func (k PublicKey) sshBlob() []byte {
	return appendSSHString(appendSSHString(nil, []byte(sshEd25519)), k.b[:])
}

// Fingerprint is the key id everywhere: "SHA256:" and the unpadded base64 of the
// SHA-256 of the key's SSH encoding, as `ssh-keygen -l` prints it.
func (k PublicKey) Fingerprint() string {
	sum := sha256.Sum256(k.sshBlob())
	return fingerprintPrefix + base64.RawStdEncoding.EncodeToString(sum[:])
}

const fingerprintPrefix = "SHA256:"

func isFingerprint(s string) bool {
	digest, ok := strings.CutPrefix(s, fingerprintPrefix)
	if !ok || len(digest) != 43 {
		return false
	}
	b, err := base64.RawStdEncoding.Strict().DecodeString(digest)
	return err == nil && len(b) == sha256.Size
}

// OpenSSHLine is the line of an OpenSSH public-key file, without a comment and
// without a newline.
func (k PublicKey) OpenSSHLine() string {
	return sshEd25519 + " " + base64.StdEncoding.EncodeToString(k.sshBlob())
}

// PEM is the key as a SubjectPublicKeyInfo, which openssl reads.
func (k PublicKey) PEM() string {
	return pemBegin + base64.StdEncoding.EncodeToString(append([]byte(spkiPrefix), k.b[:]...)) + "\n" + pemEnd
}

// Verify checks a signature of 64 bytes (RFC 8032, not malleable). The error is
// [ErrSignature].
func (k PublicKey) Verify(message, sig []byte) error {
	if k.IsZero() || len(sig) != ed25519.SignatureSize || !ed25519.Verify(k.b[:], message, sig) {
		return ErrSignature
	}
	return nil
}

// decodeBase64 reads standard base64 with padding in its one spelling. (The
// standard library passes over line breaks.)
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || base64.StdEncoding.EncodeToString(b) != s {
		return nil, fmt.Errorf("%w: not standard base64 with padding in its one spelling", ErrMalformed)
	}
	return b, nil
}

// sshReader takes RFC 4251 strings off the front of b.
type sshReader struct {
	b   []byte
	bad bool
}

func (r *sshReader) string() []byte {
	if len(r.b) < 4 {
		r.bad = true
		return nil
	}
	n := uint64(binary.BigEndian.Uint32(r.b))
	if n > uint64(len(r.b)-4) {
		r.bad = true
		return nil
	}
	s := r.b[4 : 4+n]
	r.b = r.b[4+n:]
	return s
}

func appendSSHString(b, s []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
