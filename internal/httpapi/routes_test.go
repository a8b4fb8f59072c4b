package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// TestRoutes goes over every route once, as alice does who may everything in her
// tenant.
func TestRoutes(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(300)
	facts := `{"artifact_ref":{"completeness":{"coverage":{"region":"eu-west"}},"scope":{"run_id":"r1"},"source_version":{"source_id":"tickets"}},"lineage":{"producer":{"tool":"export"}}}`
	ref := w.put(w.alice, data, "?sha256=true", "Leafproof-Manifest", facts, "Content-Type", "application/x-ndjson")
	if ref.Scope.TenantID != "acme" || ref.ContentHash != "blake3:"+merkle.Sum(data).String() || ref.Completeness.Status != "complete" {
		t.Fatalf("%+v", ref)
	}
	at := "/v1/artifacts/" + ref.ArtifactID

	var stat manifest.ArtifactRef
	w.do(w.alice, "GET", at, nil).want(200).json(&stat)
	if manifest.CheckRef(stat, ref) != nil {
		t.Errorf("stat says %+v", stat)
	}
	var list struct{ Artifacts []leafproof.Entry }
	w.do(w.alice, "GET", "/v1/artifacts?limit=10", nil).want(200).json(&list)
	if len(list.Artifacts) != 1 || list.Artifacts[0].ArtifactID != ref.ArtifactID {
		t.Errorf("the listing is %+v", list)
	}
	var signed struct {
		Manifest manifest.Envelope
		SSH      string
	}
	w.do(w.alice, "GET", at+"/manifest", nil).want(200).json(&signed)
	if m, _, err := manifest.VerifyEnvelope(signed.Manifest, signed.SSH, w.s.Policy(), time.Now()); err != nil || m.ArtifactID != ref.ArtifactID {
		t.Errorf("the manifest: %v", err)
	}
	if got := w.do(w.alice, "GET", at+"/content", nil).want(200); !bytes.Equal(got.body, data) || got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d bytes of %d", len(got.body), len(data))
	}
	w.do(w.alice, "HEAD", at+"/content", nil).want(200)
	w.do(w.alice, "GET", at+"/lineage", nil).want(200)
	testReads(t, w, at, data)
	testProofs(t, w, at, data)

	// A derived artifact, names, copies.
	d := w.do(w.alice, "POST", at+"/derive", `{"where":"@.status == \"open\"","select":[{"path":"/n"}]}`).want(201)
	var derived struct{ Ref manifest.ArtifactRef }
	d.json(&derived)
	if got := w.do(w.alice, "GET", d.header.Get("Location")+"/content", nil).want(200); !strings.HasPrefix(string(got.body), "{\"n\":0}\n{\"n\":3}\n") {
		t.Errorf("derived is %.60q", got.body)
	}
	w.do(w.alice, "GET", "/v1/artifacts/"+derived.Ref.ArtifactID+"/lineage", nil).want(200)
	a := w.do(w.alice, "POST", at+"/assess", `{"require":["region=eu-west","capture=complete"],"max_age_seconds":60}`).want(200)
	var verdict leafproof.Assessment
	a.json(&verdict)
	if verdict.Identity.State != leafproof.Holds || verdict.Decision != leafproof.Deferred {
		t.Errorf("the assessment: %s", a.body)
	}
	w.do(w.alice, "PUT", "/v1/names/latest", fmt.Sprintf(`{"artifact_id":%q,"if_seq":0}`, ref.ArtifactID)).want(200)
	w.do(w.alice, "PUT", "/v1/names/latest", fmt.Sprintf(`{"artifact_id":%q,"if_seq":0}`, ref.ArtifactID)).problem(409, leafproof.CodeNameConflict)
	w.do(w.alice, "PUT", "/v1/names/latest", fmt.Sprintf(`{"artifact_id":%q}`, derived.Ref.ArtifactID)).want(200)
	var n leafproof.NameVersion
	w.do(w.alice, "GET", "/v1/names/latest?seq=1", nil).want(200).json(&n)
	if n.ArtifactID != ref.ArtifactID || n.Tenant != "acme" {
		t.Errorf("the first version is %+v", n)
	}
	var made leafproof.Copy
	w.do(w.alice, "POST", at+"/copies", `{"kind":"cache","where":"a cache"}`).want(201).json(&made)
	w.do(w.alice, "PATCH", at+"/copies/"+made.ID, `{"propagation":"done","note":"dropped"}`).want(200)
	var copies struct{ Copies []leafproof.Copy }
	w.do(w.alice, "GET", at+"/copies", nil).want(200).json(&copies)
	if len(copies.Copies) < 3 {
		t.Errorf("the inventory is %+v", copies)
	}

	// Leave.
	g := w.do(w.alice, "POST", "/v1/grants", `{"principal":"alice","action":"read","pattern":"acme/r1","purpose":"audit","records":[0,5],"not_after":"2999-01-01T00:00:00Z"}`).want(201)
	w.do(w.alice, "GET", "/v1/grants", nil).want(200)
	w.do(w.owner, "GET", "/v1/grants?principal=bob", nil).want(200)
	w.do(w.alice, "DELETE", g.header.Get("Location"), nil).want(204)

	// The end.
	var statements struct{ Statements []*leafproof.Statement }
	w.do(w.alice, "GET", at+"/receipts", nil).want(200).json(&statements)
	if len(statements.Statements) == 0 {
		t.Error("no receipt was kept")
	}
	w.do(w.alice, "DELETE", at+"?reason=over&cascade=true", nil).want(204)
	w.do(w.alice, "GET", at+"/content", nil).problem(410, leafproof.CodeArtifactDeleted)
	w.do(w.alice, "GET", "/v1/artifacts/"+derived.Ref.ArtifactID, nil).problem(410, leafproof.CodeArtifactDeleted)

	w.do("", "GET", "/livez", nil).want(200)
	w.do("", "GET", "/readyz", nil).want(200)
	if m := w.do(w.owner, "GET", "/metrics", nil).want(200); !bytes.Contains(m.body, []byte(`leafproof_http_requests_total{method="GET",route="/v1/artifacts/{id}/content",status="200"}`)) ||
		bytes.Contains(m.body, []byte("acme")) || bytes.Contains(m.body, []byte("alice")) {
		t.Errorf("the metrics: %.400s", m.body)
	}
	w.h.Drain()
	w.do("", "GET", "/readyz", nil).want(503)
	w.do("", "GET", "/livez", nil).want(200)
}

