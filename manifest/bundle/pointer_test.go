package bundle_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// document is a JSON document of many leaves.
func document(n int) []byte {
	var b strings.Builder
	b.WriteString(`{ "title": "caf\u00e9", "a/b": {"~": null}, "items": [`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n  {\"id\": %d, \"text\": %q}", i, strings.Repeat("x", i%97))
	}
	b.WriteString("\n], \"end\": true }\n")
	return []byte(b.String())
}

func TestPointer(t *testing.T) {
	p := policy(t, "one")
	data := document(400)
	src := source(t, data, "")
	for pointer, want := range map[string]string{
		"":               string(bytes.TrimSuffix(data, []byte("\n"))),
		"/title":         `"caf\u00e9"`,
		"/a~1b/~0":       "null",
		"/items/0":       `{"id": 0, "text": ""}`,
		"/items/200/id":  "200",
		"/items/399":     `{"id": 399, "text": "` + strings.Repeat("x", 399%97) + `"}`,
		"/items/96/text": `"` + strings.Repeat("x", 96) + `"`,
		"/end":           "true",
	} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/whole=%v", pointer, whole), func(t *testing.T) {
				b, err := bundle.Pointer(t.Context(), src, pointer, whole)
				file := write(t, b, err)
				var out bytes.Buffer
				res, err := verify(file, p, &out)
				if err != nil {
					t.Fatal(err)
				}
				if out.String() != want+"\n" {
					t.Errorf("got %.80q, want %.80q", out.String(), want)
				}
				if !res.Claim.Equal(b.Claim()) {
					t.Errorf("verified %s, built %s", res.Claim, b.Claim())
				}
				state, exit := manifest.Proven, 0
				if !whole && pointer != "" {
					state, exit = manifest.Unverifiable, 2
					if n := len(file); n > len(data)/2 {
						t.Errorf("the excerpt has %d bytes, the document %d", n, len(data))
					}
				}
				if f, _ := res.Verdict.Fact(manifest.FactSelector); f.State != state || res.Verdict.Exit() != exit {
					t.Errorf("selector is %s, exit %d; want %s and %d", f, res.Verdict.Exit(), state, exit)
				}
				if f, _ := res.Verdict.Fact(manifest.FactBytes); f.State != manifest.Proven {
					t.Errorf("bytes are %s, want proven", f)
				}
			})
		}
	}
	for pointer, want := range map[string]error{"/nothing": selector.ErrPointer, "items": selector.ErrSelector, "/items/-": selector.ErrPointer} {
		if _, err := bundle.Pointer(t.Context(), src, pointer, true); !errors.Is(err, want) {
			t.Errorf("Pointer(%q) error = %v, want %v", pointer, err, want)
		}
	}
}

