package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// checker keeps the first thing that is wrong with a predicate.
type checker struct {
	op  string
	err error
}

// fail notes a failure at a pointer below the predicate.
func (c *checker) fail(at string, reason error) {
	if c.err == nil {
		c.err = &Error{c.op, at, reason}
	}
}

func (c *checker) must(ok bool, at, format string, args ...any) {
	if !ok && c.err == nil {
		c.fail("/predicate"+at, fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...)))
	}
}

func (c *checker) name(s, at string) {
	if err := CheckName(s); err != nil {
		c.fail("/predicate"+at, err)
	}
}

func (c *checker) time(s, at string) {
	if _, err := ParseTime(s); err != nil {
		c.fail("/predicate"+at, err)
	}
}

func (c *checker) optTime(s *string, at string) {
	if s != nil {
		c.time(*s, at)
	}
}

// text demands that a string which is given is not empty: null says "not given".
func (c *checker) text(s *string, at string) {
	c.must(s == nil || *s != "", at, "an empty string; null says that it is not given")
}

func (c *checker) digest(s *string, at string) {
	c.must(s == nil || isHex(*s, 64), at, "not 64 lower-case hex digits")
}

func (c *checker) pointer(s, at string) {
	c.must(checkPointer(s), at, "%s is not an RFC 6901 pointer", quote(s))
}

func (c *checker) oneOf(s, at string, words ...string) {
	c.must(slices.Contains(words, s), at, "%s is not one of %s", quote(s), strings.Join(words, ", "))
}

func (c *checker) notNegative(n *int64, at string) {
	c.must(n == nil || *n >= 0, at, "a negative number")
}

func (c *checker) predicate(p *Predicate) {
	c.ref(p)
	c.bytes(&p.Bytes)
	if p.Records != nil {
		c.records(p.Records, p.Bytes.Size)
	}
	c.indexes(p)
	c.lineage(&p.Lineage)
	if p.Schema != nil {
		c.schema(p)
	}
	for i, s := range p.Supersedes {
		at := "/supersedes/" + strconv.Itoa(i)
		c.must(isID(s.ArtifactID, "art_"), at+"/artifact_id", "%s is not an artifact_id", quote(s.ArtifactID))
		c.oneOf(s.Kind, at+"/kind", "reacquire", "correct", "redact", "transform")
	}
	c.text(p.Issuer.ID, "/issuer/id")
	c.must(isFingerprint(p.Issuer.KeyID), "/issuer/key_id", "%s is not a SHA256: fingerprint", quote(p.Issuer.KeyID))
	c.time(p.IssuedAt, "/issued_at")
	c.must(isHex(p.Nonce, 32), "/nonce", "not 32 lower-case hex digits")
}

func (c *checker) ref(p *Predicate) {
	r := &p.ArtifactRef
	c.must(isID(r.ArtifactID, "art_"), "/artifact_ref/artifact_id", "%s is not an artifact_id", quote(r.ArtifactID))
	if r.ContentHash != "blake3:"+p.Bytes.Root {
		c.fail("/predicate/artifact_ref/content_hash", fmt.Errorf("%w: it is not blake3: and /bytes/root", ErrDigest))
	}
	c.text(r.ToolCallID, "/artifact_ref/tool_call_id")
	c.text(r.SchemaVersion, "/artifact_ref/schema_version")
	c.time(r.CreatedAt, "/artifact_ref/created_at")
	if r.SourceVersion.SourceID != nil {
		c.name(*r.SourceVersion.SourceID, "/artifact_ref/source_version/source_id")
	}
	c.text(r.SourceVersion.SnapshotID, "/artifact_ref/source_version/snapshot_id")
	c.optTime(r.SourceVersion.ObservedAt, "/artifact_ref/source_version/observed_at")
	c.completeness(&r.Completeness, p.Records)
	c.name(r.Scope.TenantID, "/artifact_ref/scope/tenant_id")
	if r.Scope.RunID != nil {
		c.name(*r.Scope.RunID, "/artifact_ref/scope/run_id")
	}
	c.optTime(r.ExpiresAt, "/artifact_ref/expires_at")
	c.retrieval(&r.Retrieval)
}

