package mcpserver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
	"leafproof/internal/mcpserver"
	"leafproof/merkle"
)

// watched is a transport that keeps all that crosses it.
type watched struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// proof makes a bundle of an artifact, in base64.
func proof(t *testing.T, s *leafproof.Store, id string, sel leafproof.Selector) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Prove(t.Context(), leafproof.Owner, id, sel, &b); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestModelView walks all that a run over every tool and the resources serialises:
// no tenant, digest, key, path or recipe is in it. (Case 4.)
func TestModelView(t *testing.T) {
	s := newStore(t)
	who := mcpserver.Identity{Caller: leafproof.Owner, Tenant: "tenant-grossglockner", Run: "run-7"}
	var sent watched
	a, b := mcp.NewInMemoryTransports()
	ss, err := mcpserver.New(s, who, mcpserver.Options{}).Connect(t.Context(), &mcp.LoggingTransport{Transport: a, Writer: &sent}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Wait()
	defer cs.Close()

	made, _ := call(t, cs, "artifact_put", `{"content":"{\"a\":1}\n{\"a\":2}\n","media_type":"application/x-ndjson","source_id":"infra","coverage":{"region":"eu"},"tool_call_id":"c1"}`)
	id, _ := made["artifact_id"].(string)
	bin, _ := call(t, cs, "artifact_put", `{"content":"AAEC/w==","encoding":"base64"}`)
	for _, args := range []string{`{}`, `,"preview":true}`, `,"first_record":1}`, `,"offset":3,"length":4}`, `,"pointer":"/a"}`, `,"offset":99}`, `,"first_record":99}`, `,"nonsense":1}`} {
		call(t, cs, "artifact_read", strings.Replace(`{"artifact_id":"`+id+`"`+strings.TrimPrefix(args, "{"), `"}`, `"}`, 1))
	}
	for _, args := range []string{`,"where":"@.a > 1"}`, `,"count":true}`, `,"limit":1}`, `,"where":"@.a >"}`, `,"select":["/a"]}`, `,"order_by":["/a:desc"]}`, `,"cursor":"AAAA"}`} {
		call(t, cs, "artifact_query", `{"artifact_id":"`+id+`"`+args)
	}
	call(t, cs, "artifact_stat", `{"artifact_id":"`+id+`"}`)
	call(t, cs, "artifact_stat", `{"artifact_id":"`+bin["artifact_id"].(string)+`"}`)
	call(t, cs, "artifact_list", `{"limit":1}`)
	whole := proof(t, s, id, leafproof.Selector{Bytes: &merkle.Range{End: 5}})
	holds, _ := call(t, cs, "artifact_verify", `{"bundle":"`+whole+`"}`)
	if holds["verdict"] != "holds" || holds["artifact_id"] != id || len(holds["facts"].([]any)) != 16 {
		t.Errorf("the verdict is %v", holds)
	}
	kept, _ := call(t, cs, "artifact_put", `{"encoding":"base64","content":"`+whole+`"}`)
	again, _ := call(t, cs, "artifact_verify", `{"artifact_id":"`+kept["artifact_id"].(string)+`","expect_artifact_id":"`+id+`"}`)
	if again["verdict"] != "holds" {
		t.Errorf("the verdict of the bundle in the store is %v", again)
	}
	text, _ := base64.StdEncoding.DecodeString(whole)
	text[len(text)-1] ^= 1
	call(t, cs, "artifact_verify", `{"bundle":"`+base64.StdEncoding.EncodeToString(text)+`"}`)
	call(t, cs, "artifact_verify", `{"bundle":"`+whole+`","expect_artifact_id":"`+kept["artifact_id"].(string)+`"}`)
	for _, uri := range []string{"leafproof://artifact/" + id, "leafproof://artifact/" + id + "?offset=4&length=3", "leafproof://artifact/nothing"} {
		cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	}
	cs.ListTools(t.Context(), nil)
	cs.ListResources(t.Context(), nil)
	cs.ListResourceTemplates(t.Context(), nil)
	if err := s.Delete(t.Context(), leafproof.Owner, bin["artifact_id"].(string), "done"); err != nil {
		t.Fatal(err)
	}
	call(t, cs, "artifact_read", `{"artifact_id":"`+bin["artifact_id"].(string)+`"}`)

	st, err := s.Resolve(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range strings.Split(sent.text(), "\n") {
		line, ok := strings.CutPrefix(sentence, "write: ")
		if !ok {
			continue
		}
		for _, word := range []string{"grossglockner", "run-7", "blake3", "sha256", "SHA256", "mf_", "JsonPointer", "JsonQuery", "leafproof.json", "content_hash", "tenant_id", st.ManifestID} {
			if strings.Contains(line, word) {
				t.Errorf("%q is in the model's view: %.300s", word, line)
			}
		}
		if m := regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindString(line); m != "" {
			t.Errorf("a digest is in the model's view: %s in %.300s", m, line)
		}
	}
	if n := strings.Count(sent.text(), "write: "); n < 30 {
		t.Errorf("%d messages were looked at", n)
	}
}

// TestPages: pages of any size, by the tool and as a resource, are the artifact byte
// for byte, each within its cap, and text is never cut inside a character. (Case 52.)
func TestPages(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	lengths := []int{1, 3, 7919, 16384, 65536, 1 << 30}
	if testing.Short() { // under the race detector
		lengths = []int{3, 65536}
	}
	noise := make([]byte, 200_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for name, c := range map[string]struct{ data, media string }{
		"one line of JSON": {`["` + strings.Repeat("aé€𝄞", 30_000) + `"]`, "application/json"},
		"binary":           {string(noise), "application/octet-stream"},
		"text that is not": {"begin\x00" + strings.Repeat("é", 40_000) + "\xff\xfe end", "text/plain"},
		"empty":            {"", "text/plain"},
	} {
		id := put(t, s, c.data, leafproof.PutOptions{MediaType: c.media, Records: "none"}, leafproof.Facts{})
		for _, length := range lengths {
			var tool, res bytes.Buffer
			for off := int64(0); ; {
				if length < 100 && off > 40 {
					break
				}
				page, failed := call(t, cs, "artifact_read", fmt.Sprintf(`{"artifact_id":%q,"offset":%d,"length":%d}`, id, off, length))
				if failed {
					t.Fatal(page)
				}
				text := page["content"].(string)
				if page["encoding"] == "base64" {
					b, err := base64.StdEncoding.DecodeString(text)
					if err != nil {
						t.Fatal(err)
					}
					text = string(b)
				}
				if n, _ := page["length"].(json.Number).Int64(); n != int64(len(text)) || n > mcpserver.MaxPage {
					t.Fatalf("%s: a page of %d bytes says %d", name, len(text), n)
				}
				tool.WriteString(text)
				r, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: fmt.Sprintf("leafproof://artifact/%s?offset=%d&length=%d", id, off, length)})
				if err != nil {
					t.Fatal(err)
				}
				res.WriteString(r.Contents[0].Text + string(r.Contents[0].Blob))
				if page["next_offset"] == nil {
					break
				}
				off, _ = page["next_offset"].(json.Number).Int64()
			}
			want := c.data
			if length < 100 {
				want = want[:min(len(want), tool.Len())]
			}
			if tool.String() != want || res.String() != want {
				t.Errorf("%s in pages of %d: %d and %d bytes that differ from the %d", name, length, tool.Len(), res.Len(), len(want))
			}
		}
	}
}

// TestRecordPages: records in pages are the records, the longest are shown by a
// preview, and JSON stands digit for digit.
func TestRecordPages(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	lines := []string{`{"n":13911860366432393}`, `{"a":1,"a":2}`, `{"a":2}TRAILER`, `{"long":"` + strings.Repeat("x", 100_000) + `","k":7}`, `nonsense`}
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf(`{"i":%d}`, i))
	}
	id := put(t, s, strings.Join(lines, "\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	next, n := json.Number("0"), 0
	for pages := 0; ; pages++ {
		page, failed := call(t, cs, "artifact_read", fmt.Sprintf(`{"artifact_id":%q,"first_record":%s,"max_records":700}`, id, next))
		if failed || pages > 20 {
			t.Fatal(page)
		}
		for _, r := range page["rows"].([]any) {
			row := r.(object)
			var got string
			switch {
			case row["value"] != nil:
				b, _ := json.Marshal(row["value"])
				got = string(b)
			case row["text"] != nil:
				got = row["text"].(string)
			case row["base64"] != nil:
				b, _ := base64.StdEncoding.DecodeString(row["base64"].(string))
				got = string(b)
			case row["preview"] != nil:
				b, _ := json.Marshal(row["preview"])
				if len(b) > 6200 || !strings.Contains(string(b), `"k":7`) {
					t.Errorf("the preview is %s", b)
				}
				got = lines[n]
			}
			if got != lines[n] || row["record"] != json.Number(fmt.Sprint(n)) {
				t.Fatalf("record %d is %s, want %.80s", n, got, lines[n])
			}
			n++
		}
		if page["next_record"] == nil {
			break
		}
		next = page["next_record"].(json.Number)
	}
	if n != len(lines) {
		t.Errorf("%d of %d records", n, len(lines))
	}
	preview, _ := call(t, cs, "artifact_read", `{"artifact_id":"`+id+`","preview":true}`)
	if b, _ := json.Marshal(preview["preview"]); len(b) > 6200 || len(b) < 100 {
		t.Errorf("the preview has %d bytes", len(b))
	}
}

// TestCounts: returned, matched and total are right around a limit. (Case 56.)
func TestCounts(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	for _, n := range []int{49, 50, 51} {
		id := put(t, s, strings.Repeat("{\"a\":1}\n", n), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
		page, _ := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.a == 1"}`)
		more := "no"
		if n > 50 {
			more = "yes"
		}
		if page["returned"] != json.Number(fmt.Sprint(min(n, 50))) || page["records_total"] != json.Number(fmt.Sprint(n)) || page["more"] != more {
			t.Errorf("%d records: %v returned of %v, more %v", n, page["returned"], page["records_total"], page["more"])
		}
		total := len(page["rows"].([]any))
		for page["more"] == "yes" {
			page, _ = call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.a == 1","cursor":"`+page["cursor"].(string)+`"}`)
			total += len(page["rows"].([]any))
		}
		if total != n || page["matched"] != json.Number(fmt.Sprint(n)) {
			t.Errorf("%d records: %d rows, %v matched", n, total, page["matched"])
		}
		count, _ := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.a == 1","count":true}`)
		if count["matched"] != json.Number(fmt.Sprint(n)) || len(count["rows"].([]any)) != 0 {
			t.Errorf("the count is %v", count)
		}
	}
}

// TestStranger: another tenant's artifact is answered like one that never was, by
// every tool and as a resource; and is in no listing. (Case 32.)
func TestStranger(t *testing.T) {
	s := newStore(t)
	id := put(t, s, "{\"a\":1}\n", leafproof.PutOptions{Tenant: "acme", Records: "ndjson"}, leafproof.Facts{})
	if _, err := s.AddPrincipal(t.Context(), leafproof.Owner, "eve", "other", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "eve", Action: leafproof.ActionStat, Pattern: "other"}); err != nil {
		t.Fatal(err)
	}
	cs := connect(t, s, mcpserver.Identity{Caller: leafproof.Caller{Principal: "eve"}, Tenant: "other"})
	none := "art_" + strings.Repeat("a", 32)
	ref := func(id string) string { return `{"$ref":{"type":"Blob","key":"` + id + `"}}` }
	for tool, args := range map[string][]string{
		"artifact_read":   {`}`, `,"first_record":0}`, `,"pointer":"/a"}`, `,"preview":true}`, `,"offset":1000000}`},
		"artifact_query":  {`}`, `,"count":true}`, `,"where":"@.a == 1"}`},
		"artifact_stat":   {`}`},
		"artifact_verify": {`}`},
	} {
		for _, rest := range args {
			foreign, failed := call(t, cs, tool, `{"artifact_id":"`+id+`"`+rest)
			missing, _ := call(t, cs, tool, `{"artifact_id":"`+none+`"`+rest)
			a, _ := json.Marshal(foreign)
			b, _ := json.Marshal(missing)
			if !failed || foreign["code"] != "ref_not_found" || strings.ReplaceAll(string(a), id, none) != string(b) {
				t.Errorf("%s %s: a foreign id is answered %s, a missing one %s", tool, rest, a, b)
			}
			named, failed := call(t, cs, tool, `{"artifact_id":`+ref(id)+rest)
			if c, _ := json.Marshal(named); !failed || string(c) != string(a) {
				t.Errorf("%s %s: a foreign reference is answered %s, the id %s", tool, rest, c, a)
			}
		}
	}
	_, foreign := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "leafproof://artifact/" + id})
	_, missing := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "leafproof://artifact/" + none})
	if foreign == nil || missing == nil || strings.ReplaceAll(foreign.Error(), id, none) != missing.Error() {
		t.Errorf("as a resource: %v and %v", foreign, missing)
	}
	if list, _ := call(t, cs, "artifact_list", `{}`); len(list["artifacts"].([]any)) != 0 {
		t.Errorf("the listing is %v", list)
	}
	if list, err := cs.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Errorf("the resources are %v, %v", list, err)
	}
	mine, failed := call(t, cs, "artifact_put", `{"content":"mine"}`)
	if failed {
		t.Fatal(mine)
	}
	if list, _ := s.Tenants(t.Context(), leafproof.Owner); !slices.Contains(list, "other") {
		t.Errorf("it was put into another tenant: %v", list)
	}
}

