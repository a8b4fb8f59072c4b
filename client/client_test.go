package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"leafproof"
	"leafproof/client"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// What is put comes back over every kind of connection, whole and in parts.
func TestRoundTrip(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	secure, config := w.tlsServer()
	for name, c := range map[string]*client.Client{
		"tcp":       w.client(w.alice),
		"socket":    w.dial(w.socket(), client.Options{Token: w.alice, Policy: w.policy}),
		"tls":       w.dial(secure, client.Options{Token: w.alice, TLS: config, Policy: w.policy}),
		"no policy": w.dial(w.server.URL, client.Options{Token: w.alice}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 16 << 10, 100_000} {
				data := noise(n)
				a, err := c.Put(t.Context(), &slowly{r: bytes.NewReader(data)}, client.PutOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if a.Size() != int64(n) || a.Root() != merkle.Sum(data) {
					t.Fatalf("%d bytes, root %s", a.Size(), a.Root())
				}
				var out bytes.Buffer
				if _, err := c.Get(t.Context(), a.ID(), &out); err != nil || !bytes.Equal(out.Bytes(), data) {
					t.Fatalf("of %d bytes %d came: %v", n, out.Len(), err)
				}
				if n == 1 || n == 16<<10 {
					if err := iotest.TestReader(a.NewReader(t.Context()), data); err != nil {
						t.Error(err)
					}
				}
				for _, r := range [][2]int{{0, n}, {0, min(1, n)}, {n / 3, n / 2}, {max(0, n-5), n}, {n, n}} {
					p := make([]byte, r[1]-r[0]+3)
					m, err := a.ReadAt(p[:r[1]-r[0]], int64(r[0]))
					if m != r[1]-r[0] || err != nil && r[0] < n || !bytes.Equal(p[:m], data[r[0]:r[1]]) {
						t.Errorf("bytes %v: %d, %v", r, m, err)
					}
					if m, err := a.ReadAt(p, int64(r[0])); r[1] == n && (m != r[1]-r[0] || err != io.EOF) {
						t.Errorf("past the end from %v: %d, %v", r, m, err)
					}
				}
			}
		})
	}
}

