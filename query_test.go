package leafproof_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

// rows of status and number, ten of them in six open.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"i":%d,"secret":"value-%d","status":"%s"}`+"\n", i, i, []string{"open", "shut", "open"}[i%3])
	}
	return b.Bytes()
}

// Case 25: a cursor used with another query, order, selection, artifact,
// principal or store, and one that was changed, each has its own error; none is
// an empty page. It reveals no value, tenant or digest.
func TestCursorElsewhere(t *testing.T) {
	s, _ := newStore(t, leafproof.WithAuthority(everybody{}))
	other, _ := newStore(t, leafproof.WithAuthority(everybody{}))
	facts := leafproof.Facts{SourceID: "infra.events"}
	id := put(t, s, numbered(30), leafproof.PutOptions{Tenant: "acme"}, facts)
	twin := put(t, s, numbered(30), leafproof.PutOptions{Tenant: "acme"}, facts)
	away := put(t, other, numbered(30), leafproof.PutOptions{Tenant: "acme"}, facts)
	q := leafproof.Query{Where: `@.secret == "value-0" || @.status == "open"`, Limit: 5}
	var first []int64
	a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
		first = append(first, r.Record)
		return nil
	})
	if err != nil || a.Cursor == "" || len(first) != 5 {
		t.Fatalf("%+v, %v", a, err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(a.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"value-0", "open", "acme", "owner", id, a.ManifestID, a.QID} {
		if bytes.Contains(raw, []byte(secret)) || strings.Contains(a.Cursor, secret) {
			t.Errorf("the cursor reveals %q", secret)
		}
	}
	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, st.Manifest.Root[:8]) {
		t.Error("the cursor reveals the digest")
	}
	raw[70]++
	with := func(change func(*leafproof.Query)) leafproof.Query {
		out := q
		out.Cursor = a.Cursor
		change(&out)
		return out
	}
	same := func(*leafproof.Query) {}
	seen := map[string]string{}
	for name, test := range map[string]struct {
		store *leafproof.Store
		who   leafproof.Caller
		id    string
		q     leafproof.Query
		code  leafproof.Code
	}{
		"query":     {s, leafproof.Owner, id, with(func(q *leafproof.Query) { q.Where = `@.status == "open"` }), "cursor_query_mismatch"},
		"artifact":  {s, leafproof.Owner, twin, with(same), "cursor_snapshot_mismatch"},
		"principal": {s, leafproof.Caller{Principal: "bob"}, id, with(same), "cursor_scope_mismatch"},
		"store":     {other, leafproof.Owner, away, with(same), "cursor_scope_mismatch"},
		"a byte":    {s, leafproof.Owner, id, with(func(q *leafproof.Query) { q.Cursor = base64.RawURLEncoding.EncodeToString(raw) }), "cursor_forged"},
		"cut":       {s, leafproof.Owner, id, with(func(q *leafproof.Query) { q.Cursor = q.Cursor[:40] }), "cursor_malformed"},
	} {
		a, err := test.store.Query(t.Context(), test.who, test.id, test.q, func(leafproof.Row) error {
			t.Errorf("%s: a row", name)
			return nil
		})
		if leafproof.CodeOf(err) != test.code || a != nil {
			t.Errorf("%s: answer %v, error %v; want %s", name, a, err, test.code)
			continue
		}
		if was, ok := seen[err.Error()]; ok {
			t.Errorf("%s and %s have the same error: %v", name, was, err)
		}
		seen[err.Error()] = name
	}
	for name, change := range map[string]func(*leafproof.Query){
		"order":     func(q *leafproof.Query) { q.Order = []string{"/i"} },
		"selection": func(q *leafproof.Query) { q.Select = []string{"/i"} },
	} {
		if _, err := s.Query(t.Context(), leafproof.Owner, id, with(change), nil); leafproof.CodeOf(err) != "cursor_query_mismatch" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Cases 24 and 29: five reasons for an empty result give five answers, and only
// one of them says that there is nothing.
func TestFiveEmptyAnswers(t *testing.T) {
	s, _ := newStore(t)
	data := numbered(3000)
	whole := leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}, SourceID: "infra.events", SnapshotID: "s-1"}
	partial, hidden := whole, whole
	partial.Omissions = []manifest.Omission{{What: map[string]any{"region": "us-east"}, Reason: "timeout"}}
	hidden.Redactions = []manifest.Redaction{{Path: "/status", Reason: "pii"}}
	put := func(f leafproof.Facts) string { return put(t, s, data, leafproof.PutOptions{}, f) }
	all, lacks, redacted := put(whole), put(partial), put(hidden)
	q := leafproof.Query{Where: `@.status == "lost"`}
	conclusions := map[string]string{}
	for name, test := range map[string]struct {
		id   string
		ask  func() (*selector.Answer, error)
		code leafproof.Code
		want string
	}{
		"searched all": {ask: func() (*selector.Answer, error) { return s.Query(t.Context(), leafproof.Owner, all, q, nil) }, want: "No record matched"},
		"budget": {ask: func() (*selector.Answer, error) {
			q := q
			q.MaxRecords = 100
			return s.Query(t.Context(), leafproof.Owner, all, q, nil)
		}, code: leafproof.CodeBudgetExhausted, want: "no_conclusion: no record matched so far"},
		"timed out": {ask: func() (*selector.Answer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			q := q
			q.Progress = func(int64) { <-ctx.Done() }
			return s.Query(ctx, leafproof.Owner, all, q, nil)
		}, code: leafproof.CodeScanIncomplete, want: "no_conclusion: no record matched so far"},
		"not captured": {ask: func() (*selector.Answer, error) { return s.Query(t.Context(), leafproof.Owner, lacks, q, nil) }, want: "Not captured: region us-east (timeout)."},
		"redacted":     {ask: func() (*selector.Answer, error) { return s.Query(t.Context(), leafproof.Owner, redacted, q, nil) }, want: "no_conclusion: the field /status is redacted"},
	} {
		a, err := test.ask()
		if (test.code == "") != (err == nil) || err != nil && leafproof.CodeOf(err) != test.code || a == nil {
			t.Errorf("%s: answer %v, error %v", name, a, err)
			continue
		}
		if !strings.Contains(a.Conclusion, test.want) || !strings.Contains(a.Conclusion, "infra.events (snapshot s-1") {
			t.Errorf("%s: %s", name, a.Conclusion)
		}
		if was, ok := conclusions[a.Conclusion]; ok {
			t.Errorf("%s and %s conclude the same", name, was)
		}
		conclusions[a.Conclusion] = name
		if got, ok := strings.CutPrefix(a.Conclusion, "no_conclusion"); ok == (name == "searched all" || name == "not captured") {
			t.Errorf("%s: %s", name, got)
		}
	}
	// A condition that decides without the redacted field is not hidden by it.
	a, err := s.Query(t.Context(), leafproof.Owner, redacted, leafproof.Query{Where: `@.i < 10 && (@.status == "lost" || @.i >= 0)`}, nil)
	if err != nil || a.Matched == nil || *a.Matched != 10 || a.Undecidable != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	// Ordered by it, nothing can be told.
	a, err = s.Query(t.Context(), leafproof.Owner, redacted, leafproof.Query{Where: `@.i < 10`, Order: []string{"/status"}}, func(leafproof.Row) error { return nil })
	if err != nil || a.Returned != 0 || a.Undecidable != 10 || !strings.Contains(a.Conclusion, "the field /status is redacted") {
		t.Errorf("%+v, %v", a, err)
	}
}

