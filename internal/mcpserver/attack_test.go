package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
	"leafproof/internal/mcpserver"
	"leafproof/manifest"
	"leafproof/merkle"
)

// TestSelectedRoom: what a query selects has its place in one page, whatever it selects
// and of however many values; what has none is counted.
func TestSelectedRoom(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	wide := `{"a":[` + strings.Repeat(`{"k":"`+strings.Repeat("v", 90)+`"},`, 3000) + `{"k":1}]}` + "\n"
	long := `{"a":[` + strings.Repeat(`"`+strings.Repeat("v", 9000)+`",`, 300) + `1]}` + "\n"
	narrow := strings.Repeat(`{"a":1}`+"\n", 2000)
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60) + "\n"
	many := func(p string) string {
		b, _ := json.Marshal(slices.Repeat([]string{p}, 64))
		return string(b)
	}
	for name, c := range map[string]struct {
		data, sel string
		hides     bool
	}{
		"many values":          {wide, `["$.a[*]"]`, true},
		"all values":           {wide, `["$..*"]`, true},
		"long values":          {long, `["$.a[*]"]`, true},
		"many selections":      {narrow, many("/a"), false},
		"nothing is selected":  {narrow, many("/b"), false},
		"values in each other": {deep, many("$..*"), true},
		"one":                  {wide, `["/a/3000/k"]`, false},
	} {
		id := put(t, s, c.data, leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "artifact_query", Arguments: json.RawMessage(`{"artifact_id":"` + id + `","limit":1000,"select":` + c.sel + `}`)})
		if err != nil || res.IsError {
			t.Fatalf("%s: %v %v", name, err, res)
		}
		text := structured(t, res)
		hidden := int64(0)
		for _, r := range parse(t, text)["rows"].([]any) {
			if n, ok := r.(object)["not_shown"].(json.Number); ok {
				k, _ := n.Int64()
				hidden += k
			}
		}
		if len(text) > 2*mcpserver.MaxPage || hidden > 0 != c.hides {
			t.Errorf("%s: the page has %d bytes, %d values are not shown", name, len(text), hidden)
		}
	}
}

