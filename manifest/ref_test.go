package manifest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"leafproof/manifest"
)

// covered is a reference with nothing but a coverage.
func covered(coverage map[string]any) manifest.ArtifactRef {
	return manifest.ArtifactRef{Completeness: manifest.Completeness{Coverage: coverage}}
}

// slowDiff is the twin of RefDiff: it decodes both, and builds every path.
func slowDiff(x, y any, path string) (diff []string) {
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	a, isMap := x.(map[string]any)
	b, alsoMap := y.(map[string]any)
	if isMap && alsoMap {
		names := map[string]bool{}
		for name := range a {
			names[name] = true
		}
		for name := range b {
			names[name] = true
		}
		for name := range names {
			one, ok := a[name]
			two, also := b[name]
			if ok && also {
				diff = append(diff, slowDiff(one, two, path+"/"+escape(name))...)
			} else {
				diff = append(diff, path+"/"+escape(name))
			}
		}
		return diff
	}
	c, isList := x.([]any)
	d, alsoList := y.([]any)
	if isList && alsoList && len(c) == len(d) {
		for i := range c {
			diff = append(diff, slowDiff(c[i], d[i], path+"/"+strconv.Itoa(i))...)
		}
		return diff
	}
	if isMap || alsoMap || isList || alsoList || x != y {
		return []string{path}
	}
	return nil
}

