package httpapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/manifest"
)

// figuresEnv makes TestFigures measure, with a file of so many MiB.
const figuresEnv = "LEAFPROOF_HTTP_FIGURES"

// TestFigures prints how fast the server is beside what a plain one does with the same
// bytes: turn by turn, in one process, medians.
func TestFigures(t *testing.T) {
	mib, err := strconv.ParseInt(os.Getenv(figuresEnv), 10, 64)
	if err != nil {
		t.Skip("set " + figuresEnv + " to a number of MiB")
	}
	w := newWorld(t, httpapi.Options{Log: slog.New(slog.DiscardHandler)})
	name := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.Reader, mib<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	small := bytes.Repeat([]byte("x"), 4096)
	plain := http.NewServeMux()
	plain.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) })
	plain.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4096")
		w.Write(small)
	})
	servers := map[string]*running{}
	for _, kind := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if kind == "unix" {
			addr = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(kind, addr)
		if err != nil {
			t.Fatal(err)
		}
		servers[kind] = w.listen(l, nil, time.Second, dialing(kind, l.Addr().String()), "http://localhost")
		if kind == "unix" {
			addr += "p"
		}
		p, err := net.Listen(kind, addr)
		if err != nil {
			t.Fatal(err)
		}
		go http.Serve(p, plain)
		defer p.Close()
		servers["plain "+kind] = &running{client: dialing(kind, p.Addr().String()), url: "http://localhost"}
	}
	id := figurePut(t, w, servers["tcp"], name)
	figureGet(t, w, servers, id, mib)
	figureSmall(t, w, servers, id)
	figurePuts(t, w, servers, name, mib)
}

func dialing(network, addr string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}}
}

func figurePut(t *testing.T, w *world, r *running, name string) string {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	req, _ := http.NewRequest("PUT", r.url+"/v1/artifacts?records=none", f)
	req.ContentLength = info.Size()
	req.Header.Set("Authorization", "Bearer "+w.owner)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	var ref manifest.ArtifactRef
	(&answer{t: t, status: resp.StatusCode, body: b}).want(201).json(&ref)
	return ref.ArtifactID
}

// turns measures things turn by turn and returns the median of each.
func turns(n int, things map[string]func()) map[string]time.Duration {
	names := []string{}
	for k := range things {
		names = append(names, k)
	}
	slices.Sort(names)
	took := map[string][]time.Duration{}
	for i := range n {
		for j := range names {
			k := names[(i+j)%len(names)]
			begin := time.Now()
			things[k]()
			took[k] = append(took[k], time.Since(begin))
		}
	}
	out := map[string]time.Duration{}
	for k, list := range took {
		slices.Sort(list)
		out[k] = list[len(list)/2]
	}
	return out
}

func getter(t *testing.T, w *world, r *running, path string, headers ...string) func() {
	get := reader(t, w, r, path)
	return func() { get(headers...) }
}

// reader returns what gets a path and drops the bytes, in the same room each time.
func reader(t *testing.T, w *world, r *running, path string) func(headers ...string) {
	buf := make([]byte, 256<<10)
	return func(headers ...string) {
		req, _ := http.NewRequest("GET", r.url+path, nil)
		req.Header.Set("Authorization", "Bearer "+w.owner)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		n := int64(0)
		for {
			m, err := resp.Body.Read(buf)
			n += int64(m)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n != resp.ContentLength || resp.StatusCode > 206 {
			t.Fatal(resp.Status, n)
		}
	}
}

func figureGet(t *testing.T, w *world, s map[string]*running, id string, mib int64) {
	got := turns(7, map[string]func(){
		"ServeFile tcp": getter(t, w, s["plain tcp"], "/file"), "ServeFile unix": getter(t, w, s["plain unix"], "/file"),
		"content tcp": getter(t, w, s["tcp"], "/v1/artifacts/"+id+"/content"), "content unix": getter(t, w, s["unix"], "/v1/artifacts/"+id+"/content"),
	})
	for _, k := range []string{"tcp", "unix"} {
		t.Logf("GET %d MiB over %s: ServeFile %v, verified %v: %.2f of its speed (%.0f MB/s)", mib, k, got["ServeFile "+k], got["content "+k],
			got["ServeFile "+k].Seconds()/got["content "+k].Seconds(), float64(mib<<20)/1e6/got["content "+k].Seconds())
	}
}

func figureSmall(t *testing.T, w *world, s map[string]*running, id string) {
	token, err := w.s.AddPrincipal(t.Context(), leafproof.Owner, "reader", "local", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.allow("reader", leafproof.ActionRead, "local")
	as := *w
	as.owner = token
	n := 0
	ranged := func(r *running) func() {
		get := reader(t, &as, r, "/v1/artifacts/"+id+"/content")
		return func() {
			n++
			off := (n * 7919 % 1000) * 4096
			get("Range", fmt.Sprintf("bytes=%d-%d", off, off+4095))
		}
	}
	got := turns(3000, map[string]func(){
		"bare tcp": getter(t, w, s["plain tcp"], "/small"), "bare unix": getter(t, w, s["plain unix"], "/small"),
		"read tcp": ranged(s["tcp"]), "read unix": ranged(s["unix"]),
	})
	for _, k := range []string{"tcp", "unix"} {
		t.Logf("4 KiB over %s: a bare handler %v, a verified read %v: %.2f times as long", k, got["bare "+k], got["read "+k], got["read "+k].Seconds()/got["bare "+k].Seconds())
	}
}

func figurePuts(t *testing.T, w *world, s map[string]*running, name string, mib int64) {
	direct := func() {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		d, err := w.s.Put(t.Context(), f, leafproof.PutOptions{Records: "none"})
		if err == nil {
			_, err = w.s.Publish(t.Context(), d, leafproof.Facts{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := turns(5, map[string]func(){
		"direct": direct,
		"tcp":    func() { figurePut(t, w, s["tcp"], name) },
		"unix":   func() { figurePut(t, w, s["unix"], name) },
	})
	for _, k := range []string{"tcp", "unix"} {
		t.Logf("PUT %d MiB over %s: %v, as leafproof put does it %v: %.2f times as long", mib, k, got[k], got["direct"], got[k].Seconds()/got["direct"].Seconds())
	}
}