// Who has no leave for proofs gets content that was verified as a whole.
func TestWithoutProofs(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	for _, n := range []int{0, 10, 3 << 20} {
		data := noise(n)
		id := w.put(data, client.PutOptions{}).ID()
		bob := w.client(w.bob)
		var out bytes.Buffer
		if _, err := bob.Get(t.Context(), id, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("%d bytes: %d came, %v", n, out.Len(), err)
		}
		a, err := bob.Open(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, min(7, n))
		if m, err := a.ReadAt(p, 0); m != len(p) || err != nil && n > 0 || !bytes.Equal(p, data[:m]) {
			t.Errorf("%d, %v", m, err)
		}
		all, err := io.ReadAll(a.NewReader(t.Context()))
		if err != nil || !bytes.Equal(all, data) {
			t.Errorf("%d came: %v", len(all), err)
		}
		if err := a.Read(t.Context(), client.Part{Records: &[2]int64{0, 1}}, io.Discard); n > 0 && code(err) != "access_revoked" {
			t.Errorf("a proof of records: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// code is the code of an error.
func code(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Code
	}
	return ""
}

// What is stated stands in the manifest, and comes back verified.
func TestFacts(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	var o client.PutOptions
	o.Facts.ArtifactRef.ToolCallID = new("call-1")
	o.Facts.ArtifactRef.SourceVersion.SourceID = new("infra.events")
	o.Facts.ArtifactRef.SourceVersion.ObservedAt = new("2026-03-04T05:06:07Z")
	o.Facts.ArtifactRef.Completeness.Coverage = map[string]any{"region": "eu-west"}
	o.Facts.ArtifactRef.ExpiresAt = new(manifest.FormatTime(time.Now().Add(time.Hour)))
	o.Facts.Lineage.Producer = &manifest.StatedProducer{Tool: "export", Outcome: new("ok")}
	o.Facts.Bytes.MediaType = new("application/x-ndjson")
	o.Arguments = []byte(`{"since":"yesterday"}`)
	o.SHA256 = true
	a := w.put(lines(10), o)
	p := a.Manifest.Predicate
	if *a.Ref.ToolCallID != "call-1" || a.Records() != 10 || p.Bytes.Also["sha256"] == "" || p.Lineage.Producer.ArgumentsDigest == nil || p.Bytes.MediaType != "application/x-ndjson" {
		t.Errorf("%+v", p)
	}
	if len(a.Notes) == 0 || a.Notes[0] != "records: ndjson" && !strings.HasPrefix(a.Notes[0], "records:") {
		t.Errorf("notes %q", a.Notes)
	}
	if f, _ := a.Verdict.Fact(manifest.FactSignature); f.State != manifest.Attested {
		t.Errorf("the signature is %v", f)
	}
	st, err := w.client(w.alice).Stat(t.Context(), a.ID())
	if err != nil || st.Ref.ContentHash != a.Ref.ContentHash {
		t.Fatal(err)
	}
	if _, err := w.client(w.alice).OpenRef(t.Context(), a.Ref); err != nil {
		t.Error(err)
	}
	other := a.Ref
	other.Scope.TenantID = "elsewhere"
	_, err = w.client(w.alice).OpenRef(t.Context(), other)
	if e, ok := errors.AsType[*client.Error](err); !ok || !errors.Is(err, client.ErrAltered) || e.Code != "ref_altered" || e.At != "/scope/tenant_id" {
		t.Errorf("an altered tenant: %v", err)
	}
	o.Arguments, o.Facts.ArtifactRef.ToolCallID = nil, new("")
	o.Facts.ArtifactRef.Completeness.Coverage = map[string]any{"long": strings.Repeat("x", 40<<10)}
	w.put(lines(10), o) // in a part of its own
}

// Rows, and the answers that a proof stands behind.
func TestQuery(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	a := w.put(lines(60), client.PutOptions{Records: "ndjson"})
	if _, err := w.s.AddIndex(t.Context(), leafproof.Owner, a.ID(), "/status", leafproof.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]client.Question{
		"as they come": {Where: `@.status == "open"`},
		"verified":     {Where: `@.status == "open"`, VerifyRows: true},
		"in order":     {Where: `@.status == "open"`, OrderBy: []string{"/n:desc"}, VerifyRows: true},
		"neighbours":   {Where: `@.n < 20`, VerifyRows: true},
	} {
		t.Run(name, func(t *testing.T) {
			var n int64
			ans, err := a.Query(t.Context(), q, func(r client.Row) error {
				n++
				if r.Proven != q.VerifyRows || !bytes.Contains(r.Bytes, []byte(`"n":`)) {
					t.Errorf("row %+v %s", r, r.Bytes)
				}
				return nil
			})
			if err != nil || n != 20 || *ans.Matched != 20 || ans.More != "no" {
				t.Errorf("%d rows, %+v, %v", n, ans, err)
			}
		})
	}
	var rows []int64
	var proof bytes.Buffer
	ans, err := a.QueryProven(t.Context(), client.Question{Where: `@.status == "open"`}, func(r client.Row) error {
		rows = append(rows, r.Record)
		return nil
	}, &proof)
	if err != nil || len(rows) != 20 || rows[1] != 3 || ans.Matched != 20 || ans.More != "no" || ans.Conclusion == "" {
		t.Fatalf("%d rows, %+v, %v", len(rows), ans, err)
	}
	if res, err := bundle.Verify(bytes.NewReader(proof.Bytes()), int64(proof.Len()), bundle.Options{Policy: w.policy, At: time.Now()}); err != nil || res.Verdict.Exit() != 0 {
		t.Errorf("the proof alone: %v", err)
	}
	ans, err = a.QueryProven(t.Context(), client.Question{Where: `@.status == "none"`, Count: true}, nil, nil)
	if err != nil || ans.Matched != 0 {
		t.Errorf("a count of nothing: %+v, %v", ans, err)
	}
	_, err = a.QueryProven(t.Context(), client.Question{Where: `@.n == 1`}, nil, nil)
	if code(err) != "selector_invalid" {
		t.Errorf("without an index: %v", err)
	}
	stop := errors.New("enough")
	if _, err := a.Query(t.Context(), client.Question{}, func(client.Row) error { return stop }); err != stop { //nolint:errorlint // it is handed through
		t.Errorf("an error of emit: %v", err)
	}
	page, err := a.Query(t.Context(), client.Question{Limit: 7}, nil)
	if err != nil || page.Cursor == "" || page.Returned != 7 {
		t.Fatalf("a page: %+v, %v", page, err)
	}
	_, err = a.Query(t.Context(), client.Question{Limit: 7, Cursor: page.Cursor, Select: []string{"$.n"}}, nil)
	if code(err) != "cursor_query_mismatch" {
		t.Errorf("another query's cursor: %v", err)
	}
}

func TestParts(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	a := w.put(lines(50), client.PutOptions{Records: "ndjson"})
	doc := w.put([]byte(`{"a":[1,{"b":"x"}]}`), client.PutOptions{Records: "none", Name: "a.json"})
	for name, test := range map[string]struct {
		a    *client.Artifact
		p    client.Part
		want string
	}{
		"bytes":   {a, client.Part{Bytes: &[2]int64{1, 4}}, `"n"`},
		"records": {a, client.Part{Records: &[2]int64{4, 6}}, "{\"n\":4,\"status\":\"shut\"}\n{\"n\":5,\"status\":\"new\"}\n"},
		"pointer": {doc, client.Part{Pointer: new("/a/1/b")}, "\"x\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, proof bytes.Buffer
			if err := test.a.Read(t.Context(), test.p, &out); err != nil || out.String() != test.want {
				t.Errorf("%q, %v", out.String(), err)
			}
			res, err := test.a.Prove(t.Context(), test.p, &proof)
			if err != nil || proof.Len() == 0 || res.Manifest.ArtifactID != test.a.ID() {
				t.Errorf("the proof: %v", err)
			}
			out.Reset()
			ans, err := test.a.ReadUnverified(t.Context(), test.p, &out)
			if err != nil || strings.TrimSuffix(out.String(), "\n") != strings.TrimSuffix(test.want, "\n") || ans.Basis == "" {
				t.Errorf("without proof: %q, %v", out.String(), err)
			}
		})
	}
}

func TestManage(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	c := w.client(w.alice)
	a := w.put(lines(30), client.PutOptions{Records: "ndjson"})
	d, err := a.Derive(t.Context(), client.Derivation{Where: `@.status == "open"`})
	if err != nil || d.Records() != 10 {
		t.Fatalf("derived %v, %v", d, err)
	}
	var ids []string
	for e, err := range c.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ArtifactID)
	}
	if !slices.Equal(ids, []string{a.ID(), d.ID()}) {
		t.Errorf("listed %v", ids)
	}
	if n, err := c.SetName(t.Context(), "latest", d.ID(), 0); err != nil || n.Seq != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := c.SetName(t.Context(), "latest", a.ID(), 0); code(err) != "name_conflict" {
		t.Errorf("another version: %v", err)
	}
	if n, err := c.Name(t.Context(), "latest", 0); err != nil || n.ArtifactID != d.ID() {
		t.Errorf("%+v, %v", n, err)
	}
	as, err := c.Assess(t.Context(), a.ID(), client.Need{Require: []string{"capture=complete"}})
	if err != nil || as.Decision == "admit" || len(as.Unmet) == 0 {
		t.Errorf("%+v, %v", as, err)
	}
	g, err := c.Grant(t.Context(), client.GrantSpec{Principal: "bob", Action: "prove", Pattern: "acme/*/" + a.ID()})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Grants(t.Context(), "")
	if err != nil || len(list) < 8 {
		t.Errorf("%d grants, %v", len(list), err)
	}
	if err := c.Revoke(t.Context(), g.ID); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), a.ID(), "done", true); err != nil {
		t.Error(err)
	}
	for _, id := range []string{a.ID(), d.ID()} {
		_, err := c.Open(t.Context(), id)
		if e, _ := errors.AsType[*client.Error](err); e == nil || e.Code != "artifact_deleted" || e.Status != 410 || e.Retryable {
			t.Errorf("a deleted one: %v", err)
		}
	}
	if _, err := c.Open(t.Context(), "art_"+strings.Repeat("a", 32)); code(err) != "ref_not_found" {
		t.Errorf("one that never was: %v", err)
	}
	if _, err := c.Open(t.Context(), "../../etc/passwd"); code(err) != "ref_not_found" {
		t.Errorf("no id: %v", err)
	}
}

