package bundle_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

func TestBytes(t *testing.T) {
	p := policy(t, "one")
	for _, size := range []int{0, 1, 1023, 1024, 1025, 16384, 16385, 100_000} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte('a' + i%25)
			if i%80 == 79 {
				data[i] = '\n'
			}
		}
		src := source(t, data, "text")
		n := int64(size)
		for name, ranges := range map[string][]merkle.Range{
			"all":        {{Start: 0, End: n}},
			"first":      {{Start: 0, End: min(1, n)}},
			"last":       {{Start: max(0, n-1), End: n}},
			"middle":     {{Start: n / 3, End: n / 2}},
			"empty":      {{Start: n / 2, End: n / 2}},
			"past end":   {{Start: n, End: n + 99}},
			"two":        {{Start: n / 2, End: n/2 + min(3, n-n/2)}, {Start: 0, End: min(2, n)}},
			"touching":   {{Start: 0, End: n / 2}, {Start: n / 2, End: n}},
			"overlapped": {{Start: 0, End: n / 2}, {Start: n / 4, End: n}},
		} {
			t.Run(fmt.Sprintf("size=%d/%s", size, name), func(t *testing.T) {
				b, err := bundle.Bytes(src, ranges...)
				file := write(t, b, err)
				var out bytes.Buffer
				res, err := verify(file, p, &out)
				if err != nil {
					t.Fatal(err)
				}
				if code := res.Verdict.Exit(); code != 0 {
					t.Fatalf("exit %d: %s", code, res.Verdict.Sentence())
				}
				if want := union(data, ranges); !bytes.Equal(out.Bytes(), want) {
					t.Errorf("got %d bytes, want %d", out.Len(), len(want))
				}
				if !res.Claim.Equal(b.Claim()) {
					t.Errorf("verified %s, built %s", res.Claim, b.Claim())
				}
				length, _ := res.Verdict.Fact(manifest.FactLength)
				reaches := b.Leaves().HasLast()
				if (length.State == manifest.Proven) != reaches {
					t.Errorf("length is %s, and the proof reaches the end: %v", length, reaches)
				}
			})
		}
	}
}

// union is the slow way to the bytes of some ranges: mark, then collect.
func union(data []byte, ranges []merkle.Range) []byte {
	marked := make([]bool, len(data))
	for _, r := range ranges {
		for i := r.Start; i < r.End && i < int64(len(data)); i++ {
			marked[i] = true
		}
	}
	var out []byte
	for i, m := range marked {
		if m {
			out = append(out, data[i])
		}
	}
	return out
}

func TestRecords(t *testing.T) {
	p := policy(t, "one")
	data := lines(2000)
	all := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	src := source(t, data, "text")
	n := int64(len(all))
	rng := rand.New(rand.NewPCG(1, 2))
	cases := [][2]int64{{0, 1}, {0, n}, {n - 1, n}, {1, 2}, {700, 710}}
	for range 60 {
		a := rng.Int64N(n)
		cases = append(cases, [2]int64{a, a + 1 + rng.Int64N(min(n-a, 400))})
	}
	for _, c := range cases {
		b, err := bundle.Records(t.Context(), src, c[0], c[1])
		file := write(t, b, err)
		var out bytes.Buffer
		res, err := verify(file, p, &out)
		if err != nil {
			t.Fatalf("records %v: %v", c, err)
		}
		if code := res.Verdict.Exit(); code != 0 {
			t.Fatalf("records %v: exit %d: %s", c, code, res.Verdict.Sentence())
		}
		want := append(bytes.Join(all[c[0]:c[1]], []byte("\n")), '\n')
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("records %v: got %d bytes, want %d", c, out.Len(), len(want))
		}
		if f, _ := res.Verdict.Fact(manifest.FactRecordNumbers); f.State != manifest.Attested {
			t.Errorf("records %v: record numbers are %s, want attested", c, f)
		}
	}
	for _, c := range [][2]int64{{5, 5}, {6, 5}, {-1, 5}, {0, n + 1}} {
		if _, err := bundle.Records(t.Context(), src, c[0], c[1]); !errors.Is(err, bundle.ErrClaim) {
			t.Errorf("Records(%v) error = %v, want ErrClaim", c, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	src := source(t, lines(20), "text")
	b, err := bundle.Bytes(src, merkle.Range{Start: 3, End: 9})
	file := write(t, b, err)
	key, _ := manifest.PublicKeyOf(signer("one"))
	for name, test := range map[string]struct {
		policy *manifest.Policy
		exit   int
		key    manifest.State
	}{
		"admits the key":  {policy(t, "one"), 0, manifest.Attested},
		"another key":     {policy(t, "two"), 2, manifest.Unverifiable},
		"none":            {nil, 2, manifest.Unverifiable},
		"the key, ad hoc": {manifest.AdHoc(key), 0, manifest.Attested},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := verify(file, test.policy, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := res.Verdict.Exit(); got != test.exit {
				t.Errorf("exit %d, want %d: %s", got, test.exit, res.Verdict.Sentence())
			}
			if f, _ := res.Verdict.Fact(manifest.FactKey); f.State != test.key {
				t.Errorf("key is %s, want %s", f, test.key)
			}
			if f, _ := res.Verdict.Fact(manifest.FactBytes); f.State != manifest.Proven {
				t.Errorf("bytes are %s, want proven", f)
			}
		})
	}
}

func TestNoTime(t *testing.T) {
	b, err := bundle.Bytes(source(t, lines(20), "text"), merkle.Range{Start: 3, End: 9})
	file := write(t, b, err)
	if res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy(t, "one")}); err == nil {
		t.Errorf("a bundle was judged as of no time: %s", res.Verdict.Sentence())
	}
}