func testReads(t *testing.T, w *world, at string, data []byte) {
	var part struct {
		Encoding, Data string
		Answer         *selector.Answer
		Receipt        *leafproof.Statement
	}
	w.do(w.alice, "POST", at+"/read", `{"records":[1,3],"receipt":true}`).want(200).json(&part)
	if part.Data != "{\"n\":1,\"status\":\"shut\"}\n{\"n\":2,\"status\":\"new\"}\n" || part.Answer.Returned != 2 || part.Receipt.ID == "" {
		t.Errorf("read: %+v", part)
	}
	raw := w.do(w.alice, "POST", at+"/read", `{"bytes":[2,5]}`, "Accept", "application/octet-stream").want(200)
	trailer, err := base64.StdEncoding.DecodeString(raw.header.Get("Trailer-Leafproof-Answer"))
	var behind struct{ Answer *selector.Answer }
	if err != nil || json.Unmarshal(trailer, &behind) != nil || behind.Answer.Stop != selector.StopComplete || !bytes.Equal(raw.body, data[2:5]) {
		t.Errorf("read: %q, and behind it %s", raw.body, trailer)
	}
	type page struct {
		Rows []struct {
			Record   int64
			Value    json.RawMessage
			Selected [][]struct{ Value json.RawMessage }
		}
		Answer *selector.Answer
	}
	var all []int64
	cursor := ""
	for range 20 {
		var p page
		w.do(w.alice, "POST", at+"/query", fmt.Sprintf(`{"where":"@.status == \"open\"","select":["/n"],"limit":30,"cursor":%q}`, cursor)).want(200).json(&p)
		for _, r := range p.Rows {
			if string(r.Selected[0][0].Value) != fmt.Sprint(r.Record) {
				t.Errorf("record %d has %s", r.Record, r.Selected[0][0].Value)
			}
			all = append(all, r.Record)
		}
		if cursor = p.Answer.Cursor; cursor == "" {
			break
		}
	}
	if len(all) != 100 || all[99] != 297 {
		t.Errorf("the pages have %d rows", len(all))
	}
	var count page
	w.do(w.alice, "POST", at+"/query", `{"where":"@.n < 10","count":true}`).want(200).json(&count)
	if *count.Answer.Matched != 10 || len(count.Rows) != 0 {
		t.Errorf("the count: %+v", count.Answer)
	}
	lines := w.do(w.alice, "POST", at+"/query", `{"where":"@.n >= 298"}`, "Accept", "application/x-ndjson").want(200)
	if got := strings.Split(string(lines.body), "\n"); len(got) != 4 || got[0] != `{"record":298,"span":[7539,7564],"value":{"n":298,"status":"shut"}}` || !strings.HasPrefix(got[2], `{"answer":{`) {
		t.Errorf("the lines: %q", got)
	}
	var cut struct {
		Answer *selector.Answer
		Error  httpapi.Problem
	}
	w.do(w.alice, "POST", at+"/query", `{"where":"@.n == 299","max_records":10}`).want(206).json(&cut)
	if cut.Error.Code != leafproof.CodeBudgetExhausted || cut.Answer.Examined.Records != 10 || cut.Answer.Matched != nil {
		t.Errorf("an interrupted scan: %+v", cut)
	}
}