// TestPointerSmall: where the leaves around the value are the whole document,
// nothing more needs to be shown to prove the place.
func TestPointerSmall(t *testing.T) {
	src := source(t, []byte(`{"a":{"b":[1,2]}}`), "")
	b, err := bundle.Pointer(t.Context(), src, "/a/b/1", false)
	res, err := verify(write(t, b, err), policy(t, "one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := res.Verdict.Fact(manifest.FactSelector); f.State != manifest.Proven {
		t.Errorf("selector is %s, want proven", f)
	}
}

// TestPointerForged states other places and other pointers, with sections that
// fit what is stated: the verifier follows the pointer itself.
func TestPointerForged(t *testing.T) {
	data := document(400)
	src := source(t, data, "")
	b, err := bundle.Pointer(t.Context(), src, "/items/200/id", true)
	file := write(t, b, err)
	place := b.Claim().Ranges[0]
	edit := func(old, new string) []byte {
		if !bytes.Contains(file, []byte(old)) {
			t.Fatalf("the file has no %s", old)
		}
		return reseal(bytes.Replace(file, []byte(old), []byte(new), 1))
	}
	ranges := fmt.Sprintf(`"ranges":[[%d,%d]]`, place[0], place[1])
	notJSON := source(t, []byte(strings.Repeat(`{"a":[1,2,,3]}`, 200)), "")
	twice := source(t, []byte(`{"a":1,"\u0061":2}`), "")
	// claimed makes a pointer claim about a document that has no such value.
	claimed := func(src bundle.Source, from, to int64) []byte {
		b, err := bundle.Bytes(src, merkle.Range{Start: 0, End: src.Tree.Size()})
		f := write(t, b, err)
		head := fmt.Sprintf(`"kind":"bytes","ranges":[[0,%d]],"sections":{"proof"`, src.Tree.Size())
		return reseal(bytes.Replace(f, []byte(head), fmt.Appendf(nil, `"kind":"pointer","pointer":"/a","ranges":[[%d,%d]],"sections":{"document"`, from, to), 1))
	}
	for name, test := range map[string]struct {
		file []byte
		fact string // the MISMATCH; "" for a malformed file
		says string
	}{
		"another pointer":      {edit(`"pointer":"/items/200/id"`, `"pointer":"/items/201/id"`), manifest.FactSelector, "the value there is bytes"},
		"an escaped pointer":   {edit(`"pointer":"/items/200/id"`, `"pointer":"/items/200/i~0"`), manifest.FactSelector, "no value at the pointer"},
		"nothing there":        {edit(`"pointer":"/items/200/id"`, `"pointer":"/items/900/id"`), manifest.FactSelector, "no value at the pointer"},
		"another place":        {edit(ranges, fmt.Sprintf(`"ranges":[[%d,%d]]`, place[0]+1, place[1])), manifest.FactSelector, "the value there is bytes"},
		"no pointer's grammar": {edit(`"pointer":"/items/200/id"`, `"pointer":"items/200/id"`), "", "begin with a slash"},
		"an empty value":       {edit(ranges, fmt.Sprintf(`"ranges":[[%d,%d]]`, place[0], place[0])), "", "no JSON value is empty"},
		"two places":           {edit(ranges, fmt.Sprintf(`"ranges":[[1,2],[%d,%d]]`, place[0], place[1])), "", "one range"},
		"no pointer":           {edit(`"pointer":"/items/200/id",`, ``), "", "one range"},
		"as a proof":           {edit(`"document"`, `"proof"`), "", "the claim needs"},
		"with leaves":          {edit(`"document":{`, `"document":{"leaves":[[0,1]],`), "", "not stated"},
		"not JSON":             {claimed(notJSON, 5, 6), manifest.FactSelector, "does not parse"},
		"a name twice":         {claimed(twice, 5, 6), manifest.FactSelector, "stands twice"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := verify(test.file, policy(t, "one"), &out)
			if test.fact == "" {
				if !errors.Is(err, bundle.ErrMalformed) || !strings.Contains(err.Error(), test.says) {
					t.Fatalf("error = %v, want ErrMalformed that says %q", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f, _ := res.Verdict.Fact(test.fact)
			if f.State != manifest.Mismatch || res.Verdict.Exit() != 3 || !strings.Contains(f.Reason, test.says) {
				t.Errorf("%s is %s, exit %d; want a MISMATCH that says %q", test.fact, f, res.Verdict.Exit(), test.says)
			}
			if f, _ := res.Verdict.Fact(manifest.FactBytes); f.State != manifest.Proven {
				t.Errorf("bytes are %s, want proven", f)
			}
		})
	}
}

// TestPointerBytes damages the document and the value under an honest claim.
func TestPointerBytes(t *testing.T) {
	data := document(400)
	src := source(t, data, "")
	for _, whole := range []bool{true, false} {
		b, err := bundle.Pointer(t.Context(), src, "/items/200", whole)
		file := write(t, b, err)
		body := bytes.Index(file, []byte("\n")) + 1
		body += bytes.Index(file[body:], []byte("\n")) + 1
		for i := 0; i < len(file)-body; i += 97 {
			file[body+i] ^= 1
			res, err := verify(reseal(file), policy(t, "one"), nil)
			file[body+i] ^= 1
			if err != nil {
				t.Fatalf("whole=%v, byte %d: %v", whole, i, err)
			}
			if f, _ := res.Verdict.Fact(manifest.FactBytes); f.State != manifest.Mismatch {
				t.Fatalf("whole=%v, byte %d of the sections: bytes are %s", whole, i, f)
			}
			if f, _ := res.Verdict.Fact(manifest.FactSelector); f.State == manifest.Proven {
				t.Fatalf("whole=%v, byte %d of the sections: selector is %s", whole, i, f)
			}
		}
	}
}

func TestPointerExpect(t *testing.T) {
	src := source(t, document(400), "")
	b, err := bundle.Pointer(t.Context(), src, "/items/200/id", true)
	file := write(t, b, err)
	for _, test := range []struct {
		claim bundle.Claim
		exit  int
	}{
		{bundle.PointerClaim("/items/200/id"), 0},
		{b.Claim(), 0},
		{bundle.PointerClaim("/items/200"), 3},
		{bundle.PointerClaim(""), 3},
		{bundle.RecordsClaim(0, 1), 3},
	} {
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy(t, "one"), At: at, Expect: &test.claim})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Verdict.Exit(); got != test.exit {
			t.Errorf("%s: exit %d, want %d", test.claim, got, test.exit)
		}
	}
}

type failing struct{ after int }

var errFull = errors.New("no room")

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestPointerOut: an error of the writer is one of the call, not of the bundle.
func TestPointerOut(t *testing.T) {
	src := source(t, document(4000), "")
	for _, whole := range []bool{true, false} {
		b, err := bundle.Pointer(t.Context(), src, "/items", whole)
		file := write(t, b, err)
		for _, after := range []int{0, 1, 20_000} {
			if _, err := verify(file, policy(t, "one"), &failing{after}); !errors.Is(err, errFull) {
				t.Errorf("whole=%v, room for %d: error = %v, want that of the writer", whole, after, err)
			}
		}
	}
}

// TestClaimText: nothing in a pointer passes for the end of it.
func TestClaimText(t *testing.T) {
	for pointer, want := range map[string]string{
		"":                        `pointer ""`,
		"/a~1b/é":                 `pointer "/a~1b/é"`,
		`/a" at bytes 5:6`:        `pointer "/a\" at bytes 5:6"`,
		`/a\`:                     `pointer "/a\\"`,
		"/\x1b[2J\u202e":          `pointer "/\x1b[2J\u202e"`,
		strings.Repeat("/a", 200): `pointer "` + strings.Repeat("/a", 87) + `/… and 226 more"`,
	} {
		if got := bundle.PointerClaim(pointer).String(); got != want {
			t.Errorf("%q: %s, want %s", pointer, got, want)
		}
	}
}
