package bundle_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// small are bundles that are small enough to try every bit of: one of each claim,
// and of a value both with the document and with a receipt.
func small(t *testing.T) map[string][]byte {
	src, doc := source(t, lines(60), "text"), source(t, document(40), "")
	b, err := bundle.Bytes(src, merkle.Range{Start: 1000, End: 2000})
	r, err2 := bundle.Records(t.Context(), src, 7, 9)
	p, err3 := bundle.Pointer(t.Context(), doc, "/items/20/id", true)
	v, err4 := bundle.Pointer(t.Context(), doc, "/items/20/id", false)
	if err4 != nil {
		t.Fatal(err4)
	}
	events := incidents(60)
	answers, x := withIndex(t, events, "/id")
	_, absence := prove(t, answers, x[0], ask(t, `@.id == 12.5`, 0))
	_, answer := prove(t, answers, x[0], ask(t, `@.id >= 50`, 3, "/id:desc"))
	return map[string][]byte{
		"absence": absence, "answer": answer,
		"bytes": write(t, b, err), "records": write(t, r, err2), "pointer": write(t, p, err3),
		"value": withReceipt(t, v, signBody(t, receiptFor(t, doc, selector.PointerSelector("/items/20/id"), []byte("20\n")), "store")),
	}
}

// stride is how many places a test moves on: it tries all of a claim of bytes, and
// every so many of the other claims.
func stride(name string, others int) int {
	if name == "bytes" {
		return 1
	}
	return others
}

// TestFlipAnyBit flips bits of a whole file as it is: line 1 tells.
func TestFlipAnyBit(t *testing.T) {
	p := storePolicy(t)
	for name, file := range small(t) {
		for bit := 0; bit < len(file)*8; bit += stride(name, 11) {
			file[bit/8] ^= 1 << (bit % 8)
			if res, err := verify(file, p, nil); !errors.Is(err, bundle.ErrMalformed) {
				t.Errorf("%s: bit %d: error = %v, result %v; want ErrMalformed", name, bit, err, res != nil)
			}
			file[bit/8] ^= 1 << (bit % 8)
		}
	}
}

// TestFlipResealed flips a bit of the bytes behind line 1 and repairs line 1, as an
// attacker would. What is not refused must be another claim, and a true one.
func TestFlipResealed(t *testing.T) {
	p := storePolicy(t)
	data := lines(60)
	for name, file := range small(t) {
		honest, err := verify(file, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.IndexByte(file, '\n') + 1
		reasons := map[string]int{}
		for at := body; at < len(file); at += stride(name, 3) {
			bit := at*8 + at%8
			mutant := bytes.Clone(file)
			mutant[bit/8] ^= 1 << (bit % 8)
			reason := judge(t, reseal(mutant), p, honest, data)
			if reason == "" {
				t.Errorf("%s: bit %d of byte %d (%q) went unnoticed", name, bit%8, bit/8, file[bit/8])
			}
			reasons[reason]++
		}
		report(t, name+", a bit of the bytes behind line 1", reasons)
		if only := reasons["malformed: header"]; only == 0 || len(reasons) < 5 {
			t.Errorf("%s: one check seems to carry everything: %v", name, reasons)
		}
	}
}

// TestFlipDecoded flips bits inside the decoded parts (one of each byte of the
// payload, every one of the signature) and encodes them again, so that no check of spelling can be the one that refuses.
func TestFlipDecoded(t *testing.T) {
	p := storePolicy(t)
	data := lines(60)
	file := small(t)["bytes"]
	honest, err := verify(file, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	head := strings.SplitN(string(file), "\n", 3)[1]
	member := func(name string) string {
		i := strings.Index(head, `"`+name+`":"`) + len(name) + 4
		return head[i : i+strings.IndexByte(head[i:], '"')]
	}
	for _, part := range []string{"payload", "sig"} {
		text := member(part)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		reasons := map[string]int{}
		step := 1
		if part == "payload" {
			step = 9
		}
		for bit := 0; bit < len(raw)*8; bit += step {
			raw[bit/8] ^= 1 << (bit % 8)
			mutant := strings.Replace(string(file), text, base64.StdEncoding.EncodeToString(raw), 1)
			raw[bit/8] ^= 1 << (bit % 8)
			reason := judge(t, reseal([]byte(mutant)), p, honest, data)
			if reason == "" {
				t.Errorf("%s: bit %d went unnoticed", part, bit)
			}
			reasons[reason]++
		}
		report(t, "decoded "+part, reasons)
		if part == "sig" && reasons["MISMATCH: signature"] != len(raw)*8 {
			t.Errorf("a changed signature was not always told by the fact signature: %v", reasons)
		}
	}
}

// judge verifies a mutant and names the check that refused it; "" is none.
func judge(t *testing.T, file []byte, p *manifest.Policy, honest *bundle.Result, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	res, err := verify(file, p, &out)
	if err != nil {
		if !errors.Is(err, bundle.ErrMalformed) {
			t.Errorf("error = %v, neither malformed nor a verdict", err)
		}
		e := new(bundle.Error)
		if !errors.As(err, &e) {
			return "malformed"
		}
		return "malformed: " + e.At
	}
	switch res.Verdict.Exit() {
	case 3:
		for _, f := range res.Verdict.Facts {
			if f.State == manifest.Mismatch {
				return "MISMATCH: " + f.Name
			}
		}
	case 2:
		return "unverifiable"
	}
	if res.Claim.Equal(honest.Claim) {
		return ""
	}
	c := res.Claim
	if c.Kind == bundle.KindBytes && !bytes.Equal(out.Bytes(), union(data, ranges(c))) {
		t.Errorf("%s verified with bytes of another place", c)
	}
	if c.Kind == bundle.KindQuery {
		matched := int64(0)
		for line := range bytes.Lines(incidents(60)) {
			if res.Answer.Asked.Query.Where.Eval(bytes.TrimSuffix(line, []byte("\n")), selector.Layout{Format: "ndjson"}) == selector.Matched {
				matched++
			}
		}
		if res.Answer.Matched != matched && !res.Answer.Cut || res.Answer.Cut && matched < res.Answer.Returned {
			t.Errorf("%s verified with %d records, and %d match", c, res.Answer.Matched, matched)
		}
	}
	if c.Kind == bundle.KindPointer {
		t.Errorf("another value verified: %s", c)
	}
	if c.Kind == bundle.KindRecords {
		all := bytes.SplitAfter(data, []byte("\n"))
		if want := bytes.Join(all[c.Range[0]:c.Range[1]], nil); !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s verified with other records", c)
		}
	}
	return "another claim, which is true"
}

func ranges(c bundle.Claim) []merkle.Range {
	var out []merkle.Range
	for _, r := range c.Ranges {
		out = append(out, merkle.Range{Start: r[0], End: r[1]})
	}
	return out
}

// report prints which check refused how many mutants.
func report(t *testing.T, what string, reasons map[string]int) {
	t.Helper()
	total := 0
	for _, n := range reasons {
		total += n
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d flips", what, total)
	for _, k := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "\n  %6d  %s", reasons[k], k)
	}
	t.Log(b.String())
}