// TestHostile: what no caller should send gets an error with a code, and the server
// answers on.
func TestHostile(t *testing.T) {
	s := newStore(t)
	cs := connect(t, s, owner)
	id := put(t, s, "{\"a\":1}\n", leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	for args, want := range map[string]string{
		`{"artifact_id":"` + id + `","artifact_id":"` + id + `"}`:                 "request_invalid",
		`{"artifact_id":"` + id + `","Offset":1}`:                                 "request_invalid",
		`{"artifact_id":"` + id + `","offset":"1"}`:                               "request_invalid",
		`{"artifact_id":"` + id + `","offset":-1}`:                                "request_invalid",
		`{"artifact_id":"` + id + `","offset":1e300}`:                             "request_invalid",
		`{"artifact_id":"` + id + `","length":0}`:                                 "request_invalid",
		`{"artifact_id":"` + id + `","offset":1,"pointer":""}`:                    "request_invalid",
		`{"artifact_id":"` + id + `","offset":9223372036854775807}`:               "selector_invalid",
		`{"artifact_id":"` + id + `","first_record":9223372036854775807}`:         "request_invalid",
		`{"artifact_id":"../../etc/passwd"}`:                                      "ref_malformed",
		`{"artifact_id":"` + id + `\u0000"}`:                                      "ref_malformed",
		`{"artifact_id":"%2e%2e"}`:                                                "ref_malformed",
		`{"artifact_id":7}`:                                                       "ref_malformed",
		`{"artifact_id":null}`:                                                    "ref_malformed",
		`{}`:                                                                      "request_invalid",
		`[]`:                                                                      "request_invalid",
		`{"artifact_id":"{\"$ref\":{\"type\":\"Blob\",\"key\":\"` + id + `\"}}"}`: "ref_stringified",
		`{"artifact_id":{"$ref":{"type":"JsonPointer","source":{"type":"Blob","key":"` + id + `"},"path":""}}}`: "ref_derivation_forbidden",
		`{"artifact_id":{"$ref":{"type":"Message","seq":1,"part":0}}}`:                                          "ref_not_found",
		`{"artifact_id":{"$ref":{"seq":1,"part":0}}}`:                                                           "ref_legacy_shape",
		`{"artifact_id":{"$ref":{"type":"Blob","key":"` + id + `","key":"` + id + `"}}}`:                        "request_invalid",
		`{"artifact_id":{"$ref":{"type":"Blob","key":"` + id + `"},"x":1}}`:                                     "ref_malformed",
		`{"artifact_id":` + strings.Repeat(`[`, 400) + strings.Repeat(`]`, 400) + `}`:                           "request_invalid",
		`{"artifact_id":"` + id + `","pointer":"no pointer"}`:                                                   "selector_invalid",
		`{"artifact_id":"` + id + `","pointer":"/` + strings.Repeat("a", 1<<20) + `"}`:                          "selector_invalid",
		`{"artifact_id":"` + strings.Repeat("x", 1<<20) + `"}`:                                                  "ref_malformed",
	} {
		out, failed := call(t, cs, "artifact_read", args)
		if !failed || out["code"] != want || out["action"] == nil {
			t.Errorf("%.120s: %v, want %s", args, out, want)
		}
		if text, _ := json.Marshal(out); len(text) > 8<<10 {
			t.Errorf("%.120s: the error has %d bytes", args, len(text))
		}
	}
	for args, want := range map[string]string{
		`{}`:                                                            "request_invalid",
		`{"content":"x","encoding":"rot13"}`:                            "request_invalid",
		`{"content":"!","encoding":"base64"}`:                           "request_invalid",
		`{"content":"x","records":"../x"}`:                              "selector_invalid",
		`{"content":"x","source_id":"../x"}`:                            "selector_invalid",
		`{"content":"x","coverage":{"a":1.5}}`:                          "selector_invalid",
		`{"content":"x","observed_at":"soon"}`:                          "selector_invalid",
		`{"content":"x","media_type":"text"}`:                           "selector_invalid",
		`{"content":"x","tenant":"acme"}`:                               "request_invalid",
		`{"content":"` + strings.Repeat("x", mcpserver.MaxPut+1) + `"}`: "too_large",
		`{"content":"x","url":"file:///etc/passwd"}`:                    "request_invalid",
		`{"content":"x","coverage":` + strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60) + `}`: "selector_invalid",
	} {
		out, failed := call(t, cs, "artifact_put", args)
		if !failed || out["code"] != want {
			t.Errorf("put %.80s: %v, want %s", args, out, want)
		}
	}
	for _, uri := range []string{
		"leafproof://artifact/" + id + "?offset=1&offset=2", "leafproof://artifact/" + id + "?offset=-1", "leafproof://artifact/" + id + "?length=0", "leafproof://artifact/" + id + "?x=1",
		"leafproof://artifact/../" + id, "leafproof://artifact/%2e%2e", "leafproof://artifact/" + id + "%00", "leafproof://artifact/" + id + "/x", "file:///etc/passwd", "",
		"leafproof://artifact/" + id + "?offset=99999999999999999999", "leafproof://artifact/" + id + "?offset=9", "LEAFPROOF://artifact/" + id,
		"leafproof://artifact/" + id + "?\x7f=1", "\x7f\x00",
	} {
		_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err == nil || strings.Contains(err.Error(), "nternal error") {
			t.Errorf("the resource %q: %v", uri, err)
		}
	}
	if _, err := cs.ListPrompts(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "not found") && !strings.Contains(err.Error(), "there is no") && !strings.Contains(err.Error(), "not support") {
		t.Errorf("prompts/list: %v", err)
	}
	if _, failed := call(t, cs, "artifact_stat", `{"artifact_id":"`+id+`"}`); failed {
		t.Error("the server does not answer any more")
	}
}

