package leafproof_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

func newStore(t testing.TB, opts ...leafproof.Option) (*leafproof.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return openStore(t, dir, opts...), dir
}

func openStore(t testing.TB, dir string, opts ...leafproof.Option) *leafproof.Store {
	t.Helper()
	s, err := leafproof.Open(t.Context(), dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *leafproof.Store, data []byte, o leafproof.PutOptions, f leafproof.Facts) string {
	t.Helper()
	d, err := s.Put(t.Context(), bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(t.Context(), d, f)
	if err != nil {
		t.Fatal(err)
	}
	return ref.ArtifactID
}

func read(t testing.TB, s *leafproof.Store, id string, sel leafproof.Selector) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := s.Read(t.Context(), leafproof.Owner, id, sel, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// random makes n bytes that repeat from run to run.
func random(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	s, dir := newStore(t)
	ids := map[string][]byte{}
	for _, size := range []int{0, 1, 1024, 16384, 16385, 1<<20 + 1} {
		data := random(size, uint64(size))
		ids[put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})] = data
	}
	check := func(s *leafproof.Store) {
		for id, want := range ids {
			if got := read(t, s, id, leafproof.Selector{}); !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back as %d others", len(want), len(got))
			}
			if n := int64(len(want)); n > 10 {
				got := read(t, s, id, leafproof.Selector{Bytes: &merkle.Range{Start: n / 3, End: n/3 + 5}})
				if !bytes.Equal(got, want[n/3:n/3+5]) {
					t.Errorf("of %d bytes, a range came back wrong", n)
				}
			}
			st, err := s.Resolve(t.Context(), leafproof.Owner, id)
			if err != nil || st.Manifest.Root != merkle.Sum(want) {
				t.Errorf("Resolve: root %v, error %v", st, err)
			}
		}
	}
	check(s)
	check(openStore(t, dir)) // another opening sees the same, beside the first
}

// TestSameBytesTwice: two captures of the same bytes are two artifacts, and the
// second one stores its bytes no second time.
func TestSameBytesTwice(t *testing.T) {
	s, dir := newStore(t)
	data := random(1<<20, 7)
	a := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
	before := diskUse(t, dir)
	b := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
	if a == b {
		t.Error("two captures have one id")
	}
	if grown := diskUse(t, dir) - before; grown > 64<<10 {
		t.Errorf("the second put of the same MiB took %d bytes", grown)
	}
	// Another tenant shares nothing.
	before = diskUse(t, dir)
	put(t, s, data, leafproof.PutOptions{Tenant: "other"}, leafproof.Facts{})
	if grown := diskUse(t, dir) - before; grown < 1<<20 {
		t.Errorf("another tenant's put of the same MiB took only %d bytes", grown)
	}
}

