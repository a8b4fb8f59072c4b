package leafproof_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The import graph. It is what keeps "merkle proves, manifest vouches,
// Authority allows" three things: a package that cannot reach another one
// cannot lean on it. Tests may import more than their package does.

// module is the module's path; nothing else in the tree may assume it.
const module = "leafproof"

// row is what the files of one package, other than tests, may import.
type row struct {
	ours   []string // packages of this module, from its root; "." is the root
	others []string // packages of other modules, with those below them
	// pure packages work on what they are given: no files, no network, no
	// database, in what they import and in all that this imports in turn.
	pure bool
	// offline packages may use files, and reach no network or database.
	offline bool
	why     string // why the package may import no more
}

var graph = map[string]row{
	"merkle": {
		others: []string{"github.com/klauspost/cpuid/v2", "github.com/zeebo/blake3", "lukechampine.com/blake3/guts"},
		pure:   true,
		why:    "merkle proves which bytes a root covers, to a verifier that has nothing else",
	},
	"manifest": {
		ours:   []string{"merkle"},
		others: []string{"filippo.io/edwards25519", "github.com/go-json-experiment/json"},
		pure:   true,
		why:    "manifest vouches for facts, and knows neither selectors nor a store; keys reach it as crypto.Signer",
	},
	"manifest/tlog": {
		ours:   []string{"merkle", "manifest"},
		others: []string{"golang.org/x/mod/sumdb/tlog"},
		pure:   true,
		why:    "tlog proves that a statement was committed, to a verifier that has neither the log nor its store",
	},
	"manifest/bundle": {
		ours: []string{"merkle", "manifest", "manifest/tlog", "selector"},
		pure: true,
		why:  "bundle is the one place where manifest and selector meet, and what an offline verifier links",
	},
	"selector": {
		ours:   []string{"merkle"},
		others: []string{"github.com/go-json-experiment/json", "github.com/zeebo/blake3"},
		pure:   true,
		why:    "selector cuts the bytes that an io.ReaderAt gives it, and does not know who vouches for them",
	},
	"ref": {
		ours:   []string{"merkle", "selector", "internal/flock", "internal/jsonschema"},
		others: []string{"github.com/go-json-experiment/json"},
		why:    "ref turns references into values through an interface: who stores, proves and allows them is behind it",
	},
	"cas": {
		ours:   []string{"merkle"},
		others: []string{"github.com/hashicorp/golang-lru/v2", "github.com/klauspost/compress/zstd", "github.com/zeebo/blake3"},
		why:    "cas stores blobs; what they mean, who signed them and who may read them is above it",
	},
	"cas/castest": {ours: []string{"merkle", "cas"}, why: "castest is the contract of a Backend, and knows no single one"},
	"cas/disk": {
		ours:   []string{"cas", "internal/flock", "internal/rootfs"},
		others: []string{"github.com/spf13/afero"},
		why:    "a Backend keeps named objects, and unfinished ones for one process at a time; it does not interpret them",
	},
	"cas/memory":     {ours: []string{"cas"}, why: "a Backend keeps named objects; it does not interpret them"},
	"internal/flock": {others: []string{"golang.org/x/sys"}, why: "a lock is a lock on any file"},
	"internal/rootfs": {
		others: []string{"github.com/spf13/afero"},
		why:    "rootfs keeps file names inside a folder; what the files are is above it",
	},
	"internal/crashfs": {
		others: []string{"github.com/spf13/afero"},
		why:    "crashfs loses what was not flushed, whoever wrote it; only tests import it",
	},
	"internal/keys": {
		ours:   []string{"manifest"},
		others: []string{"golang.org/x/crypto/ssh"},
		why:    "keys hands out signers; it does not know what they sign",
	},
	"internal/catalogue": {
		ours:   []string{"merkle"},
		others: []string{"golang.org/x/mod/sumdb/tlog", "modernc.org/sqlite"},
		why:    "the catalogue only leads to manifests and bytes; it never reads them",
	},
	"internal/gate": {ours: []string{"merkle"}, why: "the gate decides before any byte is read, whatever stores it"},
	"internal/cidtext": {
		ours:   []string{"merkle"},
		others: []string{"github.com/ipfs/go-cid", "github.com/multiformats/go-multihash"},
		why:    "a CID is a spelling of a root, made at the edges",
	},
	"internal/jsonschema": {
		others: []string{"github.com/go-json-experiment/json", "github.com/santhosh-tekuri/jsonschema/v6"},
		why:    "a schema judges values, and knows neither where they are stored nor who says what of them",
	},
	"internal/httpapi": {
		ours:   []string{".", "cas", "internal/flock", "manifest", "merkle", "ref", "ref/harness", "selector"},
		others: []string{"github.com/go-json-experiment/json", "github.com/prometheus/client_golang/prometheus"},
		why:    "a face goes through the door: around it there is no gate",
	},
	"internal/mcpserver": {
		ours:   []string{".", "manifest", "manifest/bundle", "merkle", "ref", "selector"},
		others: []string{"github.com/go-json-experiment/json", "github.com/hashicorp/golang-lru/v2", "github.com/modelcontextprotocol/go-sdk"},
		why:    "a face goes through the door: around it there is no gate",
	},
	"internal/mcpproxy": {
		ours:   []string{".", "internal/jsonschema", "ref", "ref/harness", "selector"},
		others: []string{"github.com/go-json-experiment/json"},
		why:    "a proxy is a harness for two others: what it stores goes through the door",
	},
	"internal/outfile": {why: "an answer goes into a file like any other; it is no stored object"},
	"internal/verifycmd": {
		ours:    []string{"merkle", "selector", "manifest", "manifest/bundle", "manifest/tlog", "internal/flock", "internal/outfile"},
		offline: true,
		why:     "verifying needs no store, no network and no database; both programs share this body",
	},
	".": {
		ours: []string{
			"merkle", "manifest", "manifest/bundle", "manifest/tlog", "selector", "ref", "cas", "cas/disk",
			"internal/catalogue", "internal/flock", "internal/gate", "internal/jsonschema", "internal/keys", "internal/rootfs",
		},
		others: []string{"github.com/hashicorp/golang-lru/v2", "github.com/spf13/afero"},
		why:    "the root package is the one door; how it is shown to a user is above it",
	},
	"ref/harness": {
		ours:   []string{".", "internal/flock", "manifest", "merkle", "ref", "selector"},
		others: []string{"github.com/go-json-experiment/json"},
		why:    "a harness goes through the door, as whoever its run acts for: around it there is no gate",
	},
	"client": {
		ours: []string{"merkle", "manifest", "manifest/bundle", "selector"},
		why:  "a client that trusts no store links none: it has what verifies, and a connection",
	},
	"examples/go/report": {ours: []string{"client"}, why: "an example shows what a user's own module can do"},
	"internal/refdemo":   {ours: []string{".", "ref/harness"}, why: "a story is told with what a user can call"},
	"bench":              {ours: []string{".", "manifest", "manifest/bundle", "merkle"}, why: "bench measures what a user can call"},
	"fuzz":               {why: "fuzz knocks, from its tests, at the doors that a stranger has"},
	"cmd/leafproof": {
		ours: []string{
			".", "merkle", "manifest", "manifest/bundle", "manifest/tlog", "selector", "ref", "ref/harness", "bench",
			"internal/cidtext", "internal/httpapi", "internal/mcpproxy", "internal/mcpserver", "internal/outfile", "internal/refdemo", "internal/verifycmd",
		},
		others: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/mattn/go-isatty"},
		why:    "a command goes through the door: around it there is no gate",
	},
	"cmd/leafproof-verify": {
		ours:    []string{"internal/verifycmd"},
		offline: true,
		why:     "the verifier alone must stay small enough to be read by who relies on it",
	},
}

