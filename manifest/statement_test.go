package manifest_test

import (
	"bytes"
	"encoding/base32"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/merkle"
)

// The ids of predicate, computed from its JSON with Python's json module
// (sort_keys, compact), `b3sum --derive-key` and Python's base32.
const (
	wantArtifactID = "art_vm6pszojol5iqjtpqjlgixpmhjczbuxk"
	wantManifestID = "mf_vut77vcf3qcsiofnymmwfd2yaksjip6n"
)

func TestIDs(t *testing.T) {
	payload := statement(t, predicate())
	m, err := manifest.ParseManifest(payload)
	if err != nil {
		t.Fatal(err)
	}
	if m.ArtifactID != wantArtifactID || m.Predicate.ArtifactRef.ArtifactID != wantArtifactID {
		t.Errorf("artifact_id = %s, want %s", m.ArtifactID, wantArtifactID)
	}
	if m.ManifestID != wantManifestID {
		t.Errorf("manifest_id = %s, want %s", m.ManifestID, wantManifestID)
	}
	if m.Size != int64(len(content)) || "blake3:"+m.Root.String() != m.Predicate.ArtifactRef.ContentHash || !bytes.Equal(m.Payload, payload) {
		t.Errorf("size %d, root %s", m.Size, m.Root)
	}
}

// TestCore: what the artifact_id fixes and what it does not.
func TestCore(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*manifest.Predicate)
		same   bool
	}{
		"the id itself": {func(p *manifest.Predicate) { p.ArtifactRef.ArtifactID = "art_x" }, true},
		"issuer":        {func(p *manifest.Predicate) { p.Issuer.ID = new("somebody") }, true},
		"issued_at":     {func(p *manifest.Predicate) { p.IssuedAt = "2027-01-01T00:00:00Z" }, true},
		"indexes":       {func(p *manifest.Predicate) { p.Indexes = []manifest.Index{{Path: "/status"}} }, true},
		"nil and empty": {func(p *manifest.Predicate) { p.Bytes.Also = map[string]string{} }, true},
		"nonce":         {func(p *manifest.Predicate) { p.Nonce = strings.Repeat("0", 32) }, false},
		"tenant":        {func(p *manifest.Predicate) { p.ArtifactRef.Scope.TenantID = "other" }, false},
		"status":        {func(p *manifest.Predicate) { p.ArtifactRef.Completeness.Status = "unknown" }, false},
		"size":          {func(p *manifest.Predicate) { p.Bytes.Size++ }, false},
		"supersedes":    {func(p *manifest.Predicate) { p.Supersedes = []manifest.Supersede{{}} }, false},
		"records":       {func(p *manifest.Predicate) { p.Records.Count++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := predicate()
			test.change(&p)
			id, err := manifest.ArtifactID(p)
			if err != nil {
				t.Fatal(err)
			}
			if (id == wantArtifactID) != test.same {
				t.Errorf("id = %s, same: want %v", id, test.same)
			}
		})
	}
}

// TestCoreIsWhole: the id follows from the core as the format states it: the
// canonical predicate with four members taken out, here by hand and generically.
func TestCoreIsWhole(t *testing.T) {
	for name, change := range shapes {
		t.Run(name, func(t *testing.T) {
			p := predicate()
			change(&p)
			var st struct {
				Predicate map[string]any `json:"predicate"`
			}
			if err := json.Unmarshal(statement(t, p), &st); err != nil {
				t.Fatal(err)
			}
			ref := st.Predicate["artifact_ref"].(map[string]any)
			id := ref["artifact_id"]
			delete(ref, "artifact_id")
			delete(st.Predicate, "indexes")
			delete(st.Predicate, "issuer")
			delete(st.Predicate, "issued_at")
			core, err := manifest.Canonical(st.Predicate)
			if err != nil {
				t.Fatal(err)
			}
			key := merkle.DeriveKey("leafproof 2026 artifact-id v1", core)
			want := "art_" + strings.ToLower(base32.StdEncoding.EncodeToString(key[:])[:32])
			if id != want {
				t.Errorf("artifact_id = %s, the core gives %s", id, want)
			}
		})
	}
}

