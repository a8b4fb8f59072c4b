package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// served is a leafproof serve in a process of its own.
type served struct {
	t      *testing.T
	cmd    *exec.Cmd
	at     started
	client *http.Client
	token  string
}

// serve starts one on a socket, as the store's owner asks it.
func serve(t *testing.T, store string, args ...string) *served {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	token := filepath.Join(dir, "token")
	cmd := leafproofCommand(store, append([]string{"serve", "--json", "--quiet", "--socket", socket, "--owner-token", token}, args...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &served{t: t, cmd: cmd}
	if err := json.NewDecoder(out).Decode(&s.at); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	s.token = string(bytes.TrimSpace(text))
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	return s
}

func (s *served) ask(method, path string, body io.Reader, headers ...string) (*http.Response, []byte, error) {
	r, err := http.NewRequest(method, "http://localhost"+path, body)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, b, err
}

// bigEnv makes TestServeKilled upload so many MiB.
const bigEnv = "LEAFPROOF_UPLOAD_MIB"

// TestServeKilled kills the server with SIGKILL at half of an upload. What was synced
// is not sent again, and the artifact is the one that a put would have made.
func TestServeKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 160 MiB")
	}
	size := int64(160 << 20)
	if v := os.Getenv(bigEnv); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		size = n << 20
	}
	store := filepath.Join(t.TempDir(), "store")
	if out, err := leafproofCommand(store, "init").CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	s := serve(t, store)
	resp, b, err := s.ask("POST", "/v1/uploads", nil, "Upload-Length", fmt.Sprint(size))
	if err != nil || resp.StatusCode != 201 {
		t.Fatal(err, string(b))
	}
	at := resp.Header.Get("Location")
	pattern := newPattern(size)
	// It is killed when half has been read from us.
	half := &killing{r: pattern.from(0), left: size / 2, kill: func() { s.cmd.Process.Signal(syscall.SIGKILL) }}
	if resp, b, err := s.ask("PATCH", at, half, "Upload-Offset", "0", "Upload-Complete", "?1"); err == nil {
		t.Fatalf("the killed server answered %d %s", resp.StatusCode, b)
	}
	s.cmd.Wait()

	s2 := serve(t, store)
	resp, _, err = s2.ask("HEAD", at, nil)
	if err != nil || resp.StatusCode != 204 {
		t.Fatal(err, resp)
	}
	offset, err := strconv.ParseInt(resp.Header.Get("Upload-Offset"), 10, 64)
	if err != nil || offset < size/2-(128<<20) || offset < 1 || offset > size/2+(1<<20) {
		t.Fatalf("it goes on at %d of %d", offset, size)
	}
	resp, b, err = s2.ask("PATCH", at, pattern.from(offset), "Upload-Offset", fmt.Sprint(offset), "Upload-Complete", "?1")
	var ref manifest.ArtifactRef
	if err != nil || resp.StatusCode != 201 || json.Unmarshal(b, &ref) != nil {
		t.Fatal(err, resp, string(b))
	}
	builder := merkle.NewBuilder(discardAt{})
	if _, err := io.Copy(builder, pattern.from(0)); err != nil {
		t.Fatal(err)
	}
	if want := "blake3:" + builder.Root().String(); ref.ContentHash != want {
		t.Errorf("the hash is %s, not %s", ref.ContentHash, want)
	}
	t.Logf("%d MiB: killed at %d, went on at %d MiB", size>>20, size>>21, offset>>20)
}

// pattern is bytes of any number that do not repeat soon.
type pattern struct {
	block []byte
	size  int64
}

func newPattern(size int64) *pattern {
	p := &pattern{make([]byte, 1<<20), size}
	rand.Read(p.block)
	return p
}

func (p *pattern) from(off int64) io.Reader {
	return io.NewSectionReader(p, off, p.size-off)
}

// ReadAt implements [io.ReaderAt]: the block again and again, each time begun with its
// number.
func (p *pattern) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) && off < p.size {
		in := off % int64(len(p.block))
		var piece []byte
		if in < 8 {
			number := fmt.Sprintf("%08d", off/int64(len(p.block)))
			piece = []byte(number[in:])
		} else {
			piece = p.block[in:]
		}
		m := copy(b[n:min(int64(len(b)), int64(n)+p.size-off)], piece)
		n, off = n+m, off+int64(m)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

type discardAt struct{}

func (discardAt) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// killing kills a process when so much was read.
type killing struct {
	r    io.Reader
	left int64
	kill func()
}

func (k *killing) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if k.left -= int64(n); k.left <= 0 && k.kill != nil {
		k.kill()
		k.kill = nil
	}
	return n, err
}

// TestServeTerminated ends a server with SIGTERM while clients put: what was
// acknowledged is stored, and nothing else is.
func TestServeTerminated(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if out, err := leafproofCommand(store, "init").CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	s := serve(t, store)
	var mu sync.Mutex
	acknowledged := map[string]string{} // id → hash
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				data := fmt.Appendf(nil, "client %d, put %d\n", i, n)
				resp, b, err := s.ask("PUT", "/v1/artifacts", bytes.NewReader(data))
				if err != nil { // it has ended
					return
				}
				var ref manifest.ArtifactRef
				if resp.StatusCode != 201 || json.Unmarshal(b, &ref) != nil {
					t.Errorf("%d %s", resp.StatusCode, b)
					return
				}
				mu.Lock()
				acknowledged[ref.ArtifactID] = "blake3:" + merkle.Sum(data).String()
				mu.Unlock()
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	wg.Wait()
	st, err := leafproof.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	list, next, err := st.List(t.Context(), leafproof.Owner, "", 0, 10_000)
	if err != nil || next != 0 {
		t.Fatal(err, next)
	}
	for _, e := range list {
		if _, ok := acknowledged[e.ArtifactID]; !ok {
			t.Errorf("%s is there, and was not acknowledged", e.ArtifactID)
		}
	}
	if len(list) != len(acknowledged) || len(list) == 0 {
		t.Errorf("%d are there, %d were acknowledged", len(list), len(acknowledged))
	}
	for id, hash := range acknowledged {
		var b bytes.Buffer
		if _, err := st.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &b); err != nil || "blake3:"+merkle.Sum(b.Bytes()).String() != hash {
			t.Fatalf("%s: %v", id, err)
		}
	}
}

// The tour in examples/curl runs, and shows what it says.
func TestCurlTour(t *testing.T) {
	for _, name := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "leafproof"))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", filepath.Join("..", "..", "examples", "curl", "tour.sh"))
	cmd.Env = append(os.Environ(), runAsLeafproof+"=1", "TMPDIR="+dir, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{
		"\n{\"id\":1,\"status\":\"open\"}\n304\n", "\n[1,3]\nExactly 2 records matched in the captured coverage (queue support)", `"code":"ref_not_found"`,
	} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("it does not print %q", want)
		}
	}
	lines := bytes.Split(out, []byte("\n"))
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte("# A large file")) && !bytes.Equal(lines[i+1], lines[i+2]) {
			t.Errorf("the upload is %s, and the file %s", lines[i+1], lines[i+2])
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "leafproof-*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
