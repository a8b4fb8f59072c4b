package harness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/flock"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// failing is a store that takes so many bytes, and then is full.
func failing(after int64) func(io.Reader) (ref.Marker, error) {
	return func(r io.Reader) (ref.Marker, error) {
		_, _ = io.CopyN(io.Discard, r, after)
		return ref.Marker{}, &leafproof.Error{Code: leafproof.CodeStoreFull, Message: "/objects/secret: no space left", Action: leafproof.Wait, Retryable: true}
	}
}

// unseekable is a reader that can be read once.
type unseekable struct{ io.Reader }

// Case 55: where the store fails, the model reads a code and nothing of the content; the
// result waits in the spool, and a retry records it as a new message.
func TestStoreFails(t *testing.T) {
	content := bytes.Repeat([]byte("confidential row\n"), 40_000)
	for name, reader := range map[string]func() io.Reader{
		"can be rewound":   func() io.Reader { return bytes.NewReader(content) },
		"can be read once": func() io.Reader { return unseekable{bytes.NewReader(content)} },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "spool")
			spool, err := harness.OpenSpool(dir, 8<<20)
			if err != nil {
				t.Fatal(err)
			}
			var c *counting
			sc := newScene(t, setup{
				opts:    harness.Options{Spool: spool},
				wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s}; return c },
				run:     harness.RunOptions{Run: "Run:7.x"},
			})
			first := harness.Blob{Reader: strings.NewReader("first"), MediaType: "text/plain"}
			result := map[string]any{"a": first, "b": harness.Blob{Reader: reader(), MediaType: "text/plain", Facts: facts(testTime, partial)}, "note": "confidential note"}
			n := 0
			full := failing(100_000)
			c.put = func(r io.Reader) (ref.Marker, error) {
				if n++; n == 1 { // the first blob is stored
					return c.Source.Put(t.Context(), ref.New{MediaType: "text/plain"}, r)
				}
				return full(r)
			}
			v := sc.record(result)
			f := failureOf(t, v)
			if !v.IsError || f.Code != "store_full" || f.Action != "wait" || !f.Retryable || f.Kept == nil || !*f.Kept {
				t.Fatalf("%s", v.Content)
			}
			if seen := sc.seen(); strings.Contains(seen, "confidential") || strings.Contains(seen, "secret") {
				t.Error("content, or a place, fell into the model's view")
			}
			failed, ok := errors.AsType[*harness.StoreError](v.Err)
			if !ok || failed.Key == "" {
				t.Fatalf("%v", v.Err)
			}
			files(t, dir, 2)
			keys, err := spool.Pending("Run:7.x")
			if err != nil || len(keys) != 1 || keys[0] != failed.Key {
				t.Errorf("pending %q, %v", keys, err)
			}
			// While the store is full, a retry changes nothing.
			again, err := sc.run.Retry(t.Context(), failed.Key)
			if err != nil || !again.IsError {
				t.Fatalf("%s, %v", again.Content, err)
			}
			files(t, dir, 2)
			// After a restart of the process too.
			spool.Close()
			if spool, err = harness.OpenSpool(dir, 8<<20); err != nil {
				t.Fatal(err)
			}
			defer spool.Close()
			other := newScene(t, setup{store: sc.store, opts: harness.Options{Spool: spool}, run: harness.RunOptions{Run: "Run:7.x"}})
			kept, err := other.run.Retry(t.Context(), failed.Key)
			if err != nil || kept.IsError {
				t.Fatalf("%s, %v, %v", kept.Content, kept.Err, err)
			}
			if member(t, kept, "note") != `"confidential note"` {
				t.Errorf("%s", kept.Content)
			}
			id := newest(t, other)
			var got bytes.Buffer
			if _, err := sc.store.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &got); err != nil || !bytes.Equal(got.Bytes(), content) {
				t.Errorf("%d bytes were kept of %d: %v", got.Len(), len(content), err)
			}
			st, err := sc.store.Resolve(t.Context(), leafproof.Owner, id)
			if err != nil || *st.Ref.SourceVersion.SourceID != "infra.events" || len(st.Ref.Completeness.Omissions) != 1 {
				t.Errorf("the facts were not kept: %+v, %v", st, err)
			}
			if page := other.good("read_text", `{"source":%s}`, refTo(kept, "a")); member(t, page, "text") != `"first"` {
				t.Errorf("%s", page.Content)
			}
			files(t, dir, 0)
			if _, err := other.run.Retry(t.Context(), failed.Key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a second retry: %v", err)
			}
		})
	}
}

// files demands that a spool has so many files, which nobody else can read.
func files(t *testing.T, dir string, want int) {
	t.Helper()
	list, err := os.ReadDir(dir)
	list = slices.DeleteFunc(list, func(f fs.DirEntry) bool { return f.Name() == "lock" })
	if err != nil || len(list) != want {
		t.Fatalf("%d files in the spool, want %d: %v", len(list), want, err)
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
		if strings.Trim(strings.ToLower(f.Name()), "abcdefghijklmnopqrstuvwxyz0123456789%~.-_") != "" {
			t.Errorf("a name from outside: %q", f.Name())
		}
	}
}