func (c *checker) retrieval(r *Retrieval) {
	const at = "/artifact_ref/retrieval"
	c.oneOf(r.Resolver, at+"/resolver", Resolver)
	c.oneOf(r.Consistency, at+"/consistency", Consistency)
	order := []string{SelectorByteRange, SelectorRecordRange, SelectorPointer, SelectorQuery}
	last := -1
	for i, s := range r.Selectors {
		n := slices.Index(order, s)
		c.must(n >= 0, at+"/selectors/"+strconv.Itoa(i), "%s is not one of %s", quote(s), strings.Join(order, ", "))
		c.must(n > last, at+"/selectors/"+strconv.Itoa(i), "%s stands twice or out of order; the order is %s", quote(s), strings.Join(order, ", "))
		last = n
	}
}

func (c *checker) completeness(p *Completeness, records *Records) {
	const at = "/artifact_ref/completeness"
	c.oneOf(p.Status, at+"/status", StatusComplete, StatusPartial, StatusUnknown)
	c.must(p.Coverage == nil || len(p.Coverage) > 0, at+"/coverage", "an empty object; null says that it is not stated")
	c.notNegative(p.Records, at+"/records")
	if p.Records != nil && records != nil {
		c.must(*p.Records == records.Count, at+"/records", "%d records, /records/count says %d", *p.Records, records.Count)
	}
	c.must(p.Status != StatusComplete || len(p.Omissions) == 0, at+"/status", "complete, with omissions")
	for i, o := range p.Omissions {
		at := at + "/omissions/" + strconv.Itoa(i)
		switch what := o.What.(type) {
		case string:
			c.must(what != "", at+"/what", "an empty string")
		case map[string]any:
			c.must(len(what) > 0, at+"/what", "an empty object")
		default:
			c.must(false, at+"/what", "neither a string nor an object")
		}
		c.must(o.Reason != "", at+"/reason", "an empty string")
		c.text(o.Detail, at+"/detail")
	}
	for i, r := range p.Redactions {
		at := at + "/redactions/" + strconv.Itoa(i)
		c.pointer(r.Path, at+"/path")
		c.notNegative(r.Records, at+"/records")
		if r.Method != nil {
			c.oneOf(*r.Method, at+"/method", "drop", "mask", "tokenise")
		}
		c.must(r.Reason != "", at+"/reason", "an empty string")
	}
}

func (c *checker) bytes(b *Bytes) {
	c.notNegative(&b.Size, "/bytes/size")
	c.must(mediaType(b.MediaType), "/bytes/media_type", "%s is not a media type", quote(b.MediaType))
	c.digest(&b.Root, "/bytes/root")
	for _, name := range slices.Sorted(maps.Keys(b.Also)) {
		c.must(name == "sha256", "/bytes/also", "the digest %s is unknown; only sha256 may stand here", quote(name))
		c.must(isHex(b.Also[name], 64), "/bytes/also/sha256", "not 64 lower-case hex digits")
	}
	c.must(b.Also != nil, "/bytes/also", "null; {} says that there is none")
	c.must(b.Tree == DefaultTree, "/bytes/tree", "not the tree of version 1: blake3, leaf 1024, group 16384")
}

