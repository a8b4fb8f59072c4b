package bundle_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// storePolicy admits "one" for manifests and "store" for what the store says.
func storePolicy(t testing.TB) *manifest.Policy {
	t.Helper()
	one, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := manifest.PublicKeyOf(signer("store"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.NewPolicy("test",
		manifest.Key{Name: "one", Public: one, Roles: []string{manifest.RoleManifest}},
		manifest.Key{Name: "store", Public: store, Roles: []string{manifest.RoleReceipt, manifest.RoleSupersede, manifest.RoleTombstone}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// headOf is about the artifact of src, said by a key.
func headOf(t testing.TB, src bundle.Source, key string) manifest.Head {
	t.Helper()
	pub, err := manifest.PublicKeyOf(signer(key))
	if err != nil {
		t.Fatal(err)
	}
	ref := src.Manifest.Predicate.ArtifactRef
	return manifest.Head{
		ArtifactID: src.Manifest.ArtifactID, ManifestID: src.Manifest.ManifestID, Scope: ref.Scope, SourceID: ref.SourceVersion.SourceID,
		Issuer: manifest.Issuer{KeyID: pub.Fingerprint()}, IssuedAt: manifest.FormatTime(at.Add(-time.Minute)), Nonce: strings.Repeat("0f", 16),
	}
}

// signBody signs a statement.
func signBody(t testing.TB, b manifest.Body, key string) manifest.Envelope {
	t.Helper()
	payload, err := manifest.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	env, err := manifest.Sign(payload, signer(key))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// receiptFor is a receipt for a read of src by position that gave out these bytes.
func receiptFor(t testing.TB, src bundle.Source, asked, given []byte) *manifest.Receipt {
	t.Helper()
	var sel any
	if err := json.Unmarshal(asked, &sel); err != nil {
		t.Fatal(err)
	}
	none := int64(1)
	return &manifest.Receipt{
		Head: headOf(t, src, "store"), Principal: "alice",
		Authority:  manifest.Decided{Epoch: 3, CheckedAt: manifest.FormatTime(at.Add(-time.Minute)), MaxStaleMS: 0},
		Request:    manifest.Request{Action: "prove", Selector: sel, QID: "q_" + strings.Repeat("a", 32)},
		Order:      "document",
		Examined:   manifest.Examined{Basis: "range", Bytes: int64(len(given))},
		Result:     manifest.Result{Bytes: int64(len(given)), Digest: merkle.Sum(given).String()},
		Completion: manifest.Completion{Stop: "complete", More: "no"},
		Capture:    manifest.CapturedOf(src.Manifest.Predicate.ArtifactRef.Completeness),
		Page:       manifest.Page{Number: &none},
		Assurance:  "proven",
	}
}

// withReceipt adds a receipt to a bundle.
func withReceipt(t testing.TB, b *bundle.Bundle, env manifest.Envelope) []byte {
	t.Helper()
	err := b.AddReceipt(env)
	return write(t, b, err)
}

func TestReceipt(t *testing.T) {
	data := document(400)
	src, other := source(t, data, ""), source(t, document(401), "")
	excerpt := func() *bundle.Bundle {
		b, err := bundle.Pointer(t.Context(), src, "/items/200/id", false)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	asked, given := selector.PointerSelector("/items/200/id"), []byte("200\n")
	good := receiptFor(t, src, asked, given)
	place := excerpt().Claim().Ranges[0]
	good.Result.Span = &place
	beside := [2]int64{place[0] - 1, place[1] - 1}
	change := func(f func(*manifest.Receipt)) *manifest.Receipt {
		r := *good
		f(&r)
		return &r
	}
	one, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	forged := forge(signBody(t, good, "store"))
	vouched := "attested(store, receipt)"
	for name, test := range map[string]struct {
		env      manifest.Envelope
		policy   *manifest.Policy
		scan     string // the fact
		selector string
		exit     int
	}{
		"good":              {signBody(t, good, "store"), storePolicy(t), vouched, vouched, 0},
		"of another read":   {signBody(t, receiptFor(t, src, selector.PointerSelector("/items/201/id"), given), "store"), storePolicy(t), `MISMATCH(the receipt is for {"pointer":"/items/201/id"}`, "unverifiable(the receipt is not of this read)", 3},
		"of the bytes":      {signBody(t, receiptFor(t, src, selector.RangeSelector("bytes", 3, 6), given), "store"), storePolicy(t), `MISMATCH(the receipt is for {"bytes":["3","6"]}`, "unverifiable(the receipt is not of this read)", 3},
		"of other bytes":    {signBody(t, receiptFor(t, src, asked, []byte("201\n")), "store"), storePolicy(t), "MISMATCH(the receipt is for 4 other bytes)", "unverifiable(the receipt is not of this read)", 3},
		"of fewer bytes":    {signBody(t, receiptFor(t, src, asked, []byte("200")), "store"), storePolicy(t), "MISMATCH(the receipt is for 3 other bytes)", "unverifiable(the receipt is not of this read)", 3},
		"another artifact":  {signBody(t, receiptFor(t, other, asked, given), "store"), storePolicy(t), "MISMATCH(the receipt is about another artifact)", "unverifiable(the receipt is not of this read)", 3},
		"another manifest":  {signBody(t, change(func(r *manifest.Receipt) { r.ManifestID = other.Manifest.ManifestID }), "store"), storePolicy(t), "MISMATCH(the receipt is about another artifact)", "unverifiable(the receipt is not of this read)", 3},
		"of another place":  {signBody(t, change(func(r *manifest.Receipt) { r.Result.Span = &beside }), "store"), storePolicy(t), "MISMATCH(the receipt is for the value at bytes ", "unverifiable(the receipt is not of this read)", 3},
		"of no place":       {signBody(t, change(func(r *manifest.Receipt) { r.Result.Span = nil }), "store"), storePolicy(t), vouched, "unverifiable(the receipt does not say at which bytes the value stands)", 2},
		"of a read":         {signBody(t, change(func(r *manifest.Receipt) { r.Request.Action = "read" }), "store"), storePolicy(t), "MISMATCH(the receipt is for a read, which made no bundle)", "unverifiable(the receipt is not of this read)", 3},
		"another capture":   {signBody(t, change(func(r *manifest.Receipt) { r.Capture.Status = manifest.StatusUnknown }), "store"), storePolicy(t), "MISMATCH(the receipt says of the capture what the manifest does not)", "unverifiable(the receipt is not of this read)", 3},
		"a forged one":      {forged, storePolicy(t), "MISMATCH(", "unverifiable(the receipt is not of this read)", 3},
		"by a manifest key": {signBody(t, change(func(r *manifest.Receipt) { r.Issuer.KeyID = one.Fingerprint() }), "one"), storePolicy(t), "unverifiable(key has not this role: one may not speak as receipt)", "unverifiable(key has not this role: one may not speak as receipt)", 2},
		"by nobody known":   {signBody(t, good, "store"), policy(t, "one"), "unverifiable(unknown key", "unverifiable(unknown key", 2},
		"no policy":         {signBody(t, good, "store"), nil, "unverifiable(no policy)", "unverifiable(no policy)", 2},
		"an ad-hoc key":     {signBody(t, good, "store"), manifest.AdHoc(one), "not-claimed(ad-hoc key)", "unverifiable(ad-hoc key)", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := verify(withReceipt(t, excerpt(), test.env), test.policy, &out)
			if err != nil {
				t.Fatal(err)
			}
			for fact, want := range map[string]string{manifest.FactScan: test.scan, manifest.FactSelector: test.selector} {
				if f, _ := res.Verdict.Fact(fact); !strings.HasPrefix(f.String(), want) {
					t.Errorf("%s is %s, want %s", fact, f, want)
				}
			}
			if got := res.Verdict.Exit(); got != test.exit {
				t.Errorf("exit %d, want %d", got, test.exit)
			}
			if (res.Receipt != nil) != (test.scan == vouched) {
				t.Errorf("receipt %v", res.Receipt)
			}
			if out.String() != "200\n" {
				t.Errorf("got %q", out.String())
			}
		})
	}
	// What stands in its place and is no receipt is malformed.
	for name, env := range map[string]manifest.Envelope{
		"the manifest": src.Envelope,
		"a tombstone": signBody(t, &manifest.Tombstone{
			Head: headOf(t, src, "store"), RequestedBy: "alice", Authority: good.Authority, EffectiveAt: manifest.FormatTime(at),
		}, "store"),
	} {
		if _, err := verify(withReceipt(t, excerpt(), env), storePolicy(t), nil); !errors.Is(err, bundle.ErrMalformed) || !strings.Contains(err.Error(), "header/receipt: ") {
			t.Errorf("%s as a receipt: error = %v, want ErrMalformed", name, err)
		}
	}
	file := write(t, excerpt(), nil)
	file = reseal(bytes.Replace(file, []byte(`,"ref":`), []byte(`,"receipt":null,"ref":`), 1))
	if _, err := verify(file, storePolicy(t), nil); !errors.Is(err, bundle.ErrMalformed) {
		t.Errorf("a receipt that is null: error = %v, want ErrMalformed", err)
	}
}

// TestReceiptOfEach: receipts of the other kinds of claims; one where the document
// is there does not make the place less than proven.
func TestReceiptOfEach(t *testing.T) {
	data := lines(300)
	src, doc := source(t, data, "text"), source(t, document(400), "")
	records := bytes.SplitAfter(data, []byte("\n"))
	some, err := bundle.Bytes(src, merkle.Range{Start: 2000, End: 2600})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bundle.Records(t.Context(), src, 7, 11)
	if err != nil {
		t.Fatal(err)
	}
	value, err := bundle.Pointer(t.Context(), doc, "/items/3", true)
	if err != nil {
		t.Fatal(err)
	}
	two, err := bundle.Bytes(src, merkle.Range{Start: 0, End: 1}, merkle.Range{Start: 2000, End: 2600})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		b        *bundle.Bundle
		src      bundle.Source
		asked    []byte
		given    []byte
		scan     manifest.State
		selector manifest.State
	}{
		"bytes":    {some, src, selector.RangeSelector("bytes", 2000, 2600), data[2000:2600], manifest.Attested, manifest.Proven},
		"records":  {rows, src, selector.RangeSelector("records", 7, 11), bytes.Join(records[7:11], nil), manifest.Attested, manifest.Attested},
		"pointer":  {value, doc, selector.PointerSelector("/items/3"), []byte(`{"id": 3, "text": "xxx"}` + "\n"), manifest.Attested, manifest.Proven},
		"a set":    {two, src, selector.RangeSelector("bytes", 0, 2600), data[:2600], manifest.Mismatch, manifest.Proven},
		"a subset": {some, src, selector.RangeSelector("bytes", 2000, 2599), data[2000:2599], manifest.Mismatch, manifest.Proven},
	} {
		t.Run(name, func(t *testing.T) {
			env := signBody(t, receiptFor(t, test.src, test.asked, test.given), "store")
			for _, out := range []*bytes.Buffer{nil, {}} {
				file := withReceipt(t, test.b, env)
				o := bundle.Options{Policy: storePolicy(t), At: at}
				if out != nil {
					o.Out = out
				}
				res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), o)
				if err != nil {
					t.Fatal(err)
				}
				scan, _ := res.Verdict.Fact(manifest.FactScan)
				place, _ := res.Verdict.Fact(manifest.FactSelector)
				if scan.State != test.scan || place.State != test.selector {
					t.Errorf("scan is %s and selector %s, want %s and %s", scan, place, test.scan, test.selector)
				}
				if out != nil && test.scan == manifest.Attested && !bytes.Equal(out.Bytes(), test.given) {
					t.Errorf("got %d bytes, want %d", out.Len(), len(test.given))
				}
			}
		})
	}
}

// TestReceiptElsewhere: a receipt of the value at a pointer does not vouch for the
// same bytes at another place.
func TestReceiptElsewhere(t *testing.T) {
	data := []byte(`{"a":200,"note":"200","pad":"` + strings.Repeat("x", 4000) + `"}`)
	src := source(t, data, "")
	b, err := bundle.Pointer(t.Context(), src, "/a", false)
	if err != nil {
		t.Fatal(err)
	}
	r := receiptFor(t, src, selector.PointerSelector("/a"), []byte("200\n"))
	r.Result.Span = &[2]int64{5, 8}
	file := withReceipt(t, b, signBody(t, r, "store"))
	for at, exit := range map[string]int{"[[5,8]]": 0, "[[17,20]]": 3} {
		moved := reseal(bytes.Replace(file, []byte(`"ranges":[[5,8]]`), []byte(`"ranges":`+at), 1))
		var out bytes.Buffer
		res, err := verify(moved, storePolicy(t), &out)
		if err != nil || out.String() != "200\n" {
			t.Fatal(err, out.String())
		}
		if got := res.Verdict.Exit(); got != exit {
			f, _ := res.Verdict.Fact(manifest.FactSelector)
			t.Errorf("the value at %s: exit %d, want %d; selector is %s", at, got, exit, f)
		}
	}
}

// TestLater brings statements beside the bundle that end the artifact's currency.
func TestLater(t *testing.T) {
	src, other := source(t, lines(20), "text"), source(t, lines(21), "text")
	b, err := bundle.Bytes(src, merkle.Range{Start: 3, End: 9})
	file := write(t, b, err)
	newer := source(t, lines(22), "text").Manifest
	next := manifest.Successor{ArtifactID: newer.ArtifactID, ManifestID: newer.ManifestID}
	superseded := func(src bundle.Source) *manifest.Superseded {
		return &manifest.Superseded{Head: headOf(t, src, "store"), By: next, Kind: "correct"}
	}
	reason := "asked for\nby the customer"
	ended := &manifest.Tombstone{
		Head: headOf(t, src, "store"), RequestedBy: "alice", Reason: &reason, EffectiveAt: manifest.FormatTime(at),
		Authority: manifest.Decided{Epoch: 3, CheckedAt: manifest.FormatTime(at)},
	}
	future := *ended
	future.EffectiveAt = manifest.FormatTime(at.Add(time.Second))
	forged := forge(signBody(t, superseded(src), "store"))
	supersede, tombstone := signBody(t, superseded(src), "store"), signBody(t, ended, "store")
	by := func(key string) *manifest.Superseded {
		return &manifest.Superseded{Head: headOf(t, src, key), By: next, Kind: "correct"}
	}
	pub, err := manifest.PublicKeyOf(signer("other"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := storePolicy(t).With(manifest.AddKey(manifest.Key{Name: "other", Public: pub, Roles: []string{manifest.RoleSupersede}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		later   []manifest.Envelope
		policy  *manifest.Policy
		says    string // how the fact begins
		detail  string
		exit    int
		current int // exit with RequireCurrent
	}{
		"none":             {nil, storePolicy(t), "not-claimed(no later statement at hand)", "", 0, 0},
		"superseded":       {[]manifest.Envelope{supersede}, storePolicy(t), "attested(store, supersede)", "superseded by " + next.ArtifactID + " (correct)", 0, 2},
		"ended":            {[]manifest.Envelope{tombstone}, storePolicy(t), "attested(store, tombstone)", "ended by its store at 2026-11-30T12:00:00Z, reason \"asked for\\nby the customer\"", 0, 2},
		"by two keys":      {[]manifest.Envelope{signBody(t, by("other"), "other"), tombstone}, two, "attested(store, tombstone)", "other (supersede) says: superseded by " + next.ArtifactID, 0, 2},
		"both":             {[]manifest.Envelope{supersede, tombstone}, storePolicy(t), "attested(store, tombstone)", "superseded by ", 0, 2},
		"both, turned":     {[]manifest.Envelope{tombstone, supersede}, storePolicy(t), "attested(store, tombstone)", "ended by its store", 0, 2},
		"not yet":          {[]manifest.Envelope{signBody(t, &future, "store")}, storePolicy(t), "attested(store, tombstone)", "ended by its store at 2026-11-30T12:00:01Z", 0, 0},
		"not yet, and now": {[]manifest.Envelope{signBody(t, &future, "store"), supersede}, storePolicy(t), "attested(store, supersede)", "", 0, 2},
		"another artifact": {[]manifest.Envelope{signBody(t, superseded(other), "store")}, storePolicy(t), "unverifiable(the later statement is about " + other.Manifest.ArtifactID, "", 2, 2},
		"unknown key":      {[]manifest.Envelope{supersede}, policy(t, "one"), "unverifiable(the later statement: unknown key", "", 2, 2},
		"forged":           {[]manifest.Envelope{forged}, storePolicy(t), "MISMATCH(the later statement: signature does not verify", "", 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: test.policy, At: at, Later: test.later})
			if err != nil {
				t.Fatal(err)
			}
			f, _ := res.Verdict.Fact(manifest.FactSupersession)
			if !strings.HasPrefix(f.String(), test.says) || !strings.Contains(f.Detail, test.detail) {
				t.Errorf("supersession is %s, %q; want %s, %q", f, f.Detail, test.says, test.detail)
			}
			if got := res.Verdict.Exit(); got != test.exit {
				t.Errorf("exit %d, want %d", got, test.exit)
			}
			res.Verdict.RequireCurrent()
			if got := res.Verdict.Exit(); got != test.current {
				t.Errorf("exit %d when it must be current, want %d", got, test.current)
			}
		})
	}
	for name, env := range map[string]manifest.Envelope{
		"the manifest": src.Envelope,
		"a receipt":    signBody(t, receiptFor(t, src, selector.RangeSelector("bytes", 3, 9), nil), "store"),
	} {
		_, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: storePolicy(t), At: at, Later: []manifest.Envelope{env}})
		if !errors.Is(err, bundle.ErrLater) || errors.Is(err, bundle.ErrMalformed) {
			t.Errorf("%s as a later statement: error = %v, want ErrLater", name, err)
		}
	}
}
