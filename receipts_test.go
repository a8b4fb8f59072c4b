package leafproof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// attested demands that the store's policy lets a statement stand.
func attested(t testing.TB, s *leafproof.Store, st *leafproof.Statement) {
	t.Helper()
	doc, keys, err := manifest.VerifyStatement(st.Envelope, st.Kind, s.Policy(), time.Now())
	if err != nil || doc.ID != st.ID || len(keys) != 1 {
		t.Fatalf("%s %s: %v, %v", st.Kind, st.ID, keys, err)
	}
	if payload, err := st.Envelope.PayloadBytes(); err != nil || merkle.Sum(payload) != st.Digest {
		t.Errorf("the digest of %s is another one: %v", st.ID, err)
	}
}

// A receipt says what was read, by whom, and what came of it.
func TestReceipt(t *testing.T) {
	s, _ := newStore(t)
	data := lines(3000, 1)
	id := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{RunID: "r1", SourceID: "infra.x", Partial: true})
	who := leafproof.Caller{Principal: leafproof.Owner.Principal, Purpose: "triage"}
	for name, test := range map[string]struct {
		sel      leafproof.Selector
		selector string
		exact    bool
	}{
		"all":        {leafproof.Selector{}, fmt.Sprintf(`{"bytes":["0","%d"]}`, len(data)), true},
		"bytes":      {leafproof.Selector{Bytes: &merkle.Range{Start: 10, End: 20}}, `{"bytes":["10","20"]}`, true},
		"no bytes":   {leafproof.Selector{Bytes: &merkle.Range{Start: 10, End: 10}}, `{"bytes":["10","10"]}`, true},
		"a record":   {leafproof.Selector{Records: &merkle.Range{Start: 3, End: 4}}, `{"records":["3","4"]}`, true},
		"records":    {leafproof.Selector{Records: &merkle.Range{Start: 3, End: 9}}, `{"records":["3","9"]}`, false},
		"no records": {leafproof.Selector{Records: &merkle.Range{Start: 3, End: 3}}, `{"records":["3","3"]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			plain := read(t, s, id, test.sel)
			var st leafproof.Statement
			test.sel.Receipt = &st
			var out bytes.Buffer
			a, err := s.Read(t.Context(), who, id, test.sel, &out)
			if err != nil || !bytes.Equal(out.Bytes(), plain) {
				t.Fatalf("read %q, %v", out.Bytes(), err)
			}
			attested(t, s, &st)
			r := st.Receipt()
			asked, err := manifest.Canonical(r.Request.Selector)
			if err != nil || string(asked) != test.selector || r.Request.QID != a.QID || r.Request.Action != "read" || r.Request.Asked != nil {
				t.Errorf("asked %s, %+v, %v", asked, r.Request, err)
			}
			if r.Result.Digest != merkle.Sum(plain).String() || r.Result.Bytes != int64(len(plain)) {
				t.Errorf("result %+v", r.Result)
			}
			shown := int64(0)
			for _, d := range r.Disclosed.Ranges {
				shown += d[1] - d[0]
			}
			if r.Disclosed.Exact != test.exact || shown < int64(len(bytes.TrimSuffix(plain, []byte("\n")))) || shown > int64(len(plain)) {
				t.Errorf("disclosed %+v of %d bytes", r.Disclosed, len(plain))
			}
			if r.Principal != "owner" || *r.Purpose != "triage" || *r.Scope.RunID != "r1" || *r.SourceID != "infra.x" || r.Authority.MaxStaleMS != 1000 {
				t.Errorf("%+v", r)
			}
			if r.Capture.Status != "partial" || r.Completion.Stop != "complete" || *r.Page.Number != 1 || r.Assurance != "attested" {
				t.Errorf("%+v", r)
			}
		})
	}
	list, err := s.Receipts(t.Context(), who, id)
	if err != nil || len(list) != 6 {
		t.Fatalf("%d receipts, %v", len(list), err)
	}
	for i, st := range list {
		attested(t, s, st)
		if i > 0 && st.Seq <= list[i-1].Seq {
			t.Errorf("Seq %d after %d", st.Seq, list[i-1].Seq)
		}
	}
}

// The receipts of a query's pages form a chain, which names what was matched,
// examined and disclosed so far; a page without a receipt breaks it.
func TestReceiptChain(t *testing.T) {
	s, _ := newStore(t)
	var data bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&data, `{"n":%d,"even":%t}`+"\n", i, i%2 == 0)
	}
	id := put(t, s, data.Bytes(), leafproof.PutOptions{}, leafproof.Facts{})
	ask := func(q leafproof.Query, receipt bool) (cursor string, rows []byte, st *leafproof.Statement) {
		t.Helper()
		q.Where, q.Limit = `@.even == true`, 20
		if receipt {
			q.Receipt = &leafproof.Statement{}
		}
		a, err := s.Query(t.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
			rows = append(append(rows, r.Bytes...), '\n')
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a.Cursor, rows, q.Receipt
	}
	cursor, before := "", (*leafproof.Statement)(nil)
	var cursors []string
	for n := int64(1); ; n++ {
		next, rows, st := ask(leafproof.Query{Cursor: cursor}, true)
		attested(t, s, st)
		r := st.Receipt()
		if r.Page.Number == nil || *r.Page.Number != n || r.Page.Continued != (n > 1) {
			t.Fatalf("page %d: %+v", n, r.Page)
		}
		if before != nil && *r.Page.Previous != before.Digest.String() {
			t.Errorf("page %d follows %s, want %s", n, *r.Page.Previous, before.Digest)
		}
		if r.Result.Digest != merkle.Sum(rows).String() || r.Result.Returned != int64(bytes.Count(rows, []byte("\n"))) {
			t.Errorf("page %d: %+v", n, r.Result)
		}
		if !r.Disclosed.Exact || int64(len(r.Disclosed.Ranges)) != r.Result.Returned {
			t.Errorf("page %d: disclosed %+v", n, r.Disclosed)
		}
		if *r.Request.Asked != `@.even == true` || *r.Request.Limit != 20 || r.Examined.Basis != "scan" || r.Examined.Total != 100 {
			t.Errorf("page %d: %+v %+v", n, r.Request, r.Examined)
		}
		if next == "" {
			if r.Completion.Stop != "complete" || *r.Result.Matched != 50 || n != 3 {
				t.Errorf("page %d: %+v %+v", n, r.Completion, r.Result)
			}
			break
		}
		if r.Result.Matched != nil || *r.Result.MatchedSoFar != 20*n || r.Completion.More != "yes" {
			t.Errorf("page %d: %+v %+v", n, r.Completion, r.Result)
		}
		cursor, before = next, st
		cursors = append(cursors, cursor)
	}
	// The same page again has the same number: a chain may fork.
	if _, _, st := ask(leafproof.Query{Cursor: cursors[0]}, true); *st.Receipt().Page.Number != 2 {
		t.Errorf("the second page again: %+v", st.Receipt().Page)
	}
	// A page that nobody asked a receipt for.
	other, _, _ := ask(leafproof.Query{}, false)
	if other == cursors[0] {
		t.Skip("both cursors were sealed in one second and are the same")
	}
	if _, _, st := ask(leafproof.Query{Cursor: other}, true); st.Receipt().Page != (manifest.Page{Continued: true}) {
		t.Errorf("behind a page without a receipt: %+v", st.Receipt().Page)
	}
}

// A count discloses no byte, and a scan that was cut short has a receipt too.
func TestReceiptOfCountAndCut(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, lines(50_000, 3), leafproof.PutOptions{}, leafproof.Facts{})
	var st leafproof.Statement
	if _, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.n == 1`, Count: true, Receipt: &st}, nil); err != nil {
		t.Fatal(err)
	}
	r := st.Receipt()
	if r.Request.Action != "count" || r.Result.Bytes != 0 || len(r.Disclosed.Ranges) != 0 || r.Result.Matched == nil {
		t.Errorf("%+v", r)
	}
	_, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.n == 1`, MaxRecords: 10, Receipt: &st}, nil)
	if leafproof.CodeOf(err) != leafproof.CodeBudgetExhausted {
		t.Fatal(err)
	}
	if r := st.Receipt(); r.Completion.Stop != "budget" || r.Result.Matched != nil || r.Examined.Records != 10 {
		t.Errorf("%+v %+v", r.Completion, r.Examined)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rows := 0
	_, err = s.Query(ctx, leafproof.Owner, id, leafproof.Query{Where: `@.n >= 0`, Receipt: &st}, func(leafproof.Row) error {
		if rows++; rows == 3 {
			cancel()
		}
		return nil
	})
	if leafproof.CodeOf(err) != leafproof.CodeScanIncomplete {
		t.Fatal(err)
	}
	if r := st.Receipt(); r.Completion.Stop != "cancelled" || r.Result.Returned != int64(rows) {
		t.Errorf("after %d rows: %+v %+v", rows, r.Completion, r.Result)
	}
}

// The receipt in a bundle is of the bytes that a verifier writes out, and lists the
// leaves that the proof shows.
func TestReceiptOfProof(t *testing.T) {
	s, _ := newStore(t)
	doc := []byte(`{"items":[` + strings.Repeat(`{"a":1,"b":"some text"},`, 300) + `{"a":2}]}`)
	ids := map[string]string{
		"lines": put(t, s, lines(9000, 1), leafproof.PutOptions{}, leafproof.Facts{}),
		"doc":   put(t, s, doc, leafproof.PutOptions{At: "/items"}, leafproof.Facts{}),
	}
	for name, test := range map[string]struct {
		of  string
		sel leafproof.Selector
	}{
		"bytes":             {"lines", leafproof.Selector{Bytes: &merkle.Range{Start: 2000, End: 3000}}},
		"bytes, clamped":    {"lines", leafproof.Selector{Bytes: &merkle.Range{Start: 8000, End: 1 << 30}}},
		"no bytes":          {"lines", leafproof.Selector{Bytes: &merkle.Range{Start: 2000, End: 2000}}},
		"records":           {"lines", leafproof.Selector{Records: &merkle.Range{Start: 10, End: 20}}},
		"array elements":    {"doc", leafproof.Selector{Records: &merkle.Range{Start: 299, End: 301}}},
		"a pointer":         {"doc", leafproof.Selector{Pointer: new("/items/300")}},
		"a pointer, proven": {"doc", leafproof.Selector{Pointer: new("/items/300"), Whole: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var st leafproof.Statement
			test.sel.Receipt = &st
			var file, out bytes.Buffer
			if _, err := s.Prove(t.Context(), leafproof.Owner, ids[test.of], test.sel, &file); err != nil {
				t.Fatal(err)
			}
			attested(t, s, &st)
			res, err := bundle.Verify(bytes.NewReader(file.Bytes()), int64(file.Len()), bundle.Options{Policy: s.Policy(), At: time.Now(), Out: &out})
			if err != nil {
				t.Fatal(err)
			}
			if f, _ := res.Verdict.Fact(manifest.FactScan); f.String() != "attested(store-receipt, receipt)" || res.Verdict.Exit() != 0 {
				t.Errorf("scan is %s, exit %d: %s", f, res.Verdict.Exit(), res.Verdict.Sentence())
			}
			r := st.Receipt()
			if r.Request.Action != "prove" || r.Assurance != "proven" || r.Result.Digest != merkle.Sum(out.Bytes()).String() {
				t.Errorf("%+v", r)
			}
			var shown [][2]int64
			for _, l := range res.Shown {
				shown = append(shown, [2]int64{l.Start, l.End})
			}
			if !r.Disclosed.Exact || !slices.Equal(r.Disclosed.Ranges, shown) {
				t.Errorf("disclosed %v, the verifier saw %v", r.Disclosed.Ranges, shown)
			}
			if (r.Disclosed.Placed != nil) != (test.sel.Records != nil) {
				t.Errorf("placed %v", r.Disclosed.Placed)
			}
		})
	}
}

// Without a key of the role, a receipt is refused before a byte is given out, and
// deleting works.
func TestWithoutKeys(t *testing.T) {
	s, dir := newStore(t)
	data := lines(1000, 1)
	id := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{})
	s.Close()
	for _, name := range []string{"receipt", "tombstone"} {
		if err := os.Remove(filepath.Join(dir, "keys", name)); err != nil {
			t.Fatal(err)
		}
	}
	s = openStore(t, dir)
	var out bytes.Buffer
	_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{Receipt: &leafproof.Statement{}}, &out)
	if !errors.Is(err, leafproof.ErrNoKey) || !strings.Contains(err.Error(), "receipt") || out.Len() > 0 {
		t.Errorf("read %d bytes, %v", out.Len(), err)
	}
	_, err = s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: `@.n == 1`, Receipt: &leafproof.Statement{}}, func(leafproof.Row) error {
		t.Error("a row was given out")
		return nil
	})
	if !errors.Is(err, leafproof.ErrNoKey) {
		t.Error(err)
	}
	if list, err := s.Receipts(t.Context(), leafproof.Owner, id); err != nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
	if err := s.Delete(t.Context(), leafproof.Owner, id, "no longer needed"); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Tombstone(t.Context(), leafproof.Owner, id); st != nil || err != nil {
		t.Errorf("Tombstone = %v, %v", st, err)
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, id); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
		t.Error(err)
	}
	if r := gc(t, s); r.Finished+r.Unfinished != 0 || r.Deleted == 0 {
		t.Errorf("%+v", r)
	}
}

// What cannot be named in a receipt is refused before a byte is given out.
func TestReceiptNames(t *testing.T) {
	s, _ := newStore(t, leafproof.WithAuthority(everybody{}))
	id := put(t, s, lines(1000, 1), leafproof.PutOptions{}, leafproof.Facts{})
	for name, who := range map[string]leafproof.Caller{
		"a long name": {Principal: leafproof.Principal(strings.Repeat("x", 257))},
		"a NUL":       {Principal: "a\x00b"},
		"bad UTF-8":   {Principal: "a\xff"},
		"a purpose":   {Principal: "a", Purpose: "\u2028"},
	} {
		var out bytes.Buffer
		_, err := s.Read(t.Context(), who, id, leafproof.Selector{Receipt: &leafproof.Statement{}}, &out)
		if leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid || out.Len() > 0 {
			t.Errorf("%s: %d bytes, %v", name, out.Len(), err)
		}
	}
	var st leafproof.Statement
	if _, err := s.Read(t.Context(), leafproof.Caller{Principal: "élise@example.com"}, id, leafproof.Selector{Receipt: &st}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if r := st.Receipt(); r.Principal != "élise@example.com" || r.Purpose != nil {
		t.Errorf("%+v", r)
	}
}

// everybody lets all read and nobody but the owner grant.
type everybody struct{}

func (everybody) Decide(_ context.Context, r leafproof.Request) (leafproof.Decision, error) {
	return leafproof.Decision{Allow: r.Principal == leafproof.Owner.Principal || r.Action != leafproof.ActionGrant && r.Principal != "stranger"}, nil
}

// A reader sees his own receipts; whoever may grant sees all; a stranger does not
// learn that there is an artifact.
func TestReceiptsOfOthers(t *testing.T) {
	s, _ := newStore(t, leafproof.WithAuthority(everybody{}))
	id := put(t, s, lines(1000, 1), leafproof.PutOptions{}, leafproof.Facts{})
	for _, who := range []leafproof.Principal{"alice", "bob", "alice"} {
		if _, err := s.Read(t.Context(), leafproof.Caller{Principal: who}, id, leafproof.Selector{Receipt: &leafproof.Statement{}}, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	for who, want := range map[leafproof.Principal]int{"alice": 2, "bob": 1, "carol": 0, leafproof.Owner.Principal: 3} {
		list, err := s.Receipts(t.Context(), leafproof.Caller{Principal: who}, id)
		if err != nil || len(list) != want {
			t.Errorf("%s sees %d receipts, %v, want %d", who, len(list), err, want)
		}
	}
	_, err := s.Receipts(t.Context(), leafproof.Caller{Principal: "stranger"}, id)
	_, absent := s.Receipts(t.Context(), leafproof.Caller{Principal: "stranger"}, "art_"+strings.Repeat("a", 32))
	if leafproof.CodeOf(err) != leafproof.CodeRefNotFound || leafproof.CodeOf(absent) != leafproof.CodeRefNotFound {
		t.Errorf("%v, %v", err, absent)
	}
}

// A tombstone, and what gc reclaimed, are signed; they hold no digest of the bytes,
// and outlive the artifact.
func TestTombstone(t *testing.T) {
	s, dir := newStore(t)
	shared := random(100_000, 1)
	data := lines(400_000, 5)
	keep := put(t, s, shared, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	id := put(t, s, data, leafproof.PutOptions{}, leafproof.Facts{SourceID: "infra.x"})
	twin := put(t, s, shared, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	var receipt leafproof.Statement
	if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{Receipt: &receipt}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	for of, reason := range map[string]string{id: "asked by the user", twin: ""} {
		if err := s.Delete(t.Context(), leafproof.Owner, of, reason); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), leafproof.Owner, of, "again"); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
			t.Errorf("deleted again: %v", err)
		}
	}
	st, err := s.Tombstone(t.Context(), leafproof.Owner, id)
	if err != nil || st == nil {
		t.Fatal(st, err)
	}
	attested(t, s, st)
	b := st.Statement.Body.(*manifest.Tombstone)
	if *b.Reason != "asked by the user" || b.RequestedBy != "owner" || *b.SourceID != "infra.x" {
		t.Errorf("%+v", b)
	}
	payload, err := st.Envelope.PayloadBytes()
	if err != nil || bytes.Contains(payload, []byte(merkle.Sum(data).String())) {
		t.Errorf("the tombstone holds the digest of the bytes: %v", err)
	}
	last := func(of string) *manifest.Deletion {
		list, _, err := s.Statements(t.Context(), leafproof.Owner, of, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var d *manifest.Deletion
		for _, st := range list {
			attested(t, s, st)
			if x, ok := st.Statement.Body.(*manifest.Deletion); ok {
				d = x
			}
		}
		return d
	}
	if d := last(id); d != nil {
		t.Errorf("before a gc: %+v", d)
	}
	if r := gc(t, s); r.Finished != 2 || r.Unfinished != 0 {
		t.Errorf("%+v", r)
	}
	states := func(d *manifest.Deletion) string {
		if d == nil {
			return "none"
		}
		var out []string
		for _, l := range d.Locations {
			out = append(out, l.Part+" "+l.State)
		}
		return strings.Join(out, ", ") + fmt.Sprintf(", complete %t", d.Complete)
	}
	if got, want := states(last(id)), "bytes deleted, manifest deleted, record_map deleted, complete true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := states(last(twin)), "bytes shared, manifest deleted, complete true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := read(t, s, keep, leafproof.Selector{}); !bytes.Equal(got, shared) {
		t.Error("what was shared reads otherwise")
	}
	if r := gc(t, s); r.Finished+r.Unfinished+r.Deleted != 0 {
		t.Errorf("once more: %+v", r)
	}
	// The catalogue is lost: the tombstones stand among the objects, the manifests
	// are gone.
	if list, err := s.Receipts(t.Context(), leafproof.Owner, id); err != nil || len(list) != 1 || list[0].ID != receipt.ID {
		t.Errorf("the receipts of a deleted artifact: %v, %v", list, err)
	}
	s.Close()
	if err := os.Remove(filepath.Join(dir, "catalogue.db")); err != nil {
		t.Fatal(err)
	}
	r, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{})
	if err != nil || r.Restored == nil || r.Restored.Deleted != 2 || r.Restored.Statements != 4 || r.Restored.Artifacts != 3 {
		t.Fatalf("%+v, %v", r.Restored, err)
	}
	s = openStore(t, dir)
	for _, of := range []string{id, twin} {
		if _, err := s.Resolve(t.Context(), leafproof.Owner, of); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
			t.Errorf("after the repair: %v", err)
		}
		if d := last(of); d == nil || !d.Complete {
			t.Errorf("after the repair: %+v", d)
		}
	}
	if _, err := s.Resolve(t.Context(), leafproof.Owner, id); err == nil || !strings.Contains(err.Error(), "asked by the user") {
		t.Errorf("the reason is lost: %v", err)
	}
	if r := gc(t, s); r.Finished+r.Unfinished+r.Deleted != 0 {
		t.Errorf("after the repair: %+v", r)
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Damaged() || r.Unreferenced != 0 {
		t.Errorf("after the repair: %+v", r)
	}
}

// Of many small artifacts in one pack, few are deleted: they are gone after the gc,
// to the last byte.
func TestDeletedFromFullPack(t *testing.T) {
	s, dir := newStore(t)
	var ids []string
	for i := range 60 {
		ids = append(ids, put(t, s, fmt.Appendf(nil, "the secret of %d is %x", i, random(40, uint64(i))), leafproof.PutOptions{Records: "none"}, leafproof.Facts{}))
	}
	secret := random(40, 7)
	if err := s.Delete(t.Context(), leafproof.Owner, ids[7], ""); err != nil {
		t.Fatal(err)
	}
	if r := gc(t, s); r.Finished != 1 || r.Unfinished != 0 {
		t.Errorf("%+v", r)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, fmt.Appendf(nil, "%x", secret)) {
			t.Errorf("%s still holds it", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The collected ranges cover what was given out, in bounded memory, and are exact
// while there is room.
func TestSpanSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 5, 200, 2000} {
		const size = 1 << 20
		var set leafproof.SpanSet
		covered := make([]bool, size)
		total := 0
		for range n {
			start := r.Int64N(size - 300)
			end := start + r.Int64N(300)
			set.Add(merkle.Range{Start: start, End: end})
			for i := start; i < end; i++ {
				if !covered[i] {
					covered[i] = true
					total++
				}
			}
		}
		ranges, exact := set.List(size)
		if len(ranges) > 256 {
			t.Errorf("%d: %d ranges", n, len(ranges))
		}
		last, sum := int64(-1), int64(0)
		for _, x := range ranges {
			if x[0] <= last || x[0] >= x[1] || x[1] > size {
				t.Fatalf("%d: %v behind %d", n, x, last)
			}
			last = x[1]
			sum += x[1] - x[0]
			for i := x[0]; i < x[1]; i++ {
				covered[i] = false
			}
		}
		if i := slices.Index(covered, true); i >= 0 {
			t.Errorf("%d: byte %d is not covered", n, i)
		}
		if exact != (sum == int64(total)) && n < 2000 || exact != (n < 2000) {
			t.Errorf("%d: exact %t, %d bytes for %d", n, exact, sum, total)
		}
	}
}