// mutate changes about one value in eight, and sometimes a length or a name.
func mutate(r *rand.Rand, v any) any {
	if r.IntN(8) == 0 {
		return jsonNumbers(randomValue(r, 2))
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = mutate(r, v[i])
		}
		if r.IntN(8) == 0 {
			v = append(v, nil)
		}
		return v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = mutate(r, v[name])
			if r.IntN(8) == 0 {
				v[name+`"~/\`] = v[name]
				delete(v, name)
			}
		}
	}
	return v
}

func TestRefDiffTwin(t *testing.T) {
	differ, many := 0, 0
	for seed := range uint64(5000) {
		value := func() map[string]any {
			r := rand.New(rand.NewPCG(seed, 2))
			wide := map[string]any{}
			for i := range r.IntN(12) {
				wide[fmt.Sprintf("%d", i*i)] = jsonNumbers(randomValue(r, 4))
			}
			return wide
		}
		x := value()
		m, ok := mutate(rand.New(rand.NewPCG(seed, 3)), value()).(map[string]any)
		if !ok {
			continue
		}
		got := manifest.RefDiff(covered(x), covered(m))
		want := slowDiff(decoded(t, x), decoded(t, m), "/completeness/coverage")
		if len(want) > 0 {
			differ++
		}
		if n := len(want); n > 16 {
			many++
			if last := fmt.Sprintf("… and %d more", n-16); len(got) != 17 || got[16] != last {
				t.Fatalf("seed %d: RefDiff = %q, want 16 and %q", seed, got, last)
			}
			got = got[:16]
			want = slices.DeleteFunc(want, func(s string) bool { return !slices.Contains(got, s) })
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: RefDiff = %q, want %q", seed, got, want)
		}
	}
	if differ < 1000 || many < 20 {
		t.Errorf("%d pairs differ, %d in many places: the twin was hardly asked", differ, many)
	}
}

// decoded is a value as another decoder reads its canonical form.
func decoded(t *testing.T, v any) (out any) {
	t.Helper()
	if err := json.Unmarshal(canonical(t, v), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// allocated is the memory in bytes that f asks for altogether.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDiffIsLinear: a stranger's document with a long name above many values
// costs a small multiple of its size, however the two differ.
func TestDiffIsLinear(t *testing.T) {
	const size, n = 100_000, 50_000
	name := strings.Repeat("/", size) // twice as long in a pointer
	list := func(last any) map[string]any {
		values := make([]any, n)
		for i := range values {
			values[i] = 0
		}
		values[n-1] = last
		return map[string]any{name: values}
	}
	for test, pair := range map[string][2]map[string]any{
		"the same":             {list(0), list(0)},
		"the last element":     {list(0), list(1)},
		"the last is no value": {list(0), list([]any{})},
		"every element":        {list(0), {name: slices.Repeat([]any{1}, n)}},
		"a list longer":        {list(0), {name: slices.Repeat([]any{1}, n+1)}},
		"lists of lists":       {{name: slices.Repeat([]any{[]any{0}}, n)}, {name: slices.Repeat([]any{[]any{0, 0}}, n)}},
	} {
		t.Run(test, func(t *testing.T) {
			a, b := covered(pair[0]), covered(pair[1])
			input := len(canonical(t, a)) + len(canonical(t, b))
			var diff []string
			if got := allocated(func() { diff = manifest.RefDiff(a, b) }); got > uint64(20*input) {
				t.Errorf("%d bytes allocated for %d bytes of input", got, input)
			}
			if (len(diff) == 0) != (test == "the same") || len(diff) > 17 {
				t.Errorf("%d differences", len(diff))
			}
			for _, path := range diff {
				if len(path) > 203 {
					t.Errorf("a path of %d bytes", len(path))
				}
			}
		})
	}
	t.Run("decode", func(t *testing.T) {
		doc := canonical(t, map[string]any{"x": list(0), "y": nil})
		var err error
		var v struct {
			X any      `json:"x"`
			Y []string `json:"y"` // null is written as []
		}
		got := allocated(func() { err = manifest.Decode(doc, &v) })
		e, _ := errors.AsType[*manifest.Error](err)
		if e == nil || e.At != "/y" {
			t.Errorf("error = %v, want one at /y", err)
		}
		if got > uint64(40*len(doc)) {
			t.Errorf("%d bytes allocated for %d bytes of input", got, len(doc))
		}
	})
}

func canonical(t *testing.T, v any) []byte {
	t.Helper()
	b, err := manifest.Canonical(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestErrorsAreShort: no error repeats a stranger's megabyte.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 500_000)
	_, pub := testKey("one")
	key := "policy p version 1\nkey " + pub.OpenSSHLine() + " name=a roles=manifest tenants=*"
	parse := func(text string) func() error {
		return func() error { _, err := manifest.ParsePolicy([]byte(text)); return err }
	}
	check := func(doc string) func() error {
		return func() error { return manifest.CheckCanonical([]byte(doc)) }
	}
	decode := func(doc string) func() error {
		return func() error {
			var v struct {
				A map[string]int `json:"a"`
			}
			return manifest.Decode([]byte(doc), &v)
		}
	}
	build := func(change func(*manifest.Predicate)) func() error {
		return func() error {
			p := predicate()
			change(&p)
			_, err := manifest.NewStatement(p)
			return err
		}
	}
	for name, f := range map[string]func() error{
		"a value below a long name": check(`{"` + long + `":1.5}`),
		"long name twice":           check(`{"` + long + `":1,"` + long + `":1}`),
		"long name not sorted":      check(`{"y":1,"` + long + `":1}`),
		"unknown member":            decode(`{"` + long + `":1}`),
		"type below a long name":    decode(`{"a":{"` + long + `":"1"}}`),
		"missing below a long name": decode(`{"a":{"` + long + `":null}}`),
		"no time":                   func() error { _, err := manifest.ParseTime(long); return err },
		"no name":                   func() error { return manifest.CheckName(long) },
		"first statement":           parse(long),
		"statement":                 parse(key + "\n" + long),
		"version":                   parse("policy p version " + long),
		"key type":                  parse(key + "\nkey " + long + " x x"),
		"option":                    parse(key + " " + long),
		"option name":               parse(key + " " + long + "=x"),
		"role":                      parse("policy p version 1\nkey " + pub.OpenSSHLine() + " name=a roles=" + long + " tenants=*"),
		"pattern":                   parse(key + " sources=*" + long),
		"time":                      parse(key + " not-after=" + long),
		"fingerprint":               parse(key + "\nretired " + long + " at=x"),
		"threshold":                 parse(key + "\nthreshold " + long + " 1"),
		"artifact_id":               build(func(p *manifest.Predicate) { p.ArtifactRef.ArtifactID = long }),
		"status":                    build(func(p *manifest.Predicate) { p.ArtifactRef.Completeness.Status = long }),
		"selector":                  build(func(p *manifest.Predicate) { p.ArtifactRef.Retrieval.Selectors = []string{long} }),
		"media type":                build(func(p *manifest.Predicate) { p.Bytes.MediaType = long }),
		"digest":                    build(func(p *manifest.Predicate) { p.Bytes.Also = map[string]string{long: ""} }),
		"pointer":                   build(func(p *manifest.Predicate) { p.Records.Pointer = long }),
		"key_id":                    build(func(p *manifest.Predicate) { p.Issuer.KeyID = long }),
		"supersedes":                build(func(p *manifest.Predicate) { p.Supersedes = []manifest.Supersede{{ArtifactID: long, Kind: "correct"}} }),
		"payload type":              func() error { return manifest.Envelope{PayloadType: long}.Check() },
		"keyid of a signature":      func() error { e, _ := signed(t); e.Signatures[0].KeyID = long; return e.Check() },
		"statement type":            func() error { _, err := manifest.ParseManifest([]byte(`{"_type":"` + long + `"}`)); return err },
		"a requirement of no fact":  func() error { return manifest.NewVerdict().RequireProven(long) },
		"reference, long names": func() error {
			return manifest.CheckRef(covered(map[string]any{long: 1}), covered(map[string]any{long: 2}))
		},
		"value that is not encoded":  func() error { _, err := manifest.Canonical(map[string]any{long: make(chan int)}); return err },
		"value that is no canonical": func() error { _, err := manifest.Canonical(map[string]any{long: 1.5}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := f()
			if err == nil {
				t.Fatal("no error")
			}
			if n := len(err.Error()); n > 1000 {
				t.Errorf("an error of %d bytes: %.300s", n, err)
			}
			if e, _ := errors.AsType[*manifest.SyntaxError](err); e != nil && len(e.Pointer) > 203 {
				t.Errorf("a pointer of %d bytes", len(e.Pointer))
			}
			if e, _ := errors.AsType[*manifest.Error](err); e != nil && len(e.At) > 203 {
				t.Errorf("a place of %d bytes", len(e.At))
			}
		})
	}
}
