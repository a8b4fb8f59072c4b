package manifest

import (
	"crypto"
	"io"
	"time"
)

// Canonical …
func Canonical(v any) ([]byte, error) { return nil, ErrUnsupported }

// CheckCanonical …
func CheckCanonical(b []byte) error { return ErrUnsupported }

// Decode …
func Decode(b []byte, v any) error { return ErrUnsupported }

// DecodeLimit …
func DecodeLimit(b []byte, v any, limit int) error { return ErrUnsupported }

// SyntaxError …
type SyntaxError struct {
	Offset  int64
	Pointer string
	Reason  string
}

func (e *SyntaxError) Error() string { return e.Reason }

// Unwrap …
func (e *SyntaxError) Unwrap() error { return ErrNotCanonical }

// NewStatement …
func NewStatement(p Predicate) (payload []byte, err error) { return nil, ErrUnsupported }

// ParseManifest …
func ParseManifest(payload []byte) (*Manifest, error) { return nil, ErrUnsupported }

// ArtifactID …
func ArtifactID(p Predicate) (string, error) { return "", ErrUnsupported }

// ManifestID …
func ManifestID(payload []byte) string { return "" }

// RefDiff …
func RefDiff(presented, signed ArtifactRef) []string { return nil }

// CheckRef …
func CheckRef(presented, signed ArtifactRef) error { return nil }

// NewNonce …
func NewNonce(rand io.Reader) (string, error) { return "", ErrUnsupported }

// CheckName …
func CheckName(s string) error { return nil }

// FormatTime …
func FormatTime(t time.Time) string { return "" }

// ParseTime …
func ParseTime(s string) (time.Time, error) { return time.Time{}, ErrUnsupported }

// Envelope …
type Envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []Signature `json:"signatures"`
}

// Signature …
type Signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// Sign …
func Sign(payload []byte, s crypto.Signer) (Envelope, error) { return Envelope{}, ErrUnsupported }

// ParseEnvelope …
func ParseEnvelope(b []byte) (Envelope, error) { return Envelope{}, ErrUnsupported }

// Bytes …
func (e Envelope) Bytes() []byte { return nil }

// PayloadBytes …
func (e Envelope) PayloadBytes() ([]byte, error) { return nil, ErrUnsupported }

// PAE …
func PAE(payloadType string, payload []byte) []byte { return nil }

// NamespaceManifest …
const NamespaceManifest = "manifest@leafproof"

// SSHSignature …
type SSHSignature struct{}

// SignSSH …
func SignSSH(payload []byte, namespace string, s crypto.Signer) (string, error) {
	return "", ErrUnsupported
}

// ParseSSH …
func ParseSSH(armored string) (SSHSignature, error) { return SSHSignature{}, ErrUnsupported }

// Verify …
func (s SSHSignature) Verify(payload []byte, namespace string, pub PublicKey) error {
	return ErrUnsupported
}

// Key …
func (s SSHSignature) Key() PublicKey { return PublicKey{} }

// PublicKey …
type PublicKey struct{ b [32]byte }

// ParsePublicKey …
func ParsePublicKey(text []byte) (PublicKey, error) { return PublicKey{}, ErrUnsupported }

// NewPublicKey …
func NewPublicKey(b []byte) (PublicKey, error) { return PublicKey{}, ErrUnsupported }

// PublicKeyOf …
func PublicKeyOf(s crypto.Signer) (PublicKey, error) { return PublicKey{}, ErrUnsupported }

// Bytes …
func (k PublicKey) Bytes() []byte { return nil }

// Fingerprint …
func (k PublicKey) Fingerprint() string { return "" }

// OpenSSHLine …
func (k PublicKey) OpenSSHLine() string { return "" }

// PEM …
func (k PublicKey) PEM() string { return "" }

// Verify …
func (k PublicKey) Verify(message, sig []byte) error { return ErrUnsupported }

// Policy …
type Policy struct{}

// Key …
type Key struct {
	Name      string
	Public    PublicKey
	Roles     []string
	Tenants   []string
	Sources   []string
	NotBefore time.Time
	NotAfter  time.Time
}

// RoleManifest …
const RoleManifest = "manifest"

// ParsePolicy …
func ParsePolicy(text []byte) (*Policy, error) { return nil, ErrUnsupported }

// NewPolicy …
func NewPolicy(name string, keys ...Key) (*Policy, error) { return nil, ErrUnsupported }

// AdHoc …
func AdHoc(keys ...PublicKey) *Policy { return nil }

// String …
func (p *Policy) String() string { return "" }

// Judge …
func (p *Policy) Judge(role, tenant, source, fingerprint string, at time.Time) (Key, error) {
	return Key{}, ErrUnsupported
}

// VerifyEnvelope …
func VerifyEnvelope(env Envelope, ssh string, policy *Policy, at time.Time) (*Manifest, []Fact, error) {
	return nil, nil, ErrUnsupported
}
