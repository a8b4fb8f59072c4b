package httpapi

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"hash"
	"net/http"
	"strings"
)

// Digests that a caller states of what it sends (RFC 9530). Content-Digest is of the
// body; Repr-Digest of all of the artifact, which is the body where that is no form and
// no part of an upload. Each that is known here must be right, and one must be known.

var digests = map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New}

// promised is one of them.
type promised struct {
	field string
	name  string
	want  []byte
	sum   hash.Hash
}

// statedDigests reads a field with digests.
func (c *call) statedDigests(field string) ([]promised, error) {
	given := c.r.Header.Values(field)
	if len(given) == 0 {
		return nil, nil
	}
	bad := func(format string, args ...any) error { return invalid(http.StatusBadRequest, field, format, args...) }
	var out []promised
	for item := range strings.SplitSeq(strings.Join(given, ","), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		text, opened := strings.CutPrefix(value, ":")
		text, closed := strings.CutSuffix(text, ":")
		if !ok || !opened || !closed {
			return nil, bad("a digest is written as in sha-256=:BASE64:")
		}
		made := digests[name]
		if made == nil { // others may know it
			continue
		}
		sum := made()
		want, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(want) != sum.Size() {
			return nil, bad("%s is base64 of %d bytes", name, sum.Size())
		}
		out = append(out, promised{field, name, want, sum})
	}
	if len(out) == 0 {
		return nil, bad("no digest of it is checked here: sha-256 and sha-512 are")
	}
	return out, nil
}

// demand holds the body to what is stated of it.
func (b *body) demand(list []promised) { b.stated = append(b.stated, list...) }

// took notes what was read of the body.
func (b *body) took(p []byte) {
	for _, s := range b.stated {
		s.sum.Write(p)
	}
}

// judge compares the digests at the body's end.
func (b *body) judge() error {
	for _, s := range b.stated {
		if subtle.ConstantTimeCompare(s.sum.Sum(nil), s.want) != 1 {
			return invalid(http.StatusBadRequest, s.field, "the %s of what came is another", s.name)
		}
	}
	return nil
}