func TestExpect(t *testing.T) {
	src := source(t, lines(20), "text")
	b, err := bundle.Bytes(src, merkle.Range{Start: 3, End: 9})
	file := write(t, b, err)
	for name, test := range map[string]struct {
		claim bundle.Claim
		exit  int
	}{
		"the same":       {bundle.BytesClaim(merkle.Range{Start: 3, End: 9}), 0},
		"another range":  {bundle.BytesClaim(merkle.Range{Start: 3, End: 10}), 3},
		"a further one":  {bundle.BytesClaim(merkle.Range{Start: 3, End: 9}, merkle.Range{Start: 11, End: 12}), 3},
		"another kind":   {bundle.RecordsClaim(3, 9), 3},
		"nothing at all": {bundle.Claim{}, 3},
	} {
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy(t, "one"), At: at, Expect: &test.claim})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Verdict.Exit(); got != test.exit {
			t.Errorf("%s: exit %d, want %d", name, got, test.exit)
		}
	}
}

// TestAltered changes a reference, swaps sections and manifests, and says which
// fact must tell.
func TestAltered(t *testing.T) {
	data := lines(300)
	src := source(t, data, "text")
	b, err := bundle.Bytes(src, merkle.Range{Start: 2000, End: 2600})
	file := write(t, b, err)
	header := func(f []byte) []byte { return bytes.SplitN(f, []byte("\n"), 3)[1] }
	body := func(f []byte) []byte { return bytes.SplitN(f, []byte("\n"), 3)[2] }
	// Another claim whose body has the same length.
	var otherFile []byte
	start := int64(2000)
	for otherFile == nil || len(body(otherFile)) != len(body(file)) {
		if start += 1024; start > int64(len(data)) {
			t.Fatal("no other range has a body of that length")
		}
		b, err := bundle.Bytes(src, merkle.Range{Start: start, End: start + 600})
		otherFile = write(t, b, err)
	}
	moved := fmt.Sprintf(`"ranges":[[%d,%d]]`, start, start+600)
	edit := func(old, new string) []byte {
		if !bytes.Contains(header(file), []byte(old)) {
			t.Fatalf("the header has no %s", old)
		}
		return reseal(bytes.Replace(file, []byte(old), []byte(new), 1))
	}
	for name, test := range map[string]struct {
		file []byte
		fact string // the MISMATCH; "" for a malformed file
	}{
		"tenant":           {edit(`"tenant_id":"acme"`, `"tenant_id":"evil"`), manifest.FactScope},
		"completeness":     {edit(`"status":"complete"`, `"status":"unknown"`), manifest.FactCapture},
		"digest":           {edit(`"content_hash":"blake3:`, `"content_hash":"blake3:0`), manifest.FactBytes},
		"another's body":   {reseal(append(append([]byte("x\n"), append(header(file), '\n')...), body(otherFile)...)), manifest.FactBytes},
		"moved claim":      {edit(`"ranges":[[2000,2600]]`, moved), manifest.FactBytes},
		"longer blob":      {edit(fmt.Sprintf(`"size":%d}`, len(data)), fmt.Sprintf(`"size":%d}`, len(data)+1)), manifest.FactLength},
		"claim past end":   {edit(`"ranges":[[2000,2600]]`, `"ranges":[[2000,999999]]`), ""},
		"claim backwards":  {edit(`"ranges":[[2000,2600]]`, `"ranges":[[2600,2000]]`), ""},
		"no claims":        {edit(`"claims":[`, `"claims":[],"x":[`), ""},
		"unknown member":   {edit(`{"claims"`, `{"a":1,"claims"`), ""},
		"white space":      {edit(`{"claims"`, `{ "claims"`), ""},
		"trailing byte":    {reseal(append(bytes.Clone(file), 0)), ""},
		"truncated":        {reseal(file[:len(file)-1]), ""},
		"line 1 of others": {append(bytes.Clone(otherFile[:85]), file[85:]...), ""},
		"empty":            {nil, ""},
		"unknown kind":     {edit(`"kind":"bytes"`, `"kind":"bites"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := verify(test.file, policy(t, "one"), &out)
			if test.fact == "" {
				if !errors.Is(err, bundle.ErrMalformed) {
					t.Fatalf("error = %v, want ErrMalformed", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if f, _ := res.Verdict.Fact(test.fact); f.State != manifest.Mismatch || res.Verdict.Exit() != 3 {
				t.Errorf("%s is %s, exit %d; want a MISMATCH and 3", test.fact, f, res.Verdict.Exit())
			}
		})
	}
}
