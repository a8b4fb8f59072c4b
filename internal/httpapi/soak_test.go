package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// soakEnv is how long TestManyClients goes on, as in 60s.
const soakEnv = "LEAFPROOF_SOAK"

// TestManyClients lets 64 clients put, read and query at once, while leave is taken
// and given back. Each verifies what it gets; nothing that was acknowledged is lost,
// and in the end no goroutine and little memory is left.
func TestManyClients(t *testing.T) {
	long := 1500 * time.Millisecond
	if v := os.Getenv(soakEnv); v != "" {
		var err error
		if long, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, httpapi.Options{})
	dora, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "dora", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	goroutines := runtime.NumGoroutine()
	server := httptest.NewUnstartedServer(w.h)
	server.Config = w.h.HTTP()
	server.Start()
	tr := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}
	least := int64(1)
	if os.Getenv(soakEnv) != "" {
		least = 100
	}
	k := &soak{w: w, client: &http.Client{Transport: tr}, url: server.URL, until: time.Now().Add(long), least: least, dora: dora}
	var peak atomic.Uint64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for k.goesOn() {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			time.Sleep(100 * time.Millisecond)
		}
	}()
	var wg sync.WaitGroup
	for i := range 62 {
		wg.Go(func() { k.work(t, i, w.alice) })
	}
	wg.Go(func() { k.revoker(t) })
	wg.Go(func() { k.reader(t) })
	wg.Wait()
	<-watched
	tr.CloseIdleConnections()
	server.Close()
	t.Logf("%v: %d puts, %d reads, %d queries, %d told to come again, %d revocations, %d reads under them, %d refused, %d cut; heap at most %d MiB",
		long, k.puts.Load(), k.reads.Load(), k.queries.Load(), k.busy.Load(), k.revocations.Load(), k.theirs.Load(), k.refused.Load(), k.cuts.Load(), peak.Load()>>20)
	for what, n := range map[string]int64{"puts": k.puts.Load(), "reads": k.reads.Load(), "queries": k.queries.Load(), "revocations": k.revocations.Load()} {
		if n < least {
			t.Errorf("only %d %s: too little happened to show anything", n, what)
		}
	}
	if peak.Load() > 512<<20 {
		t.Errorf("the heap grew to %d MiB", peak.Load()>>20)
	}
	for begin := time.Now(); runtime.NumGoroutine() > goroutines+2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines are left, there were %d:\n%s", runtime.NumGoroutine(), goroutines, b[:runtime.Stack(b, true)])
		}
	}
	// All that was acknowledged is there, and nothing else.
	there := map[string]bool{}
	for after := int64(0); ; {
		list, next, err := w.s.List(t.Context(), leafproof.Owner, "acme", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			there[e.ArtifactID] = true
		}
		if after = next; next == 0 {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.acknowledged {
		if !there[id] {
			t.Errorf("%s was acknowledged, and is not there", id)
		}
	}
	if len(there) != len(k.acknowledged) {
		t.Errorf("%d artifacts are there, %d were acknowledged", len(there), len(k.acknowledged))
	}
}

// soak is what the clients share.
type soak struct {
	w      *world
	client *http.Client
	url    string
	until  time.Time
	least  int64 // of each thing, however long it takes
	dora   string

	puts, reads, queries, busy, revocations, theirs, refused, cuts atomic.Int64

	mu           sync.Mutex
	acknowledged map[string]bool // by id
	shared       []sharedBytes   // some of them, which dora reads
	turn         atomic.Int64    // odd: dora's leave stands, or may be about to
}

// goesOn reports whether the time is not over, or too little has happened. A busy
// machine gets a minute more for that.
func (k *soak) goesOn() bool {
	now := time.Now()
	few := min(k.puts.Load(), k.reads.Load(), k.queries.Load(), k.revocations.Load()) < k.least
	return now.Before(k.until) || few && now.Before(k.until.Add(time.Minute))
}

type sharedBytes struct {
	id   string
	data []byte
}

// ask asks once. A request that is told to come again does not count.
func (k *soak) ask(token, method, path string, body []byte, headers ...string) (int, []byte, error) {
	for {
		r, err := http.NewRequest(method, k.url+path, bytes.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := k.client.Do(r)
		if err != nil {
			return 0, nil, err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 429 {
			return resp.StatusCode, b, err
		}
		k.busy.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

// work puts, reads and queries its own artifacts.
func (k *soak) work(t *testing.T, n int, token string) {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	mine := map[string][]byte{}
	var ids []string
	for i := 0; k.goesOn(); i++ {
		switch op := rng.IntN(4); {
		case op == 0 || len(ids) == 0:
			data := records(n, i, 1+rng.IntN(2000))
			status, b, err := k.ask(token, "PUT", "/v1/artifacts", data, "Content-Type", "application/x-ndjson")
			var ref manifest.ArtifactRef
			if err != nil || status != 201 || json.Unmarshal(b, &ref) != nil || ref.ContentHash != "blake3:"+merkle.Sum(data).String() {
				t.Errorf("put: %d %s %v", status, b, err)
				return
			}
			k.puts.Add(1)
			mine[ref.ArtifactID], ids = data, append(ids, ref.ArtifactID)
			if len(ids) > 20 { // the test must not be what takes the memory
				delete(mine, ids[0])
				ids = ids[1:]
			}
			k.mu.Lock()
			if k.acknowledged == nil {
				k.acknowledged = map[string]bool{}
			}
			k.acknowledged[ref.ArtifactID] = true
			if len(k.shared) < 100 {
				k.shared = append(k.shared, sharedBytes{ref.ArtifactID, data})
			}
			k.mu.Unlock()
		case op == 1:
			id := ids[rng.IntN(len(ids))]
			status, b, err := k.ask(token, "GET", "/v1/artifacts/"+id+"/content", nil)
			if err != nil || status != 200 || !bytes.Equal(b, mine[id]) {
				t.Errorf("read: %d, %d bytes of %d, %v", status, len(b), len(mine[id]), err)
				return
			}
			k.reads.Add(1)
		case op == 2:
			id := ids[rng.IntN(len(ids))]
			from := rng.IntN(len(mine[id]))
			to := from + rng.IntN(len(mine[id])-from)
			status, b, err := k.ask(token, "GET", "/v1/artifacts/"+id+"/content", nil, "Range", fmt.Sprintf("bytes=%d-%d", from, to))
			if err != nil || status != 206 || !bytes.Equal(b, mine[id][from:min(to+1, len(mine[id]))]) {
				t.Errorf("range: %d, %d bytes, %v", status, len(b), err)
				return
			}
			k.reads.Add(1)
		default:
			id := ids[rng.IntN(len(ids))]
			want := int64(bytes.Count(mine[id], []byte(`"s":"open"`)))
			status, b, err := k.ask(token, "POST", "/v1/artifacts/"+id+"/query", []byte(`{"where":"@.s == \"open\""}`), "Content-Type", "application/json")
			var p struct {
				Rows   []json.RawMessage
				Answer selector.Answer
			}
			if err != nil || status != 200 || json.Unmarshal(b, &p) != nil || p.Answer.Matched == nil || *p.Answer.Matched != want || int64(len(p.Rows)) != want {
				t.Errorf("query: %d %.300s %v, want %d", status, b, err, want)
				return
			}
			k.queries.Add(1)
		}
	}
}

// records are bytes that no other client puts.
func records(n, i, size int) []byte {
	var b bytes.Buffer
	for j := range size {
		fmt.Fprintf(&b, "{\"c\":%d,\"i\":%d,\"j\":%d,\"s\":%q}\n", n, i, j, []string{"open", "shut", "new"}[(i+j)%3])
	}
	return b.Bytes()
}

// revoker gives dora leave to read, and takes it back: from when the revocation is
// answered she gets nothing.
func (k *soak) revoker(t *testing.T) {
	for k.goesOn() {
		k.turn.Add(1)
		status, b, err := k.ask(k.w.owner, "POST", "/v1/grants", []byte(`{"principal":"dora","action":"read","pattern":"acme"}`), "Content-Type", "application/json")
		var g leafproof.Grant
		if err != nil || status != 201 || json.Unmarshal(b, &g) != nil {
			t.Errorf("grant: %d %s %v", status, b, err)
			return
		}
		time.Sleep(30 * time.Millisecond)
		if status, b, err := k.ask(k.w.owner, "DELETE", "/v1/grants/"+g.ID, nil); err != nil || status != 204 {
			t.Errorf("revoke: %d %s %v", status, b, err)
			return
		}
		k.turn.Add(1)
		k.revocations.Add(1)
		time.Sleep(30 * time.Millisecond)
	}
}

// reader reads as dora.
func (k *soak) reader(t *testing.T) {
	for k.goesOn() {
		id, want := "", []byte(nil)
		k.mu.Lock()
		if len(k.shared) > 0 {
			s := k.shared[rand.IntN(len(k.shared))]
			id, want = s.id, s.data
		}
		k.mu.Unlock()
		if id == "" {
			time.Sleep(time.Millisecond)
			continue
		}
		before := k.turn.Load()
		status, b, err := k.ask(k.dora, "GET", "/v1/artifacts/"+id+"/content", nil)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			k.cuts.Add(1)
			if !bytes.HasPrefix(want, b) {
				t.Error("what came before a cut is wrong")
			}
		case err != nil:
			t.Errorf("dora: %v", err)
		case status == 200:
			k.theirs.Add(1)
			if !bytes.Equal(b, want) {
				t.Errorf("dora got %d bytes of %d", len(b), len(want))
			}
			if before%2 == 0 && k.turn.Load() == before {
				t.Error("dora was shown what she had no leave for")
			}
		case status == 403 || status == 404:
			k.refused.Add(1)
			if !strings.Contains(string(b), `"code":"access_revoked"`) && !strings.Contains(string(b), `"code":"ref_not_found"`) {
				t.Errorf("dora heard %s", b)
			}
		default:
			t.Errorf("dora: %d %s", status, b)
		}
	}
}