func diskUse(t testing.TB, dir string) int64 {
	t.Helper()
	var n int64
	err := filepath.Walk(filepath.Join(dir, "objects"), func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPinned: a newer snapshot of a source does not touch the older one.
func TestPinned(t *testing.T) {
	s, _ := newStore(t)
	f := leafproof.Facts{SourceID: "infra.events"}
	a := put(t, s, []byte("first\n"), leafproof.PutOptions{}, f)
	b := put(t, s, []byte("second\n"), leafproof.PutOptions{}, f)
	if got := read(t, s, a, leafproof.Selector{}); string(got) != "first\n" {
		t.Errorf("the first reference gives %q", got)
	}
	if got := read(t, s, b, leafproof.Selector{}); string(got) != "second\n" {
		t.Errorf("the second reference gives %q", got)
	}
}

const events = `{"id":1,"status":"open","n":13911860366432393}
{"id":2,"status":"shut","n":13911860366432392}
{"id":3,"status":"open","n":1.0}
not json
{"id":5,"status":"open","status":"shut"}
`

func TestQuery(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(events), leafproof.PutOptions{Records: "ndjson"},
		leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}, SourceID: "infra.events", SnapshotID: "s-1"})
	for name, test := range map[string]struct {
		where       string
		rows        []int64
		undecidable int64
	}{
		"equality":    {`@.status == "open"`, []int64{0, 2}, 2},
		"short form":  {`{"field":"/status","equals":"shut"}`, []int64{1}, 2},
		"contains":    {`{"field":"/status","contains":"pe"}`, []int64{0, 2}, 2},
		"digits":      {`@.n == 13911860366432393`, []int64{0}, 1},
		"one digit":   {`@.n == 13911860366432394`, nil, 1},
		"number form": {`@.n == 1`, []int64{2}, 1},
		"no coercion": {`@.n == "1.0"`, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []int64
			a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: test.where}, func(r leafproof.Row) error {
				rows = append(rows, r.Record)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(rows) != fmt.Sprint(test.rows) || a.Undecidable != test.undecidable {
				t.Errorf("rows %v, undecidable %d; want %v, %d", rows, a.Undecidable, test.rows, test.undecidable)
			}
			if a.Matched == nil || *a.Matched != int64(len(test.rows)) || a.Stop != selector.StopComplete || a.Examined.Records != 5 {
				t.Errorf("answer: %+v", a)
			}
		})
	}
}

// TestEmptyAnswer: an empty result says everything that it rests on.
func TestEmptyAnswer(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(events), leafproof.PutOptions{Records: "ndjson"},
		leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}, SourceID: "infra.events", SnapshotID: "s-1"})
	a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.id == 99`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"artifact_id", "manifest_id", "source_version", "selector", "qid", "order", "records_total", "examined", "matched",
		"returned", "undecidable", "stop", "more", "basis", "assurance", "conclusion",
	} {
		if _, ok := got[name]; !ok {
			t.Errorf("the answer has no %s: %s", name, text)
		}
	}
	if a.Assurance != selector.AssuranceAttested || a.Basis != selector.BasisScan || a.More != selector.MoreNo {
		t.Errorf("basis %s, assurance %s, more %s", a.Basis, a.Assurance, a.More)
	}
	if !strings.Contains(a.Conclusion, "eu-west") || !strings.Contains(a.Conclusion, "5 records") {
		t.Errorf("conclusion: %s", a.Conclusion)
	}
}

// TestPages: pages of any size concatenate to the one-page answer.
func TestPages(t *testing.T) {
	s, _ := newStore(t)
	var b strings.Builder
	for i := range 211 {
		fmt.Fprintf(&b, "{\"i\":%d,\"tied\":%d}\n", i, i%3)
	}
	id := put(t, s, []byte(b.String()), leafproof.PutOptions{}, leafproof.Facts{})
	ask := func(limit int64) (rows []int64) {
		q := leafproof.Query{Where: `@.tied == 1`, Limit: limit}
		for {
			a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
				rows = append(rows, r.Record)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if a.Cursor == "" {
				if a.Matched == nil || *a.Matched != int64(len(rows)) {
					t.Errorf("limit %d: the last page counts %v of %d", limit, a.Matched, len(rows))
				}
				return rows
			}
			q.Cursor = a.Cursor
		}
	}
	want := ask(0)
	if len(want) != 70 {
		t.Fatalf("%d rows, want 70", len(want))
	}
	for _, limit := range []int64{1, 7, 10, 25, 69, 70, 71, 500} {
		if got := ask(limit); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d give %v", limit, got)
		}
	}
}

// TestInterrupted: a scan that did not end is never an empty answer.
func TestInterrupted(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(strings.Repeat("{\"a\":1}\n", 5000)), leafproof.PutOptions{}, leafproof.Facts{})
	a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.a == 2`, MaxRecords: 100}, nil)
	if leafproof.CodeOf(err) != leafproof.CodeBudgetExhausted || a == nil {
		t.Fatalf("answer %v, error %v", a, err)
	}
	if a.Matched != nil || a.MatchedSoFar == nil || a.Examined.Records != 100 || a.More != selector.MoreUnknown {
		t.Errorf("answer: %+v", a)
	}
	if !strings.HasPrefix(a.Conclusion, "no_conclusion") {
		t.Errorf("conclusion: %s", a.Conclusion)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if _, err := s.Query(ctx, leafproof.Owner, id, leafproof.Query{Where: `@.a == 2`}, nil); err == nil {
		t.Error("a query whose time was up succeeded")
	}
}