// TestIndexes: a call may ask for indexes, and an answer names those that it is from.
func TestIndexes(t *testing.T) {
	cs := connect(t, newStore(t), owner)
	var rows strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&rows, `{\"i\":%d,\"k\":\"%d\"}\n`, i, i%7)
	}
	made, failed := call(t, cs, "artifact_put", `{"content":"`+rows.String()+`","records":"ndjson","index":["/i","@.k"]}`)
	if failed || fmt.Sprint(made["indexes"]) != "[/i /k]" {
		t.Fatalf("put: %v", made)
	}
	id := made["artifact_id"].(string)
	if st, _ := call(t, cs, "artifact_stat", `{"artifact_id":"`+id+`"}`); fmt.Sprint(st["indexes"]) != "[/i /k]" {
		t.Errorf("stat says %v", st["indexes"])
	}
	page, _ := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.i == 77"}`)
	if page["basis"] != "index" || fmt.Sprint(page["indexes"]) != "[/i]" || page["matched"] != json.Number("1") {
		t.Errorf("the answer is from %v of %v", page["basis"], page["indexes"])
	}
	page, _ = call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"search(@.k, \"3\")"}`)
	if page["basis"] != "scan" || page["indexes"] != nil {
		t.Errorf("the answer is from %v of %v", page["basis"], page["indexes"])
	}
	for args, want := range map[string][2]string{
		`"records":"ndjson","index":["no"]`:                                          {"selector_invalid", "/index"},
		`"records":"ndjson","index":["/` + strings.Repeat("a", 100_000) + `"]`:       {"selector_invalid", "/index"},
		`"records":"none","index":["/a"]`:                                            {"selector_invalid", "/index"},
		`"records":"ndjson","index":"/a"`:                                            {"request_invalid", "/index"},
		`"records":"json","at":"no"`:                                                 {"selector_invalid", "/at"},
		`"records":"json"`:                                                           {"not_records", "/records"},
		`"records":"ndjson","index":["/0"` + strings.Repeat(`,"/a","/b"`, 200) + `]`: {"", ""}, // the same one again is none
		`"records":"ndjson","index":[` + strings.Join(numbered(65), ",") + `]`:       {"selector_invalid", "/index"},
	} {
		out, failed := call(t, cs, "artifact_put", `{"content":"1 x\n2\n",`+args+`}`)
		if failed != (want[0] != "") || failed && (out["code"] != want[0] || out["at"] != want[1]) {
			t.Errorf("%.60s: %v, want %v", args, out, want)
		}
	}
}

// TestPutFacts: what a caller states of content is what the artifact says; and an
// artifact that is another's is one that never was there too.
func TestPutFacts(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	old := put(t, s, "{\"a\":0}\n", leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	foreign := put(t, s, "x", leafproof.PutOptions{Tenant: "acme"}, leafproof.Facts{})
	none := "art_" + strings.Repeat("a", 32)
	made, failed := call(t, cs, "artifact_put", `{"content":"{\"a\":1}\n","records":"ndjson","schema_version":"v1","coverage":{"region":"eu"},
		"omissions":[{"what":"eu-west","reason":"timeout"}],"redactions":[{"path":"/email","reason":"privacy"},{"path":"/a","reason":"privacy"}],"supersedes":[{"$ref":{"type":"Blob","key":"`+old+`"}}]}`)
	if failed {
		t.Fatal(made)
	}
	c, _ := json.Marshal(made["completeness"])
	if made["schema_version"] != "v1" || !strings.Contains(string(c), `"status":"partial"`) || !strings.Contains(string(c), `"eu-west"`) || !strings.Contains(string(c), `"/email"`) {
		t.Errorf("the artifact says %v", made)
	}
	if notes := fmt.Sprint(made["notes"]); !strings.Contains(notes, "still there: /a") || strings.Contains(notes, "/email") {
		t.Errorf("the notes are %s", notes)
	}
	st, _ := call(t, cs, "artifact_stat", `{"artifact_id":"`+old+`"}`)
	if later, _ := json.Marshal(st["superseded_by"]); !strings.Contains(string(later), made["artifact_id"].(string)) {
		t.Errorf("the older one says %v", st)
	}
	for args, want := range map[string]string{
		`"supersedes":["` + none + `"]`:    "ref_not_found",
		`"supersedes":["` + foreign + `"]`: "ref_not_found",
		`"supersedes":["x"]`:               "ref_malformed",
		`"supersedes":["{\"$ref\":{\"type\":\"Blob\",\"key\":\"` + old + `\"}}"]`: "ref_stringified",
		`"supersedes":[` + strings.Repeat(`"`+old+`",`, 100) + `"` + old + `"]`:   "request_invalid",
		`"omissions":"none"`:                       "selector_invalid",
		`"omissions":[{"what":"","reason":"x"}]`:   "selector_invalid",
		`"redactions":[{"path":"a","reason":"x"}]`: "selector_invalid",
		`"redactions":[{"path":"/a","why":"x"}]`:   "selector_invalid",
		`"schema_version":"` + foreign + `"`:       "ref_not_found",
		`"schema_version":"` + none + `"`:          "ref_not_found",
	} {
		out, failed := call(t, cs, "artifact_put", `{"content":"{\"a\":1}\n","records":"ndjson",`+args+`}`)
		if text, _ := json.Marshal(out); !failed || out["code"] != want || strings.Contains(string(text), "acme") {
			t.Errorf("%.60s: %v, want %s", args, out, want)
		}
	}
}

func numbered(n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf(`"/%d"`, i))
	}
	return paths
}

// TestRevoked: who loses leave in the middle of a session gets nothing more, not the
// next page and not what was read before. (Case 23.)
func TestRevoked(t *testing.T) {
	s := newStore(t)
	id := put(t, s, strings.Repeat("{\"a\":1}\n", 200), leafproof.PutOptions{Tenant: "acme", Records: "ndjson", MediaType: "application/x-ndjson"}, leafproof.Facts{})
	token, err := s.AddPrincipal(t.Context(), leafproof.Owner, "ann", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	var grants []string
	for _, a := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery, leafproof.ActionCount} {
		g, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "ann", Action: a, Pattern: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g.ID)
	}
	srv := httptest.NewServer(mcpserver.Handler(s, func(r *http.Request) (mcpserver.Identity, error) {
		info, err := s.Authenticate(r.Context(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return mcpserver.Identity{Caller: leafproof.Caller{Principal: info.Name}, Tenant: info.Tenant}, err
	}, mcpserver.Options{}))
	defer srv.Close()
	overHTTP, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer overHTTP.Close()
	sessions := map[string]*mcp.ClientSession{
		"lines": connect(t, s, mcpserver.Identity{Caller: leafproof.Caller{Principal: "ann"}, Tenant: "acme"}), "HTTP": overHTTP,
	}
	next := map[string]string{}
	for how, cs := range sessions {
		page, failed := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.a == 1","limit":50}`)
		if failed || page["cursor"] == nil {
			t.Fatalf("%s: %v", how, page)
		}
		next[how] = page["cursor"].(string)
		for _, args := range []string{`}`, `,"preview":true}`, `,"first_record":0}`} {
			if page, failed := call(t, cs, "artifact_read", `{"artifact_id":"`+id+`"`+args); failed {
				t.Fatalf("%s: %v", how, page)
			}
		}
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "leafproof://artifact/" + id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range grants {
		if err := s.Revoke(t.Context(), leafproof.Owner, g); err != nil {
			t.Fatal(err)
		}
	}
	for how, cs := range sessions {
		for _, c := range [][2]string{
			{"artifact_query", `,"where":"@.a == 1","limit":50,"cursor":"` + next[how] + `"}`},
			{"artifact_query", `,"count":true}`},
			{"artifact_read", `}`},
			{"artifact_read", `,"preview":true}`},
			{"artifact_read", `,"first_record":0}`},
			{"artifact_stat", `}`},
			{"artifact_verify", `}`},
		} {
			out, failed := call(t, cs, c[0], `{"artifact_id":"`+id+`"`+c[1])
			text, _ := json.Marshal(out)
			if !failed || out["code"] != "access_revoked" || out["rows"] != nil || strings.Contains(string(text), "acme") {
				t.Errorf("%s: %s %s after the revocation: %.300s", how, c[0], c[1], text)
			}
		}
		_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "leafproof://artifact/" + id})
		if err == nil || strings.Contains(err.Error(), "acme") {
			t.Errorf("%s: the resource after the revocation: %v", how, err)
		}
		if list, _ := call(t, cs, "artifact_list", `{}`); len(list["artifacts"].([]any)) != 0 {
			t.Errorf("%s: the listing after the revocation is %v", how, list)
		}
	}
}