// alter decodes a document, sets the value at a pointer (nil removes it) and
// encodes it again. The decoder is the standard library's.
func alter(t *testing.T, doc []byte, pointer string, value any) []byte {
	t.Helper()
	var root any
	if err := json.Unmarshal(doc, &root); err != nil {
		t.Fatal(err)
	}
	at := root
	tokens := strings.Split(pointer, "/")[1:]
	for i, token := range tokens {
		last := i == len(tokens)-1
		switch node := at.(type) {
		case map[string]any:
			switch {
			case !last:
				at = node[token]
			case value == nil:
				delete(node, token)
			default:
				node[token] = value
			}
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil {
				t.Fatalf("%s: %v", pointer, err)
			}
			if last {
				node[n] = value
			} else {
				at = node[n]
			}
		default:
			t.Fatalf("%s: nothing at %s", pointer, token)
		}
	}
	b, err := manifest.Canonical(root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// null stands for a JSON null, since nil removes a member.
var null = json.RawMessage("null")

func TestParseManifestRefuses(t *testing.T) {
	zero := strings.Repeat("0", 64)
	const ref = "/predicate/artifact_ref"
	for name, test := range map[string]struct {
		at    string
		value any
		err   error
		where string // empty: the place that was altered
	}{
		"statement type":         {"/_type", "https://in-toto.io/Statement/v0.1", manifest.ErrMalformed, ""},
		"predicate type":         {"/predicateType", "urn:x-leafproof:tombstone/v1", manifest.ErrMalformed, ""},
		"foreign predicate type": {"/predicateType", "https://holdfast.example/manifest/v1", manifest.ErrMalformed, ""},
		"no predicate type":      {"/predicateType", nil, manifest.ErrMalformed, ""},
		"unknown at the top":     {"/x", 1, manifest.ErrMalformed, ""},
		"unknown in predicate":   {"/predicate/x", 1, manifest.ErrMalformed, ""},
		"unknown in ref":         {ref + "/x", 1, manifest.ErrMalformed, ""},
		"unknown in omission":    {ref + "/completeness/omissions/0/x", 1, manifest.ErrMalformed, ""},
		"other case":             {"/predicate/Nonce", "x", manifest.ErrMalformed, ""},
		"no omissions":           {ref + "/completeness/omissions", nil, manifest.ErrMalformed, ""},
		"no expires_at":          {ref + "/expires_at", nil, manifest.ErrMalformed, ""},
		"no supersedes":          {"/predicate/supersedes", nil, manifest.ErrMalformed, ""},
		"null size":              {"/predicate/bytes/size", null, manifest.ErrMalformed, ""},
		"null also":              {"/predicate/bytes/also", null, manifest.ErrMalformed, ""},
		"no subject":             {"/subject", []any{}, manifest.ErrMalformed, ""},
		"two subjects": {
			"/subject",
			[]any{map[string]any{"name": "a", "digest": map[string]any{}}, map[string]any{"name": "b", "digest": map[string]any{}}},
			manifest.ErrMalformed, "",
		},
		"subject of another":       {"/subject/0/name", "art_other", manifest.ErrID, ""},
		"subject blake3":           {"/subject/0/digest/blake3", zero, manifest.ErrDigest, ""},
		"subject blake3 absent":    {"/subject/0/digest", map[string]any{}, manifest.ErrDigest, ""},
		"subject sha256 unstated":  {"/subject/0/digest/sha256", zero, manifest.ErrDigest, ""},
		"also without subject":     {"/predicate/bytes/also/sha256", zero, manifest.ErrDigest, "/subject/0/digest"},
		"also of another kind":     {"/predicate/bytes/also/md5", zero, manifest.ErrMalformed, "/predicate/bytes/also"},
		"also not hex":             {"/predicate/bytes/also/sha256", "abc", manifest.ErrMalformed, ""},
		"content_hash":             {ref + "/content_hash", "blake3:" + zero, manifest.ErrDigest, ""},
		"content_hash sha256":      {ref + "/content_hash", "sha256:" + zero, manifest.ErrDigest, ""},
		"root upper case":          {"/predicate/bytes/root", strings.Repeat("A", 64), manifest.ErrDigest, ref + "/content_hash"},
		"artifact_id":              {ref + "/artifact_id", "art_" + strings.Repeat("a", 32), manifest.ErrID, "/subject/0/name"},
		"artifact_id form":         {ref + "/artifact_id", "artifact", manifest.ErrMalformed, ""},
		"a core fact":              {ref + "/tool_call_id", "call_other", manifest.ErrID, ref + "/artifact_id"},
		"tenant with a slash":      {ref + "/scope/tenant_id", "a/b", manifest.ErrName, ""},
		"tenant empty":             {ref + "/scope/tenant_id", "", manifest.ErrName, ""},
		"run with a star":          {ref + "/scope/run_id", "a*", manifest.ErrName, ""},
		"source with a space":      {ref + "/source_version/source_id", "a b", manifest.ErrName, ""},
		"snapshot empty":           {ref + "/source_version/snapshot_id", "", manifest.ErrMalformed, ""},
		"observed with an offset":  {ref + "/source_version/observed_at", "2026-11-06T04:39:50+00:00", manifest.ErrTime, ""},
		"created with zeros":       {ref + "/created_at", "2026-11-06T04:40:00.50Z", manifest.ErrTime, ""},
		"expires as a number":      {ref + "/expires_at", 1, manifest.ErrMalformed, ""},
		"issued empty":             {"/predicate/issued_at", "", manifest.ErrTime, ""},
		"status":                   {ref + "/completeness/status", "Complete", manifest.ErrMalformed, ""},
		"complete with omissions":  {ref + "/completeness/status", "complete", manifest.ErrMalformed, ""},
		"coverage empty":           {ref + "/completeness/coverage", map[string]any{}, manifest.ErrMalformed, ""},
		"records negative":         {ref + "/completeness/records", -1, manifest.ErrMalformed, ""},
		"records another count":    {ref + "/completeness/records", 2, manifest.ErrMalformed, ""},
		"omission of nothing":      {ref + "/completeness/omissions/0/what", map[string]any{}, manifest.ErrMalformed, ""},
		"omission of a number":     {ref + "/completeness/omissions/0/what", 7, manifest.ErrMalformed, ""},
		"omission without reason":  {ref + "/completeness/omissions/0/reason", "", manifest.ErrMalformed, ""},
		"redaction path":           {ref + "/completeness/redactions/0/path", "user", manifest.ErrMalformed, ""},
		"redaction path escape":    {ref + "/completeness/redactions/0/path", "/a~2", manifest.ErrMalformed, ""},
		"redaction method":         {ref + "/completeness/redactions/0/method", "burn", manifest.ErrMalformed, ""},
		"resolver":                 {ref + "/retrieval/resolver", "artifact.read.v2", manifest.ErrMalformed, ""},
		"consistency":              {ref + "/retrieval/consistency", "latest", manifest.ErrMalformed, ""},
		"selector unknown":         {ref + "/retrieval/selectors/0", "json_pointer", manifest.ErrMalformed, ""},
		"selector twice":           {ref + "/retrieval/selectors/1", "byte_range", manifest.ErrMalformed, ""},
		"selector order":           {ref + "/retrieval/selectors/0", "query", manifest.ErrMalformed, ref + "/retrieval/selectors/1"},
		"size negative":            {"/predicate/bytes/size", -1, manifest.ErrMalformed, ""},
		"media type":               {"/predicate/bytes/media_type", "json", manifest.ErrMalformed, ""},
		"media type with control":  {"/predicate/bytes/media_type", "a/b\n", manifest.ErrMalformed, ""},
		"tree":                     {"/predicate/bytes/tree/leaf", 4096, manifest.ErrMalformed, "/predicate/bytes/tree"},
		"records format":           {"/predicate/records/format", "bytes", manifest.ErrMalformed, ""},
		"records pointer":          {"/predicate/records/pointer", "/items", manifest.ErrMalformed, ""},
		"csv without dialect":      {"/predicate/records/format", "csv", manifest.ErrMalformed, "/predicate/records/dialect"},
		"limits":                   {"/predicate/records/limits/depth", 0, manifest.ErrMalformed, ""},
		"count":                    {"/predicate/records/count", -1, manifest.ErrMalformed, ref + "/completeness/records"},
		"flags":                    {"/predicate/records/flags/escapes", -1, manifest.ErrMalformed, ""},
		"map root":                 {"/predicate/records/map/root", "00", manifest.ErrMalformed, ""},
		"map size":                 {"/predicate/records/map/size", 0, manifest.ErrMalformed, ""},
		"index root":               {"/predicate/indexes", []any{index("/a", "root", "")}, manifest.ErrMalformed, "/predicate/indexes/0/root"},
		"index size":               {"/predicate/indexes", []any{index("/a", "size", 0)}, manifest.ErrMalformed, "/predicate/indexes/0/size"},
		"index entries":            {"/predicate/indexes", []any{index("/a", "entries", 1)}, manifest.ErrMalformed, "/predicate/indexes/0/"},
		"index distinct":           {"/predicate/indexes", []any{index("/a", "distinct", 1<<40)}, manifest.ErrMalformed, "/predicate/indexes/0/distinct"},
		"index spec":               {"/predicate/indexes", []any{index("/a", "spec", map[string]any{"path": "/b"})}, manifest.ErrMalformed, "/predicate/indexes/0/spec"},
		"index twice":              {"/predicate/indexes", []any{index("/a", "", nil), index("/a", "", nil)}, manifest.ErrMalformed, "/predicate/indexes/1/path"},
		"indexes out of order":     {"/predicate/indexes", []any{index("/b", "", nil), index("/a", "", nil)}, manifest.ErrMalformed, "/predicate/indexes/1/path"},
		"lineage kind":             {"/predicate/lineage/kind", "guess", manifest.ErrMalformed, ""},
		"transform without inputs": {"/predicate/lineage/kind", "transform", manifest.ErrMalformed, "/predicate/lineage/inputs"},
		"capture with inputs":      {"/predicate/lineage/inputs", []any{input}, manifest.ErrMalformed, ""},
		"outcome":                  {"/predicate/lineage/producer/outcome", "fine", manifest.ErrMalformed, ""},
		"tool":                     {"/predicate/lineage/producer/tool", "", manifest.ErrMalformed, ""},
		"arguments digest":         {"/predicate/lineage/producer/arguments_digest", "abc", manifest.ErrMalformed, ""},
		"started":                  {"/predicate/lineage/producer/started_at", "now", manifest.ErrTime, ""},
		"supersedes": {
			"/predicate/supersedes",
			[]any{map[string]any{"artifact_id": wantArtifactID, "kind": "replace"}},
			manifest.ErrMalformed, "/predicate/supersedes/0/kind",
		},
		"issuer key":      {"/predicate/issuer/key_id", "SHA256:abc", manifest.ErrMalformed, ""},
		"issuer key bits": {"/predicate/issuer/key_id", "SHA256:" + strings.Repeat("B", 43), manifest.ErrMalformed, ""},
		"issuer empty":    {"/predicate/issuer/id", "", manifest.ErrMalformed, ""},
		"nonce short":     {"/predicate/nonce", "00", manifest.ErrMalformed, ""},
		"nonce not hex":   {"/predicate/nonce", strings.Repeat("g", 32), manifest.ErrMalformed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			payload := alter(t, statement(t, predicate()), test.at, test.value)
			m, err := manifest.ParseManifest(payload)
			if !errors.Is(err, test.err) || m != nil {
				t.Fatalf("ParseManifest = %v, %v, want %v", m, err, test.err)
			}
			where := test.where
			if where == "" {
				where = test.at
			}
			if e, _ := errors.AsType[*manifest.Error](err); e == nil || !strings.HasPrefix(e.At, where) {
				t.Errorf("error %q does not name %s", err, where)
			}
		})
	}
}

var (
	index = func(path, member string, value any) map[string]any {
		x := map[string]any{
			"path": path, "root": strings.Repeat("0", 64), "size": 8192, "entries": 1 << 30, "distinct": 5, "undetermined": 1,
			"spec": map[string]any{"path": path}, "spec_digest": strings.Repeat("1", 64),
		}
		if member != "" {
			x[member] = value
		}
		return x
	}
	input = map[string]any{
		"artifact_id": wantArtifactID, "content_hash": "blake3:" + strings.Repeat("0", 64), "manifest_id": wantManifestID,
		"selector_digest": null, "role": "source",
	}
)

// shapes are the forms that a predicate may take.
var shapes = map[string]func(*manifest.Predicate){
	"as it is": func(*manifest.Predicate) {},
	"least": func(p *manifest.Predicate) {
		p.ArtifactRef.ToolCallID, p.ArtifactRef.SchemaVersion, p.ArtifactRef.ExpiresAt = nil, nil, nil
		p.ArtifactRef.SourceVersion = manifest.SourceVersion{}
		p.ArtifactRef.Completeness = manifest.Completeness{Status: manifest.StatusUnknown}
		p.ArtifactRef.Scope.RunID, p.ArtifactRef.Retrieval.Selectors = nil, nil
		p.Records, p.Lineage.Producer = nil, nil
	},
	"coverage {} is null": func(p *manifest.Predicate) { p.ArtifactRef.Completeness.Coverage = map[string]any{} },
	"sha256":              func(p *manifest.Predicate) { p.Bytes.Also = map[string]string{"sha256": strings.Repeat("0", 64)} },
	"json at a pointer": func(p *manifest.Predicate) {
		p.Records.Format, p.Records.Pointer = "json", "/a~1b/0"
	},
	"csv": func(p *manifest.Predicate) {
		p.Records.Format, p.Records.Dialect = "csv", &manifest.Dialect{Delimiter: "\t", Quote: `"`, Header: true, Columns: []string{"a", "é", ""}}
	},
	"omission by name": func(p *manifest.Predicate) { p.ArtifactRef.Completeness.Omissions[0].What = "us-east" },
	"transform": func(p *manifest.Predicate) {
		p.Lineage = manifest.Lineage{Kind: "transform", Inputs: []manifest.Input{{
			ArtifactID: wantArtifactID, ContentHash: "blake3:" + strings.Repeat("0", 64), ManifestID: wantManifestID, Role: "source",
		}}, Transform: &manifest.Transform{ID: "leafproof.query.v1", SpecDigest: strings.Repeat("0", 64), Deterministic: true}}
	},
	"supersedes": func(p *manifest.Predicate) {
		p.Supersedes = []manifest.Supersede{{ArtifactID: wantArtifactID, Kind: "reacquire"}}
	},
	"its own id": func(p *manifest.Predicate) { p.ArtifactRef.ArtifactID = wantArtifactID },
	"schema":     checkedSchema,
}

// checkedSchema makes a predicate one whose schema was checked.
func checkedSchema(p *manifest.Predicate) {
	p.ArtifactRef.SchemaVersion = new("art_" + strings.Repeat("b", 32))
	p.Schema = &manifest.SchemaCheck{
		ContentHash: "blake3:" + strings.Repeat("1", 64), Checked: 1, Failed: 1, Spans: [][2]int64{{0, 30}},
	}
}

// TestSchemaCheckRefuses: what is said about a check fits what was checked.
func TestSchemaCheckRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*manifest.Predicate)
		at     string
	}{
		"a declared schema": {func(p *manifest.Predicate) { p.ArtifactRef.SchemaVersion = new("v1") }, ""},
		"no schema":         {func(p *manifest.Predicate) { p.ArtifactRef.SchemaVersion = nil }, ""},
		"hash":              {func(p *manifest.Predicate) { p.Schema.ContentHash = "sha256:" }, "/content_hash"},
		"not all":           {func(p *manifest.Predicate) { p.Schema.Checked = 0 }, "/checked"},
		"two documents":     {func(p *manifest.Predicate) { p.Records, p.Schema.Checked = nil, 2 }, "/checked"},
		"too many":          {func(p *manifest.Predicate) { p.Schema.Failed = 2 }, "/failed"},
		"negative":          {func(p *manifest.Predicate) { p.Schema.Failed = -1 }, "/failed"},
		"unnamed":           {func(p *manifest.Predicate) { p.Schema.Spans = nil }, "/spans"},
		"none failed":       {func(p *manifest.Predicate) { p.Schema.Failed = 0 }, "/spans"},
		"outside":           {func(p *manifest.Predicate) { p.Schema.Spans[0][1] = 1000 }, "/spans/0"},
		"backwards":         {func(p *manifest.Predicate) { p.Schema.Spans[0] = [2]int64{3, 2} }, "/spans/0"},
	} {
		p := predicate()
		checkedSchema(&p)
		test.change(&p)
		_, err := manifest.NewStatement(p)
		if e, _ := errors.AsType[*manifest.Error](err); e == nil || e.At != "/predicate/schema"+test.at {
			t.Errorf("%s: %v, want an error at /predicate/schema%s", name, err, test.at)
		}
	}
	p := predicate()
	checkedSchema(&p)
	payload := alter(t, statement(t, p), "/predicate/schema", null)
	if _, err := manifest.ParseManifest(payload); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("null in place of no check: %v", err)
	}
}