// TestStranger: nobody but the owner learns that an artifact exists, whatever its state.
func TestStranger(t *testing.T) {
	s, _ := newStore(t)
	ids := map[string]string{
		"alive":   put(t, s, []byte("x\n"), leafproof.PutOptions{}, leafproof.Facts{}),
		"deleted": put(t, s, []byte("y\n"), leafproof.PutOptions{}, leafproof.Facts{}),
		"expired": put(t, s, []byte("z\n"), leafproof.PutOptions{}, leafproof.Facts{ExpiresAt: time.Now().Add(-time.Hour)}),
		"unknown": "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	}
	if err := s.Delete(t.Context(), leafproof.Owner, ids["deleted"], "test"); err != nil {
		t.Fatal(err)
	}
	for who, codes := range map[leafproof.Caller]map[string]leafproof.Code{
		leafproof.Owner: {
			"alive": "", "deleted": leafproof.CodeArtifactDeleted, "expired": leafproof.CodeArtifactExpired,
			"unknown": leafproof.CodeRefNotFound,
		},
		{Principal: "eve"}: {
			"alive": leafproof.CodeRefNotFound, "deleted": leafproof.CodeRefNotFound, "expired": leafproof.CodeRefNotFound,
			"unknown": leafproof.CodeRefNotFound,
		},
		{}: {
			"alive": leafproof.CodeRefNotFound, "deleted": leafproof.CodeRefNotFound, "expired": leafproof.CodeRefNotFound,
			"unknown": leafproof.CodeRefNotFound,
		},
	} {
		for state, want := range codes {
			id := ids[state]
			var out bytes.Buffer
			_, readErr := s.Read(t.Context(), who, id, leafproof.Selector{}, &out)
			_, statErr := s.Resolve(t.Context(), who, id)
			_, proveErr := s.Prove(t.Context(), who, id, leafproof.Selector{}, &out)
			_, sliceErr := s.Slice(t.Context(), who, id, merkle.Range{}, false, &out)
			_, queryErr := s.Query(t.Context(), who, id, leafproof.Query{Where: "@.a == 1"}, nil)
			errs := map[string]error{"read": readErr, "stat": statErr, "prove": proveErr, "slice": sliceErr, "query": queryErr}
			if who == leafproof.Owner {
				delete(errs, "query") // the owner hears about the records
			}
			for what, err := range errs {
				if want == "" && err != nil || want != "" && leafproof.CodeOf(err) != want {
					t.Errorf("%s of the %s one as %q: %v, want %q", what, state, who.Principal, err, want)
				}
				if who != leafproof.Owner && err.Error() != id+": no such artifact" {
					t.Errorf("%s of the %s one as %q says %q", what, state, who.Principal, err)
				}
			}
			if want != "" && out.Len() > 0 {
				t.Errorf("%d bytes of the %s one went to %q", out.Len(), state, who.Principal)
			}
		}
	}
	list, next, err := s.List(t.Context(), leafproof.Caller{Principal: "eve"}, leafproof.DefaultTenant, 0, 1)
	if err != nil || len(list) > 0 || next != 0 {
		t.Errorf("a stranger lists %v, next %d, %v", list, next, err)
	}
	if tenants, err := s.Tenants(t.Context(), leafproof.Caller{Principal: "eve"}); err != nil || len(tenants) > 0 {
		t.Errorf("a stranger sees the tenants %v, %v", tenants, err)
	}
	if list, _, err := s.List(t.Context(), leafproof.Owner, leafproof.DefaultTenant, 0, 10); err != nil || len(list) != 1 {
		t.Errorf("the owner lists %v, %v", list, err)
	}
}

// stopAfter allows everything until it was asked n times.
type stopAfter struct{ n int }

func (a *stopAfter) Decide(context.Context, leafproof.Request) (leafproof.Decision, error) {
	a.n--
	return leafproof.Decision{Allow: a.n >= 0, NotAfter: time.Now().Add(time.Millisecond)}, nil
}

// slowWriter takes its time, so that permits run out.
type slowWriter struct{ n int }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	w.n += len(p)
	return len(p), nil
}

