package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// proxied is a session with an MCP server that the proxy wraps.
type proxied struct {
	*mcp.ClientSession
	kill func()
}

// wrap runs the proxy in front of a server.
func wrap(t *testing.T, store, transcripts, dir string, server ...string) proxied {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t.Context(), store, self, append([]string{"mcp-proxy", "--transcripts", transcripts, "--"}, server...)...)
	cmd.Dir = dir
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return proxied{cs, func() { cmd.Process.Kill() }}
}

// model calls a tool, and returns the text that a model reads of the result and the
// first reference in it.
func (p proxied) model(t *testing.T, tool string, args map[string]any) (text, reference string) {
	t.Helper()
	res, err := p.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	text = res.Content[0].(*mcp.TextContent).Text
	var view struct {
		Content []struct {
			Preview any
			Value   struct{ Value json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(text), &view); err != nil || res.IsError || len(view.Content) == 0 {
		t.Fatalf("%s: %v: %.500s", tool, err, text)
	}
	return text, string(view.Content[0].Value.Value)
}

// TestMCPProxy puts the proxy in front of servers that nobody here wrote.
func TestMCPProxy(t *testing.T) {
	dir, node := clientsDir(t)
	store, transcripts := newStoreDir(t), t.TempDir()

	everything := filepath.Join("node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	p := wrap(t, store, transcripts, dir, node, everything, "stdio")
	long := strings.Repeat("0123456789", 1_000_000)
	small, _ := p.model(t, "echo", map[string]any{"message": "0123456789"})
	large, ref := p.model(t, "echo", map[string]any{"message": long})
	if len(large) > 7000 || shapeOf(t, small) != shapeOf(t, large) {
		t.Errorf("10 bytes are %s, 10 MB %.7000s", small, large)
	}
	// What comes back is "Echo: " before what was referred to, which was that before long.
	again, _ := p.model(t, "echo", map[string]any{"message": json.RawMessage(ref)})
	if !strings.Contains(again, `Echo: Echo: 0123456789`) || !strings.Contains(again, fmt.Sprintf(`"size":%d`, len(long)+12)) {
		t.Errorf("the next tool returned %.300s", again)
	}
	noise := make([]byte, 7_000_000)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for tool, args := range map[string]map[string]any{
		"get-tiny-image":         {},
		"get-resource-reference": {"resourceType": "Blob", "resourceId": 2},
		"gzip-file-as-resource":  {"name": "x.gz", "outputType": "resource", "data": "data:application/octet-stream;base64," + base64.StdEncoding.EncodeToString(noise)},
	} {
		text, _ := p.model(t, tool, args)
		if len(text) > 2500 || !strings.Contains(text, `"opaque":true`) || strings.Contains(text, "iVBORw0KGgo") || strings.Contains(text, "H4sI") {
			t.Errorf("%s leaves %d bytes: %.2500s", tool, len(text), text)
		}
	}

	// Killed, and begun again: what was shown is known.
	p.kill()
	p.Wait()
	p = wrap(t, store, transcripts, dir, node, everything, "stdio")
	after, _ := p.model(t, "echo", map[string]any{"message": json.RawMessage(ref)})
	if !strings.Contains(after, fmt.Sprintf(`"size":%d`, len(long)+12)) {
		t.Errorf("after a kill the tool returned %.300s", after)
	}

	p = wrap(t, store, transcripts, dir, node, "images.mjs")
	small, _ = p.model(t, "make_image", map[string]any{"bytes": 10})
	large, ref = p.model(t, "make_image", map[string]any{"bytes": 10_000_000})
	if len(large) >= 1000 || shapeOf(t, small) != shapeOf(t, large) || strings.Contains(large, "MDEyMzQ1") {
		t.Errorf("an image of 10 bytes is %s, one of 10 MB %.1000s", small, large)
	}
	pattern := []byte("0123456789abcde\x00\xc3\xbf")
	want := sha256.Sum256(bytes.Repeat(pattern, 10_000_000/len(pattern)+1)[:10_000_000])
	if got, _ := p.model(t, "digest", map[string]any{"data": json.RawMessage(ref)}); !strings.Contains(got, hex.EncodeToString(want[:])) {
		t.Errorf("the next tool got other bytes: %s", got)
	}
}

// shapeOf is JSON with its strings and numbers taken out.
func shapeOf(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(blank(v))
	return string(b)
}

func blank(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = blank(v[k])
		}
	case []any:
		for i := range v {
			v[i] = blank(v[i])
		}
	default:
		return fmt.Sprintf("%T", v)
	}
	return v
}