// What the spool has no room for, and what there is no spool for, is lost and the error
// says so; nothing of it is left, or crosses.
func TestSpoolIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	spool, err := harness.OpenSpool(dir, 50_000)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	for name, opts := range map[string]harness.Options{"full": {Spool: spool}, "none": {}} {
		var c *counting
		sc := newScene(t, setup{opts: opts, wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s, put: failing(10)}; return c }})
		for _, r := range []io.Reader{bytes.NewReader(make([]byte, 60_000)), unseekable{bytes.NewReader(make([]byte, 60_000))}} {
			v := sc.record(harness.Blob{Reader: r})
			f := failureOf(t, v)
			if f.Code != "store_full" || f.Action != "stop" || f.Kept == nil || *f.Kept || f.Retryable {
				t.Errorf("%s: %s", name, v.Content)
			}
		}
	}
	files(t, dir, 0)
	// The room is free again.
	sc := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: func(s ref.Source) ref.Source { return &counting{Source: s, put: failing(10)} }})
	var keys []string
	for i := range 4 {
		v := sc.record(harness.Blob{Reader: strings.NewReader(strings.Repeat(fmt.Sprint(i), 15_000))})
		if e, ok := errors.AsType[*harness.StoreError](v.Err); ok && e.Key != "" {
			keys = append(keys, e.Key)
		}
	}
	if len(keys) != 3 {
		t.Errorf("%d results of 15,000 bytes are kept in 50,000", len(keys))
	}
	for _, k := range keys {
		if err := spool.Drop("run-7", k); err != nil {
			t.Error(err)
		}
	}
	files(t, dir, 0)
}

// A result that fails for another reason after a blob was spooled leaves nothing there.
func TestSpoolLeavesNoScraps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	spool, err := harness.OpenSpool(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	sc := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: func(s ref.Source) ref.Source { return &counting{Source: s, put: failing(10)} }})
	for name, value := range map[string]any{
		"no JSON": []any{harness.Blob{Reader: strings.NewReader("kept")}, make(chan int)},
		// Also while it is read, whether there is a copy of it or not.
		"a reader that panics": harness.Blob{Reader: &panics{left: 100}},
		"no reader":            harness.Raw{JSON: json.RawMessage(`{"a":1}`), Blobs: map[string]harness.Blob{"/a": {}}},
	} {
		v := sc.record(value)
		if !v.IsError || failureOf(t, v).Kept != nil {
			t.Errorf("%s: %s", name, v.Content)
		}
		files(t, dir, 0)
	}
}

// panics is a reader that panics after so many bytes.
type panics struct{ left int }

func (p *panics) Read(b []byte) (int, error) {
	if p.left--; p.left < 0 {
		panic("no more")
	}
	b[0] = 'x'
	return 1, nil
}

// What the spool has no room for is not read to its end.
func TestSpoolStopsReading(t *testing.T) {
	spool, err := harness.OpenSpool(filepath.Join(t.TempDir(), "spool"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	sc := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: func(s ref.Source) ref.Source { return &counting{Source: s, put: failing(10)} }})
	endless := &generated{n: 1 << 62, every: 1 << 40}
	if f := failureOf(t, sc.record(harness.Blob{Reader: unseekable{endless}})); f.Code != "store_full" || f.Kept == nil || *f.Kept || endless.at > 4<<20 {
		t.Errorf("%+v after %d bytes", f, endless.at)
	}
}

// One spool at a time has a folder; what a process left that ended too early takes no
// room; and an entry that is damaged hides no other.
func TestSpoolAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	open := func() *harness.Spool {
		t.Helper()
		s, err := harness.OpenSpool(dir, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	spool := open()
	if _, err := harness.OpenSpool(dir, 1000); !errors.Is(err, flock.ErrHeld) {
		t.Fatalf("opened twice: %v", err)
	}
	full := func(s ref.Source) ref.Source { return &counting{Source: s, put: failing(10)} }
	sc := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: full})
	sc.record(harness.Blob{Reader: strings.NewReader("content")})
	files(t, dir, 2)
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"run-7~lost.blob-x":       strings.Repeat("x", 900), // its entry was never written
		"run-7~lost.json.part":    "{",
		"run-7~other.blob-y.part": "yyy",
		"run-7~bad.json":          `{"run":"run-7","key":`,
		"run-7~bad.blob-z":        "z",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spool = open()
	defer spool.Close()
	files(t, dir, 4)
	keys, err := spool.Pending("run-7")
	if err == nil || !strings.Contains(err.Error(), "run-7~bad.json") || len(keys) != 1 {
		t.Errorf("pending %q, %v", keys, err)
	}
	// What is damaged is not given out, and the room of what was lost is free again.
	again := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: full})
	if _, err := again.run.Retry(t.Context(), "bad"); err == nil {
		t.Error("a damaged entry was recorded")
	}
	if f := failureOf(t, again.record(harness.Blob{Reader: strings.NewReader(strings.Repeat("y", 300))})); f.Kept == nil || !*f.Kept {
		t.Errorf("%+v", f)
	}
}

// Of two that retry a result at once one does it.
func TestRetriedOnce(t *testing.T) {
	spool, err := harness.OpenSpool(filepath.Join(t.TempDir(), "spool"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	var c *counting
	sc := newScene(t, setup{opts: harness.Options{Spool: spool}, wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s, put: failing(10)}; return c }})
	failed, ok := errors.AsType[*harness.StoreError](sc.record(harness.Blob{Reader: strings.NewReader("content")}).Err)
	if !ok {
		t.Fatal("the store took it")
	}
	begun, other := make(chan bool), make(chan error)
	c.put = func(r io.Reader) (ref.Marker, error) {
		close(begun)
		if err := <-other; !errors.Is(err, harness.ErrRetried) {
			t.Errorf("a retry beside another: %v", err)
		}
		return c.Source.Put(t.Context(), ref.New{}, r)
	}
	go func() {
		<-begun
		_, err := sc.run.Retry(t.Context(), failed.Key)
		other <- err
	}()
	if v, err := sc.run.Retry(t.Context(), failed.Key); err != nil || v.IsError {
		t.Errorf("%s, %v", v.Content, err)
	}
}