// TestRevokedInTheMiddle: when leave ends during a read, so do the bytes.
func TestRevokedInTheMiddle(t *testing.T) {
	authority := &stopAfter{n: 1 << 30}
	s, _ := newStore(t, leafproof.WithAuthority(authority))
	data := random(4<<20, 3)
	id := put(t, s, data, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	authority.n = 4
	var w slowWriter
	_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &w)
	if err == nil || w.n >= len(data) {
		t.Fatalf("the read ended with %v after %d of %d bytes", err, w.n, len(data))
	}
}

// TestDamaged: bytes that were altered on disk are refused, none of them leaves,
// and putting them again heals.
func TestDamaged(t *testing.T) {
	s, dir := newStore(t)
	data := random(1<<20, 5)
	id := put(t, s, data, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	flipLargest(t, filepath.Join(dir, "objects"))
	s = openStore(t, dir)
	var out bytes.Buffer
	_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
	if leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
		t.Fatalf("error = %v, want integrity_failed", err)
	}
	if !bytes.HasPrefix(data, out.Bytes()) {
		t.Error("a damaged byte was given out")
	}
	put(t, s, data, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	if got := read(t, s, id, leafproof.Selector{}); !bytes.Equal(got, data) {
		t.Error("the artifact was not healed")
	}
}

func flipLargest(t *testing.T, dir string) {
	t.Helper()
	var name string
	var size int64
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() && fi.Size() > size {
			name, size = p, fi.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[size/2] ^= 1
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFailedPut: a put that fails leaves nothing visible.
func TestFailedPut(t *testing.T) {
	s, _ := newStore(t)
	broken := io.MultiReader(bytes.NewReader(random(1<<20, 1)), &failing{})
	if _, err := s.Put(t.Context(), broken, leafproof.PutOptions{}); !errors.Is(err, errBroken) {
		t.Errorf("error = %v, want the reader's own", err)
	}
	d, err := s.Put(t.Context(), strings.NewReader("dropped"), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context(), d, leafproof.Facts{}); err == nil {
		t.Error("a discarded draft was published")
	}
	for name, f := range map[string]leafproof.Facts{
		"source": {SourceID: "a b"}, "run": {RunID: "a/b"},
	} {
		d, err := s.Put(t.Context(), strings.NewReader("x"), leafproof.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Publish(t.Context(), d, f); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if list, _, err := s.List(t.Context(), leafproof.Owner, leafproof.DefaultTenant, 0, 10); err != nil || len(list) > 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
}

var errBroken = errors.New("the pipe broke")

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errBroken }

// TestCancelled: a scan that is cancelled in the middle says how far it came, and
// is no answer.
func TestCancelled(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(strings.Repeat("{\"a\":1}\n", 200_000)), leafproof.PutOptions{}, leafproof.Facts{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := int64(0)
	a, err := s.Query(ctx, leafproof.Owner, id, leafproof.Query{Where: `@.a == 1`}, func(leafproof.Row) error {
		if rows++; rows == 10 {
			cancel()
		}
		return nil
	})
	if leafproof.CodeOf(err) != leafproof.CodeScanIncomplete || a == nil {
		t.Fatalf("answer %v, error %v", a, err)
	}
	if a.Stop != selector.StopCancelled || a.Matched != nil || a.Returned != rows || a.Examined.Records < rows || a.Examined.Records == a.RecordsTotal {
		t.Errorf("answer: %+v", a)
	}
	if !strings.HasPrefix(a.Conclusion, "no_conclusion") && a.MatchedSoFar == nil {
		t.Errorf("conclusion: %s", a.Conclusion)
	}
	// Nothing was lost: the cursor goes on to the rest.
	if a.Cursor == "" {
		t.Fatal("no cursor")
	}
	b, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.a == 1`, Cursor: a.Cursor}, func(leafproof.Row) error {
		rows++
		return nil
	})
	if err != nil || rows != 200_000 || b.Matched == nil || *b.Matched != 200_000 {
		t.Errorf("%d rows in all, answer %+v, error %v", rows, b, err)
	}
}

// TestCount: a count is a number, of all records, and shows no record.
func TestCount(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte(events), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.status == "open"`, Count: true}, func(leafproof.Row) error {
		t.Error("a count gave a row")
		return nil
	})
	if err != nil || a.Matched == nil || *a.Matched != 2 || a.Returned != 0 || a.Cursor != "" || len(a.UndecidableSpans) > 0 || a.Undecidable != 2 {
		t.Errorf("answer %+v, error %v", a, err)
	}
	for _, q := range []leafproof.Query{{Where: "@.a == 1", Count: true, Limit: 1}, {Where: "@.a == 1", Count: true, Cursor: "x"}} {
		if _, err := s.Query(t.Context(), leafproof.Owner, id, q, nil); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%+v: error = %v", q, err)
		}
	}
}

// TestResolveRef: a reference with any field changed is told by that field.
func TestResolveRef(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("x\n"), leafproof.PutOptions{}, leafproof.Facts{Coverage: map[string]any{"region": "eu"}})
	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ResolveRef(t.Context(), leafproof.Owner, st.Ref); err != nil {
		t.Error(err)
	}
	for field, alter := range map[string]func(*manifest.ArtifactRef){
		"/scope/tenant_id":     func(r *manifest.ArtifactRef) { r.Scope.TenantID = "evil" },
		"/content_hash":        func(r *manifest.ArtifactRef) { r.ContentHash = "blake3:" + strings.Repeat("0", 64) },
		"/completeness/status": func(r *manifest.ArtifactRef) { r.Completeness.Status = "partial" },
		"/expires_at":          func(r *manifest.ArtifactRef) { r.ExpiresAt = new("2099-01-01T00:00:00Z") },
	} {
		ref := st.Ref
		alter(&ref)
		_, err := s.ResolveRef(t.Context(), leafproof.Owner, ref)
		if leafproof.CodeOf(err) != leafproof.CodeRefAltered || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error = %v", field, err)
		}
	}
}

