package httpapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/merkle"
)

// Who may no longer read hears so, whatever he holds from before: no cached copy is
// confirmed to him, no range of it is continued, and nothing of it is in the header.
func TestRevokedHoldsNothing(t *testing.T) {
	for name, end := range map[string]struct {
		do     func(w *world, grants map[leafproof.Action]string, id string) error
		status int
	}{
		"revoked": {func(w *world, grants map[leafproof.Action]string, _ string) error {
			return w.s.Revoke(w.t.Context(), leafproof.Owner, grants[leafproof.ActionRead])
		}, 403},
		"restricted": {func(w *world, _ map[leafproof.Action]string, _ string) error {
			_, err := w.s.Restrict(w.t.Context(), leafproof.Owner, "acme")
			return err
		}, 403},
		"deleted": {func(w *world, _ map[leafproof.Action]string, id string) error {
			return w.s.Delete(w.t.Context(), leafproof.Owner, id, "x")
		}, 410},
		"the principal removed": {func(w *world, _ map[leafproof.Action]string, _ string) error {
			return w.s.RemovePrincipal(w.t.Context(), leafproof.Owner, "carol")
		}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpapi.Options{})
			carol, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "carol", "acme", nil)
			if err != nil {
				t.Fatal(err)
			}
			grants := map[leafproof.Action]string{}
			for _, a := range []leafproof.Action{leafproof.ActionRead, leafproof.ActionProve} {
				grants[a] = w.allow("carol", a, "acme")
			}
			data := lines(2000)
			id := w.put(w.alice, data, "?sha256=true&records=ndjson").ArtifactID
			at := "/v1/artifacts/" + id + "/content"
			tag := `"b3-` + merkle.Sum(data).String() + `"`
			asks := [][]string{
				{"GET"},
				{"HEAD"},
				{"GET", "If-None-Match", tag},
				{"GET", "If-None-Match", "*"},
				{"HEAD", "If-None-Match", tag},
				{"GET", "If-Match", `"other"`},
				{"GET", "Range", "bytes=0-3", "If-Range", tag},
				{"GET", "Range", "bytes=99999999-"},
				{"GET", "Want-Content-Digest", "sha-256=1"},
				{"GET", "Accept", "application/vnd.leafproof.slice"},
			}
			for _, ask := range asks { // what he has from before
				if a := w.do(carol, ask[0], at, nil, ask[1:]...); a.status >= 400 && a.status != 412 && a.status != 416 {
					t.Fatalf("%v: %d %s", ask, a.status, a.body)
				}
			}
			if err := end.do(w, grants, id); err != nil {
				t.Fatal(err)
			}
			for _, ask := range asks {
				if ask[len(ask)-1] == "application/vnd.leafproof.slice" && name == "revoked" {
					continue // he may have proofs yet
				}
				a := w.do(carol, ask[0], at, nil, ask[1:]...)
				if a.status != end.status {
					t.Errorf("%v: status %d, want %d", ask, a.status, end.status)
				}
				for _, h := range []string{"ETag", "Repr-Digest", "Content-Digest", "Content-Range", "Accept-Ranges", "Content-Disposition", "Link"} {
					if got := a.header.Get(h); got != "" {
						t.Errorf("%v: %s is %q", ask, h, got)
					}
				}
				if bytes.Contains(a.body, []byte("b3-")) || strings.Contains(string(a.body), merkle.Sum(data).String()) {
					t.Errorf("%v: %s", ask, a.body)
				}
			}
		})
	}
}

// A tag that somebody else knows opens nothing: the answer is that for an id that never
// was, to the byte.
func TestForeignTag(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	data := lines(20)
	at := "/v1/artifacts/" + w.put(w.alice, data, "").ArtifactID + "/content"
	tag := `"b3-` + merkle.Sum(data).String() + `"`
	for _, headers := range [][]string{{"If-None-Match", tag}, {"If-Match", tag}, {"Range", "bytes=0-3", "If-Range", tag}, {"If-None-Match", "*"}} {
		for _, method := range []string{"GET", "HEAD"} {
			got := w.do(w.bob, method, at, nil, headers...)
			never := w.do(w.bob, method, "/v1/artifacts/art_"+strings.Repeat("a", 32)+"/content", nil, headers...)
			clean := func(a *answer) http.Header {
				h := a.header.Clone()
				for _, name := range []string{"Date", "Leafproof-Request-Id", "Content-Length"} {
					h.Del(name)
				}
				return h
			}
			if got.status != 404 || got.status != never.status || len(clean(got)) != len(clean(never)) ||
				!bytes.Equal(without(got.body, strings.Split(at, "/")[3]), without(never.body, "art_"+strings.Repeat("a", 32))) {
				t.Errorf("%s %v: %d %v, and %d %v", method, headers, got.status, clean(got), never.status, clean(never))
			}
		}
	}
}

func without(b []byte, id string) []byte { return bytes.ReplaceAll(b, []byte(id), nil) }
