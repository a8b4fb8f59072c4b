package harness_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// facts is a document of stated facts.
func facts(observed time.Time, more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"artifact_ref":{"source_version":{"source_id":"infra.events","snapshot_id":"s1","observed_at":%q},"completeness":{%s}}}`,
		manifest.FormatTime(observed), more))
}

const twoRegions = `"coverage":{"region":["eu-west","us-east"]}`

// partial says that one region was not captured.
const partial = `"coverage":{"region":["eu-west","us-east"]},"omissions":[{"what":{"region":"us-east"},"reason":"timeout","detail":null}]`

// restart is a tool that must not run on bad evidence.
func restart(ran *int, demands ...harness.Evidence) harness.Tool {
	return harness.Tool{
		Name: "restart", Description: "Restarts a service.", Require: demands,
		Schema: json.RawMessage(`{"type":"object","properties":{"events":{"type":"array"},"all":{"type":"object"}},"additionalProperties":false}`),
		Lazy:   []string{"all"},
		Do: func(_ context.Context, in *harness.Input) (any, error) {
			*ran++
			return map[string]any{"restarted": true, "decision": in.Decision.Decision, "unmet": len(in.Decision.Unmet)}, nil
		},
	}
}

func events(f json.RawMessage) harness.Blob {
	return harness.Blob{Reader: bytes.NewReader(lines(30)), Records: "ndjson", Facts: f}
}

func fact(texts ...string) (out []leafproof.Fact) {
	for _, s := range texts {
		f, err := leafproof.ParseFact(s)
		if err != nil {
			panic(err)
		}
		out = append(out, f)
	}
	return out
}

// Cases 30, 37, 38: a tool's demands are held against what its references lead to,
// before it runs; the worst point decides.
func TestGate(t *testing.T) {
	now := time.Now()
	complete, lacks := facts(now.Add(-time.Minute), twoRegions), facts(now.Add(-time.Minute), partial)
	for name, test := range map[string]struct {
		demand   harness.Evidence
		captured json.RawMessage
		input    string // %[1]s is the query's result, %[2]s the capture, %[4]s the preview
		decision string
		what     string // of the first unmet point
		action   string
	}{
		"all is there": {
			harness.Evidence{Require: fact("region=us-east", "scan=complete"), MaxAge: time.Hour}, complete, `{"events":%[1]s}`, "admit", "", "",
		},
		"lazily": {harness.Evidence{Param: "all", Require: fact("region=us-east")}, complete, `{"all":%[2]s}`, "admit", "", ""},
		"a region is missing": {
			harness.Evidence{Require: fact("region=us-east")}, lacks, `{"events":%[1]s}`, "defer", "region=us-east", "refetch",
		},
		"a complete scan of a partial capture": {
			harness.Evidence{Require: fact("scan=complete", "capture=complete")}, lacks, `{"events":%[1]s}`, "defer", "capture=complete", "refetch",
		},
		"a region that is optional": {
			harness.Evidence{Require: fact("scan=complete"), Optional: fact("region=us-east")}, lacks, `{"events":%[1]s}`, "qualify", "region=us-east", "",
		},
		"too old": {
			harness.Evidence{MaxAge: 30 * time.Second}, complete, `{"events":%[1]s}`, "defer", "age<=30s", "refetch",
		},
		"all was admitted": {
			harness.Evidence{Require: fact("admission=complete")}, complete, `{"events":%[1]s}`, "admit", "", "",
		},
		"rows written out": {
			harness.Evidence{Param: "events", Require: fact("region=us-east")}, complete, `{"events":[{"id":1}]}`, "defer", "a reference to an artifact", "defer",
		},
		"another parameter": {
			harness.Evidence{Param: "events", Require: fact("region=us-east")}, complete, `{"all":%[2]s}`, "defer", "a reference to an artifact", "defer",
		},
		"of two references one leads to a preview": {
			harness.Evidence{Require: fact("region=us-east")}, complete, `{"events":%[1]s,"all":%[4]s}`, "defer", "a reference to an artifact", "defer",
		},
		"verified bytes, and rows written out": {
			harness.Evidence{Param: "events", Deep: true}, complete, `{"events":[{"id":1}]}`, "defer", "a reference to an artifact", "defer",
		},
		"an old state": {
			harness.Evidence{AsOf: now.Add(-time.Hour)}, complete, `{"events":%[1]s}`, "defer", "as_of=", "defer",
		},
		"deep": {harness.Evidence{Deep: true, Require: fact("schema=x")}, complete, `{"events":%[1]s}`, "defer", "schema=x", "refetch"},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			sc := newScene(t, setup{tools: []harness.Tool{restart(&ran, test.demand)}, run: harness.RunOptions{
				Recovery: leafproof.BudgetLimits{Attempts: 1, Time: time.Minute, Bytes: 1 << 20},
			}})
			capture := sc.record(events(test.captured))
			found := sc.good("query_json", `{"source":%s,"where":"@.status == \"open\""}`, refTo(capture, ""))
			v := sc.call("restart", "%s", fmt.Sprintf(test.input+"%[3]s%.0[4]s", refTo(found, "value"), refTo(capture, ""), "", refTo(found, "preview")))
			if ok := test.decision == "admit" || test.decision == "qualify"; ok != (ran == 1) || ok == v.IsError {
				t.Fatalf("the tool ran %d times: %s, %v", ran, v.Content, v.Err)
			}
			if ran == 1 {
				if got := member(t, v, "decision"); got != `"`+test.decision+`"` {
					t.Errorf("%s, want %s", got, test.decision)
				}
				return
			}
			f := failureOf(t, v)
			if f.Code != "evidence_insufficient" || f.Gate == nil || f.Gate.Decision != test.decision || f.Action != test.action {
				t.Fatalf("%s", v.Content)
			}
			if u := f.Gate.Unmet[0]; !strings.HasPrefix(u.What, test.what) || !u.Required {
				t.Errorf("unmet %+v, want %s", f.Gate.Unmet, test.what)
			}
			if test.what == "region=us-east" && test.action == "refetch" && !strings.Contains(f.Gate.Unmet[0].Found, "timeout") {
				t.Errorf("the reason of the omission is not named: %+v", f.Gate.Unmet[0])
			}
		})
	}
}

// Case 30: what of an answer entered the prompt is a fact of its own: a complete scan
// of a complete capture, of which a part was shown.
func TestAdmissionIsItsOwnFact(t *testing.T) {
	ran := 0
	sc := newScene(t, setup{
		tools: []harness.Tool{restart(&ran, harness.Evidence{Require: fact("scan=complete", "capture=complete", "admission=complete")})},
		run:   harness.RunOptions{SignAdmissions: true},
	})
	for _, role := range []string{manifest.RoleAdmission} {
		if _, err := sc.store.NewKey(t.Context(), leafproof.NewKeyOptions{Roles: []string{role}}); err != nil {
			t.Fatal(err)
		}
	}
	for n, shown := range map[int]bool{30: true, 3000: false} {
		capture := sc.record(harness.Blob{Reader: bytes.NewReader(lines(n)), Records: "ndjson", Facts: facts(time.Now(), twoRegions)})
		found := sc.good("query_json", `{"source":%s,"where":"@.status == \"open\""}`, refTo(capture, ""))
		if found.Err != nil {
			t.Fatal(found.Err)
		}
		v := sc.call("restart", `{"events":%s}`, refTo(found, "value"))
		if v.IsError == shown {
			t.Errorf("%d records: %s, %v", n, v.Content, v.Err)
		}
		if !shown {
			if u := failureOf(t, v).Gate.Unmet[0]; u.What != "admission=complete" || !strings.Contains(u.Found, "token_budget") {
				t.Errorf("%+v", u)
			}
		}
		// The record: by what was serialised.
		list, err := sc.run.Admissions(t.Context(), found.Seq)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		a := list[0]
		size := int64(0)
		for i, l := range strings.SplitAfter(string(lines(n)), "\n") {
			if i%3 == 0 {
				size += int64(len(l))
			}
		}
		if a.Serialised != merkle.Sum(found.Content).String() || a.Size != size || (len(a.Omitted) == 0) != shown || a.Admitted[0][0] != 0 {
			t.Errorf("%d records: %+v, of %d bytes", n, a, size)
		}
		// And the statement says the same.
		st := statementOf(t, sc, a.ArtifactID)
		if st.SerialisedDigest != a.Serialised || st.ReceiptID != a.Receipt || st.Size != a.Size || fmt.Sprint(st.Admitted, st.Omitted) != fmt.Sprint(a.Admitted, a.Omitted) {
			t.Errorf("the statement %+v, the record %+v", st, a)
		}
	}
	if ran != 1 {
		t.Errorf("the tool ran %d times", ran)
	}
}

func statementOf(t *testing.T, sc *scene, id string) *manifest.Admission {
	t.Helper()
	list, _, err := sc.store.Statements(t.Context(), leafproof.Owner, id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range list {
		if a, ok := st.Statement.Body.(*manifest.Admission); ok {
			return a
		}
	}
	t.Fatal("no admission is signed")
	return nil
}

// What a preview cuts was not admitted, also where all rows are listed.
func TestAdmissionOfCutRows(t *testing.T) {
	sc := newScene(t, setup{})
	doc := `{"id":1}` + "\n" + `{"id":2,"text":"` + strings.Repeat("x", 9_000) + `"}` + "\n" + `{"id":3}` + "\n"
	v := sc.record(harness.Blob{Reader: strings.NewReader(doc), Records: "ndjson"})
	found := sc.good("query_json", `{"source":%s}`, refTo(v, ""))
	list, err := sc.run.Admissions(t.Context(), found.Seq)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	n := int64(len(doc))
	if a := list[0]; fmt.Sprint(a.Admitted) != fmt.Sprint([][2]int64{{0, 9}, {n - 9, n}}) || len(a.Omitted) != 1 || a.Omitted[0].Reason != "elided" {
		t.Errorf("%+v", a)
	}
}

// sets the store's clock, which never goes back.
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

// Cases 33 and 39: an artifact that has expired is not read, though its bytes are there,
// and neither its preview nor rows written out stand in for it.
func TestExpiredAndDeleted(t *testing.T) {
	for _, end := range []string{"expired", "deleted"} {
		ran := 0
		sc := newScene(t, setup{tools: []harness.Tool{restart(&ran, harness.Evidence{Require: fact("region=us-east")})}})
		f := json.RawMessage(fmt.Sprintf(`{"artifact_ref":{"expires_at":%q,"completeness":{%s}}}`, manifest.FormatTime(time.Now().Add(time.Hour)), twoRegions))
		capture := sc.record(events(f))
		found := sc.good("query_json", `{"source":%s}`, refTo(capture, ""))
		sc.good("restart", `{"events":%s}`, refTo(found, "value"))
		code := "artifact_" + end
		if end == "expired" {
			setClock(t, sc.dir, time.Now().Add(2*time.Hour))
		} else if err := sc.store.Delete(t.Context(), leafproof.Owner, newest(t, sc), "over"); err != nil {
			t.Fatal(err)
		}
		sc.fails(code, "query_json", `{"source":%s}`, refTo(capture, ""))
		sc.fails(code, "restart", `{"events":%s}`, refTo(found, "value"))
		sc.fails(code, "restart", `{"all":%s}`, refTo(capture, ""))
		// The old preview, in the two ways in which a model can pass it on.
		for _, rows := range []string{refTo(found, "preview"), member(t, found, "preview")} {
			if f := sc.fails("evidence_insufficient", "restart", `{"events":%s}`, rows); f.Gate == nil || f.Gate.Decision != "defer" {
				t.Errorf("%+v", f)
			}
		}
		if ran != 1 {
			t.Errorf("%s: the tool ran %d times", end, ran)
		}
	}
}

// collector is a tool that captures, and captures anew.
func collector(latest *json.RawMessage, resume func(harness.Earlier) (harness.Blob, error)) harness.Tool {
	t := harness.Tool{
		Name: "export", Description: "Captures the events.", Schema: json.RawMessage(`{"type":"object"}`),
		Do: func(context.Context, *harness.Input) (any, error) {
			return map[string]any{"events": events(*latest), "note": "captured"}, nil
		},
		Refetch: func(_ context.Context, old harness.Earlier) (any, error) {
			return map[string]any{"events": events(*latest), "missing": old.Missing}, nil
		},
	}
	if resume != nil {
		t.Resume = func(_ context.Context, old harness.Earlier) (harness.Blob, error) { return resume(old) }
	}
	return t
}

// Case 37: what is stale is acquired anew where the task is about the current state: a
// new artifact, which supersedes; the old reference means what it meant. A task about an
// earlier state gets no substitute.
func TestRefetch(t *testing.T) {
	demand := harness.Evidence{Require: fact("capture=complete"), MaxAge: time.Hour}
	now := time.Now()
	for _, historical := range []bool{false, true} {
		latest, ran := facts(now.Add(-25*time.Hour), twoRegions), 0
		s := setup{tools: []harness.Tool{collector(&latest, nil), restart(&ran, demand)}, run: harness.RunOptions{
			Recovery: leafproof.BudgetLimits{Attempts: 1, Time: time.Minute, Bytes: 1 << 20},
		}}
		if historical {
			s.run.Task.AsOf = now.Add(-24 * time.Hour)
		}
		sc := newScene(t, s)
		capture := sc.good("export", `{}`)
		old := newest(t, sc)
		f := sc.fails("evidence_insufficient", "restart", `{"events":%s}`, rowsOf(sc, capture))
		if f.Action != "refetch" || len(f.Gate.Missing) == 0 {
			t.Fatalf("%+v", f)
		}
		latest = facts(now.Add(-time.Second), twoRegions)
		v, err := sc.run.Refetch(t.Context(), message(capture, "events"), demand)
		if historical {
			if harness.FailureOf(err).Code != leafproof.CodeEvidence || harness.FailureOf(err).Action != leafproof.Stop {
				t.Errorf("a substitute for an earlier state: %s, %v", v.Content, err)
			}
			continue
		}
		if err != nil || v.IsError || v.Seq == capture.Seq || !strings.Contains(member(t, v, "missing"), "age") {
			t.Fatalf("%s, %v", v.Content, err)
		}
		sc.good("restart", `{"events":%s}`, rowsOf(sc, v))
		if ran != 1 {
			t.Errorf("the tool ran %d times", ran)
		}
		st, err := sc.store.Resolve(t.Context(), leafproof.Owner, newest(t, sc))
		if err != nil || len(st.Manifest.Predicate.Supersedes) != 1 || st.Manifest.Predicate.Supersedes[0].ArtifactID != old || st.Ref.ArtifactID == old {
			t.Errorf("%+v, %v", st, err)
		}
		// The old one still means the old one.
		if f := sc.fails("evidence_insufficient", "restart", `{"events":%s}`, rowsOf(sc, capture)); f.Gate.Decision != "defer" {
			t.Errorf("%+v", f)
		}
		// Case 27: the budget had one attempt.
		_, err = sc.run.Refetch(t.Context(), message(capture, "events"), demand)
		if f := harness.FailureOf(err); f.Code != leafproof.CodeBudgetExhausted || f.Action != leafproof.Defer {
			t.Errorf("beyond the budget: %+v, %v", f, err)
		}
		// Nothing is missing of the new one.
		if _, err := sc.run.Refetch(t.Context(), message(v, "events"), demand); harness.FailureOf(err).Code != leafproof.CodeSelectorInvalid {
			t.Errorf("what is fresh was acquired anew: %v", err)
		}
	}
}

func message(v harness.View, field string) ref.Message {
	return ref.Message{Seq: &v.Seq, Part: v.Part, Field: field}
}

// rowsOf is a reference to all events of a capture.
func rowsOf(sc *scene, capture harness.View) string {
	sc.t.Helper()
	return refTo(sc.good("query_json", `{"source":%s}`, refTo(capture, "events")), "value")
}

// Case 35, and resuming: what comes of the same snapshot is joined to the old capture
// in a new artifact; what comes of another is refused.
func TestResume(t *testing.T) {
	now := time.Now()
	rest := `{"id":100,"status":"open"}` + "\n"
	for name, test := range map[string]struct {
		snapshot, source string
		attempts         int
		code             leafproof.Code
	}{
		"the same snapshot":    {"s1", "infra.events", 1, ""},
		"another snapshot":     {"s2", "infra.events", 1, leafproof.CodeEvidence},
		"another source":       {"s1", "infra.other", 1, leafproof.CodeEvidence},
		"no budget is left":    {"s1", "infra.events", 0, leafproof.CodeBudgetExhausted},
		"it does not say what": {"", "infra.events", 1, leafproof.CodeEvidence},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			latest := facts(now, partial)
			resume := func(old harness.Earlier) (harness.Blob, error) {
				told = old.Missing
				f := strings.Replace(string(facts(now, twoRegions)), `"snapshot_id":"s1"`, `"snapshot_id":"`+test.snapshot+`"`, 1)
				f = strings.Replace(strings.Replace(f, `"snapshot_id":"",`, "", 1), "infra.events", test.source, 1)
				return harness.Blob{Reader: strings.NewReader(rest), Facts: json.RawMessage(f)}, nil
			}
			sc := newScene(t, setup{tools: []harness.Tool{collector(&latest, resume)}, run: harness.RunOptions{
				Recovery: leafproof.BudgetLimits{Attempts: test.attempts, Time: time.Minute, Bytes: 1 << 20},
			}})
			capture := sc.good("export", `{}`)
			old := newest(t, sc)
			v, err := sc.run.Resume(t.Context(), message(capture, "events"))
			if test.code != "" {
				if f := harness.FailureOf(err); f.Code != test.code || newest(t, sc) != old {
					t.Errorf("%s, %v", v.Content, err)
				}
				return
			}
			if err != nil || v.IsError {
				t.Fatalf("%s, %v, %v", v.Content, v.Err, err)
			}
			if len(told) != 1 || !strings.Contains(told[0], "us-east") {
				t.Errorf("the tool was told that %q is missing", told)
			}
			var whole bytes.Buffer
			id := newest(t, sc)
			if _, err := sc.store.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &whole); err != nil || whole.String() != string(lines(30))+rest {
				t.Errorf("%d bytes, %v", whole.Len(), err)
			}
			st, err := sc.store.Resolve(t.Context(), leafproof.Owner, id)
			if err != nil || st.Ref.Completeness.Status != manifest.StatusComplete || st.Manifest.Predicate.Supersedes[0].ArtifactID != old ||
				st.Manifest.Predicate.Lineage.Inputs[0].ArtifactID != old || *st.Ref.Completeness.Records != 31 {
				t.Errorf("%+v, %v", st.Ref, err)
			}
			was, err := sc.store.Resolve(t.Context(), leafproof.Owner, old)
			if err != nil || was.Ref.Completeness.Status != manifest.StatusPartial || *was.Ref.Completeness.Records != 30 {
				t.Errorf("the old one is %+v, %v", was.Ref, err)
			}
		})
	}
}
