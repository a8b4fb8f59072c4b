package selector_test

import (
	"encoding/json"
	"strings"
	"testing"

	"leafproof/merkle"
	"leafproof/selector"
)

var observed = selector.SourceVersion{
	SourceID: new("infra.events"), SnapshotID: new("s-9"), ObservedAt: new("2026-11-30T04:10:00Z"),
}

// Cases 28 and 29: an empty result says what it is empty of, and the five
// reasons for one give five different conclusions.
func TestEmptyResults(t *testing.T) {
	w := where(t, `@.sev == "critical"`)
	coverage := map[string]any{"region": "eu-west", "window": "04:00 to 04:10"}
	whole := selector.Scan{Position: selector.Position{Record: 12840, Examined: 12840}, Stop: selector.StopComplete, More: selector.MoreNo}
	part := func(stop string) selector.Scan {
		return selector.Scan{Position: selector.Position{Record: 500, Examined: 500}, Stop: stop, More: selector.MoreUnknown, Ranges: []merkle.Range{{Start: 0, End: 500}}}
	}
	seen := map[string]string{}
	for name, test := range map[string]struct {
		scan    selector.Scan
		capture selector.Capture
		want    string
	}{
		"searched all": {
			whole,
			selector.Capture{Status: "complete", Coverage: coverage},
			"No record matched in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) after a completed scan of 12840 records; 0 undecidable. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"first page only": {
			part(selector.StopPageLimit),
			selector.Capture{Status: "complete", Coverage: coverage},
			"no_conclusion: no record matched so far in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z), but this is only the first part of the result: the page is full after 500 of 12840 records. Whether any of the other 12340 match is not known. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"timed out": {
			part(selector.StopDeadline),
			selector.Capture{Status: "complete", Coverage: coverage},
			"no_conclusion: no record matched so far in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z), but the scan ran into its deadline after 500 of 12840 records. Whether any of the other 12340 match is not known. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"budget": {
			part(selector.StopBudget),
			selector.Capture{Status: "complete", Coverage: coverage},
			"no_conclusion: no record matched so far in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z), but the scan used up its budget after 500 of 12840 records. Whether any of the other 12340 match is not known. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"region not captured": {
			whole,
			selector.Capture{Status: "partial", Coverage: coverage, Omissions: []selector.Omission{{What: map[string]any{"region": "us-east"}, Reason: "timeout"}}},
			"No record matched in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) after a completed scan of 12840 records; 0 undecidable. Not captured: region us-east (timeout). Nothing follows about that, or about the source at any other time.",
		},
		"field redacted": {
			selector.Scan{Position: selector.Position{Record: 12840, Examined: 12840, Undecidable: 12840}, Stop: selector.StopComplete, More: selector.MoreNo},
			selector.Capture{Status: "complete", Coverage: coverage, Redactions: []selector.Redaction{{Path: "/sev", Reason: "pii"}}},
			"no_conclusion: the field /sev is redacted in the artifact (pii), so none of 12840 records examined can be decided in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z); 12840 undecidable. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"undecidable": {
			selector.Scan{Position: selector.Position{Record: 12840, Examined: 12840, Undecidable: 3}, Stop: selector.StopComplete, More: selector.MoreNo},
			selector.Capture{Status: "complete", Coverage: coverage},
			"no_conclusion: no decidable record matched in the captured coverage (region eu-west, window 04:00 to 04:10) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) in a completed scan of 12840 records, but 3 undecidable; whether those match is not known. Nothing follows about anything outside that coverage, or about the source at any other time.",
		},
		"unknown coverage": {
			whole,
			selector.Capture{Status: "unknown"},
			"No record matched in the captured records (their coverage is not declared) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) after a completed scan of 12840 records; 0 undecidable. Whether the capture is complete is not known. Nothing follows about what it may lack, or about the source at any other time.",
		},
		"failed": {
			part(selector.StopError),
			selector.Capture{Status: "partial"},
			"no_conclusion: no record matched so far in the captured records (their coverage is not declared) of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z), but the scan failed after 500 of 12840 records. Whether any of the other 12340 match is not known. The capture is partial. Nothing follows about what it lacks, or about the source at any other time.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := selector.Answer{Query: &selector.Query{Where: w}, SourceVersion: observed, RecordsTotal: 12840, Completeness: test.capture}
			a.Fill(test.scan)
			a.Conclude()
			if a.Conclusion != test.want {
				t.Errorf("got  %s\nwant %s", a.Conclusion, test.want)
			}
			if test.scan.Stop != selector.StopComplete && !strings.HasPrefix(a.Conclusion, "no_conclusion") {
				t.Errorf("empty, not complete, yet: %s", a.Conclusion)
			}
			if other, ok := seen[a.Conclusion]; ok {
				t.Errorf("%s and %s conclude the same", name, other)
			}
			seen[a.Conclusion] = name
		})
	}
}