// TestCatalogueDoesNotOverrule: a row that says otherwise than the signed manifest
// leads nowhere.
func TestCatalogueDoesNotOverrule(t *testing.T) {
	for name, change := range map[string]string{
		"expiry":  `UPDATE artifacts SET expires_at = NULL`,
		"run":     `UPDATE artifacts SET run = 'other'`,
		"source":  `UPDATE artifacts SET source_id = NULL`,
		"created": `UPDATE artifacts SET created_at = created_at + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t)
			id := put(t, s, []byte("secret\n"), leafproof.PutOptions{},
				leafproof.Facts{RunID: "run-1", SourceID: "infra", ExpiresAt: time.Now().Add(time.Hour)})
			read(t, s, id, leafproof.Selector{})
			s.Close()
			db, err := sql.Open("sqlite", filepath.Join(dir, "catalogue.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(change); err != nil {
				t.Fatal(err)
			}
			db.Close()
			var out bytes.Buffer
			_, err = openStore(t, dir).Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
			if leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed || out.Len() > 0 {
				t.Errorf("error = %v after %q", err, &out)
			}
		})
	}
}

// unavailable is an authority that does not answer.
type unavailable struct{}

func (unavailable) Decide(context.Context, leafproof.Request) (leafproof.Decision, error) {
	return leafproof.Decision{}, errors.New("down")
}

// TestAuthorityDown: nobody hears anything, and which ids exist cannot be told
// from the refusals.
func TestAuthorityDown(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, []byte("x\n"), leafproof.PutOptions{}, leafproof.Facts{})
	down := openStore(t, dir, leafproof.WithAuthority(unavailable{}))
	for _, id := range []string{id, "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		var out bytes.Buffer
		_, readErr := down.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
		_, statErr := down.Resolve(t.Context(), leafproof.Owner, id)
		deleteErr := down.Delete(t.Context(), leafproof.Owner, id, "")
		for what, err := range map[string]error{"read": readErr, "stat": statErr, "delete": deleteErr} {
			if leafproof.CodeOf(err) != leafproof.CodeAuthorityUnavailable {
				t.Errorf("%s %s: error = %v", what, id, err)
			}
		}
	}
}

// TestProofDisclosure: an authority is asked about all that a proof shows: whole
// leaves, and the places of every record on the map pages it carries.
func TestProofDisclosure(t *testing.T) {
	var asked []leafproof.Request
	s, _ := newStore(t, leafproof.WithAuthority(record{&asked}))
	id := put(t, s, []byte(strings.Repeat("{\"a\":1}\n", 1000)), leafproof.PutOptions{}, leafproof.Facts{})
	asked = nil
	sel := leafproof.Selector{Records: &merkle.Range{Start: 500, End: 501}}
	if _, err := s.Prove(t.Context(), leafproof.Owner, id, sel, io.Discard); err != nil {
		t.Fatal(err)
	}
	r := asked[len(asked)-1]
	if r.Action != leafproof.ActionProve || len(r.Ranges) != 1 || r.Ranges[0] != (merkle.Range{Start: 3072, End: 4096}) {
		t.Errorf("asked about %+v", r)
	}
	if r.Placed.Start > 500 || r.Placed.End <= 501 {
		t.Errorf("asked about the places of %v, the page shows more", r.Placed)
	}
}

type record struct{ asked *[]leafproof.Request }

func (a record) Decide(_ context.Context, r leafproof.Request) (leafproof.Decision, error) {
	*a.asked = append(*a.asked, r)
	return leafproof.Decision{Allow: true}, nil
}

// TestReadEach: a reader is told where each record stands, and a refused one nothing.
func TestReadEach(t *testing.T) {
	s, _ := newStore(t)
	text := "[1, {\"a\":\n2},\"three\"]"
	id := put(t, s, []byte(text), leafproof.PutOptions{Records: "json"}, leafproof.Facts{})
	var got []string
	each := func(n int64, span selector.Span) { got = append(got, fmt.Sprint(n, ":", text[span.Start:span.End])) }
	var out bytes.Buffer
	sel := leafproof.Selector{Records: &merkle.Range{Start: 1, End: 3}, Each: each}
	if _, err := s.Read(t.Context(), leafproof.Owner, id, sel, &out); err != nil {
		t.Fatal(err)
	}
	if want := "1:{\"a\":\n2}|2:\"three\""; strings.Join(got, "|") != want {
		t.Errorf("told %q, want %q", got, want)
	}
	got = nil
	if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{Pointer: new("/1/a"), Each: each}, &out); err != nil || strings.Join(got, "|") != "0:2" {
		t.Errorf("a pointer: %v, told %q", err, got)
	}
	got = nil
	if _, err := s.Read(t.Context(), leafproof.Caller{Principal: "stranger"}, id, sel, &out); leafproof.CodeOf(err) != leafproof.CodeRefNotFound || got != nil {
		t.Errorf("a stranger: %v, told %q", err, got)
	}
}