func testProofs(t *testing.T, w *world, at string, data []byte) {
	slice := w.do(w.alice, "GET", at+"/content", nil, "Accept", "application/vnd.leafproof.slice", "Range", "bytes=100-199").want(200)
	in, err := merkle.NewSliceReader(bytes.NewReader(slice.body), merkle.Sum(data))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[int64][]byte{}
	for {
		off, p, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		shown[off] = bytes.Clone(p)
	}
	if !bytes.HasPrefix(shown[0], data[:200]) || len(slice.body) > 4<<10 {
		t.Errorf("the slice shows %d pieces", len(shown))
	}
	for name, a := range map[string]*answer{
		"by Accept": w.do(w.alice, "GET", at+"/content", nil, "Accept", "application/vnd.leafproof.bundle", "Range", "bytes=100-199"),
		"by prove":  w.do(w.alice, "POST", at+"/prove", `{"records":[4,6]}`),
		"all":       w.do(w.alice, "GET", at+"/content", nil, "Accept", "application/vnd.leafproof.bundle;q=1, */*;q=0.5"),
	} {
		a.want(200)
		if got := a.header.Get("Content-Type"); got != "application/vnd.leafproof.bundle" {
			t.Errorf("%s: Content-Type %q", name, got)
		}
		if err := verifyBundle(w, a.body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.do(w.alice, "GET", at+"/content", nil, "Accept", "application/vnd.leafproof.slice", "Range", "bytes=-5").problem(400, leafproof.CodeRequestInvalid)
	w.do(w.alice, "GET", at+"/content", nil, "Accept", "application/vnd.leafproof.bao").want(200)
}

// verifyBundle verifies a .proof as anybody would who has the store's policy.
func verifyBundle(w *world, text []byte) error {
	v, err := bundle.Verify(bytes.NewReader(text), int64(len(text)), bundle.Options{Policy: w.s.Policy(), At: time.Now()})
	if err != nil {
		return err
	}
	for _, f := range v.Verdict.Facts {
		if f.State == manifest.Mismatch {
			return fmt.Errorf("%s is %s", f.Name, f)
		}
	}
	return nil
}

// What a body of multipart/form-data has besides the bytes is signed with them.
func TestPutParts(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	facts := "--x\r\nContent-Disposition: form-data; name=\"facts\"\r\n\r\n{\"lineage\":{\"producer\":{\"tool\":\"export\"}}}\r\n"
	arguments := "--x\r\nContent-Disposition: form-data; name=\"arguments\"\r\n\r\n{\"q\":1}\r\n"
	content := "--x\r\nContent-Disposition: form-data; name=\"content\"; filename=\"t.csv\"\r\nContent-Type: text/csv\r\n\r\na,b\n1,2\n\r\n"
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"all":              {facts + arguments + content + "--x--\r\n", 201},
		"content alone":    {content + "--x--\r\n", 201},
		"no end":           {content, 400},
		"no content":       {facts + "--x--\r\n", 400},
		"facts behind":     {content + facts + "--x--\r\n", 400},
		"facts twice":      {facts + facts + content + "--x--\r\n", 400},
		"arguments first":  {arguments + content + "--x--\r\n", 400},
		"another part":     {strings.Replace(content, "content", "other", 1) + "--x--\r\n", 400},
		"not multipart":    {"hello", 400},
		"facts of nothing": {strings.Replace(facts, "lineage", "linage", 1) + content + "--x--\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			a := w.do(w.alice, "POST", "/v1/artifacts", []byte(test.body), "Content-Type", "multipart/form-data; boundary=x").want(test.status)
			if test.status != 201 {
				return
			}
			var ref manifest.ArtifactRef
			a.json(&ref)
			if got := w.do(w.alice, "GET", "/v1/artifacts/"+ref.ArtifactID+"/content", nil); string(got.body) != "a,b\n1,2\n" || got.header.Get("Content-Type") != "text/csv" {
				t.Errorf("%q %q", got.body, got.header.Get("Content-Type"))
			}
			st, err := w.s.Resolve(t.Context(), leafproof.Owner, ref.ArtifactID)
			if err != nil {
				t.Fatal(err)
			}
			if p := st.Manifest.Predicate.Lineage.Producer; name == "all" && (p == nil || p.ArgumentsDigest == nil) {
				t.Errorf("the producer is %+v", p)
			}
		})
	}
	if n := len(w.listed(w.alice)); n != 2 {
		t.Errorf("%d artifacts are there, and 2 were acknowledged", n)
	}
}

