package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"leafproof"
	"leafproof/merkle"
)

// The media types of proofs.
const (
	mediaSlice  = "application/vnd.leafproof.slice"  // a bare proof of bytes, lps1
	mediaBao    = "application/vnd.leafproof.bao"    // the same as a Bao slice
	mediaBundle = "application/vnd.leafproof.bundle" // a .proof file: manifest, claim and proof
)

// content answers with an artifact's bytes, a range of them, or a proof of those.
func (c *call) content() error {
	if _, err := c.query(); err != nil {
		return err
	}
	kind, err := c.accepts("", mediaSlice, mediaBao, mediaBundle)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Authorization, Accept")
	if kind != "" {
		return c.proofOfContent(kind)
	}
	data, err := c.s.store.Content(c.r.Context(), c.who, c.params["id"])
	if err != nil {
		return err
	}
	defer data.Close()
	h := c.w.Header()
	h.Set("Accept-Ranges", "bytes")
	etag := ""
	if data.Whole() {
		etag = `"b3-` + data.Root().String() + `"`
		h.Set("ETag", etag)
	}
	if sum, err := hex.DecodeString(data.SHA256()); err == nil && len(sum) == sha256.Size {
		h.Set("Repr-Digest", digest(sum))
	}
	if done, err := c.conditions(etag); err != nil || done {
		if err == nil {
			err = data.Look(c.r.Context())
		}
		if err != nil {
			return err
		}
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	part, isPart, err := c.wanted(data.Size(), etag)
	if err != nil {
		if !data.Whole() {
			h.Del("Content-Range")
		}
		return err
	}
	h.Set("Content-Type", safeMedia(data.MediaType()))
	h.Set("Content-Disposition", "attachment") // a browser shows nobody what somebody put
	h.Set("Content-Length", strconv.FormatInt(part.End-part.Start, 10))
	status := http.StatusOK
	if isPart {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.Start, part.End-1, data.Size()))
	}
	if c.r.Method == http.MethodHead {
		if err := data.Look(c.r.Context()); err != nil {
			return err
		}
		c.w.WriteHeader(status)
		return nil
	}
	return c.sendContent(data, part, status)
}

// sendContent sends a range, with its own digest if that is wanted: before it where
// it is short, behind it where it is long.
func (c *call) sendContent(data *leafproof.Content, part merkle.Range, status int) error {
	h := c.w.Header()
	switch want := wantsDigest(c.r.Header.Get("Want-Content-Digest")); {
	case want && part.End-part.Start <= maxInline:
		var b bytes.Buffer
		if err := data.Write(c.r.Context(), part, &b, nil); err != nil {
			return err
		}
		sum := sha256.Sum256(b.Bytes())
		h.Set("Content-Digest", digest(sum[:]))
		c.w.WriteHeader(status)
		_, _ = c.w.Write(b.Bytes())
		return nil
	case want:
		h.Del("Content-Length") // only a body in chunks has room behind it
		h.Set("Trailer", "Content-Digest")
		sum := sha256.New()
		if err := data.Write(c.r.Context(), part, &tee{&c.w, sum}, func() { c.w.WriteHeader(status) }); err != nil {
			return err
		}
		h.Set("Content-Digest", digest(sum.Sum(nil)))
		return nil
	}
	return data.Write(c.r.Context(), part, &c.w, func() { c.w.WriteHeader(status) })
}

// tee writes to w, and to a hash what w has taken.
type tee struct {
	w   io.Writer
	sum hash.Hash
}

func (t *tee) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.sum.Write(p[:n])
	return n, err
}

func digest(sum []byte) string { return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":" }

// wantsDigest reports whether a Want-Content-Digest header (RFC 9530) has sha-256 with
// a weight above 0.
func wantsDigest(header string) bool {
	for item := range strings.SplitSeq(header, ",") {
		name, weight, ok := strings.Cut(strings.TrimSpace(item), "=")
		if n, err := strconv.Atoi(weight); strings.TrimSpace(name) == "sha-256" && (!ok || err == nil && n > 0) {
			return true
		}
	}
	return false
}

// safeMedia is a media type as a header can have it.
func safeMedia(media string) string {
	if _, _, err := mime.ParseMediaType(media); err != nil || strings.ContainsFunc(media, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "application/octet-stream"
	}
	return media
}

// conditions judges the preconditions (RFC 9110, section 13) of a representation
// with this tag. Done says that the caller has it.
func (c *call) conditions(etag string) (done bool, err error) {
	if match := c.r.Header.Values("If-Match"); len(match) > 0 && !slices.ContainsFunc(match, func(v string) bool { return hasTag(v, etag, true) }) {
		return false, refuse(http.StatusPreconditionFailed, leafproof.CodeRequestInvalid, leafproof.FixCall, "If-Match", "the artifact has another tag; it never changes")
	}
	return slices.ContainsFunc(c.r.Header.Values("If-None-Match"), func(v string) bool { return hasTag(v, etag, false) }), nil
}

// hasTag reports whether a list of entity tags has one.
func hasTag(list, etag string, strong bool) bool {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "*" {
			return true
		}
		if !strong {
			item = strings.TrimPrefix(item, "W/")
		}
		if etag != "" && item == etag {
			return true
		}
	}
	return false
}

