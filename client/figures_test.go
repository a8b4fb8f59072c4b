package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"leafproof"
	"leafproof/client"
	"leafproof/internal/httpapi"
)

// figuresEnv makes TestFigures measure, with a file of so many MiB.
const figuresEnv = "LEAFPROOF_CLIENT_FIGURES"

// TestFigures prints what it costs a client to trust nothing, beside who takes the bytes
// as they come: turn by turn, in one process, medians.
func TestFigures(t *testing.T) {
	mib, err := strconv.ParseInt(os.Getenv(figuresEnv), 10, 64)
	if err != nil {
		t.Skip("set " + figuresEnv + " to a number of MiB")
	}
	w := newWorld(t, httpapi.Options{})
	name := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.Reader, mib<<20); err != nil {
		t.Fatal(err)
	}
	plain := http.NewServeMux()
	plain.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) })
	small := bytes.Repeat([]byte("x"), 4096)
	plain.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(small) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = (&http.Server{Handler: plain}).Serve(l) }()
	c := w.client(w.alice)
	ctx := context.Background()
	send := func() *client.Artifact {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		a, err := c.Put(ctx, io.NewSectionReader(f, 0, mib<<20), client.PutOptions{Records: "none"})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := send()
	bob := w.client(w.bob)
	took := turns(5, map[string]func(){
		"ServeFile":             func() { drain(t, "http://"+l.Addr().String()+"/file", "", mib<<20) },
		"content, not verified": func() { drain(t, w.server.URL+"/v1/artifacts/"+a.ID()+"/content", w.alice, mib<<20) },
		"client": func() {
			if _, err := a.Copy(ctx, io.Discard, 0, a.Size()); err != nil {
				t.Fatal(err)
			}
		},
		"client without proofs": func() {
			if _, err := bob.Get(ctx, a.ID(), io.Discard); err != nil {
				t.Fatal(err)
			}
		},
	})
	report := func(what string, from string, took map[string]time.Duration) {
		for k, d := range took {
			t.Logf("%s: %-22s %v, %.2f times the time of %s", what, k, d.Round(10*time.Microsecond), d.Seconds()/took[from].Seconds(), from)
		}
	}
	report(fmt.Sprintf("GET %d MiB", mib), "ServeFile", took)
	p, n := make([]byte, 4096), int64(0)
	report("4 KiB", "a bare handler", turns(1000, map[string]func(){
		"a bare handler": func() { drain(t, "http://"+l.Addr().String()+"/small", "", 4096) },
		"a range, not verified": func() {
			drain(t, w.server.URL+"/v1/artifacts/"+a.ID()+"/content", w.alice, 4096, "Range", fmt.Sprintf("bytes=%d-%d", n%1000*4096, n%1000*4096+4095))
		},
		"client": func() {
			n += 7919
			if _, err := a.ReadAt(p, n%1000*4096); err != nil {
				t.Fatal(err)
			}
		},
	}))
	report(fmt.Sprintf("PUT %d MiB", mib), "Store.Put", turns(5, map[string]func(){
		"Store.Put": func() {
			d, err := w.s.Put(ctx, io.NewSectionReader(f, 0, mib<<20), leafproof.PutOptions{Tenant: "acme", Records: "none"})
			if err == nil {
				_, err = w.s.Publish(ctx, d, leafproof.Facts{Caller: leafproof.Owner})
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"client": func() { send() },
		"a body, on trust": func() {
			r, err := http.NewRequest(http.MethodPut, w.server.URL+"/v1/artifacts?records=none", io.NewSectionReader(f, 0, mib<<20))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = mib << 20
			r.Header.Set("Authorization", "Bearer "+w.alice)
			resp, err := http.DefaultClient.Do(r)
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Fatal(resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		},
		"client, an upload": func() {
			if _, err := c.Upload(ctx, io.NewSectionReader(f, 0, mib<<20), client.UploadOptions{PutOptions: client.PutOptions{Records: "none"}}); err != nil {
				t.Fatal(err)
			}
		},
	}))
}

// drain reads an answer of so many bytes.
func drain(t *testing.T, url, token string, n int64, headers ...string) {
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if m, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10)); m != n || err != nil {
		t.Fatal(m, err)
	}
}

// turns measures things turn by turn and returns the median of each.
func turns(n int, things map[string]func()) map[string]time.Duration {
	took := map[string][]time.Duration{}
	for range n {
		for k, do := range things { // in another order each time
			begin := time.Now()
			do()
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