// listed are the ids in a listing.
func (w *world) listed(token string) (ids []string) {
	w.t.Helper()
	cursor := ""
	for {
		var page struct {
			Artifacts []leafproof.Entry
			Next      string
		}
		w.do(token, "GET", "/v1/artifacts?limit=7&cursor="+cursor, nil).want(http.StatusOK).json(&page)
		for _, e := range page.Artifacts {
			ids = append(ids, e.ArtifactID)
		}
		if cursor = page.Next; cursor == "" {
			return ids
		}
	}
}

// Whose artifact it is follows from who puts, and nobody else's can be said.
// Indexes are built when an artifact is put, however its bytes come, and answers of
// it are proven from then on.
func TestPutIndexes(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	const params = "?records=ndjson&index=/status&index=" + "%24.n"
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile("content", "x.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(lines(300))
	m.Close()
	for name, put := range map[string]func(w *world) *answer{
		"whole": func(w *world) *answer { return w.do(w.alice, "PUT", "/v1/artifacts"+params, lines(300)) },
		"parts": func(w *world) *answer {
			return w.do(w.alice, "POST", "/v1/artifacts"+params, form.Bytes(), "Content-Type", m.FormDataContentType())
		},
		"upload": func(w *world) *answer {
			return w.do(w.alice, "POST", "/v1/uploads"+params, lines(300), "Upload-Complete", "?1")
		},
		"upload, later": func(w *world) *answer {
			at := w.do(w.alice, "POST", "/v1/uploads"+params, lines(300)[:1000]).want(201).header.Get("Location")
			return w.do(w.alice, "PATCH", at, lines(300)[1000:], "Upload-Offset", "1000", "Upload-Complete", "?1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			var ref manifest.ArtifactRef
			put(w).want(201).json(&ref)
			st, err := w.s.Resolve(t.Context(), leafproof.Owner, ref.ArtifactID)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, x := range st.Manifest.Predicate.Indexes {
				paths = append(paths, x.Path)
			}
			if strings.Join(paths, " ") != "/n /status" {
				t.Errorf("the indexes are %q", paths)
			}
			w.do(w.alice, "POST", "/v1/artifacts/"+ref.ArtifactID+"/prove", `{"query":{"where":"@.status == \"none\""}}`).want(200)
		})
	}
	for name, params := range map[string]string{
		"a path that is none": "?records=ndjson&index=" + "%24..n", "no records": "?records=none&index=/n", "too many": "?records=ndjson&index=/a" + manyIndexes(),
	} {
		if a := w.do(w.alice, "PUT", "/v1/artifacts"+params, lines(3)); a.code() != string(leafproof.CodeSelectorInvalid) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a := w.do(w.alice, "POST", "/v1/uploads"+params, lines(3), "Upload-Complete", "?1"); a.code() != string(leafproof.CodeSelectorInvalid) {
			t.Errorf("%s, as an upload: %d %s", name, a.status, a.body)
		}
	}
	if n := len(w.listed(w.alice)); n != 4 {
		t.Errorf("%d artifacts are there", n)
	}
}

func manyIndexes() string {
	var b strings.Builder
	for i := range manifest.MaxIndexes + 1 {
		fmt.Fprintf(&b, "&index=/x%d", i)
	}
	return b.String()
}

func TestPutIntoOwnTenant(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	bound, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", new("r7"))
	if err != nil {
		t.Fatal(err)
	}
	say := func(tenant, run string) []string {
		return []string{"Leafproof-Manifest", fmt.Sprintf(`{"artifact_ref":{"scope":{"tenant_id":%s,"run_id":%s}}}`, tenant, run)}
	}
	for name, test := range map[string]struct {
		token       string
		headers     []string
		tenant, run string // "" is a refusal
	}{
		"nothing said":          {w.alice, nil, "acme", "null"},
		"the own tenant":        {w.alice, say(`"acme"`, `"r1"`), "acme", "r1"},
		"another tenant":        {w.alice, say(`"other"`, "null"), "", ""},
		"bound to a run":        {bound, nil, "acme", "r7"},
		"bound, and says it":    {bound, say("null", `"r7"`), "acme", "r7"},
		"bound to another run":  {bound, say("null", `"r1"`), "", ""},
		"the owner":             {w.owner, nil, "local", "null"},
		"the owner for another": {w.owner, say(`"acme"`, "null"), "acme", "null"},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			a := w.do(test.token, "PUT", "/v1/artifacts", []byte("x"), test.headers...)
			if test.tenant == "" {
				a.problem(400, leafproof.CodeRequestInvalid)
				return
			}
			var ref manifest.ArtifactRef
			a.want(201).json(&ref)
			run := "null"
			if ref.Scope.RunID != nil {
				run = *ref.Scope.RunID
			}
			if ref.Scope.TenantID != test.tenant || run != test.run {
				t.Errorf("it is of %+v %s", ref.Scope, run)
			}
		})
	}
}