// An order that needs a full sort and runs out of budget has no rows and no
// cursor; the same in document order goes on.
func TestOrderBudget(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, numbered(300), leafproof.PutOptions{}, leafproof.Facts{})
	q := leafproof.Query{Where: `@.status == "open"`, Order: []string{"/i:desc"}, MaxRecords: 299}
	a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { t.Error("a row"); return nil })
	if leafproof.CodeOf(err) != leafproof.CodeBudgetExhausted || a == nil || a.Cursor != "" || a.Returned != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	q.MaxRecords = 300
	var rows []int64
	for q.Limit = 33; ; {
		a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error { rows = append(rows, r.Record); return nil })
		if err != nil || *a.Matched != 200 || a.Examined.Records != 300 {
			t.Fatalf("%+v, %v", a, err)
		}
		if q.Cursor = a.Cursor; a.Cursor == "" {
			break
		}
	}
	if len(rows) != 200 || rows[0] != 299 || rows[199] != 0 {
		t.Errorf("%d rows, from %v", len(rows), rows[:min(3, len(rows))])
	}
}

// Cases 58, 59, 61 and 62, through a store, with the records that are listed as
// undecidable in the manifest and with too many to list.
func TestHardRecords(t *testing.T) {
	s, _ := newStore(t)
	deep := strings.Repeat("[", 100_000)
	hard := []string{
		`{"n":13911860366432393,"status":"open"}`,
		`{"n":13911860366432392,"status":"\u006fpen"}`,
		`{"status":"open"}TRAILER`,
		`{"status":"open","status":"shut"}`,
		`{"status":"shut","st\u0061tus":"open"}`,
		deep,
		`{"was":{"status":"open"},"note":"\"status\":\"open\""}`,
		`{"d":{"x":1,"x":2},"status":"open"}`,
	}
	for _, more := range []int{0, 20} {
		src := strings.Join(hard, "\n") + strings.Repeat("\n{", more) + "\n"
		id := put(t, s, []byte(src), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
		st, err := s.Resolve(t.Context(), leafproof.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		if f := st.Manifest.Predicate.Records.Flags; f.Undecidable != int64(5+more) || len(f.UndecidableSpans) != min(5+more, 16) {
			t.Errorf("flags %+v", f)
		}
		for where, want := range map[string]string{
			`@.status == "open"`:                         "[0 1 7]",
			`@.n == 13911860366432393`:                   "[0]",
			`@.n > 13911860366432392`:                    "[0]",
			`@.n == 13911860366432392.0`:                 "[1]",
			`@.was.status == "open"`:                     "[6]",
			`{"field":"/note","contains":"us\":\"open"}`: "[6]",
		} {
			var rows []int64
			a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: where}, func(r leafproof.Row) error {
				rows = append(rows, r.Record)
				if line := strings.Split(src, "\n")[r.Record]; string(r.Bytes) != line {
					t.Errorf("record %d: %.80q", r.Record, r.Bytes)
				}
				return nil
			})
			if err != nil || fmt.Sprint(rows) != want {
				t.Errorf("%s: rows %v, error %v, want %s", where, rows, err, want)
				continue
			}
			place := int64(strings.Index(src, `{"status":"open"}TRAILER`))
			if a.UndecidableSpans[0] != (selector.Span{Start: place, End: place + 24}) {
				t.Errorf("%s: undecidable at %v", where, a.UndecidableSpans)
			}
		}
	}
}