// TestParseManifestAccepts: what NewStatement writes is read, and written again
// the same.
func TestParseManifestAccepts(t *testing.T) {
	for name, change := range shapes {
		t.Run(name, func(t *testing.T) {
			p := predicate()
			change(&p)
			payload := statement(t, p)
			m, err := manifest.ParseManifest(payload)
			if err != nil {
				t.Fatal(err)
			}
			again, err := manifest.NewStatement(m.Predicate)
			if err != nil || !bytes.Equal(again, payload) {
				t.Errorf("what was parsed is written as %s, %v, want %s", again, err, payload)
			}
		})
	}
}

func TestNewStatementRefuses(t *testing.T) {
	p := predicate()
	p.ArtifactRef.ArtifactID = "art_" + strings.Repeat("a", 32)
	if _, err := manifest.NewStatement(p); !errors.Is(err, manifest.ErrID) {
		t.Errorf("another's artifact_id: %v, want ErrID", err)
	}
	p = predicate()
	p.ArtifactRef.Completeness.Coverage["share"] = 0.5
	if _, err := manifest.NewStatement(p); !errors.Is(err, manifest.ErrNotCanonical) {
		t.Errorf("a float in the coverage: %v, want ErrNotCanonical", err)
	}
	p = predicate()
	p.ArtifactRef.ToolCallID = new(strings.Repeat("x", manifest.MaxPayload))
	if _, err := manifest.NewStatement(p); !errors.Is(err, manifest.ErrTooLarge) {
		t.Errorf("a huge statement: %v, want ErrTooLarge", err)
	}
}

