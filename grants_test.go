package leafproof_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leafproof"
	"leafproof/merkle"
)

func as(p leafproof.Principal) leafproof.Caller { return leafproof.Caller{Principal: p} }

func grant(t testing.TB, s *leafproof.Store, p leafproof.Principal, a leafproof.Action, pattern string) string {
	t.Helper()
	g, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: p, Action: a, Pattern: pattern})
	if err != nil {
		t.Fatal(err)
	}
	return g.ID
}

func revoke(t testing.TB, s *leafproof.Store, id string) {
	t.Helper()
	if err := s.Revoke(t.Context(), leafproof.Owner, id); err != nil {
		t.Fatal(err)
	}
}

// throttled takes bytes at a rate, and counts those that come while late is set.
type throttled struct {
	rate  int // bytes per second
	n     atomic.Int64
	late  atomic.Bool
	after atomic.Int64
}

func (w *throttled) Write(p []byte) (int, error) {
	if w.late.Load() {
		w.after.Add(int64(len(p)))
	}
	w.n.Add(int64(len(p)))
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(w.rate))
	return len(p), nil
}

// TestRevokeEndsStream: whoever reads while his grant is revoked, in this process or
// by another handle on the store, gets no further byte once Revoke has returned, or
// at most one flush of 64 KiB.
func TestRevokeEndsStream(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, random(24<<20, 1), leafproof.PutOptions{}, leafproof.Facts{})
	other := openStore(t, dir)
	for name, test := range map[string]struct {
		by   *leafproof.Store
		most int64
	}{"the same handle": {s, 0}, "another handle": {other, 64 << 10}} {
		t.Run(name, func(t *testing.T) {
			g := grant(t, test.by, "alice", leafproof.ActionRead, "local")
			w := &throttled{rate: 20e6}
			done := make(chan error, 1)
			go func() {
				_, err := s.Read(context.Background(), as("alice"), id, leafproof.Selector{}, w)
				done <- err
			}()
			for w.n.Load() < 2<<20 {
				select {
				case err := <-done:
					t.Fatalf("the read ended before: %v", err)
				case <-time.After(time.Millisecond):
				}
			}
			revoke(t, test.by, g)
			w.late.Store(true)
			begin := time.Now()
			err := <-done
			if code := leafproof.CodeOf(err); code != leafproof.CodeAccessRevoked {
				t.Errorf("error = %v (%s), want access_revoked", err, code)
			}
			if got := w.after.Load(); got > test.most {
				t.Errorf("%d bytes came after Revoke returned, at most %d may", got, test.most)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the read ended %v after", took)
			}
			if n := w.n.Load(); n >= 24<<20 {
				t.Error("all of it was read")
			}
		})
	}
}

// TestRevokedGetsNothingWarm: what was just read, and is in every cache, is not read
// again by one whose grant was revoked, by any handle on the store.
func TestRevokedGetsNothingWarm(t *testing.T) {
	s, dir := newStore(t)
	other := openStore(t, dir)
	id := put(t, s, rows(100), leafproof.PutOptions{}, leafproof.Facts{})
	g := grant(t, s, "alice", leafproof.ActionRead, "local/*/"+id)
	q := grant(t, s, "alice", leafproof.ActionQuery, "local")
	query := leafproof.Query{Where: `@.n >= 0`, Limit: 10}
	stores := []*leafproof.Store{s, other}
	var cursor string
	for _, s := range stores {
		for range 2 {
			if _, err := s.Read(t.Context(), as("alice"), id, leafproof.Selector{}, io.Discard); err != nil {
				t.Fatal(err)
			}
			a, err := s.Query(t.Context(), as("alice"), id, query, func(leafproof.Row) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			cursor = a.Cursor
		}
	}
	revoke(t, s, g)
	revoke(t, s, q)
	query.Cursor = cursor
	for i, s := range stores {
		var got bytes.Buffer
		_, err := s.Read(t.Context(), as("alice"), id, leafproof.Selector{}, &got)
		if leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || got.Len() > 0 {
			t.Errorf("handle %d: read %d bytes, %v", i, got.Len(), err)
		}
		n := 0
		_, err = s.Query(t.Context(), as("alice"), id, query, func(leafproof.Row) error { n++; return nil })
		if leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || n > 0 {
			t.Errorf("handle %d: page 2 has %d rows, %v", i, n, err)
		}
	}
}

// rows are n records.
func rows(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d,\"secret\":\"s%d\"}\n", i, i)
	}
	return b.Bytes()
}

