package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/httpapi"
)

// bodies are what each operation that has a body is asked with; %s is an artifact's id.
var bodies = map[string]string{
	"registerCopy":   `{"kind":"cache","where":"x"}`,
	"updateCopy":     `{"propagation":"done"}`,
	"readArtifact":   `{"bytes":[0,1]}`,
	"queryArtifact":  `{"where":"@.n == 1"}`,
	"proveArtifact":  `{"bytes":[0,1]}`,
	"deriveArtifact": `{"where":"@.n == 1"}`,
	"assessArtifact": `{"require":["capture=complete"]}`,
	"giveGrant":      `{"principal":"bob","action":"read","pattern":"acme/*/%s"}`,
	"setTools":       `{"tools":[]}`,
	"callTool":       `{"tool":"stat","input":{}}`,
	"recordResult":   `{"tool":"t","value":1}`,
	"retryResult":    `{"retry":"x"}`,
	"recordMessage":  `{"role":"user","text":"x"}`,
	"setName":        `{"artifact_id":"%s"}`,
}

const nobodys = "art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// TestForeign walks the table of routes as bob with what is alice's: each answer is
// that for what never was, to the byte.
func TestForeign(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	ref := w.put(w.alice, lines(20), "")
	w.do(w.alice, "PUT", "/v1/names/latest", fmt.Sprintf(`{"artifact_id":%q}`, ref.ArtifactID)).want(200)
	var made leafproof.Copy
	w.do(w.alice, "POST", "/v1/artifacts/"+ref.ArtifactID+"/copies", `{"kind":"cache","where":"x"}`).want(201).json(&made)
	grants, err := w.s.Grants(t.Context(), leafproof.Owner, "alice")
	if err != nil {
		t.Fatal(err)
	}
	u := w.do(w.alice, "POST", "/v1/uploads", []byte("half"), "Upload-Complete", "?0").want(201)
	upload := strings.TrimPrefix(u.header.Get("Location"), "/v1/uploads/")

	var r run
	w.do(w.alice, "POST", "/v1/runs", `{"agent_id":"a"}`).want(201).json(&r)

	theirs := map[string]string{"id": ref.ArtifactID, "copy": made.ID, "grant": grants[0].ID, "name": "latest", "upload": upload, "run": r.Run, "call": "bcdefghijkbcdefghijk", "param": "64617461"}
	never := map[string]string{
		"id": nobodys, "copy": "cp_aaaaaaaaaaaaaaaaaaaaaaaaaa", "grant": "gr_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		"name": "nothing", "upload": "up_aaaaaaaaaaaaaaaaaaaaaaaaaa", "run": "rn_aaaaaaaaaaaaaaaaaaaaaaaaaa", "call": "bcdefghijkbcdefghijk", "param": "64617461",
	}
	walked := 0
	for _, rt := range w.h.Routes() {
		if rt.Open {
			continue
		}
		t.Run(rt.Op, func(t *testing.T) {
			w := w.in(t)
			ask := func(ids map[string]string) string {
				path, body := rt.Path, any(nil)
				for name, id := range ids {
					path = strings.ReplaceAll(path, "{"+name+"}", id)
				}
				if text, ok := bodies[rt.Op]; ok {
					body = strings.ReplaceAll(text, "%s", ids["id"])
				}
				headers := []string{"Upload-Offset", "4"}
				if rt.Path == "/v1/artifacts" && rt.Method != "GET" {
					headers = append(headers, "Leafproof-Manifest", fmt.Sprintf(`{"supersedes":[{"artifact_id":%q,"kind":"correct"}]}`, ids["id"]))
				}
				if rt.Op == "beginUpload" || rt.Op == "listArtifacts" || rt.Op == "listGrants" || rt.Op == "beginRun" {
					return ""
				}
				a := w.do(w.bob, rt.Method, path, body, headers...)
				if a.status != 404 && rt.Op != "giveGrant" && rt.Op != "assessArtifact" {
					t.Errorf("%s %s: status %d: %s", rt.Method, path, a.status, a.body)
				}
				out := fmt.Sprint(a.status, " ", a.header.Get("Content-Type"), " ", string(a.body))
				for name, id := range ids {
					out = strings.ReplaceAll(out, id, "{"+name+"}")
				}
				if rt.Op == "assessArtifact" { // it says when it was made
					var v map[string]any
					if json.Unmarshal(a.body, &v) == nil {
						delete(v, "assessed_at")
						v["artifact_id"] = ""
						b, _ := json.Marshal(v)
						out = strings.ReplaceAll(string(b), ids["id"], "{id}")
					}
				}
				for k, v := range a.header {
					if k != "Leafproof-Request-Id" && k != "Date" && k != "Content-Length" {
						out += fmt.Sprintf("\n%s: %s", k, v)
					}
				}
				return sorted(out)
			}
			a, b := ask(theirs), ask(never)
			if a != b {
				t.Errorf("for what is alice's:\n%s\nfor what never was:\n%s", a, b)
			}
			walked++
		})
	}
	if walked < 25 {
		t.Errorf("only %d routes were walked", walked)
	}
	// Nothing of it happened, and bob lists nothing.
	if got := w.listed(w.bob); len(got) != 0 {
		t.Errorf("bob lists %q", got)
	}
	w.do(w.alice, "GET", "/v1/artifacts/"+ref.ArtifactID+"/content", nil).want(200)
	w.do(w.alice, "HEAD", "/v1/uploads/"+upload, nil).want(204)
	var list struct{ Grants []leafproof.Grant }
	w.do(w.bob, "GET", "/v1/grants", nil).want(200).json(&list)
	for _, g := range list.Grants {
		if g.Principal != "bob" {
			t.Errorf("bob sees %+v", g)
		}
	}
	w.do(w.bob, "GET", "/v1/grants?principal=alice", nil).problem(403, leafproof.CodeAccessRevoked)
	w.do(w.bob, "GET", "/v1/artifacts?tenant=acme", nil).problem(400, leafproof.CodeRequestInvalid)
	w.do(w.bob, "GET", "/v1/artifacts?tenant=nobodys", nil).problem(400, leafproof.CodeRequestInvalid)
	w.do(w.bob, "GET", "/metrics", nil).problem(403, leafproof.CodeAccessRevoked)
}

