package leafproof_test

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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

// setClock sets the store's clock, which never goes back.
func setClock(t *testing.T, dir string, now time.Time) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalogue.db"))
	if err == nil {
		_, err = db.Exec(`UPDATE meta SET clock = ?`, now.UnixMicro())
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Case 25: a cursor is good for 15 minutes by the store's clock; then it has an
// error of its own, before any other question is asked of it.
func TestCursorExpires(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, numbered(30), leafproof.PutOptions{}, leafproof.Facts{})
	q := leafproof.Query{Where: `@.status == "open"`, Order: []string{"/secret:desc"}, Limit: 4}
	begin := time.Now()
	a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(a.Cursor)
	if err != nil || bytes.Contains(raw, []byte("value-")) {
		t.Errorf("a cursor in the order of a value: %x, %v", raw, err)
	}
	q.Cursor = a.Cursor
	setClock(t, dir, begin.Add(14*time.Minute))
	rows := 0
	b, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { rows++; return nil })
	if err != nil || rows != 4 || b.Cursor == "" {
		t.Errorf("after 14 minutes: %d rows, %+v, %v", rows, b, err)
	}
	setClock(t, dir, begin.Add(16*time.Minute))
	other := q
	other.Where = `@.status == "shut"`
	for _, q := range []leafproof.Query{q, other} {
		c, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { t.Error("a row"); return nil })
		if c != nil || leafproof.CodeOf(err) != "cursor_expired" {
			t.Errorf("after 16 minutes: %v, %v", c, err)
		}
	}
	q.Cursor = b.Cursor // of a later page, made later
	if _, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { return nil }); err != nil {
		t.Errorf("the next cursor: %v", err)
	}
}

// Case 25: no byte of a cursor can be changed and have it accepted, nor read as
// another place.
func TestCursorChanged(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, numbered(30), leafproof.PutOptions{}, leafproof.Facts{})
	q := leafproof.Query{Where: `@.status == "open"`, Limit: 4}
	a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(a.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[leafproof.Code]int{}
	for i := range raw {
		raw[i] ^= 1 << (i % 8)
		q.Cursor = base64.RawURLEncoding.EncodeToString(raw)
		raw[i] ^= 1 << (i % 8)
		got, err := s.Query(t.Context(), leafproof.Owner, id, q, func(leafproof.Row) error { t.Error("a row"); return nil })
		if got != nil || err == nil {
			t.Fatalf("byte %d changed: %v, %v", i, got, err)
		}
		codes[leafproof.CodeOf(err)]++
	}
	// The version, and the key's id, by which another store's are told.
	if codes["cursor_malformed"] != 1 || codes["cursor_scope_mismatch"] != 4 || codes["cursor_forged"] != len(raw)-5 {
		t.Errorf("%v", codes)
	}
}

