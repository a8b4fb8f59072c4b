package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// The list at the end of the retrieval contract, each with useful retrieval before and a
// visible refusal or deferral after. The kernel's reset is TestKernel.

// packs are the files in which a store holds small objects: which holds what is its own
// affair.
func packs(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "pack") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// damage alters the bytes of every pack of a store but those spared.
func damage(t *testing.T, dir string, spared ...string) {
	t.Helper()
	damaged := 0
	for _, path := range packs(t, dir) {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 200 && !slices.Contains(spared, path) {
			for i := 40; i < 200; i++ {
				b[i] ^= 0x55
			}
			damaged++
			err = errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if damaged == 0 {
		t.Fatal("no pack")
	}
}

// Case 22.
func TestBackingObjectReplacedBetweenVerificationAndSelection(t *testing.T) {
	ran := 0
	sc := newScene(t, setup{tools: []harness.Tool{restart(&ran, harness.Evidence{Require: fact("capture=complete"), Deep: true})}})
	v := sc.record(harness.Blob{
		Reader: strings.NewReader("[" + strings.Repeat(`{"status":"open","secret":"s3cret"},`, 200) + "{}]"), Records: "json",
		Facts: facts(time.Now(), twoRegions),
	})
	before := sc.good("query_json", `{"source":%s}`, refTo(v, ""))
	sc.good("restart", `{"events":%s}`, refTo(before, "value")) // verified, and used
	damage(t, sc.dir)
	crossed := len(sc.seen())
	for tool, args := range map[string]string{"query_json": "", "read_text": "", "read_json": "", "read_records": ""} {
		sc.fails("integrity_failed", tool, `{"source":%s%s}`, refTo(v, ""), args)
	}
	sc.fails("integrity_failed", "restart", `{"events":%s}`, refTo(before, "value"))
	if strings.Contains(sc.seen()[crossed:], "s3cret") {
		t.Error("bytes that do not verify were shown")
	}
	if ran != 1 {
		t.Errorf("the tool ran %d times", ran)
	}
}

// member of a run: somebody who was granted leave to one run.
func granted(t *testing.T, sc *scene, who leafproof.Principal) (grants []string) {
	t.Helper()
	for _, a := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery} {
		g, err := sc.store.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: who, Action: a, Pattern: secretTenant})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g.ID)
	}
	return grants
}

// Case 23.
func TestPermissionRevokedBetweenPages(t *testing.T) {
	sc := newScene(t, setup{run: harness.RunOptions{Caller: leafproof.Caller{Principal: "agent-1"}}})
	grants := granted(t, sc, "agent-1")
	v := sc.record(events(nil))
	text := sc.good("read_text", `{"source":%s}`, refTo(v, ""))
	w := sc.record(harness.Blob{Reader: strings.NewReader(string(lines(900))), Records: "ndjson"})
	page := sc.good("query_json", `{"source":%s}`, refTo(w, ""))
	cursor := member(t, page, "cursor")
	if cursor == "" {
		t.Fatalf("%s", page.Content)
	}
	sc.good("query_json", `{"source":%s,"cursor":%s}`, refTo(w, ""), cursor) // and so it is in every cache
	for _, g := range grants {
		if err := sc.store.Revoke(t.Context(), leafproof.Owner, g); err != nil {
			t.Fatal(err)
		}
	}
	sc.fails("access_revoked", "query_json", `{"source":%s,"cursor":%s}`, refTo(w, ""), cursor)
	sc.fails("access_revoked", "read_text", `{"source":%s,"offset":%s}`, refTo(v, ""), member(t, text, "next"))
	sc.fails("access_revoked", "stat", `{"source":%s}`, refTo(v, ""))
	sc.fails("access_revoked", "read_records", `{"source":%s}`, refTo(w, ""))
	if _, err := sc.run.Refetch(t.Context(), message(w, ""), harness.Evidence{MaxAge: time.Second}); harness.FailureOf(err).Code != leafproof.CodeAccessRevoked {
		t.Errorf("what may not be had may be acquired anew: %v", err)
	}
}

