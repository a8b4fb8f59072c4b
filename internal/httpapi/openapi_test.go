package httpapi_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/internal/httpapi"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// The description in docs/ is the one that a server gives.
func TestDescriptionFile(t *testing.T) {
	name := filepath.Join("..", "..", "docs", "openapi.json")
	want := httpapi.Description()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != string(want) {
		t.Errorf("docs/openapi.json is not what a server answers (%v): go test ./internal/httpapi -run TestDescriptionFile -update", err)
	}
}

// Every route is described, and nothing else is.
func TestDescriptionOfRoutes(t *testing.T) {
	w := newWorld(t, httpapi.Options{})
	a := w.do("", "GET", "/openapi.json", nil).want(200)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Security    *[]any
			Responses   map[string]any
		}
	}
	a.json(&doc)
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi is %q", doc.OpenAPI)
	}
	ids := map[string]bool{}
	n := 0
	for _, rt := range w.h.Routes() {
		n++
		op, ok := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if !ok {
			t.Errorf("%s %s is not described", rt.Method, rt.Path)
			continue
		}
		if op.OperationID != rt.Op || ids[rt.Op] || op.Summary == "" || len(op.Responses) < 2 {
			t.Errorf("%s %s: %+v", rt.Method, rt.Path, op)
		}
		ids[rt.Op] = true
		if (op.Security != nil) != (rt.Open && rt.Path != "/metrics") {
			t.Errorf("%s %s: needs nobody to be known: %v", rt.Method, rt.Path, op.Security)
		}
	}
	described := 0
	for _, item := range doc.Paths {
		described += len(item)
	}
	if described != n {
		t.Errorf("%d operations are described, and there are %d", described, n)
	}
}

// No schema is a bare object, or nothing at all without saying why.
func TestDescriptionHasRealSchemas(t *testing.T) {
	var doc any
	if err := json.Unmarshal(httpapi.Description(), &doc); err != nil {
		t.Fatal(err)
	}
	schemas := 0
	var look func(at string, v any)
	look = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				look(at, e)
			}
		case map[string]any:
			if v["type"] == "object" {
				schemas++
				_, a := v["properties"].(map[string]any)
				_, b := v["additionalProperties"].(map[string]any)
				if !a && !b {
					t.Errorf("%s is a bare object", at)
				}
			}
			if v["type"] == "array" && v["items"] == nil {
				t.Errorf("%s is an array of anything", at)
			}
			for k, e := range v {
				if k == "schema" {
					if m, ok := e.(map[string]any); ok && len(m) == 0 {
						t.Errorf("%s has an empty schema", at)
					}
				}
				look(at+"/"+k, e)
			}
		}
	}
	look("", doc)
	if schemas < 40 {
		t.Errorf("only %d objects are described", schemas)
	}
}
