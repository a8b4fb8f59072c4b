package fuzz_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// bundled are the bytes that the seeds of FuzzBundle prove parts of.
func bundled() []byte {
	var b bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&b, "%d %s\n", i, strings.Repeat("x", i*i%97))
		if i%31 == 0 {
			b.WriteString("\n")
		}
		if i%101 == 0 {
			b.WriteString(strings.Repeat("long ", 1000) + "\n")
		}
	}
	return b.Bytes()
}

// bundledDocument is the JSON document of which other seeds show a value.
func bundledDocument() []byte {
	var b strings.Builder
	b.WriteString(`{ "title": "caf\u00e9", "a/b": {"~": null}, "items": [`)
	for i := range 40 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n  {\"id\": %d, \"text\": %q}", i, strings.Repeat("x", i%97))
	}
	b.WriteString("\n], \"end\": true }\n")
	return []byte(b.String())
}

// FuzzBundle: whatever follows a fitting line 1, a bundle is malformed, or refused,
// or it proves bytes that truly stand where its claim says. The seeds in testdata
// are a bytes and a records claim over [bundled], and of [bundledDocument] a value
// with the document and another with a receipt, signed by the keys below.
func FuzzBundle(f *testing.F) {
	policy := bundlePolicy(f)
	data, document := bundled(), bundledDocument()
	records := bytes.SplitAfter(data, []byte("\n"))
	f.Fuzz(func(t *testing.T, rest []byte) {
		var out bytes.Buffer
		res, err := verifyBundle(rest, policy, &out)
		if err != nil {
			if !errors.Is(err, bundle.ErrMalformed) {
				t.Fatalf("error = %v, neither malformed nor a verdict", err)
			}
			return
		}
		if res.Verdict.Exit() != 0 {
			return
		}
		var want []byte
		data := data
		if res.Manifest.Root == merkle.Sum(document) {
			data = document
		}
		for _, r := range res.Claim.Ranges {
			want = append(want, data[r[0]:r[1]]...)
		}
		if p := res.Claim.Pointer; p != nil {
			want = append(want, '\n')
			span, err := selector.FindPointer(t.Context(), bytes.NewReader(data), int64(len(data)), *p)
			if r := res.Claim.Ranges[0]; err != nil || span.Start != r[0] || span.End != r[1] {
				t.Fatalf("%v verified, and the value there is %v (%v)", res.Claim, span, err)
			}
		}
		if r := res.Claim.Range; r != nil {
			want = append(want, bytes.Join(records[r[0]:r[1]], nil)...)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("%v verified with other bytes", res.Claim)
		}
	})
}

// bundlePolicy admits the keys of the seeds.
func bundlePolicy(tb testing.TB) *manifest.Policy {
	tb.Helper()
	key := func(name string) manifest.PublicKey {
		seed := sha256.Sum256([]byte(name))
		key, err := manifest.PublicKeyOf(ed25519.NewKeyFromSeed(seed[:]))
		if err != nil {
			tb.Fatal(err)
		}
		return key
	}
	p, err := manifest.NewPolicy("seeds",
		manifest.Key{Name: "one", Public: key("one"), Roles: []string{manifest.RoleManifest}},
		manifest.Key{Name: "store", Public: key("store"), Roles: []string{manifest.RoleReceipt}},
	)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// verifyBundle verifies what follows line 1 of a bundle.
func verifyBundle(rest []byte, p *manifest.Policy, out io.Writer) (*bundle.Result, error) {
	file := append(fmt.Appendf(nil, "leafproof bundle v1 %s\n", merkle.Sum(rest)), rest...)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: p, At: at, Out: out})
}

// TestBundleSeeds: the seeds of FuzzBundle verify. One that does not leads nowhere.
func TestBundleSeeds(t *testing.T) {
	files, err := filepath.Glob("testdata/fuzz/FuzzBundle/[a-z]*[a-z]")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		quoted := strings.TrimSuffix(strings.TrimPrefix(string(text), "go test fuzz v1\n[]byte("), ")\n")
		rest, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(name, err)
		}
		res, err := verifyBundle([]byte(rest), bundlePolicy(t), io.Discard)
		if err != nil || res.Verdict.Exit() != 0 {
			t.Errorf("%s does not verify: %v", name, err)
		}
	}
}
