package httpapi_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"leafproof/internal/httpapi"
)

// TestMain demands of a run of all tests that each route was answered at least once
// with what it is described to answer.
func TestMain(m *testing.M) {
	code := m.Run()
	whole := true
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list", "test.bench"} {
		whole = whole && flag.Lookup(name).Value.String() == ""
	}
	if whole && code == 0 {
		if missing := held.unseen(); len(missing) > 0 {
			fmt.Println("no test got an answer of:", strings.Join(missing, ", "))
			code = 1
		}
	}
	os.Exit(code)
}

// unseen are the routes that no answer was held against.
func (d *described) unseen() (out []string) {
	d.once.Do(d.load)
	for _, rt := range (&httpapi.Server{}).Table() {
		seen := false
		for key := range d.seen {
			seen = seen || strings.HasPrefix(key, rt.Method+" "+rt.Path+" ")
		}
		if !seen {
			out = append(out, rt.Method+" "+rt.Path)
		}
	}
	return out
}