func TestConclusions(t *testing.T) {
	q := &selector.Query{Where: where(t, `@.a == 1`)}
	complete := selector.Capture{Status: "complete", Coverage: map[string]any{"table": "x\" said \"ignore"}}
	for name, test := range map[string]struct {
		query *selector.Query
		scan  selector.Scan
		want  string
	}{
		"exact": {
			q,
			selector.Scan{Position: selector.Position{Examined: 10, Matched: 1}, Stop: selector.StopComplete, More: selector.MoreNo},
			`Exactly 1 record matched in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) in a completed scan of 10 records; 0 undecidable. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"lower bound": {
			q,
			selector.Scan{Position: selector.Position{Examined: 10, Matched: 2, Undecidable: 1}, Stop: selector.StopComplete, More: selector.MoreNo},
			`At least 2 records matched in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) in a completed scan of 10 records; 1 undecidable, so the number is not exact. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"page": {
			q,
			selector.Scan{Position: selector.Position{Examined: 4, Matched: 2}, Stop: selector.StopPageLimit, More: selector.MoreYes},
			`At least 2 records matched in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z): this is only the first part of the result: the page is full after 4 of 10 records. More match among the other 6; the cursor goes on there. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"page with undecidable ones": {
			q,
			selector.Scan{Position: selector.Position{Examined: 4, Matched: 2, Undecidable: 1}, Stop: selector.StopPageLimit, More: selector.MoreYes},
			`At least 2 records matched in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z): this is only the first part of the result: the page is full after 4 of 10 records (1 undecidable). More match among the other 6; the cursor goes on there. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"none yet": {
			q,
			selector.Scan{Position: selector.Position{Examined: 4, Undecidable: 3}, Stop: selector.StopBudget, More: selector.MoreUnknown},
			`no_conclusion: no record matched so far in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z), but the scan used up its budget after 4 of 10 records (3 undecidable). Whether any of the other 6 match is not known. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"ordered page": {
			q,
			selector.Scan{Position: selector.Position{Examined: 10, Matched: 7}, Returned: 2, Stop: selector.StopPageLimit, More: selector.MoreYes, Counted: true},
			`Exactly 7 records matched in the captured coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z) in a completed scan of 10 records; 0 undecidable. This page has 2 of them, and there are more; the cursor goes on there. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"range": {
			nil,
			selector.Scan{Position: selector.Position{Examined: 2, Bytes: 9}, Returned: 2, Stop: selector.StopComplete, More: selector.MoreNo, Ranges: []merkle.Range{{Start: 3, End: 5}}},
			`2 records (3 to 5 of 10) as captured in the coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z). A read by position says nothing about the rest. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
		"bytes": {
			nil,
			selector.Scan{Position: selector.Position{Bytes: 9}, Stop: selector.StopComplete, More: selector.MoreNo},
			`9 bytes as captured in the coverage (table "x\" said \"ignore") of source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z). A read by position says nothing about the rest. Nothing follows about anything outside that coverage, or about the source at any other time.`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := selector.Answer{Query: test.query, SourceVersion: observed, RecordsTotal: 10, Completeness: complete}
			a.Fill(test.scan)
			a.Conclude()
			if a.Conclusion != test.want {
				t.Errorf("got  %s\nwant %s", a.Conclusion, test.want)
			}
		})
	}
	a := selector.Answer{SourceVersion: observed, Completeness: selector.Capture{Status: "unknown"}}
	a.Fill(selector.Scan{Position: selector.Position{Bytes: 1}, Stop: selector.StopComplete, More: selector.MoreNo})
	a.Conclude()
	if want := `1 byte as captured from source infra.events (snapshot s-9, observed at 2026-11-30T04:10:00Z). A read by position says nothing about the rest. Whether the capture is complete is not known. Nothing follows about what it may lack, or about the source at any other time.`; a.Conclusion != want {
		t.Errorf("got  %s\nwant %s", a.Conclusion, want)
	}
}

// An answer has every member, under the names that others rely on; matched and
// matched_so_far exclude each other.
func TestAnswerJSON(t *testing.T) {
	a := selector.Answer{Selector: selector.RangeSelector("records", 1, 2), Query: &selector.Query{Where: where(t, `@.a == 1`)}}
	members := "artifact_id manifest_id source_version selector qid order records_total examined returned undecidable undecidable_spans stop more capture_completeness basis assurance conclusion"
	for stop, matched := range map[string]string{selector.StopComplete: "matched", selector.StopBudget: "matched_so_far"} {
		a.Fill(selector.Scan{Stop: stop})
		a.Conclude()
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		names := append(strings.Fields(members), matched)
		for _, n := range names {
			if v, ok := m[n]; !ok || v == nil {
				t.Errorf("%s: no %s in %s", stop, n, b)
			}
		}
		if len(m) != len(names) {
			t.Errorf("%s: %d members, want %d: %s", stop, len(m), len(names), b)
		}
	}
}

func TestSelectors(t *testing.T) {
	if got := string(selector.RangeSelector("records", 10, 20)); got != `{"records":["10","20"]}` {
		t.Errorf("RangeSelector = %s", got)
	}
	if got := string(selector.PointerSelector("/a\u2028")); got != `{"pointer":["x","2f61e280a8"]}` {
		t.Errorf("PointerSelector = %s", got)
	}
}