// TestToolList: the list is sorted, the same bytes each time, and has no prompts,
// logging or list changes beside it.
func TestToolList(t *testing.T) {
	s := newStore(t)
	var texts []string
	for range 3 {
		cs := connect(t, s, owner)
		list, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			readOnly := tool.Name != "artifact_put"
			if a := tool.Annotations; a.ReadOnlyHint != readOnly || *a.OpenWorldHint || *a.DestructiveHint {
				t.Errorf("%s has the annotations %+v", tool.Name, a)
			}
		}
		if want := []string{"artifact_list", "artifact_put", "artifact_query", "artifact_read", "artifact_stat", "artifact_verify"}; !slices.Equal(names, want) {
			t.Fatalf("the tools are %v", names)
		}
		b, _ := json.Marshal(list.Tools)
		texts = append(texts, string(b))
		caps, _ := json.Marshal(cs.InitializeResult().Capabilities)
		if string(caps) != `{"resources":{},"tools":{}}` {
			t.Errorf("the capabilities are %s", caps)
		}
	}
	if texts[0] != texts[1] || texts[1] != texts[2] {
		t.Error("the list of tools differs from one server to the next")
	}
}

// TestHTTP: whoever identify knows is served; nobody else is, and bodies are bounded.
func TestHTTP(t *testing.T) {
	s := newStore(t)
	token, err := s.AddPrincipal(t.Context(), leafproof.Owner, "ann", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "ann", Action: leafproof.ActionRead, Pattern: "acme"}); err != nil {
		t.Fatal(err)
	}
	id := put(t, s, "hello", leafproof.PutOptions{Tenant: "acme", MediaType: "text/plain", Records: "none"}, leafproof.Facts{})
	srv := httptest.NewServer(mcpserver.Handler(s, func(r *http.Request) (mcpserver.Identity, error) {
		info, err := s.Authenticate(r.Context(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return mcpserver.Identity{Caller: leafproof.Caller{Principal: info.Name}, Tenant: info.Tenant}, err
	}, mcpserver.Options{}))
	defer srv.Close()
	client := &http.Client{Transport: bearer(token)}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if page, failed := call(t, cs, "artifact_read", `{"artifact_id":"`+id+`"}`); failed || page["content"] != "hello" {
		t.Errorf("read: %v", page)
	}
	if st, failed := call(t, cs, "artifact_stat", `{"artifact_id":"`+id+`"}`); !failed {
		t.Errorf("stat without leave: %v", st)
	}
	if rows, failed := call(t, cs, "artifact_put", `{"content":"x"}`); failed || rows["format"] != nil {
		t.Errorf("put without leave to look: %v", rows)
	}
	for name, r := range map[string]func() (*http.Response, error){
		"no token": func() (*http.Response, error) { return http.Post(srv.URL, "application/json", strings.NewReader(`{}`)) },
		"too long": func() (*http.Response, error) {
			return client.Post(srv.URL, "application/json", io.LimitReader(zeros{}, mcpserver.MaxRequest+10))
		},
		"a depth bomb": func() (*http.Response, error) {
			return client.Post(srv.URL, "application/json", strings.NewReader(strings.Repeat("[", 1_000_000)))
		},
		"a foreign page": func() (*http.Response, error) {
			req, _ := http.NewRequest("POST", srv.URL, strings.NewReader(`{}`))
			req.Host = "evil.example"
			return client.Do(req)
		},
	} {
		res, err := r()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		res.Body.Close()
		if res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	r.Header.Set("Accept", "application/json, text/event-stream")
	return http.DefaultTransport.RoundTrip(r)
}

// TestLines: over lines, what is no message is answered, what was asked before the
// end is answered too, and nothing is left running.
func TestLines(t *testing.T) {
	s := newStore(t)
	id := put(t, s, strings.Repeat("{\"a\":1}\n", 20_000), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	before := runtime.NumGoroutine()
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`no message`, `[]`, `{"jsonrpc":"1.0"}`, strings.Repeat("[", 100_000), `{"jsonrpc":"2.0","id":9,"method":"x","params":"` + strings.Repeat("y", mcpserver.MaxRequest) + `"}`, ``,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"artifact_query","arguments":{"artifact_id":"` + id + `","where":"@.a == 2"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"prompts/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"info"}}`,
		`{"jsonrpc":"2.0","id":4,"method":"nonsense"}`,
	}, "\n")
	var out bytes.Buffer
	if err := mcpserver.Serve(t.Context(), s, owner, mcpserver.Options{}, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	codes := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		m := parse(t, line)
		if e, ok := m["error"].(object); ok {
			codes[string(e["code"].(json.Number))]++
		} else {
			codes["answered"]++
		}
		if m["id"] == json.Number("1") && !strings.Contains(line, "No record matched") {
			t.Errorf("the query is answered %.300s", line)
		}
	}
	if fmt.Sprint(codes) != fmt.Sprint(map[string]int{"-32700": 1, "-32600": 4, "-32601": 3, "answered": 2}) {
		t.Errorf("the answers are %v:\n%.2000s", codes, out.String())
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestDeadline: a scan that takes too long says what it examined, never an empty
// answer.
func TestDeadline(t *testing.T) {
	s := newStore(t)
	id := put(t, s, strings.Repeat("{\"a\":1}\n", 200_000), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{})
	a, b := mcp.NewInMemoryTransports()
	ss, err := mcpserver.New(s, owner, mcpserver.Options{Timeout: 3 * time.Millisecond}).Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Wait()
	defer cs.Close()
	out, failed := call(t, cs, "artifact_query", `{"artifact_id":"`+id+`","where":"@.a == 2","order_by":["/a"]}`)
	if out["code"] != "scan_incomplete" && out["code"] != "budget_exhausted" {
		t.Fatalf("%v", out)
	}
	if !failed && (out["stop"] == "complete" || out["more"] == "no" || out["conclusion"] == "") {
		t.Errorf("the answer is %v", out)
	}
}