// TestForeignIsMissing: an artifact of another tenant, in whatever state, is answered
// as one that never was; also where the request is wrong besides.
func TestForeignIsMissing(t *testing.T) {
	s, _ := newStore(t)
	const missing = "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	acme := leafproof.PutOptions{Tenant: "acme"}
	there := put(t, s, rows(100), acme, leafproof.Facts{})
	deleted := put(t, s, rows(101), acme, leafproof.Facts{})
	if err := s.Delete(t.Context(), leafproof.Owner, deleted, "r"); err != nil {
		t.Fatal(err)
	}
	expired := put(t, s, rows(102), acme, leafproof.Facts{ExpiresIn: time.Millisecond})
	time.Sleep(2 * time.Millisecond)
	for _, a := range []leafproof.Action{"stat", "read", "query", "count", "prove", "derive", "grant", "delete"} {
		grant(t, s, "mallory", a, "local") // all leave in his own tenant
	}
	mallory := as("mallory")
	for name, ask := range map[string]func(id string) error{
		"stat": func(id string) error { _, err := s.Resolve(t.Context(), mallory, id); return err },
		"read": func(id string) error {
			_, err := s.Read(t.Context(), mallory, id, leafproof.Selector{}, io.Discard)
			return err
		},
		"read past the end": func(id string) error {
			_, err := s.Read(t.Context(), mallory, id, leafproof.Selector{Bytes: &merkle.Range{Start: 1 << 40, End: 1 << 41}}, io.Discard)
			return err
		},
		"query": func(id string) error {
			_, err := s.Query(t.Context(), mallory, id, leafproof.Query{Where: "@.n == 1"}, nil)
			return err
		},
		"query with a wrong cursor": func(id string) error {
			_, err := s.Query(t.Context(), mallory, id, leafproof.Query{Where: "@.n == 1", Cursor: "lpc1.x"}, nil)
			return err
		},
		"query with no condition": func(id string) error {
			_, err := s.Query(t.Context(), mallory, id, leafproof.Query{Where: "(("}, nil)
			return err
		},
		"count": func(id string) error {
			_, err := s.Query(t.Context(), mallory, id, leafproof.Query{Where: "@.n == 1", Count: true}, nil)
			return err
		},
		"prove": func(id string) error {
			_, err := s.Prove(t.Context(), mallory, id, leafproof.Selector{}, io.Discard)
			return err
		},
		"slice": func(id string) error {
			_, err := s.Slice(t.Context(), mallory, id, merkle.Range{End: 1}, false, io.Discard)
			return err
		},
		"delete":     func(id string) error { return s.Delete(t.Context(), mallory, id, "r") },
		"statements": func(id string) error { _, _, err := s.Statements(t.Context(), mallory, id, 0, 10); return err },
		"disclosures": func(id string) error {
			_, err := s.Disclosures(t.Context(), mallory, leafproof.DisclosureFilter{ArtifactID: id, Limit: 10})
			return err
		},
	} {
		want := answer(ask(missing), missing)
		for state, id := range map[string]string{"there": there, "deleted": deleted, "expired": expired} {
			if got := answer(ask(id), id); got != want {
				t.Errorf("%s of one that is %s: %s\nof one that is not: %s", name, state, got, want)
			}
		}
		if !strings.Contains(want, `"code":"ref_not_found"`) {
			t.Errorf("%s: %s", name, want)
		}
	}
	// His lists have nothing of it, and do not tell that something is left out.
	mine := put(t, s, rows(3), leafproof.PutOptions{}, leafproof.Facts{})
	if tenants, err := s.Tenants(t.Context(), mallory); err != nil || !slices.Equal(tenants, []string{"local"}) {
		t.Errorf("Tenants = %v, %v", tenants, err)
	}
	for tenant, want := range map[string]int{"acme": 0, "local": 1, "nobody": 0} {
		list, _, err := s.List(t.Context(), mallory, tenant, 0, 10)
		if err != nil || len(list) != want {
			t.Errorf("%s: %v, %v", tenant, list, err)
		}
		for _, e := range list {
			if e.ArtifactID != mine || e.Seq < 1000 {
				t.Errorf("an entry of %s: %+v", tenant, e)
			}
		}
	}
}