// Case 30: what was captured, what was scanned and what entered a prompt are
// three answers: a complete scan of a partial capture is not complete evidence,
// and a page that ended early is not a complete answer.
func TestCompletenessOfThree(t *testing.T) {
	s, _ := newStore(t)
	facts := leafproof.Facts{
		Coverage: map[string]any{"region": "eu-west"}, SourceID: "infra.events", SnapshotID: "s-1",
		Omissions: []manifest.Omission{{What: map[string]any{"region": "us-east"}, Reason: "timeout"}},
	}
	id := put(t, s, numbered(30), leafproof.PutOptions{}, facts)
	ask := func(limit int64) *selector.Answer {
		t.Helper()
		a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.status == "open"`, Limit: limit}, func(leafproof.Row) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	all, page := ask(0), ask(5)
	if all.Stop != selector.StopComplete || all.More != selector.MoreNo || *all.Matched != 20 || all.Completeness.Status != "partial" {
		t.Errorf("of all: %+v", all)
	}
	if page.Stop != selector.StopPageLimit || page.More != selector.MoreYes || page.Matched != nil || *page.MatchedSoFar != 5 || page.Completeness.Status != "partial" {
		t.Errorf("of a page: %+v", page)
	}
	for _, c := range []struct{ text, want string }{
		{all.Conclusion, "Exactly 20 records matched in the captured coverage (region eu-west)"},
		{all.Conclusion, "Not captured: region us-east (timeout). Nothing follows about that"},
		{page.Conclusion, "At least 5 records matched"},
		{page.Conclusion, "this is only the first part of the result: the page is full after"},
		{page.Conclusion, "Not captured: region us-east (timeout)."},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("%q is not in %q", c.want, c.text)
		}
	}
	text, err := json.Marshal(all)
	if err != nil || strings.Contains(string(text), "admi") {
		t.Errorf("an answer speaks of what is not known to it: %s, %v", text, err)
	}
	need := func(f string, a *selector.Answer) leafproof.Need { return leafproof.Need{Require: fact(f), Answer: a} }
	// It is used with a reservation at best: the capture is partial.
	for name, c := range map[string]struct {
		need     leafproof.Need
		decision string
	}{
		"scanned":              {need("scan=complete", all), leafproof.Qualify},
		"a page":               {need("scan=complete", page), leafproof.Deferred},
		"captured":             {need("capture=complete", all), leafproof.Deferred},
		"the region":           {need("region=eu-west", all), leafproof.Qualify},
		"the omitted region":   {need("region=us-east", all), leafproof.Deferred},
		"admitted to a prompt": {need("admission=complete", all), leafproof.Deferred},
	} {
		if a := assess(t, s, leafproof.Owner, id, c.need); a.Decision != c.decision {
			t.Errorf("%s: %s, want %s; unmet %+v", name, a.Decision, c.decision, a.Unmet)
		}
	}
}

// Case 52: one line of JSON is read in pages of bytes, which keep to their cap and
// come to the exact bytes. LEAFPROOF_TEST_LARGE=1 does it with 100 MB too.
func TestOneLineInPages(t *testing.T) {
	sizes := []int{100_000}
	if os.Getenv("LEAFPROOF_TEST_LARGE") != "" {
		sizes = append(sizes, 100_000_000)
	}
	s, _ := newStore(t)
	for _, size := range sizes {
		for _, records := range []string{"auto", "none"} {
			var doc bytes.Buffer
			doc.WriteByte('[')
			for i := 0; doc.Len() < size; i++ {
				fmt.Fprintf(&doc, `{"id":%d,"text":"line %d of many"},`, i, i)
			}
			doc.Truncate(doc.Len() - 1)
			doc.WriteByte(']')
			src := doc.Bytes()
			id := put(t, s, src, leafproof.PutOptions{Records: records}, leafproof.Facts{})
			limit := int64(size/17 + 1)
			var got bytes.Buffer
			for at := int64(0); at < int64(len(src)); {
				end := min(at+limit, int64(len(src)))
				n, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{Bytes: &merkle.Range{Start: at, End: end}}, &got)
				if err != nil || n.Examined.Bytes > limit || int64(got.Len()) != end {
					t.Fatalf("%d bytes, page at %d: %+v, %v; %d bytes so far", size, at, n, err, got.Len())
				}
				at = end
			}
			if !bytes.Equal(got.Bytes(), src) {
				t.Errorf("%d bytes, records %s: the pages come to other bytes", size, records)
			}
			if records == "none" {
				continue
			}
			// Pages of records, by bytes and not by number.
			q := leafproof.Query{Where: `@.id >= 0`, ReturnBytes: limit}
			at := 1
			for page := 0; ; page++ {
				bytesOf := int64(0)
				a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
					bytesOf += int64(len(r.Bytes))
					if int64(at) != r.Span.Start || !bytes.Equal(r.Bytes, src[at:at+len(r.Bytes)]) {
						return fmt.Errorf("record %d at %v", r.Record, r.Span)
					}
					at += len(r.Bytes) + 1
					return nil
				})
				if err != nil || bytesOf > limit || bytesOf == 0 {
					t.Fatalf("page %d: %d bytes, %+v, %v", page, bytesOf, a, err)
				}
				if q.Cursor = a.Cursor; a.Stop == selector.StopComplete {
					break
				}
			}
			if at != len(src) {
				t.Errorf("the pages of records end at %d of %d", at, len(src))
			}
		}
	}
}