// TestVerdictView: a verdict about another store's bundle, by a policy that lets its key
// speak for other tenants, names neither tenants nor keys.
// TestCutShort: an answer whose time is up, or that nobody waits for any more, says so,
// and nothing of what the store was at.
func TestCutShort(t *testing.T) {
	s := newStore(t)
	id := put(t, s, strings.Repeat("{\"a\":1}\n", 2000), leafproof.PutOptions{Tenant: "acme", Records: "ndjson"}, leafproof.Facts{})
	if _, err := s.AddPrincipal(t.Context(), leafproof.Owner, "ann", "acme", nil); err != nil {
		t.Fatal(err)
	}
	for _, action := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery, leafproof.ActionCount} {
		if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "ann", Action: action, Pattern: "acme"}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := mcp.NewInMemoryTransports()
	who := mcpserver.Identity{Caller: leafproof.Caller{Principal: "ann"}, Tenant: "acme"}
	ss, err := mcpserver.New(s, who, mcpserver.Options{Timeout: time.Nanosecond}).Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cs.Close(); ss.Wait() }()
	for _, c := range [][2]string{
		{"artifact_stat", `{"artifact_id":"` + id + `"}`},
		{"artifact_read", `{"artifact_id":"` + id + `"}`},
		{"artifact_read", `{"artifact_id":"` + id + `","first_record":3}`},
		{"artifact_read", `{"artifact_id":"` + id + `","preview":true}`},
		{"artifact_query", `{"artifact_id":"` + id + `","where":"@.a == 1"}`},
		{"artifact_query", `{"artifact_id":"` + id + `","where":"@.a == 1","count":true}`},
		{"artifact_verify", `{"artifact_id":"` + id + `"}`},
		{"artifact_put", `{"content":"` + strings.Repeat("x", 1<<20) + `"}`},
		{"artifact_list", `{}`},
	} {
		out, failed := call(t, cs, c[0], c[1])
		said := fmt.Sprint(out["message"])
		if failed && (out["code"] != "scan_incomplete" && out["code"] != "authority_unavailable" || strings.Contains(said, "ann") || strings.Contains(said, "context") || strings.Contains(said, "/")) {
			t.Errorf("%s %.60s: %v", c[0], c[1], out)
		}
	}
}