func TestRefDiff(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*manifest.ArtifactRef)
		want   []string
	}{
		"nothing": {func(*manifest.ArtifactRef) {}, nil},
		"tenant":  {func(r *manifest.ArtifactRef) { r.Scope.TenantID = "x" }, []string{"/scope/tenant_id"}},
		"two": {
			func(r *manifest.ArtifactRef) { r.ArtifactID = "x"; r.Completeness.Status = "complete" },
			[]string{"/artifact_id", "/completeness/status"},
		},
		"null":            {func(r *manifest.ArtifactRef) { r.ExpiresAt = nil }, []string{"/expires_at"}},
		"a list shorter":  {func(r *manifest.ArtifactRef) { r.Completeness.Omissions = nil }, []string{"/completeness/omissions"}},
		"inside a list":   {func(r *manifest.ArtifactRef) { r.Completeness.Omissions[0].Reason = "x" }, []string{"/completeness/omissions/0/reason"}},
		"coverage gone":   {func(r *manifest.ArtifactRef) { r.Completeness.Coverage = nil }, []string{"/completeness/coverage"}},
		"coverage more":   {func(r *manifest.ArtifactRef) { r.Completeness.Coverage["a/b"] = "x" }, []string{"/completeness/coverage/a~1b"}},
		"coverage list":   {func(r *manifest.ArtifactRef) { r.Completeness.Coverage["region"] = []any{} }, []string{"/completeness/coverage/region"}},
		"no canonical":    {func(r *manifest.ArtifactRef) { r.ContentHash = "\xff" }, []string{""}},
		"a number's type": {func(r *manifest.ArtifactRef) { r.Completeness.Coverage["region"] = 1 }, []string{"/completeness/coverage/region"}},
	} {
		t.Run(name, func(t *testing.T) {
			presented := predicate().ArtifactRef
			test.change(&presented)
			got := manifest.RefDiff(presented, predicate().ArtifactRef)
			if strings.Join(got, " ") != strings.Join(test.want, " ") || len(got) != len(test.want) {
				t.Errorf("RefDiff = %q, want %q", got, test.want)
			}
			err := manifest.CheckRef(presented, predicate().ArtifactRef)
			if errors.Is(err, manifest.ErrRefAltered) != (len(test.want) > 0) {
				t.Errorf("CheckRef = %v", err)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for s, ok := range map[string]bool{
		"2026-11-06T04:40:00Z": true, "2026-11-06T04:40:00.5Z": true, "2026-11-06T04:40:00.123456789Z": true, "0001-01-01T00:00:00Z": true,
		"2028-02-29T23:59:59Z": true, "9999-12-31T23:59:59.999999999Z": true,
		"": false, "2026-11-06": false, "2026-11-06T04:40:00": false, "2026-11-06t04:40:00Z": false, "2026-11-06T04:40:00z": false,
		"2026-11-06 04:40:00Z": false, "2026-11-06T04:40:00+00:00": false, "2026-11-06T04:40:00.Z": false, "2026-11-06T04:40:00.50Z": false,
		"2026-11-06T04:40:00.0Z": false, "2026-11-06T04:40:00,5Z": false, "2026-11-06T04:40:00.1234567891Z": false, "2026-11-06T4:40:00Z": false,
		"2026-11-06T04:40:60Z": false, "2026-11-06T24:00:00Z": false, "2027-02-29T00:00:00Z": false, "10000-01-01T00:00:00Z": false,
		"-001-01-01T00:00:00Z": false, "2026-11-06T04:40:00Z ": false,
	} {
		got, err := manifest.ParseTime(s)
		if ok != (err == nil) || !ok && !errors.Is(err, manifest.ErrTime) {
			t.Errorf("ParseTime(%q) = %v, %v", s, got, err)
		}
		if ok && manifest.FormatTime(got) != s {
			t.Errorf("FormatTime(ParseTime(%q)) = %q", s, manifest.FormatTime(got))
		}
	}
	east := time.FixedZone("", 3600)
	if got := manifest.FormatTime(time.Date(2026, 1, 1, 0, 0, 0, 100, east)); got != "2025-12-31T23:00:00.0000001Z" {
		t.Errorf("FormatTime in another zone = %q", got)
	}
}

func TestNames(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "A.b_c:d-9": true, strings.Repeat("a", 128): true, "0": true,
		"": false, strings.Repeat("a", 129): false, ".a": false, "-a": false, "a/b": false, "a b": false, "é": false, "a\n": false, "*": false, "a*": false,
	} {
		if err := manifest.CheckName(s); ok != (err == nil) || !ok && !errors.Is(err, manifest.ErrName) {
			t.Errorf("CheckName(%q) = %v", s, err)
		}
	}
}

func TestNewNonce(t *testing.T) {
	got, err := manifest.NewNonce(bytes.NewReader([]byte("0123456789abcdef")))
	if err != nil || got != "30313233343536373839616263646566" {
		t.Errorf("NewNonce = %q, %v", got, err)
	}
	if _, err := manifest.NewNonce(strings.NewReader("short")); err == nil {
		t.Error("NewNonce of a short reader succeeded")
	}
}

func BenchmarkParseManifest(b *testing.B) {
	payload := statement(b, predicate())
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manifest.ParseManifest(payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSign is all that signing an artifact costs: the statement and both
// signatures.
func BenchmarkSign(b *testing.B) {
	p := predicate()
	key, _ := testKey("one")
	b.ReportAllocs()
	for b.Loop() {
		payload, err := manifest.NewStatement(p)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := manifest.Sign(payload, key); err != nil {
			b.Fatal(err)
		}
		if _, err := manifest.SignSSH(payload, manifest.NamespaceManifest, key); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStatementTwin: the payload that is put together from its parts is the
// canonical JSON of the whole.
func TestStatementTwin(t *testing.T) {
	for name, change := range shapes {
		p := predicate()
		change(&p)
		m, err := manifest.NewManifest(p)
		if err != nil {
			t.Fatal(err)
		}
		digests := map[string]string{"blake3": p.Bytes.Root}
		maps.Copy(digests, p.Bytes.Also)
		want, err := manifest.Canonical(manifest.Statement{
			Type: manifest.StatementType, PredicateType: manifest.PredicateManifest, Predicate: m.Predicate,
			Subject: []manifest.Subject{{Name: m.ArtifactID, Digest: digests}},
		})
		if err != nil || !bytes.Equal(m.Payload, want) {
			t.Errorf("%s: the payload is\n%s\nwant\n%s, %v", name, m.Payload, want, err)
		}
		parsed, err := manifest.ParseManifest(m.Payload)
		if err != nil || parsed.ArtifactID != m.ArtifactID || parsed.ManifestID != m.ManifestID || parsed.Root != m.Root || parsed.Size != m.Size {
			t.Errorf("%s: parsed, it is %+v, %v", name, parsed, err)
		}
	}
	p := predicate()
	m, err := manifest.NewManifest(p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Clone()
	if err != nil {
		t.Fatal(err)
	}
	*c.Predicate.ArtifactRef.ToolCallID, c.Predicate.ArtifactRef.Completeness.Coverage["region"] = "another", "another"
	if *m.Predicate.ArtifactRef.ToolCallID == "another" || m.Predicate.ArtifactRef.Completeness.Coverage["region"] == "another" || c.ArtifactID != m.ArtifactID {
		t.Errorf("a clone shares what it holds: %+v", m.Predicate.ArtifactRef)
	}
	p.ArtifactRef.Completeness.Coverage = nested(manifest.MaxDepth - 4)
	if _, err := manifest.NewStatement(p); err != nil {
		t.Errorf("as deep as may be: %v", err)
	}
	p.ArtifactRef.Completeness.Coverage = nested(manifest.MaxDepth - 3)
	if _, err := manifest.NewStatement(p); !errors.Is(err, manifest.ErrNotCanonical) {
		t.Errorf("a level more: %v", err)
	}
}

func nested(levels int) map[string]any {
	m := map[string]any{"x": "y"}
	for range levels - 1 {
		m = map[string]any{"x": m}
	}
	return m
}

func BenchmarkNewStatement(b *testing.B) {
	p := predicate()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := manifest.NewStatement(p); err != nil {
			b.Fatal(err)
		}
	}
}
