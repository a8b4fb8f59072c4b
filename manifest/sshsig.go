package manifest

import (
	"bytes"
	"crypto"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// NamespaceManifest is the SSH namespace of a manifest's signature: what
// `ssh-keygen -Y verify -n` is given.
const NamespaceManifest = "manifest@leafproof"

const (
	sshMagic     = "SSHSIG"
	sshVersion   = 1
	sshHash      = "sha512"
	armorBegin   = "-----BEGIN SSH SIGNATURE-----\n"
	armorEnd     = "-----END SSH SIGNATURE-----\n"
	armorColumns = 70
	minColumns   = 16
	maxArmor     = 4 << 10 // bytes; ours have about 300
	maxNamespace = 255     // bytes
)

// SSHSignature is a parsed SSH signature (OpenSSH, PROTOCOL.sshsig): Ed25519
// over SHA-512. It carries its key, which is the signer's word only: see Verify.
type SSHSignature struct {
	key       PublicKey
	namespace string
	sig       []byte
}

// sshMessage is what an SSH signature covers.
func sshMessage(payload []byte, namespace string) []byte {
	sum := sha512.Sum512(payload)
	b := []byte(sshMagic)
	b = appendSSHString(b, []byte(namespace))
	b = appendSSHString(b, nil) // reserved
	b = appendSSHString(b, []byte(sshHash))
	return appendSSHString(b, sum[:])
}

// SignSSH signs a payload in a namespace, which keeps a signature from being
// used for another purpose, and returns it in armor, as `ssh-keygen -Y sign`
// writes it.
func SignSSH(payload []byte, namespace string, s crypto.Signer) (armored string, err error) {
	if namespace == "" || len(namespace) > maxNamespace {
		return "", &Error{Op: "sign", Err: fmt.Errorf("%w: a namespace of %d bytes", ErrMalformed, len(namespace))}
	}
	sig, pub, err := sign(sshMessage(payload, namespace), s)
	if err != nil {
		return "", &Error{Op: "sign", Err: err}
	}
	return SSHSignature{key: pub, namespace: namespace, sig: sig}.Armor(), nil
}

// Armor writes the signature in the one spelling that it has in a bundle and in a
// store: as ssh-keygen does, in lines of 70 columns.
func (s SSHSignature) Armor() string {
	b := []byte(sshMagic)
	b = binary.BigEndian.AppendUint32(b, sshVersion)
	b = appendSSHString(b, s.key.sshBlob())
	b = appendSSHString(b, []byte(s.namespace))
	b = appendSSHString(b, nil) // reserved
	b = appendSSHString(b, []byte(sshHash))
	b = appendSSHString(b, appendSSHString(appendSSHString(nil, []byte(sshEd25519)), s.sig))
	text := base64.StdEncoding.EncodeToString(b)
	var out strings.Builder
	out.WriteString(armorBegin)
	for len(text) > 0 {
		n := min(len(text), armorColumns)
		out.WriteString(text[:n])
		out.WriteByte('\n')
		text = text[n:]
	}
	out.WriteString(armorEnd)
	return out.String()
}

// ParseSSH reads an armored signature: Ed25519 over SHA-512 alone. Programs cut the
// base64 into lines of different widths (ssh-keygen 70 columns, others 64 or 76);
// any one width from 16 is read. Where a signature must have one spelling, compare
// with [SSHSignature.Armor]. The errors wrap [ErrMalformed] or [ErrKey].
func ParseSSH(armored string) (SSHSignature, error) {
	s, err := parseSSH(armored)
	if err != nil {
		return SSHSignature{}, &Error{Op: "parse SSH signature", Err: err}
	}
	return s, nil
}

func parseSSH(armored string) (SSHSignature, error) {
	if len(armored) > maxArmor {
		return SSHSignature{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(armored), maxArmor)
	}
	body, ok := strings.CutPrefix(armored, armorBegin)
	if ok {
		body, ok = strings.CutSuffix(body, armorEnd)
	}
	if !ok {
		return SSHSignature{}, fmt.Errorf("%w: the armor's first or last line is not as ssh-keygen writes it", ErrMalformed)
	}
	text, err := joinLines(body)
	if err != nil {
		return SSHSignature{}, err
	}
	b, err := decodeBase64(text)
	if err != nil {
		return SSHSignature{}, err
	}
	rest, ok := bytes.CutPrefix(b, binary.BigEndian.AppendUint32([]byte(sshMagic), sshVersion))
	if !ok {
		return SSHSignature{}, fmt.Errorf("%w: not an SSH signature of version %d", ErrMalformed, sshVersion)
	}
	r := sshReader{b: rest}
	blob, namespace, reserved, hash, signature := r.string(), r.string(), r.string(), r.string(), r.string()
	inner := sshReader{b: signature}
	kind, sig := inner.string(), inner.string()
	switch {
	case r.bad || inner.bad || len(r.b) > 0 || len(inner.b) > 0 || len(reserved) > 0:
		return SSHSignature{}, fmt.Errorf("%w: its fields do not fill it", ErrMalformed)
	case string(kind) != sshEd25519 || len(sig) != 64:
		return SSHSignature{}, fmt.Errorf("%w: not an Ed25519 signature", ErrMalformed)
	case string(hash) != sshHash:
		return SSHSignature{}, fmt.Errorf("%w: its hash is not %s", ErrMalformed, sshHash)
	case len(namespace) == 0 || len(namespace) > maxNamespace:
		return SSHSignature{}, fmt.Errorf("%w: a namespace of %d bytes", ErrMalformed, len(namespace))
	}
	key, err := parseSSHBlob(blob)
	if err != nil {
		return SSHSignature{}, err
	}
	return SSHSignature{key: key, namespace: string(namespace), sig: bytes.Clone(sig)}, nil
}

// joinLines joins lines of one width, the last of which may be shorter.
func joinLines(body string) (string, error) {
	width := strings.IndexByte(body, '\n')
	if width < minColumns {
		return "", fmt.Errorf("%w: the armor is not cut into lines of one width", ErrMalformed)
	}
	var text strings.Builder
	text.Grow(len(body))
	for len(body) > 0 {
		line, rest, ok := strings.Cut(body, "\n")
		if !ok || line == "" || len(line) > width || len(line) < width && rest != "" {
			return "", fmt.Errorf("%w: the armor is not cut into lines of one width", ErrMalformed)
		}
		text.WriteString(line)
		body = rest
	}
	return text.String(), nil
}

// Namespace is the purpose that the signature was made for: ROLE@leafproof for ours.
func (s SSHSignature) Namespace() string { return s.namespace }

// Key is the key that the signature names. Nothing admits it: ask a [Policy].
func (s SSHSignature) Key() PublicKey { return s.key }

// Verify checks that pub signed payload in the namespace. The error wraps
// [ErrSignature] and says whether key, namespace or signature is wrong.
func (s SSHSignature) Verify(payload []byte, namespace string, pub PublicKey) error {
	switch {
	case s.key != pub:
		return fmt.Errorf("%w: it is by the key %s, not %s", ErrSignature, s.key.Fingerprint(), pub.Fingerprint())
	case s.namespace != namespace:
		return fmt.Errorf("%w: its namespace is %s, not %q", ErrSignature, quote(s.namespace), namespace)
	}
	return pub.Verify(sshMessage(payload, namespace), s.sig)
}