// unreachable is what no pure or offline package may reach, and why.
var unreachable = map[string]string{
	"net":                "a verification that can use the network can be told what to find",
	"net/http":           "a verification that can use the network can be told what to find",
	"crypto/tls":         "trust comes from the policy in hand, not from a connection",
	"database/sql":       "a verifier has the bundle and a policy, nothing else",
	"modernc.org/sqlite": "a verifier has the bundle and a policy, nothing else",
}

// noFiles is what no pure package may import itself, and why.
var noFiles = map[string]string{
	"os":            "bytes reach it as io.Reader and io.ReaderAt, so that it also runs in a browser",
	"io/fs":         "bytes reach it as io.Reader and io.ReaderAt, so that it also runs in a browser",
	"path/filepath": "it names no files",
}

// onlyIn holds an import to one file of a package: what is behind it can then
// be exchanged in one place.
var onlyIn = map[string]string{
	"lukechampine.com/blake3/guts": "merkle/guts.go",
}

// source is one .go file.
type source struct {
	path string // from the root of the tree, with slashes
	file *ast.File
	test bool
}

func (s source) imports() []string {
	var list []string
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has unquoted it already
		}
		list = append(list, name)
	}
	return list
}

// sources reads every .go file of the module. The tests of the tree must read
// the files themselves: go test keeps the result of a test until a file that
// the test opened changes, and does not see what a child process opened.
func sources(t *testing.T) map[string][]source {
	t.Helper()
	packages := map[string][]source{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			return skipDir(name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		packages[dir] = append(packages[dir], source{name, file, strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 5 {
		t.Fatalf("found only %d packages: is this the root of the tree?", len(packages))
	}
	return packages
}

// skipDir leaves out what go leaves out, and other modules.
func skipDir(name string) error {
	base := path.Base(name)
	if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
		return fs.SkipDir
	}
	if _, err := os.Stat(path.Join(name, "go.mod")); err == nil && name != "." {
		return fs.SkipDir
	}
	return nil
}

// own returns the folder of a package of this module.
func own(imported string) (dir string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// isStandard reports a package of the standard library: its first element has
// no dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// within reports whether a list has a package or one that it is below.
func within(list []string, imported string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		return imported == p || strings.HasPrefix(imported, p+"/")
	})
}

// TestImportGraph holds every import to the table, and the table to the imports:
// an arrow that nobody uses is a leave that nobody remembers.
func TestImportGraph(t *testing.T) {
	packages := sources(t)
	for dir, r := range graph {
		used := map[string]bool{}
		for _, src := range packages[dir] {
			for _, imported := range src.imports() {
				if own, ok := own(imported); ok {
					imported = own
				}
				used[imported] = used[imported] || !src.test
			}
		}
		for _, arrow := range r.ours {
			if packages[dir] != nil && !used[arrow] {
				t.Errorf("%s may import %s and does not: take the arrow out of the table", dir, arrow)
			}
		}
	}
	for dir, files := range packages {
		r, ok := graph[dir]
		if !ok {
			t.Errorf("package %s is not in the import graph: give it a row", dir)
			continue
		}
		for _, src := range files {
			if src.test {
				continue
			}
			for _, imported := range src.imports() {
				if reason := banned(r, imported); reason != "" {
					t.Errorf("%s imports %s: %s", src.path, imported, reason)
				}
				if file, ok := onlyIn[imported]; ok && src.path != file {
					t.Errorf("%s imports %s: only %s may, so that it can be exchanged in one place", src.path, imported, file)
				}
			}
		}
	}
}

// banned says why a package with this row may not import another one; it
// returns "" when it may.
func banned(r row, imported string) string {
	if dir, ok := own(imported); ok {
		if slices.Contains(r.ours, dir) {
			return ""
		}
		return r.why
	}
	if (r.pure || r.offline) && unreachable[imported] != "" {
		return unreachable[imported]
	}
	if r.pure && noFiles[imported] != "" {
		return noFiles[imported]
	}
	if isStandard(imported) || within(r.others, imported) {
		return ""
	}
	return r.why + " (no row allows this module here)"
}

// TestOfflineClosure follows the imports to their end: a package that is two
// arrows away from the network is on it.
func TestOfflineClosure(t *testing.T) {
	packages := sources(t)
	for _, name := range []string{"go.mod", "go.sum"} { // read, so that a change of a version counts
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	var roots []string
	for _, dir := range slices.Sorted(maps.Keys(graph)) {
		if r := graph[dir]; (r.pure || r.offline) && packages[dir] != nil {
			roots = append(roots, dir)
		}
	}
	if len(roots) == 0 {
		t.Fatal("there is no offline package")
	}
	t.Run("own arrows", func(t *testing.T) {
		for _, root := range roots {
			follow(t, packages, []string{root})
		}
	})
	t.Run("all arrows", func(t *testing.T) {
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("there is no go command")
		}
		for _, root := range roots {
			for _, dep := range deps(t, root) {
				if why := unreachable[dep]; why != "" {
					t.Errorf("%s reaches %s: %s", root, dep, why)
				}
			}
		}
	})
}

// follow walks the arrows inside the module, over files of every system, and
// reports a banned package with the way to it.
func follow(t *testing.T, packages map[string][]source, way []string) {
	t.Helper()
	for _, src := range packages[way[len(way)-1]] {
		if src.test {
			continue
		}
		for _, imported := range src.imports() {
			if why := unreachable[imported]; why != "" {
				t.Errorf("%s imports %s: %s", strings.Join(way, " imports "), imported, why)
			}
			if dir, ok := own(imported); ok && !slices.Contains(way, dir) {
				follow(t, packages, append(slices.Clone(way), dir))
			}
		}
	}
}

// deps asks the go command for all that a package links.
func deps(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v\n%s", dir, err, stderr.String())
	}
	list := strings.Fields(string(out))
	if !slices.Contains(list, module+"/"+dir) {
		t.Fatalf("go list -deps ./%s does not list the package itself: %.200s", dir, fmt.Sprint(list))
	}
	return list
}