// interrupting ends the context of a query after some rows.
type interrupting struct {
	ref.Source
	after int
}

func (s *interrupting) Query(ctx context.Context, id string, q ref.Query, emit func(ref.Row) error) (*selectorAnswer, error) {
	if s.after == 0 {
		return s.Source.Query(ctx, id, q, emit)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	return s.Source.Query(ctx, id, q, func(r ref.Row) error {
		if n++; n == s.after {
			cancel()
		}
		return emit(r)
	})
}

// Case 24.
func TestScanInterrupted(t *testing.T) {
	ran := 0
	var src *interrupting
	sc := newScene(t, setup{
		tools:   []harness.Tool{restart(&ran, harness.Evidence{Require: fact("scan=complete")})},
		wrapper: func(s ref.Source) ref.Source { src = &interrupting{Source: s}; return src },
	})
	v := sc.record(harness.Blob{Reader: strings.NewReader(string(lines(60_000))), Records: "ndjson"})
	found := sc.good("query_json", `{"source":%s,"where":"@.status == \"open\""}`, refTo(v, ""))
	sc.good("restart", `{"events":%s}`, refTo(found, "value"))
	src.after = 5
	f := sc.fails("scan_incomplete", "query_json", `{"source":%s,"where":"@.status == \"open\""}`, refTo(v, ""))
	if f.Answer["stop"] != "cancelled" || f.Answer["examined"] == nil || f.Answer["examined"].(float64) >= 60_000 || f.Answer["conclusion"] == "" {
		t.Errorf("it does not say what was examined: %+v", f)
	}
	sc.fails("scan_incomplete", "restart", `{"events":%s}`, refTo(found, "value"))
	if ran != 1 {
		t.Errorf("the tool ran %d times", ran)
	}
}

// Case 25.
func TestCursorReusedOnAnotherSnapshot(t *testing.T) {
	sc := newScene(t, setup{})
	var views []harness.View
	for range 2 { // two captures of the same bytes
		views = append(views, sc.record(harness.Blob{Reader: strings.NewReader(string(lines(900))), Records: "ndjson"}))
	}
	page := sc.good("query_json", `{"source":%s}`, refTo(views[0], ""))
	cursor := member(t, page, "cursor")
	sc.good("query_json", `{"source":%s,"cursor":%s}`, refTo(views[0], ""), cursor)
	sc.fails("cursor_snapshot_mismatch", "query_json", `{"source":%s,"cursor":%s}`, refTo(views[1], ""), cursor)
	sc.fails("cursor_query_mismatch", "query_json", `{"source":%s,"cursor":%s,"where":"@.id == 1"}`, refTo(views[0], ""), cursor)
	sc.fails("cursor_malformed", "query_json", `{"source":%s,"cursor":"x"}`, refTo(views[0], ""))
	other := newScene(t, setup{})
	w := other.record(harness.Blob{Reader: strings.NewReader(string(lines(900))), Records: "ndjson"})
	other.fails("cursor_scope_mismatch", "query_json", `{"source":%s,"cursor":%s}`, refTo(w, ""), cursor)
}

// Case 27: the gate's own retries take from the run's budget, and when it is used up the
// decision is to defer.
func TestRecoveryBudgetExhausted(t *testing.T) {
	demand := harness.Evidence{Require: fact("capture=complete"), MaxAge: time.Hour}
	latest, ran := facts(time.Now(), twoRegions), 0
	sc := newScene(t, setup{
		tools: []harness.Tool{collector(&latest, nil), restart(&ran, demand)},
		run:   harness.RunOptions{Recovery: leafproof.BudgetLimits{Attempts: 1, Time: time.Minute, Bytes: 1 << 20}},
	})
	capture := sc.good("export", `{}`)
	sc.good("restart", `{"events":%s}`, rowsOf(sc, capture))
	latest = facts(time.Now().Add(-2*time.Hour), twoRegions)
	stale := sc.good("export", `{}`)
	again, err := sc.run.Refetch(t.Context(), message(stale, "events"), demand) // what comes is stale too
	if err != nil || again.IsError {
		t.Fatalf("%s, %v", again.Content, err)
	}
	_, err = sc.run.Refetch(t.Context(), message(again, "events"), demand)
	if f := harness.FailureOf(err); f.Code != leafproof.CodeBudgetExhausted || f.Action != leafproof.Defer {
		t.Errorf("%+v, %v", f, err)
	}
	f := sc.fails("evidence_insufficient", "restart", `{"events":%s}`, rowsOf(sc, again))
	if f.Gate.Decision != "defer" || f.Action != "defer" || f.Gate.Refetch || !strings.Contains(f.Gate.Reason, "budget") {
		t.Errorf("%+v", f)
	}
	if ran != 1 || sc.run.Budget().Left().Attempts != 0 {
		t.Errorf("the tool ran %d times; left %+v", ran, sc.run.Budget().Left())
	}
}

// Case 11: a recipe over a name that leads elsewhere now fails, and gives no other rows.
func TestRecipeOverAName(t *testing.T) {
	var got json.RawMessage
	log := ref.NewMemory("run-7")
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) { got = args })}, run: harness.RunOptions{Transcript: log}})
	put := func(n int) string {
		sc.record(harness.Blob{Reader: strings.NewReader(string(lines(n))), Records: "ndjson"})
		return newest(t, sc)
	}
	name := func(id string) {
		if _, err := sc.store.SetName(t.Context(), leafproof.Owner, secretTenant, "incident", id, -1); err != nil {
			t.Fatal(err)
		}
	}
	name(put(5))
	views, err := sc.run.Record(t.Context(), harness.Result{Tool: "latest", Value: map[string]any{
		"rows": harness.Recipe{Ref: ref.JSONQuery{Source: ref.Blob{Key: "name/incident"}, Filter: `@.status == "open"`, Pin: ref.Pin(newest(t, sc))}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sc.good("generate", `{"rows":%s}`, refTo(views[0], "rows"))
	if !strings.Contains(string(got), `{"id":3,`) {
		t.Errorf("%s", got)
	}
	// A key that the model was shown by itself is looked at too.
	m := ref.Marker{Key: "name/incident", ArtifactID: newest(t, sc)}
	if _, err := log.Append(t.Context(), ref.Entry{Keys: []ref.Marker{m}}); err != nil {
		t.Fatal(err)
	}
	list, err := harness.CheckTranscript(t.Context(), sc.store, leafproof.Owner, log)
	if n := len(list); err != nil || n != 3 || list[2].Kind != "key" || list[1].Kind != "recipe" || list[1].State != harness.Alive {
		t.Errorf("%+v, %v", list, err)
	}
	name(put(9))
	if list, err = harness.CheckTranscript(t.Context(), sc.store, leafproof.Owner, log); err != nil || list[1].State != harness.Stale || list[1].Code != leafproof.CodeRefStalePath {
		t.Errorf("%+v, %v", list, err)
	}
	f := sc.fails("ref_stale_path", "generate", `{"rows":%s}`, refTo(views[0], "rows"))
	if !strings.Contains(f.Message, "no longer exists.") {
		t.Errorf("%s", f.Message)
	}
}

// A model hears what is wrong with the expression that it wrote.
func TestWrongExpression(t *testing.T) {
	sc := newScene(t, setup{})
	v := sc.record(events(nil))
	f := sc.fails("selector_invalid", "query_json", `{"source":%s,"where":"@.status = 'open'"}`, refTo(v, ""))
	if !strings.Contains(f.Message, "where") || len(f.Message) < 20 {
		t.Errorf("%q", f.Message)
	}
}
