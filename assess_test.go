package leafproof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leafproof"
	"leafproof/cas"
	"leafproof/cas/memory"
	"leafproof/manifest"
	"leafproof/selector"
)

var now = time.Now().Truncate(time.Second)

func fact(s string) []leafproof.Fact {
	f, err := leafproof.ParseFact(s)
	if err != nil {
		panic(err)
	}
	return []leafproof.Fact{f}
}

func assess(t *testing.T, s *leafproof.Store, who leafproof.Caller, id string, need leafproof.Need) *leafproof.Assessment {
	t.Helper()
	a, err := s.Assess(t.Context(), who, id, need)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Each verdict fails alone, and none makes up for another.
func TestAssessVerdictsAreIndependent(t *testing.T) {
	s, dir := newStore(t, leafproof.WithAuthority(statOnly{}))
	f := leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}}
	sound := put(t, s, random(40_000, 7), leafproof.PutOptions{Records: "none"}, f)
	harmed := put(t, s, random(50_000, 7), leafproof.PutOptions{Records: "none"}, f)
	damageOf(t, dir, 50_000)
	for row := range 8 {
		identity, applies, allowed := row&1 == 0, row&2 == 0, row&4 == 0
		id, region, who := sound, "region=eu-west", leafproof.Owner
		if !identity {
			id = harmed
		}
		if !applies {
			region = "region=us-east"
		}
		if !allowed {
			who = leafproof.Caller{Principal: "stat"}
		}
		a := assess(t, s, who, id, leafproof.Need{Require: fact(region), Deep: true})
		for what, v := range map[string]struct {
			got  leafproof.Verdict
			want bool
		}{"identity": {a.Identity, identity}, "applicability": {a.Applicability, applies}, "authority": {a.Authority, allowed}} {
			if want := map[bool]string{true: leafproof.Holds, false: leafproof.Fails}[v.want]; v.got.State != want || (v.got.Code == "") != v.want {
				t.Errorf("row %d: %s is %+v, want %s", row, what, v.got, want)
			}
		}
		want := leafproof.Admit
		switch {
		case !identity || !allowed:
			want = leafproof.Refuse
		case !applies:
			want = leafproof.Deferred
		}
		if a.Decision != want {
			t.Errorf("row %d: the decision is %s, want %s", row, a.Decision, want)
		}
	}
}

// statOnly lets the principal stat know of everything and have nothing.
type statOnly struct{}

func (statOnly) Decide(_ context.Context, q leafproof.Request) (leafproof.Decision, error) {
	return leafproof.Decision{Allow: q.Principal == leafproof.Owner.Principal || q.Principal == "stat" && q.Action == leafproof.ActionStat}, nil
}