func sorted(s string) string {
	head, rest, _ := strings.Cut(s, "\n")
	lines := strings.Split(rest, "\n")
	for i := range lines {
		for j := range lines[:i] {
			if lines[j] > lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return head + "\n" + strings.Join(lines, "\n")
}

// TestNobody walks the table without a token, and with ones that are nobody's.
func TestNobody(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	ref := w.put(w.alice, lines(20), "")
	removed, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "gone", "acme", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.s.RemovePrincipal(t.Context(), leafproof.Owner, "gone"); err != nil {
		t.Fatal(err)
	}
	for name, header := range map[string]string{
		"none": "", "not a scheme": w.alice, "another scheme": "Basic " + w.alice, "an empty one": "Bearer", "made up": "Bearer lpt_made",
		"no prefix": "Bearer " + w.alice[4:], "cut": "Bearer " + w.alice[:len(w.alice)-1], "in upper case": "Bearer " + strings.ToUpper(w.alice),
		"removed": "Bearer " + removed, "long": "Bearer lpt_" + strings.Repeat("a", 1000), "the owner's, cut": "Bearer " + w.owner[:40],
	} {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			for _, rt := range w.h.Routes() {
				if rt.Open && rt.Path != "/metrics" {
					continue
				}
				path := rt.Path
				for _, n := range []string{"id", "copy", "grant", "name", "upload", "run", "call", "param"} {
					path = strings.ReplaceAll(path, "{"+n+"}", ref.ArtifactID)
				}
				headers := []string{"Authorization", header}
				if header == "" {
					headers = nil
				}
				a := w.do("", rt.Method, path, nil, headers...).want(http.StatusUnauthorized)
				if got := a.header.Get("WWW-Authenticate"); !strings.HasPrefix(got, `Bearer realm="leafproof"`) {
					t.Errorf("%s %s: WWW-Authenticate %q", rt.Method, path, got)
				}
				if rt.Method != "HEAD" {
					a.problem(401, leafproof.CodeUnauthenticated)
				}
			}
		})
	}
}