// wanted is the range that the request asks for; all where it asks for none, or for
// one of another version.
func (c *call) wanted(size int64, etag string) (merkle.Range, bool, error) {
	all := merkle.Range{Start: 0, End: size}
	header := c.r.Header.Values("Range")
	if len(header) == 0 || size == 0 || c.r.Method != http.MethodGet {
		return all, false, nil
	}
	if since := c.r.Header.Get("If-Range"); since != "" && (etag == "" || since != etag) {
		return all, false, nil
	}
	part, known, err := parseRange(strings.Join(header, ","), size)
	if err != nil {
		c.w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return all, false, err
	}
	if !known {
		return all, false, nil
	}
	return part, true, nil
}

// parseRange reads a Range header (RFC 9110, section 14.2) for a representation of a
// size above 0. Known is false for a unit that is not bytes. Ranges that touch or
// overlap are one; several that do not are refused: /read answers those, one at a time.
func parseRange(header string, size int64) (part merkle.Range, known bool, err error) {
	bad := func(format string, args ...any) (merkle.Range, bool, error) {
		return merkle.Range{}, true, refuse(http.StatusRequestedRangeNotSatisfiable, leafproof.CodeSelectorInvalid, leafproof.FixCall, "Range", format, args...)
	}
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return part, false, nil
	}
	if n := 1 + strings.Count(set, ","); n > maxRanges {
		return bad("%d ranges, and at most %d are read", n, maxRanges)
	}
	var ranges []merkle.Range
	for spec := range strings.SplitSeq(set, ",") {
		spec = strings.Trim(spec, " \t")
		if spec == "" {
			continue
		}
		r, ok := parseOneRange(spec, size)
		if !ok {
			return bad("%s is no range of bytes", printable(spec))
		}
		if r.Start < r.End {
			ranges = append(ranges, r)
		}
	}
	if len(ranges) == 0 {
		return bad("no byte of it is among the %d that there are", size)
	}
	slices.SortFunc(ranges, func(a, b merkle.Range) int { return int(min(1, max(-1, a.Start-b.Start))) })
	part = ranges[0]
	for _, r := range ranges[1:] {
		if r.Start > part.End {
			return bad("ranges that do not touch: one is given at a time")
		}
		part.End = max(part.End, r.End)
	}
	return part, true, nil
}

// parseOneRange reads "a-b", "a-" or "-n". A range behind the end is empty.
func parseOneRange(spec string, size int64) (merkle.Range, bool) {
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return merkle.Range{}, false
	}
	if first == "" {
		n, ok := digits(last)
		return merkle.Range{Start: max(0, size-n), End: size}, ok
	}
	r := merkle.Range{End: size}
	if r.Start, ok = digits(first); !ok {
		return r, false
	}
	if last != "" {
		end, ok := digits(last)
		if !ok || end < r.Start {
			return r, false
		}
		r.End = min(size, end+1)
	}
	r.Start = min(r.Start, r.End)
	return r, true
}

// digits reads a number without a sign; one that is too large is a large one.
func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = 1 << 62
	}
	return min(n, 1<<62), true
}

// accepts chooses among media types by the Accept header: the one that stands there
// with the highest weight, else the first, which stands for all that has no name.
func (c *call) accepts(types ...string) (string, error) {
	best, weight := types[0], 0.0
	for _, header := range c.r.Header.Values("Accept") {
		for item := range strings.SplitSeq(header, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err != nil {
				continue
			}
			q := 1.0
			if text, ok := params["q"]; ok {
				if q, err = strconv.ParseFloat(text, 64); err != nil {
					continue
				}
			}
			if i := slices.Index(types, media); i >= 0 && q > weight {
				best, weight = types[i], q
			}
		}
	}
	return best, nil
}

// proofOfContent answers with a proof of the bytes that Range names: a bare one, or a
// bundle. It is a whole answer, not a part of one.
func (c *call) proofOfContent(kind string) error {
	if len(c.r.Header.Values("If-Range")) > 0 {
		return invalid(http.StatusBadRequest, "If-Range", "a proof has no version but its artifact's: it goes without If-Range")
	}
	id := c.params["id"]
	part := merkle.Range{Start: 0, End: 1 << 62}
	if header := c.r.Header.Values("Range"); len(header) > 0 {
		p, known, err := parseRange(strings.Join(header, ","), 1<<62)
		if err != nil {
			return err
		}
		if known && slices.ContainsFunc(strings.FieldsFunc(strings.Join(header, ","), func(r rune) bool { return strings.ContainsRune("=, \t", r) }), func(spec string) bool { return spec[0] == '-' }) {
			return invalid(http.StatusBadRequest, "Range", "a proof is of bytes from a first one on: the end of an artifact is in its manifest")
		}
		if known {
			part = p
		}
	}
	if c.r.Method == http.MethodHead {
		return invalid(http.StatusMethodNotAllowed, "method", "a proof is made when it is asked for: GET")
	}
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Add("Vary", "Range")
	h.Set("Link", fmt.Sprintf(`</v1/artifacts/%s/manifest>; rel="describedby"`, id))
	var err error
	switch kind {
	case mediaBundle:
		_, err = c.s.store.Prove(c.r.Context(), c.who, id, leafproof.Selector{Bytes: &part}, &c.w)
	default:
		_, err = c.s.store.Slice(c.r.Context(), c.who, id, part, kind == mediaBao, &c.w)
	}
	return err
}