// objectOf is the file of the object that holds so many bytes.
func objectOf(t *testing.T, dir string, size int64) (found string) {
	t.Helper()
	err := filepath.Walk(filepath.Join(dir, "objects"), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() >= size && info.Size() < size+100 {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no object of %d bytes: %v", size, err)
	}
	return found
}

// damageOf flips a bit of the object that holds so many bytes.
func damageOf(t *testing.T, dir string, size int64) {
	t.Helper()
	found := objectOf(t, dir, size)
	text, err := os.ReadFile(found)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := errors.Join(os.Chmod(found, 0o600), os.WriteFile(found, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestAssessFacts(t *testing.T) {
	s, _ := newStore(t)
	observed := now.Add(-time.Hour)
	id := put(t, s, []byte("{}\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{
		SourceID: "infra", SnapshotID: "v7", RunID: "run-1", ObservedAt: observed, Status: manifest.StatusPartial,
		Coverage: map[string]any{"region": []any{"eu-west", "us-east"}, "shards": int64(4), "scan": "deep"},
		Omissions: []manifest.Omission{
			{What: "us-east", Reason: "timeout"}, {What: map[string]any{"shards": []any{int64(9)}}, Reason: "offline"},
		},
		Producer: &leafproof.Producer{Tool: "kubectl"},
	})
	whole := put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{Coverage: map[string]any{"region": "eu-west"}})
	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		need leafproof.Need
		want string
		says string // the first unmet point and what there is instead
	}{
		"nothing asked":        {leafproof.Need{}, leafproof.Qualify, "capture=complete partial, without us-east (timeout)"},
		"a region":             {leafproof.Need{Require: fact("region=eu-west")}, leafproof.Qualify, "capture=complete"},
		"a missing region":     {leafproof.Need{Require: fact("region=ap-south")}, leafproof.Deferred, `region=ap-south ["eu-west","us-east"]`},
		"an omitted region":    {leafproof.Need{Require: fact("region=us-east")}, leafproof.Deferred, "region=us-east omitted: timeout"},
		"optional region":      {leafproof.Need{Optional: fact("region=us-east")}, leafproof.Qualify, "region=us-east omitted: timeout"},
		"a number":             {leafproof.Need{Require: fact("shards=4")}, leafproof.Qualify, "capture"},
		"an omitted number":    {leafproof.Need{Require: fact("shards=9")}, leafproof.Deferred, "shards=9 omitted: offline"},
		"a key of no coverage": {leafproof.Need{Require: fact("zone=a")}, leafproof.Deferred, "zone=a the coverage does not say"},
		"a word as coverage":   {leafproof.Need{Require: fact("coverage.scan=deep")}, leafproof.Qualify, "capture"},
		"partial asked":        {leafproof.Need{Require: fact("capture=partial")}, leafproof.Admit, ""},
		"complete asked":       {leafproof.Need{Require: fact("capture=complete")}, leafproof.Deferred, "capture=complete partial"},
		"source":               {leafproof.Need{Require: fact("source=other"), Optional: fact("capture=partial")}, leafproof.Deferred, "source=other infra"},
		"snapshot":             {leafproof.Need{Require: fact("snapshot=v7"), Optional: fact("capture=partial")}, leafproof.Admit, ""},
		"tool":                 {leafproof.Need{Require: fact("tool=kubectl"), Optional: fact("outcome=ok")}, leafproof.Qualify, "capture"},
		"omissions":            {leafproof.Need{Require: fact("omissions=none"), Optional: fact("redactions=none")}, leafproof.Deferred, "omissions=none 2"},
		"schema":               {leafproof.Need{Require: fact("schema=x")}, leafproof.Deferred, "schema=x not stated"},
		"young enough":         {leafproof.Need{MaxAge: 2 * time.Hour}, leafproof.Qualify, "capture"},
		"too old":              {leafproof.Need{MaxAge: time.Minute}, leafproof.Deferred, "age<=1m0s observed at"},
		"as of then":           {leafproof.Need{AsOf: observed}, leafproof.Qualify, "capture"},
		"as of before":         {leafproof.Need{AsOf: observed.Add(-1)}, leafproof.Deferred, "as_of="},
		"no answer":            {leafproof.Need{Require: fact("scan=complete")}, leafproof.Deferred, "scan=complete no answer is given"},
		"half an answer": {
			leafproof.Need{Require: fact("scan=complete"), Answer: &selector.Answer{ArtifactID: id, ManifestID: st.ManifestID, Stop: "budget"}},
			leafproof.Deferred, "scan=complete budget",
		},
		"another's answer": {
			leafproof.Need{Require: fact("scan=complete"), Answer: &selector.Answer{ArtifactID: whole, Stop: "complete"}},
			leafproof.Deferred, "scan=complete the answer is from another artifact",
		},
		"an answer": {
			leafproof.Need{Require: fact("scan=complete"), Optional: fact("admission=complete"), Answer: &selector.Answer{ArtifactID: id, ManifestID: st.ManifestID, Stop: "complete", More: "no"}},
			leafproof.Qualify, "admission=complete what entered the prompt is not stated",
		},
	} {
		a := assess(t, s, leafproof.Owner, id, test.need)
		says := ""
		if len(a.Unmet) > 0 {
			says = a.Unmet[0].What + " " + a.Unmet[0].Found
		}
		if a.Decision != test.want || !strings.HasPrefix(says, test.says) || (says == "") != (test.says == "") {
			t.Errorf("%s: %s, %q; want %s, %q", name, a.Decision, says, test.want, test.says)
		}
		if a.AgeSeconds == nil || *a.AgeSeconds < 3600 || *a.AgeSeconds > 4000 {
			t.Errorf("%s: the age is %v", name, a.AgeSeconds)
		}
	}
	// The age is that of the observation: an artifact that was made now may be of any.
	a := assess(t, s, leafproof.Owner, whole, leafproof.Need{MaxAge: time.Hour})
	if a.Decision != leafproof.Deferred || a.AgeSeconds != nil || !a.Refetch.Allowed || fmt.Sprint(a.Refetch.Missing) != "[age<=1h0m0s]" {
		t.Errorf("of unknown age: %+v", a)
	}
	if a = assess(t, s, leafproof.Owner, whole, leafproof.Need{}); a.Decision != leafproof.Admit || len(a.Unmet) > 0 || a.Refetch != nil {
		t.Errorf("the whole one: %+v", a)
	}
	for what, need := range map[string]leafproof.Need{
		"an age and a time": {MaxAge: 1, AsOf: now}, "less than no age": {MaxAge: -1},
		"twice": {Require: fact("a=b"), Optional: fact("a=b")}, "no value": {Require: []leafproof.Fact{{Key: "a"}}},
	} {
		if _, err := s.Assess(t.Context(), leafproof.Owner, id, need); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []string{"a", "=b", "a=", "capture=whole", "current=false", "coverage.=x"} {
		if _, err := leafproof.ParseFact(bad); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("the fact %q: %v", bad, err)
		}
	}
}

// What is superseded, expired, deleted, edited, damaged or unknown has an outcome of
// its own. What admitted it once does not admit it again.
func TestAssessOutcomes(t *testing.T) {
	s, dir := newStore(t, leafproof.WithAuthority(reader{}))
	f := leafproof.Facts{Caller: leafproof.Owner, Coverage: map[string]any{"region": "eu"}, ObservedAt: now.Add(-48 * time.Hour)}
	one := func(f leafproof.Facts) string {
		return put(t, s, []byte("{}\n"), leafproof.PutOptions{Records: "ndjson"}, f)
	}
	old := one(f)
	g := f
	g.Supersedes, g.ObservedAt = []manifest.Supersede{{ArtifactID: old}}, now.Add(-24*time.Hour)
	newer := one(g)
	h := f
	h.ExpiresAt = now.Add(-time.Minute)
	expired, deleted := one(h), one(f)
	harmed := put(t, s, random(50_000, 9), leafproof.PutOptions{Records: "none"}, f)
	if a := assess(t, s, leafproof.Owner, deleted, leafproof.Need{}); a.Decision != leafproof.Admit {
		t.Errorf("before it was deleted: %+v", a)
	}
	if err := s.Delete(t.Context(), leafproof.Owner, deleted, "asked to"); err != nil {
		t.Fatal(err)
	}
	damageOf(t, dir, 50_000)
	st, err := s.Resolve(t.Context(), leafproof.Owner, newer)
	if err != nil {
		t.Fatal(err)
	}
	edited := st.Ref
	edited.Scope.TenantID = "other"
	daysAgo := func(n int) leafproof.Need { return leafproof.Need{AsOf: now.Add(-time.Duration(n) * 24 * time.Hour)} }
	for name, test := range map[string]struct {
		who      leafproof.Caller
		id       string
		need     leafproof.Need
		decision string
		code     leafproof.Code // of the verdict that is not holding, or the first point
		refetch  string         // "yes", "no", or "" for no advice
	}{
		"superseded":                   {leafproof.Owner, old, leafproof.Need{}, leafproof.Qualify, leafproof.CodeEvidence, ""},
		"the current one":              {leafproof.Owner, old, leafproof.Need{Require: fact("current=true")}, leafproof.Deferred, leafproof.CodeEvidence, "yes"},
		"the newer one":                {leafproof.Owner, newer, leafproof.Need{Require: fact("current=true")}, leafproof.Admit, "", ""},
		"as of yesterday":              {leafproof.Owner, old, daysAgo(1), leafproof.Deferred, leafproof.CodeEvidence, "no"},
		"as of the day before":         {leafproof.Owner, old, daysAgo(2), leafproof.Admit, "", ""},
		"the newer as of then":         {leafproof.Owner, newer, daysAgo(2), leafproof.Deferred, leafproof.CodeEvidence, "no"},
		"expired":                      {leafproof.Owner, expired, leafproof.Need{}, leafproof.Deferred, leafproof.CodeArtifactExpired, "yes"},
		"expired, of a task then":      {leafproof.Owner, expired, daysAgo(1), leafproof.Deferred, leafproof.CodeArtifactExpired, "no"},
		"deleted":                      {leafproof.Owner, deleted, leafproof.Need{}, leafproof.Refuse, leafproof.CodeArtifactDeleted, "yes"},
		"edited":                       {leafproof.Owner, newer, leafproof.Need{Ref: &edited}, leafproof.Refuse, leafproof.CodeRefAltered, "yes"},
		"presented":                    {leafproof.Owner, newer, leafproof.Need{Ref: &st.Ref}, leafproof.Admit, "", ""},
		"damaged":                      {leafproof.Owner, harmed, leafproof.Need{Deep: true}, leafproof.Refuse, leafproof.CodeIntegrityFailed, "yes"},
		"unknown":                      {leafproof.Owner, "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", leafproof.Need{}, leafproof.Refuse, leafproof.CodeRefNotFound, ""},
		"a stranger's":                 {leafproof.Caller{Principal: "eve"}, newer, leafproof.Need{}, leafproof.Refuse, leafproof.CodeRefNotFound, ""},
		"a stranger's, deleted":        {leafproof.Caller{Principal: "eve"}, deleted, leafproof.Need{}, leafproof.Refuse, leafproof.CodeRefNotFound, ""},
		"a reader's":                   {asReader, newer, leafproof.Need{}, leafproof.Admit, "", ""},
		"a reader who wants to derive": {asReader, newer, leafproof.Need{Actions: []leafproof.Action{leafproof.ActionDerive}}, leafproof.Refuse, leafproof.CodeRefNotFound, "no"},
	} {
		a := assess(t, s, test.who, test.id, test.need)
		code := leafproof.Code("")
		for _, v := range []leafproof.Verdict{a.Identity, a.Authority, a.Applicability} {
			if v.State != leafproof.Holds && code == "" {
				code = v.Code
			}
		}
		if code == "" && len(a.Unmet) > 0 {
			code = a.Unmet[0].Code
		}
		refetch := ""
		if a.Refetch != nil {
			refetch = map[bool]string{true: "yes", false: "no"}[a.Refetch.Allowed]
		}
		if a.Decision != test.decision || code != test.code || refetch != test.refetch {
			t.Errorf("%s: %s, %q, refetch %q; want %s, %q, %q\n%+v", name, a.Decision, code, refetch, test.decision, test.code, test.refetch, a)
		}
	}
	// A foreign id is assessed like one that never was.
	eve := leafproof.Caller{Principal: "eve"}
	never := assess(t, s, eve, "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", leafproof.Need{})
	for _, id := range []string{newer, deleted, expired, harmed} {
		got := assess(t, s, eve, id, leafproof.Need{Deep: true})
		got.AssessedAt = never.AssessedAt
		if strings.ReplaceAll(fmt.Sprintf("%+v", *got), id, never.ArtifactID) != fmt.Sprintf("%+v", *never) {
			t.Errorf("of %s: %+v, of none: %+v", id, got, never)
		}
	}
	// Bytes that were swapped between the assessment and the read are never given out.
	good := put(t, s, random(40_000, 11), leafproof.PutOptions{Records: "none"}, f)
	if a := assess(t, s, leafproof.Owner, good, leafproof.Need{Deep: true}); a.Decision != leafproof.Admit {
		t.Errorf("%+v", a)
	}
	s.Close()
	s = openStore(t, dir)
	damageOf(t, dir, 40_000)
	var out bytes.Buffer
	if _, err := s.Read(t.Context(), leafproof.Owner, good, leafproof.Selector{}, &out); leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed ||
		!bytes.HasPrefix(random(40_000, 11), out.Bytes()) || out.Len() > 32<<10 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// silent is an authority that does not answer the first times.
type silent struct{ times *atomic.Int64 }

func (f silent) Decide(_ context.Context, q leafproof.Request) (leafproof.Decision, error) {
	if f.times.Add(-1) >= 0 {
		return leafproof.Decision{}, errors.New("no answer")
	}
	return leafproof.Decision{Allow: true}, nil
}

// What may pass is tried again while the budget lasts; then it is deferred.
func TestAssessRecovers(t *testing.T) {
	times := new(atomic.Int64)
	s, _ := newStore(t, leafproof.WithAuthority(silent{times}))
	id := put(t, s, []byte("{}\n"), leafproof.PutOptions{}, leafproof.Facts{Coverage: map[string]any{"a": "b"}})
	for name, test := range map[string]struct {
		fails    int64
		budget   *leafproof.Budget
		decision string
		code     leafproof.Code
		retries  int
	}{
		"no budget":          {1, nil, leafproof.Deferred, leafproof.CodeAuthorityUnavailable, 0},
		"enough":             {2, leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 2, Time: time.Minute}), leafproof.Admit, "", 2},
		"too few attempts":   {3, leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 2, Time: time.Minute}), leafproof.Deferred, leafproof.CodeBudgetExhausted, 2},
		"no time":            {1, leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 2}), leafproof.Deferred, leafproof.CodeBudgetExhausted, 0},
		"nothing to recover": {0, leafproof.NewBudget(leafproof.BudgetLimits{}), leafproof.Admit, "", 0},
	} {
		times.Store(test.fails)
		a := assess(t, s, leafproof.Owner, id, leafproof.Need{Budget: test.budget})
		if a.Decision != test.decision || a.Authority.Code != test.code || a.Retries != test.retries {
			t.Errorf("%s: %+v", name, a)
		}
		if spent := len(a.Unmet) == 1 && a.Unmet[0].Code == leafproof.CodeBudgetExhausted; spent != (test.code == leafproof.CodeBudgetExhausted) {
			t.Errorf("%s: unmet %+v", name, a.Unmet)
		}
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 3, Time: time.Minute, Bytes: 100})
		time.Sleep(time.Hour) // it does not run before it is used
		for i, step := range []struct {
			bytes int64
			wait  time.Duration
			lacks string
		}{
			{60, 0, ""}, {41, 0, "bytes"}, {40, 30 * time.Second, ""}, {0, 29 * time.Second, ""}, {0, 0, "attempts"},
		} {
			time.Sleep(step.wait)
			err := b.Take(step.bytes)
			if (err == nil) != (step.lacks == "") || err != nil && (leafproof.CodeOf(err) != leafproof.CodeBudgetExhausted || !strings.Contains(err.Error(), step.lacks)) {
				t.Errorf("step %d: %v, want %q", i, err, step.lacks)
			}
		}
		if l := b.Left(); l != (leafproof.BudgetLimits{Time: time.Second}) {
			t.Errorf("left %+v", l)
		}
		late := leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 9, Time: time.Minute, Bytes: 100})
		if err := late.Take(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := late.Take(0); err == nil || !strings.Contains(err.Error(), "time") {
			t.Errorf("after its time: %v", err)
		}
	})
}