// mediaType accepts type/subtype in printable ASCII, parameters included, up to
// 255 bytes. What it means is the reader's affair.
func mediaType(s string) bool {
	kind, sub, ok := strings.Cut(s, "/")
	return ok && kind != "" && sub != "" && len(s) <= 255 &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func (c *checker) records(r *Records, size int64) {
	c.oneOf(r.Format, "/records/format", "json", "ndjson", "csv", "text", "concat")
	c.pointer(r.Pointer, "/records/pointer")
	c.must(r.Pointer == "" || r.Format == "json", "/records/pointer", "only json has an array at a pointer")
	c.must((r.Dialect != nil) == (r.Format == "csv"), "/records/dialect", "a dialect belongs to csv, and csv needs one")
	if d := r.Dialect; d != nil {
		c.must(oneASCII(d.Delimiter), "/records/dialect/delimiter", "not one ASCII character")
		c.must(d.Quote == "" || oneASCII(d.Quote) && d.Quote != d.Delimiter, "/records/dialect/quote", "neither empty nor one other ASCII character")
		c.must(d.Header || len(d.Columns) == 0, "/records/dialect/columns", "columns without a header")
	}
	for _, n := range []struct {
		at   string
		n    int64
		from int64
	}{
		{"limits/depth", r.Limits.Depth, 1},
		{"limits/digits", r.Limits.Digits, 1},
		{"limits/exponent", r.Limits.Exponent, 1},
		{"limits/record", r.Limits.Record, 1},
		{"count", r.Count, 0},
		{"flags/blank_lines", r.Flags.BlankLines, 0},
		{"flags/depth", r.Flags.Depth, 0},
		{"flags/duplicate_names", r.Flags.DuplicateNames, 0},
		{"flags/escapes", r.Flags.Escapes, 0},
		{"flags/invalid_utf8", r.Flags.InvalidUTF8, 0},
		{"flags/longest_record", r.Flags.LongestRecord, 0},
		{"flags/over_limit", r.Flags.OverLimit, 0},
		{"flags/ragged", r.Flags.Ragged, 0},
		{"flags/undecidable", r.Flags.Undecidable, 0},
		{"flags/unparseable", r.Flags.Unparseable, 0},
	} {
		c.must(n.n >= n.from, "/records/"+n.at, "%d is less than %d", n.n, n.from)
	}
	if spans := r.Flags.UndecidableSpans; spans != nil {
		c.must(len(spans) > 0 && int64(len(spans)) == min(r.Flags.Undecidable, MaxFailedSpans), "/records/flags/undecidable_spans",
			"%d spans of %d records; the first %d are listed", len(spans), r.Flags.Undecidable, MaxFailedSpans)
		end := int64(0)
		for i, s := range spans {
			c.must(end <= s[0] && s[0] <= s[1] && s[1] <= size, "/records/flags/undecidable_spans/"+strconv.Itoa(i), "[%d,%d] overlaps what stands before it, or is outside the bytes", s[0], s[1])
			end = s[1]
		}
	}
	if r.Map != nil {
		c.digest(&r.Map.Root, "/records/map/root")
		c.must(r.Map.Size > 0, "/records/map/size", "%d is less than 1", r.Map.Size)
	}
}

// MaxIndexes is how many indexes a manifest names.
const MaxIndexes = 64

// indexes checks what is said about the indexes. They are over records, of which
// there must be a map, and stand in the order of their paths.
func (c *checker) indexes(p *Predicate) {
	if len(p.Indexes) == 0 {
		return
	}
	c.must(p.Records != nil && p.Records.Map != nil, "/indexes", "indexes of an artifact without a record map")
	c.must(len(p.Indexes) <= MaxIndexes, "/indexes", "%d indexes, at most %d", len(p.Indexes), MaxIndexes)
	for i := range p.Indexes {
		x, at := &p.Indexes[i], "/indexes/"+strconv.Itoa(i)
		c.index(x, at)
		c.must(i == 0 || p.Indexes[i-1].Path < x.Path, at+"/path", "%s stands twice or out of order", quote(x.Path))
		c.must(p.Records == nil || x.Entries >= p.Records.Count, at+"/entries", "%d of %d records", x.Entries, p.Records.Count)
	}
}

// index checks what is said about one index. An index over whole records has the
// path "".
func (c *checker) index(x *Index, at string) {
	c.digest(&x.Root, at+"/root")
	c.must(x.Size > 0, at+"/size", "%d is less than 1", x.Size)
	c.notNegative(&x.Entries, at+"/entries")
	c.must(x.Distinct >= 0 && x.Distinct <= x.Entries, at+"/distinct", "%d of %d entries", x.Distinct, x.Entries)
	c.must(x.Undetermined >= 0 && x.Undetermined <= x.Entries, at+"/undetermined", "%d of %d entries", x.Undetermined, x.Entries)
	c.must(len(x.Spec) > 0, at+"/spec", "an empty spec")
	c.must(x.Spec["path"] == any(x.Path), at+"/spec/path", "not the path of the index")
	c.digest(&x.SpecDigest, at+"/spec_digest")
}

func oneASCII(s string) bool {
	return len(s) == 1 && s[0] < 0x7f && s != "\n" && s != "\r" && s != "\x00"
}

func (c *checker) lineage(l *Lineage) {
	c.oneOf(l.Kind, "/lineage/kind", "capture", "transform", "import")
	if p := l.Producer; p != nil {
		c.must(p.Tool != "", "/lineage/producer/tool", "an empty string")
		c.text(p.ToolVersion, "/lineage/producer/tool_version")
		c.digest(p.ArgumentsDigest, "/lineage/producer/arguments_digest")
		c.oneOf(p.Outcome, "/lineage/producer/outcome", "ok", "partial", "error")
		c.optTime(p.StartedAt, "/lineage/producer/started_at")
		c.optTime(p.FinishedAt, "/lineage/producer/finished_at")
	}
	derived := l.Kind == "transform"
	c.must(derived || l.Kind == "import" || len(l.Inputs) == 0, "/lineage/inputs", "a capture has no inputs")
	c.must(!derived || len(l.Inputs) > 0, "/lineage/inputs", "a transform needs an input")
	c.must(derived == (l.Transform != nil), "/lineage/transform", "a transform states what it did, and nothing else does")
	for i, in := range l.Inputs {
		at := "/lineage/inputs/" + strconv.Itoa(i)
		c.must(isID(in.ArtifactID, "art_"), at+"/artifact_id", "%s is not an artifact_id", quote(in.ArtifactID))
		c.must(isID(in.ManifestID, "mf_"), at+"/manifest_id", "%s is not a manifest_id", quote(in.ManifestID))
		hash, ok := strings.CutPrefix(in.ContentHash, "blake3:")
		c.must(ok && isHex(hash, 64), at+"/content_hash", "%s is not blake3: and 64 hex digits", quote(in.ContentHash))
		c.digest(in.SelectorDigest, at+"/selector_digest")
		c.name(in.Role, at+"/role")
	}
	if t := l.Transform; t != nil {
		c.must(t.ID != "", "/lineage/transform/id", "an empty string")
		c.digest(&t.SpecDigest, "/lineage/transform/spec_digest")
		c.digest(t.CodeDigest, "/lineage/transform/code_digest")
	}
}

// schema checks what is said about the check of a schema. A check belongs to an
// artifact whose schema_version names another artifact.
func (c *checker) schema(p *Predicate) {
	s := p.Schema
	version := p.ArtifactRef.SchemaVersion
	c.must(version != nil && isID(*version, "art_"), "/schema", "a check, but /artifact_ref/schema_version names no artifact")
	hash, ok := strings.CutPrefix(s.ContentHash, "blake3:")
	c.must(ok && isHex(hash, 64), "/schema/content_hash", "%s is not blake3: and 64 hex digits", quote(s.ContentHash))
	want := int64(1)
	if p.Records != nil {
		want = p.Records.Count
	}
	c.must(s.Checked == want, "/schema/checked", "%d, there are %d to check", s.Checked, want)
	c.must(0 <= s.Failed && s.Failed <= s.Checked, "/schema/failed", "%d of %d", s.Failed, s.Checked)
	c.must(int64(len(s.Spans)) == min(s.Failed, MaxFailedSpans), "/schema/spans", "%d spans of %d failures; the first %d are named", len(s.Spans), s.Failed, MaxFailedSpans)
	end := int64(0)
	for i, span := range s.Spans {
		c.must(end <= span[0] && span[0] <= span[1] && span[1] <= p.Bytes.Size, "/schema/spans/"+strconv.Itoa(i), "[%d,%d] overlaps what stands before it, or is outside the bytes", span[0], span[1])
		end = span[1]
	}
}

// id checks that the predicate carries the artifact_id that its core gives.
func (c *checker) id(p *Predicate, want string) {
	if got := p.ArtifactRef.ArtifactID; got != want {
		c.fail("/predicate/artifact_ref/artifact_id", fmt.Errorf("%w: %s, the core gives %s", ErrID, quote(got), want))
	}
}

// subject checks that the statement is about exactly this artifact and that
// every digest listed is the one in the predicate: foreign verifiers are content
// with any of them.
func (c *checker) subject(subjects []Subject, p *Predicate) {
	if len(subjects) != 1 {
		c.fail("/subject", fmt.Errorf("%w: %d subjects, exactly one is allowed", ErrMalformed, len(subjects)))
		return
	}
	s := subjects[0]
	if s.Name != p.ArtifactRef.ArtifactID {
		c.fail("/subject/0/name", fmt.Errorf("%w: the subject is %s, the predicate is about %s", ErrID, quote(s.Name), quote(p.ArtifactRef.ArtifactID)))
	}
	want := digests(p)
	for _, name := range slices.Sorted(maps.Keys(s.Digest)) {
		if s.Digest[name] != want[name] {
			c.fail(cutPointer("/subject/0/digest/"+string(appendToken(nil, []byte(name)))), fmt.Errorf("%w: the subject's is not the one of /predicate/bytes", ErrDigest))
		}
	}
	if len(s.Digest) != len(want) {
		c.fail("/subject/0/digest", fmt.Errorf("%w: %d digests, /predicate/bytes has %d", ErrDigest, len(s.Digest), len(want)))
	}
}
