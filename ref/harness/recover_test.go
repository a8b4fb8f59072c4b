package harness_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof"
	"leafproof/ref/harness"
)

// elsewhere is a tool that runs elsewhere: the harness has no function of it.
func elsewhere() harness.Tool {
	return harness.Tool{Name: "export", Description: "Exports events.", Schema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string"}}}`)}
}

// captured records what the tool that runs elsewhere captured.
func captured(sc *scene, f json.RawMessage) harness.View {
	sc.t.Helper()
	in, err := sc.run.Resolve(sc.t.Context(), harness.Call{ID: "c1", Tool: "export", Input: json.RawMessage(`{"region":"all"}`)})
	if err != nil {
		sc.t.Fatal(err)
	}
	views, err := sc.run.Record(sc.t.Context(), harness.Result{CallID: "c1", Tool: "export", Input: in, Value: harness.Raw{
		JSON: json.RawMessage(`{"events":null}`), Blobs: map[string]harness.Blob{"/events": events(f)},
	}})
	if err != nil || views[0].IsError {
		sc.t.Fatal(views, err)
	}
	return views[0]
}

// Case 37, of a tool that runs elsewhere: what is stale is acquired anew by who asked
// whether it may be, and given once.
func TestRefetchElsewhere(t *testing.T) {
	demand := harness.Evidence{Require: fact("capture=complete"), MaxAge: time.Hour}
	s := setup{tools: []harness.Tool{elsewhere()}, run: harness.RunOptions{Recovery: leafproof.BudgetLimits{Attempts: 1, Time: time.Minute, Bytes: 1 << 20}}}
	sc := newScene(t, s)
	capture := captured(sc, facts(time.Now().Add(-25*time.Hour), twoRegions))
	old := newest(t, sc)
	if _, err := sc.run.Refetch(t.Context(), message(capture, "events"), demand); harness.FailureOf(err).Code != leafproof.CodeEvidence {
		t.Errorf("acquired anew by a tool that is not here: %v", err)
	}
	rec, err := sc.run.BeginRefetch(t.Context(), message(capture, "events"), demand)
	if err != nil || rec.Rest || string(rec.Call.Input) != `{"region":"all"}` || rec.Call.ID != "c1" || rec.Ref.ArtifactID != old || !strings.Contains(strings.Join(rec.Missing, " "), "age") {
		t.Fatalf("%+v, %v", rec, err)
	}
	v, err := rec.Record(t.Context(), harness.Raw{JSON: json.RawMessage(`{"events":null}`), Blobs: map[string]harness.Blob{"/events": events(facts(time.Now(), twoRegions))}}, nil)
	if err != nil || v.IsError || v.Seq == capture.Seq {
		t.Fatalf("%s, %v", v.Content, err)
	}
	st, err := sc.store.Resolve(t.Context(), leafproof.Owner, newest(t, sc))
	if err != nil || len(st.Manifest.Predicate.Supersedes) != 1 || st.Manifest.Predicate.Supersedes[0].ArtifactID != old {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := rec.Record(t.Context(), 1, nil); err == nil {
		t.Error("a second result of one recovery")
	}
	if _, err := sc.run.BeginRefetch(t.Context(), message(capture, "events"), demand); harness.FailureOf(err).Code != leafproof.CodeBudgetExhausted {
		t.Errorf("beyond the budget: %v", err)
	}
	s.run.Task.AsOf = time.Now().Add(-24 * time.Hour)
	past := newScene(t, s)
	capture = captured(past, facts(time.Now().Add(-25*time.Hour), twoRegions))
	if _, err := past.run.BeginRefetch(t.Context(), message(capture, "events"), demand); harness.FailureOf(err).Action != leafproof.Stop {
		t.Errorf("a substitute for an earlier state: %v", err)
	}
}

// The rest of a partial capture comes from elsewhere, and must be of the same snapshot.
func TestResumeElsewhere(t *testing.T) {
	const rest = `{"id":30,"status":"open"}` + "\n"
	now := time.Now().Add(-time.Minute)
	sc := newScene(t, setup{tools: []harness.Tool{elsewhere()}, run: harness.RunOptions{Recovery: leafproof.BudgetLimits{Attempts: 4, Time: time.Minute, Bytes: 1 << 20}}})
	capture := captured(sc, facts(now, partial))
	old := newest(t, sc)
	begin := func() *harness.Recovery {
		t.Helper()
		rec, err := sc.run.BeginResume(t.Context(), message(capture, "events"))
		if err != nil || !rec.Rest || len(rec.Missing) != 1 || !strings.Contains(rec.Missing[0], "us-east") || *rec.Ref.SourceVersion.SnapshotID != "s1" {
			t.Fatalf("%+v, %v", rec, err)
		}
		return rec
	}
	blob := func(f json.RawMessage) harness.Raw {
		return harness.Raw{JSON: json.RawMessage("null"), Blobs: map[string]harness.Blob{"": {Reader: strings.NewReader(rest), Facts: f}}}
	}
	other := json.RawMessage(strings.Replace(string(facts(now, twoRegions)), `"s1"`, `"s2"`, 1))
	failed := errors.New("the source does not answer")
	for name, test := range map[string]struct {
		value  any
		failed error
		code   leafproof.Code
	}{
		"another snapshot": {blob(other), nil, leafproof.CodeEvidence},
		"no blob":          {map[string]any{"a": 1}, nil, leafproof.CodeSelectorInvalid},
		"none":             {nil, failed, leafproof.CodeInternal},
	} {
		v, err := begin().Record(t.Context(), test.value, test.failed)
		if f := harness.FailureOf(err); f.Code != test.code || newest(t, sc) != old || test.failed != nil && !errors.Is(err, failed) {
			t.Errorf("%s: %s, %v", name, v.Content, err)
		}
	}
	v, err := begin().Record(t.Context(), blob(facts(now, twoRegions)), nil)
	if err != nil || v.IsError {
		t.Fatalf("%s, %v", v.Content, err)
	}
	st, err := sc.store.Resolve(t.Context(), leafproof.Owner, newest(t, sc))
	if err != nil || *st.Ref.Completeness.Records != 31 || st.Manifest.Predicate.Supersedes[0].Kind != "correct" || st.Manifest.Predicate.Lineage.Inputs[0].ArtifactID != old {
		t.Errorf("%+v, %v", st, err)
	}
}

// Case 27: of many that recover at once, as many do as the budget has attempts.
func TestRecoveryBudgetIsSharedOut(t *testing.T) {
	demand := harness.Evidence{MaxAge: time.Hour}
	sc := newScene(t, setup{tools: []harness.Tool{elsewhere()}, run: harness.RunOptions{Recovery: leafproof.BudgetLimits{Attempts: 3, Time: time.Minute, Bytes: 1 << 20}}})
	capture := captured(sc, facts(time.Now().Add(-25*time.Hour), twoRegions))
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[leafproof.Code]int{}
	for range 12 {
		wg.Go(func() {
			_, err := sc.run.BeginRefetch(t.Context(), message(capture, "events"), demand)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				codes["begun"]++
			} else {
				codes[harness.FailureOf(err).Code]++
			}
		})
	}
	wg.Wait()
	if codes["begun"] != 3 || codes[leafproof.CodeBudgetExhausted] != 9 {
		t.Errorf("%v", codes)
	}
}

// What may be known of and not read may not be acquired anew either: the leave is asked
// for now, and not what it was when the reference was shown.
func TestRefetchAsksForLeaveNow(t *testing.T) {
	sc := newScene(t, setup{tools: []harness.Tool{elsewhere()}, run: harness.RunOptions{
		Caller:   leafproof.Caller{Principal: "agent-1"},
		Recovery: leafproof.BudgetLimits{Attempts: 3, Time: time.Minute, Bytes: 1 << 20},
	}})
	grants := granted(t, sc, "agent-1") // stat, read, query
	capture := captured(sc, facts(time.Now().Add(-25*time.Hour), twoRegions))
	demand := harness.Evidence{MaxAge: time.Hour}
	if _, err := sc.run.BeginRefetch(t.Context(), message(capture, "events"), demand); err != nil {
		t.Fatal(err)
	}
	left := sc.run.Budget().Left()
	if err := sc.store.Revoke(t.Context(), leafproof.Owner, grants[1]); err != nil {
		t.Fatal(err)
	}
	_, err := sc.run.BeginRefetch(t.Context(), message(capture, "events"), demand)
	if f := harness.FailureOf(err); f.Code != leafproof.CodeAccessRevoked || f.Action != leafproof.Stop {
		t.Errorf("%+v, %v", f, err)
	}
	if now := sc.run.Budget().Left(); now.Attempts != left.Attempts || now.Bytes != left.Bytes {
		t.Errorf("it took from the budget: %+v, before %+v", now, left)
	}
}

// A task about an earlier moment holds what it is given against that moment, also for a
// tool that says nothing of one.
func TestTaskOfAnEarlierMoment(t *testing.T) {
	for _, after := range []time.Duration{-time.Hour, time.Hour} {
		ran, asOf := 0, time.Now().Add(-24*time.Hour)
		sc := newScene(t, setup{
			tools: []harness.Tool{restart(&ran, harness.Evidence{Require: fact("capture=complete")})},
			run:   harness.RunOptions{Task: harness.Task{AsOf: asOf}},
		})
		v := sc.call("restart", `{"all":%s}`, refTo(sc.record(events(facts(asOf.Add(after), twoRegions))), ""))
		if newer := after > 0; newer != v.IsError || newer != (ran == 0) {
			t.Errorf("observed %v after the moment: %s", after, v.Content)
		}
	}
}

// A message without seq is of the turn that is now: the results of the last calls.
func TestTurnsGoOn(t *testing.T) {
	var got json.RawMessage
	sc := newScene(t, setup{tools: []harness.Tool{echo("generate", func(args json.RawMessage) { got = args })}})
	const last = `{"rows":{"$ref":{"type":"Message","part":0,"field":"rows"}}}`
	two := func(a, b string) {
		t.Helper()
		if _, err := sc.run.Record(t.Context(), harness.Result{Value: json.RawMessage(`{"rows":` + a + `}`)}, harness.Result{Value: json.RawMessage(`{"rows":` + b + `}`)}); err != nil {
			t.Fatal(err)
		}
	}
	two(`[1]`, `[2]`)
	for _, want := range []string{`{"rows":[1]}`, `{"rows":[3]}`} {
		sc.good("generate", last)
		if string(got) != want {
			t.Errorf("the tool got %s, want %s", got, want)
		}
		// The results of the next calls are another turn, whose message it is now.
		if _, err := sc.run.Resolve(t.Context(), harness.Call{Tool: "none"}); err == nil {
			t.Fatal("there is no such tool")
		}
		two(`[3]`, `[4]`)
	}
	two(`[5]`, `[6]`) // of the same turn
	sc.fails("ref_ambiguous_turn", "generate", last)
}