// flaky is a backend that cannot read, at times.
type flaky struct {
	cas.Backend
	down *atomic.Pointer[func() bool]
}

func (f flaky) Get(ctx context.Context, name cas.Name, off, n int64) (io.ReadCloser, error) {
	if down := f.down.Load(); down != nil && (*down)() {
		return nil, errors.New("the disk does not answer")
	}
	return f.Backend.Get(ctx, name, off, n)
}

// A disk that fails to read says nothing about the artifact: it is tried again.
func TestAssessUnavailable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	var down atomic.Pointer[func() bool]
	s, err := leafproof.OpenOn(t.Context(), dir, dir, flaky{memory.New(), &down})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := put(t, s, random(50_000, 7), leafproof.PutOptions{Records: "none"}, leafproof.Facts{Coverage: map[string]any{"a": "b"}})
	for name, test := range map[string]struct {
		back     int // the attempt for which the disk is back
		decision string
		state    string
		code     leafproof.Code
		retries  int
	}{
		"tried again":  {2, leafproof.Admit, leafproof.Holds, "", 2},
		"once too few": {3, leafproof.Deferred, leafproof.Unknown, leafproof.CodeBudgetExhausted, 2},
	} {
		budget := leafproof.NewBudget(leafproof.BudgetLimits{Attempts: 2, Time: time.Minute, Bytes: 1 << 20})
		down.Store(new(func() bool { return budget.Left().Attempts > 2-test.back }))
		a := assess(t, s, leafproof.Owner, id, leafproof.Need{Deep: true, Budget: budget})
		if a.Decision != test.decision || a.Identity.State != test.state || a.Identity.Code != test.code || a.Retries != test.retries {
			t.Errorf("%s: %+v", name, a)
		}
	}
	down.Store(new(func() bool { return true }))
	a := assess(t, s, leafproof.Owner, id, leafproof.Need{Deep: true})
	if a.Decision != leafproof.Deferred || !a.Identity.Retryable || a.Identity.Action != leafproof.Wait {
		t.Errorf("without a budget: %+v", a)
	}
}
