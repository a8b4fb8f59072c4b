package manifest

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxName is the longest name, in bytes.
const maxName = 128

// CheckName says whether s may name a tenant, run, principal, source, key or
// policy: [A-Za-z0-9][A-Za-z0-9._:-]{0,127}. The error wraps [ErrName].
func CheckName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(s) > maxName:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrName, len(s), maxName)
	case !isAlnum(s[0]):
		return fmt.Errorf("%w: %q does not begin with a letter or digit", ErrName, s)
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("._:-", s[i]) < 0 {
			return fmt.Errorf("%w: %q has a character outside A-Z a-z 0-9 . _ : - at byte %d", ErrName, s, i)
		}
	}
	return nil
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// checkPattern says whether s is a name in which * may stand for a whole
// segment between dots, or be the last character.
func checkPattern(s string) error {
	bare := strings.TrimSuffix(s, "*")
	segments := strings.Split(bare, ".")
	for i, segment := range segments {
		if segment == "*" && i < len(segments)-1 {
			segments[i] = "x"
		}
	}
	bare = strings.Join(segments, ".")
	if bare == "" && s == "*" {
		return nil
	}
	if strings.Contains(bare, "*") {
		return fmt.Errorf("%w: in the pattern %s a * is neither a whole segment nor the last character", ErrName, quote(s))
	}
	return CheckName(bare)
}

// matchPattern says whether a name matches a pattern that [checkPattern] let
// pass. A * that is a segment matches exactly one segment; a * at the end
// matches everything that is left, dots too.
func matchPattern(pattern, name string) bool {
	for {
		if pattern == "*" {
			return true
		}
		segment, rest, more := strings.Cut(pattern, ".")
		if !more {
			if prefix, open := strings.CutSuffix(segment, "*"); open {
				return strings.HasPrefix(name, prefix)
			}
			return name == segment
		}
		got, left, ok := strings.Cut(name, ".")
		if !ok || segment != "*" && segment != got || got == "" {
			return false
		}
		pattern, name = rest, left
	}
}

const timeLayout = "2006-01-02T15:04:05.999999999Z"

// FormatTime writes an instant in its one spelling: RFC 3339 in UTC with Z, as
// many fractional digits as needed (at most nine) and no trailing zero.
func FormatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// ParseTime reads what [FormatTime] writes and nothing else, so that one instant
// has one spelling. The error wraps [ErrTime].
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(timeLayout, s)
	if err != nil || FormatTime(t) != s {
		return time.Time{}, fmt.Errorf("%w: %s is not RFC 3339 in UTC, as in 2026-11-06T04:40:00Z or 2026-11-06T04:40:00.25Z", ErrTime, quote(s))
	}
	return t, nil
}

// NewNonce draws 16 bytes from rand, which must be cryptographic, and writes
// them as lower-case hex. It makes an artifact_id unguessable and unique.
func NewNonce(rand io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", &Error{Op: "draw a nonce", Err: err}
	}
	return hex.EncodeToString(b[:]), nil
}

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// checkPointer says whether s is an RFC 6901 pointer: empty, or tokens that each
// begin with a slash, in which ~ stands only as ~0 or ~1.
func checkPointer(s string) bool {
	if s != "" && s[0] != '/' {
		return false
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

const base32Lower = "abcdefghijklmnopqrstuvwxyz234567"

// isID says whether s is prefix and 32 base32 digits.
func isID(s, prefix string) bool {
	digits, ok := strings.CutPrefix(s, prefix)
	return ok && len(digits) == 32 && strings.Trim(digits, base32Lower) == ""
}