func TestVerdictView(t *testing.T) {
	theirs, ours := newStore(t), newStore(t)
	id := put(t, theirs, "hello", leafproof.PutOptions{Tenant: "tenant-watzmann"}, leafproof.Facts{SourceID: "src-x"})
	file := proof(t, theirs, id, leafproof.Selector{Bytes: &merkle.Range{End: 5}})
	cs := connect(t, ours, owner)
	check := func(want string) {
		t.Helper()
		out, failed := call(t, cs, "artifact_verify", `{"bundle":"`+file+`"}`)
		text, _ := json.Marshal(out)
		if failed || out["verdict"] != want {
			t.Errorf("the verdict is %.300s, want %s", text, want)
		}
		for _, word := range []string{"watzmann", "SHA256:", "blake3", "mf_"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%q is in %s", word, text)
			}
		}
	}
	check("unverifiable")
	for _, k := range theirs.Policy().Keys() {
		k.Name, k.Tenants = "their-"+k.Name, []string{"acme"}
		if slices.Contains(k.Roles, manifest.RoleManifest) {
			if _, err := ours.ChangePolicy(t.Context(), manifest.AddKey(k)); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("unverifiable")
}

// TestNamesRoom: what a producer named has its place in every answer, however long the
// name is.
func TestNamesRoom(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	long := strings.Repeat("n", 50_000)
	header := strings.Repeat(strings.Repeat("c", 600)+",", 400) + "last\n"
	id := put(t, s, header+strings.Repeat("1,", 400)+"2\n", leafproof.PutOptions{Records: "csv"}, leafproof.Facts{
		SnapshotID: long, ToolCallID: long, SchemaVersion: long,
	})
	for tool, args := range map[string]string{
		"artifact_stat":   `{"artifact_id":"` + id + `"}`,
		"artifact_query":  `{"artifact_id":"` + id + `","where":"@.last == \"2\"","select":["/last"]}`,
		"artifact_read":   `{"artifact_id":"` + id + `","length":10}`,
		"artifact_list":   `{}`,
		"artifact_verify": `{"bundle":"` + proof(t, s, id, leafproof.Selector{Bytes: &merkle.Range{Start: 0, End: 10}}) + `"}`,
	} {
		out, failed := call(t, cs, tool, args)
		if text, _ := json.Marshal(out); failed || len(text) > 8<<10 {
			t.Errorf("%s: %d bytes, failed %v: %.300s", tool, len(text), failed, text)
		}
	}
}
