package fuzz_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
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

// FuzzBundle: whatever follows a fitting line 1, a bundle is malformed, or refused,
// or it proves bytes that truly stand where its claim says. The seeds in testdata
// are a bytes and a records claim over [bundled], signed by the key below.
func FuzzBundle(f *testing.F) {
	seed := sha256.Sum256([]byte("one"))
	key, err := manifest.PublicKeyOf(ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		f.Fatal(err)
	}
	policy := manifest.AdHoc(key)
	data := bundled()
	records := bytes.SplitAfter(data, []byte("\n"))
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, rest []byte) {
		file := append(fmt.Appendf(nil, "leafproof bundle v1 %s\n", merkle.Sum(rest)), rest...)
		var out bytes.Buffer
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: policy, At: at, Out: &out})
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
		for _, r := range res.Claim.Ranges {
			want = append(want, data[r[0]:r[1]]...)
		}
		if r := res.Claim.Range; r != nil {
			want = append(want, bytes.Join(records[r[0]:r[1]], nil)...)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("%v verified with other bytes", res.Claim)
		}
	})
}