// answer is what a face of the store would print of an error about id.
func answer(err error, id string) string {
	text, _ := json.Marshal(err)
	return strings.ReplaceAll(string(text)+" "+fmt.Sprint(err), id, "ID")
}

// TestLists: who sees a part of a tenant pages through that part.
func TestLists(t *testing.T) {
	s, _ := newStore(t)
	var want []string
	for i := range 25 {
		run, tenant := "r1", "local"
		if i%3 == 1 {
			run = "r2"
		}
		if i%5 == 4 {
			tenant = "acme"
		}
		id := put(t, s, rows(i+1), leafproof.PutOptions{Tenant: tenant}, leafproof.Facts{RunID: run})
		if run == "r1" && tenant == "local" {
			want = append(want, id)
		}
	}
	grant(t, s, "alice", leafproof.ActionStat, "*/r1")
	var got []string
	for after := int64(0); ; {
		list, next, err := s.List(t.Context(), as("alice"), "", after, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got = append(got, e.ArtifactID)
		}
		if after = next; next == 0 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}

// TestRecordsGrant: who may see record 10 sees record 10, and no byte of a neighbour.
func TestRecordsGrant(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, rows(100), leafproof.PutOptions{}, leafproof.Facts{})
	for _, a := range []leafproof.Action{leafproof.ActionRead, leafproof.ActionProve} {
		_, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{
			Principal: "alice", Action: a, Pattern: "local", Records: &merkle.Range{Start: 10, End: 11},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(string(rows(100)), "\n")[10]
	start := int64(bytes.Index(rows(100), []byte(want)))
	end := start + int64(len(want))
	for name, test := range map[string]struct {
		sel leafproof.Selector
		ok  bool
	}{
		"the record":          {leafproof.Selector{Records: &merkle.Range{Start: 10, End: 11}}, true},
		"its bytes":           {leafproof.Selector{Bytes: &merkle.Range{Start: start, End: end}}, true},
		"some of them":        {leafproof.Selector{Bytes: &merkle.Range{Start: start + 2, End: end - 2}}, true},
		"a byte before":       {leafproof.Selector{Bytes: &merkle.Range{Start: start - 1, End: end}}, false},
		"a byte after":        {leafproof.Selector{Bytes: &merkle.Range{Start: start, End: end + 1}}, false},
		"a neighbour too":     {leafproof.Selector{Records: &merkle.Range{Start: 10, End: 12}}, false},
		"another":             {leafproof.Selector{Records: &merkle.Range{Start: 9, End: 10}}, false},
		"everything":          {leafproof.Selector{}, false},
		"with another record": {leafproof.Selector{Records: &merkle.Range{Start: 0, End: 100}}, false},
	} {
		var got bytes.Buffer
		_, err := s.Read(t.Context(), as("alice"), id, test.sel, &got)
		if test.ok && (err != nil || !strings.Contains(want+"\n", got.String())) || !test.ok && (leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || got.Len() > 0) {
			t.Errorf("%s: %q, %v", name, got.String(), err)
		}
		got.Reset()
		// A proof shows whole leaves, and whole pages of places: none may be had.
		if _, err := s.Prove(t.Context(), as("alice"), id, test.sel, &got); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || got.Len() > 0 {
			t.Errorf("%s: a proof of %d bytes, %v", name, got.Len(), err)
		}
		if _, err := s.Slice(t.Context(), as("alice"), id, merkle.Range{Start: start, End: end}, true, &got); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked || got.Len() > 0 {
			t.Errorf("%s: a slice of %d bytes, %v", name, got.Len(), err)
		}
	}
}

// TestTokens: a token says whose it is, and nothing that the store keeps lets in.
func TestTokens(t *testing.T) {
	s, _ := newStore(t)
	token, err := s.AddPrincipal(t.Context(), leafproof.Owner, "alice", "acme", new("r1"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Authenticate(t.Context(), token)
	if err != nil || p.Name != "alice" || p.Tenant != "acme" || p.Run == nil || *p.Run != "r1" || !p.HasToken {
		t.Errorf("Authenticate = %+v, %v", p, err)
	}
	for name, bad := range map[string]string{
		"none": "", "one flipped": token[:len(token)-1] + string(token[len(token)-1]^1), "cut": token[:20], "upper case": strings.ToUpper(token),
		"long": token + strings.Repeat("a", 1<<16), "a space behind": token + " ",
	} {
		if _, err := s.Authenticate(t.Context(), bad); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
	if _, err := s.AddPrincipal(t.Context(), as("alice"), "bob", "", nil); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
		t.Errorf("a principal adds another: %v", err)
	}
	if err := s.RemovePrincipal(t.Context(), leafproof.Owner, "alice"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(t.Context(), token); err == nil {
		t.Error("a token of one that was removed lets in")
	}
}

// TestNothingAfterRevoke: readers, a granter and a revoker at once. No byte comes to
// a reader between the end of Revoke and the next grant.
func TestNothingAfterRevoke(t *testing.T) {
	seconds := 2
	if n, err := strconv.Atoi(os.Getenv("LEAFPROOF_RACE_SECONDS")); err == nil {
		seconds = n
	} else if testing.Short() {
		seconds = 1
	}
	s, _ := newStore(t)
	id := put(t, s, rows(20_000), leafproof.PutOptions{}, leafproof.Facts{})
	const readers = 8
	var revoked [readers]atomic.Bool
	var late, bytes, refusals, revocations atomic.Int64
	var grants [readers]string
	var mu [readers]sync.Mutex
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range readers {
		who := leafproof.Principal(fmt.Sprintf("p%d", i))
		revoked[i].Store(true)
		seen := writerFunc(func(p []byte) (int, error) {
			if revoked[i].Load() {
				late.Add(int64(len(p)))
			}
			bytes.Add(int64(len(p)))
			return len(p), nil
		})
		all.Go(func() {
			for ctx.Err() == nil {
				var err error
				if i%2 == 0 {
					_, err = s.Read(ctx, as(who), id, leafproof.Selector{}, seen)
				} else {
					_, err = s.Query(ctx, as(who), id, leafproof.Query{Where: "@.n >= 0"}, func(r leafproof.Row) error {
						_, err := seen(r.Bytes)
						return err
					})
				}
				if err == nil {
					continue
				}
				switch code := leafproof.CodeOf(err); code {
				case leafproof.CodeAccessRevoked, leafproof.CodeRefNotFound:
					refusals.Add(1)
				default:
					if ctx.Err() == nil {
						t.Errorf("%s: %v", code, err)
						return
					}
				}
			}
		})
	}
	all.Go(func() { // the granter
		for n := 0; ctx.Err() == nil; n++ {
			i := n % readers
			mu[i].Lock()
			if grants[i] == "" {
				revoked[i].Store(false)
				action := leafproof.ActionRead
				if i%2 == 1 {
					action = leafproof.ActionQuery
				}
				grants[i] = grant(t, s, leafproof.Principal(fmt.Sprintf("p%d", i)), action, "local")
			}
			mu[i].Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	all.Go(func() { // the revoker
		for n := 0; ctx.Err() == nil; n += 3 {
			i := n % readers
			mu[i].Lock()
			if grants[i] != "" {
				revoke(t, s, grants[i])
				revoked[i].Store(true)
				grants[i] = ""
				revocations.Add(1)
			}
			mu[i].Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	})
	all.Wait()
	t.Logf("%d bytes, %d refusals, %d revocations", bytes.Load(), refusals.Load(), revocations.Load())
	if late.Load() > 0 {
		t.Errorf("%d bytes came after a revocation", late.Load())
	}
	if bytes.Load() == 0 || refusals.Load() == 0 || revocations.Load() == 0 {
		t.Error("nothing was tried")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestDisclosures: what was shown is in the log, who was shown it, and by whose leave;
// no byte of it.
func TestDisclosures(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, rows(100), leafproof.PutOptions{}, leafproof.Facts{})
	alice := leafproof.Caller{Principal: "alice", Purpose: "billing"}
	ids := map[leafproof.Action]string{}
	for _, a := range []leafproof.Action{"stat", "read", "query", "count", "prove"} {
		ids[a] = grant(t, s, "alice", a, "local")
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Read(t.Context(), alice, id, leafproof.Selector{Bytes: &merkle.Range{Start: 5, End: 9}}, io.Discard))
	must(s.Query(t.Context(), alice, id, leafproof.Query{Where: `@.secret == "s7"`}, func(leafproof.Row) error { return nil }))
	must(s.Query(t.Context(), alice, id, leafproof.Query{Where: `@.n < 50`, Count: true}, nil))
	must(s.Resolve(t.Context(), alice, id))
	must(s.Prove(t.Context(), alice, id, leafproof.Selector{Records: &merkle.Range{Start: 3, End: 4}}, io.Discard))
	must(s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, io.Discard))

	// A proof is entered before it leaves, with what came before it: another handle
	// sees it though this one goes on.
	other := openStore(t, dir)
	log, err := other.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{ArtifactID: id, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, d := range log {
		actions = append(actions, d.Action)
		if d.Principal != "alice" || d.Purpose != "billing" || d.GrantID != ids[leafproof.Action(d.Action)] || d.Epoch != 5 || d.Tenant != "local" {
			t.Errorf("%+v", d)
		}
		if strings.Contains(string(d.Shown), "s7") || strings.Contains(string(d.Shown), "secret") {
			t.Errorf("the log has content: %s", d.Shown)
		}
	}
	if want := []string{"read", "query", "count", "stat", "prove"}; !slices.Equal(actions, want) {
		t.Fatalf("the log has %v, want %v", actions, want)
	}
	if got := string(log[0].Shown); got != `{"bytes":[[5,9]],"exact":true}` {
		t.Errorf("of the read: %s", got)
	}
	if got := string(log[1].Shown); !strings.Contains(got, `"rows":1,"qid":"`) {
		t.Errorf("of the query: %s", got)
	}
	if got := string(log[4].Shown); !strings.Contains(got, `"bytes":[[0,`) || !strings.Contains(got, `"export":true`) || !strings.Contains(got, `"placed":`) {
		t.Errorf("of the proof: %s", got)
	}
	// The rest is entered when the store is closed, at the latest.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, err = other.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{Principal: "owner", Limit: 100})
	if err != nil || len(log) == 0 || log[len(log)-1].Action != "read" {
		t.Errorf("the owner's: %+v, %v", log, err)
	}
	// A reader sees his own, who may not stat it nothing, and the whole log the owner alone.
	grant(t, other, "bob", leafproof.ActionStat, "local")
	if log, err := other.Disclosures(t.Context(), as("bob"), leafproof.DisclosureFilter{ArtifactID: id, Limit: 100}); err != nil || len(log) != 0 {
		t.Errorf("bob sees %+v, %v", log, err)
	}
	if log, err := other.Disclosures(t.Context(), as("alice"), leafproof.DisclosureFilter{ArtifactID: id, Limit: 100}); err != nil || len(log) != 5 || log[0].Seq < 1000 {
		t.Errorf("alice sees %+v, %v", log, err)
	}
	if _, err := other.Disclosures(t.Context(), as("alice"), leafproof.DisclosureFilter{Limit: 100}); leafproof.CodeOf(err) != leafproof.CodeAccessRevoked {
		t.Errorf("alice reads the whole log: %v", err)
	}
}

// TestDisclosuresInTime: a record is entered within a second, though its reader goes
// on for longer and the store is not closed.
func TestDisclosuresInTime(t *testing.T) {
	s, dir := newStore(t)
	id := put(t, s, rows(100), leafproof.PutOptions{}, leafproof.Facts{})
	other := openStore(t, dir)
	if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		log, err := other.Disclosures(t.Context(), leafproof.Owner, leafproof.DisclosureFilter{ArtifactID: id, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(log) > 0 {
			break
		}
		if time.Since(begin) > 5*time.Second { // on a machine that has time for it, one
			t.Fatal("the record is not entered")
		}
	}
}