func TestSave(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := noise(200_000)
	a := w.put(data, client.PutOptions{})
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	if err := a.Save(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Save(ctx, filepath.Join(dir, "no")); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// A principal that may put, and not look.
func TestPutAlone(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	token, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	data := noise(5000)
	a, err := w.client(token).Put(t.Context(), bytes.NewReader(data), client.PutOptions{})
	if !errors.Is(err, client.ErrUnverified) || a == nil || a.Manifest != nil || a.Ref.ContentHash != "blake3:"+merkle.Sum(data).String() {
		t.Errorf("%+v, %v", a, err)
	}
}

// A source that fails, or never ends, is the caller's own matter.
func TestPutSourceFails(t *testing.T) {
	w := newWorld(t, httpapi.Options{Limits: httpapi.Limits{BodyBytes: 1 << 20}})
	bad := errors.New("the disk is gone")
	_, err := w.client(w.alice).Put(t.Context(), io.MultiReader(bytes.NewReader(noise(1<<19)), iotest.ErrReader(bad)), client.PutOptions{})
	if err != bad { //nolint:errorlint // it is handed through
		t.Errorf("a source that fails: %v", err)
	}
	r, rw := io.Pipe()
	go func() { _, _ = rw.Write(noise(2 << 20)) }() // and no more, and no end
	defer r.Close()
	_, err = w.client(w.alice).Put(t.Context(), r, client.PutOptions{})
	if code(err) != "too_large" && code(err) != client.CodeUnreachable {
		t.Errorf("more than is taken: %v", err)
	}
	n := 0
	for range w.client(w.alice).List(t.Context(), "") {
		n++
	}
	if n != 0 {
		t.Errorf("%d were published", n)
	}
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "http://localhost:1/": true, "https://example.com": true, "unix:/tmp/s": true, "unix:///tmp/s": true,
		"http://example.com": false, "ftp://x": false, "http://a@localhost": false, "http://localhost/v1": false, "": false, "unix:": false, "http://%zz": false,
	} {
		_, err := client.New(address, client.Options{Token: "t"})
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New("http://example.com", client.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := client.New("http://localhost", client.Options{Token: "a\r\nX: y"}); err == nil {
		t.Error("a token with a line end")
	}
}
