package manifest_test

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/merkle"
)

// headOf is the head of a statement about the artifact of predicate, by a key.
func headOf(t testing.TB, key string) manifest.Head {
	t.Helper()
	m, err := manifest.ParseManifest(statement(t, predicate()))
	if err != nil {
		t.Fatal(err)
	}
	_, pub := testKey(key)
	ref := m.Predicate.ArtifactRef
	return manifest.Head{
		ArtifactID: m.ArtifactID, ManifestID: m.ManifestID, Scope: ref.Scope, SourceID: ref.SourceVersion.SourceID,
		Issuer: manifest.Issuer{KeyID: pub.Fingerprint()}, IssuedAt: "2026-11-06T04:50:00Z", Nonce: "0f0e0d0c0b0a09080706050403020100",
	}
}

// receiptBody is the receipt of a query's first page.
func receiptBody(t testing.TB, key string) *manifest.Receipt {
	return &manifest.Receipt{
		Head: headOf(t, key), Principal: "alice@example.com", Purpose: new("triage"),
		Authority: manifest.Decided{Epoch: 3, CheckedAt: "2026-11-06T04:50:00Z", MaxStaleMS: 1000},
		Request: manifest.Request{
			Action: "query", Asked: new(`@.status == "open"`), Selector: []any{"eq", []any{"/status"}, []any{"s", "open"}},
			QID: "q_" + strings.Repeat("a", 32), Limit: new(int64(10)),
		},
		Order:      "document",
		Examined:   manifest.Examined{Basis: "scan", Records: 90, Bytes: 9000, Ranges: [][2]int64{{0, 90}}, Total: 200},
		Result:     manifest.Result{MatchedSoFar: new(int64(10)), Returned: 10, Undecidable: 1, Bytes: 900, Digest: merkle.Sum(nil).String()},
		Completion: manifest.Completion{Stop: "page_limit", More: "yes"},
		Capture:    manifest.CapturedOf(predicate().ArtifactRef.Completeness),
		Disclosed:  manifest.Disclosed{Ranges: [][2]int64{{0, 400}, {500, 1000}}, Exact: true},
		Page:       manifest.Page{Number: new(int64(1))},
		Assurance:  "attested",
	}
}

// bodies is one good body of each kind, by its predicateType.
func bodies(t testing.TB, key string) map[string]manifest.Body {
	head := headOf(t, key)
	root, other := merkle.Sum([]byte("a")).String(), merkle.Sum([]byte("b")).String()
	id, mf := "art_"+strings.Repeat("b", 32), "mf_"+strings.Repeat("c", 32)
	return map[string]manifest.Body{
		manifest.PredicateIndex: &manifest.IndexAdded{Head: head, Index: manifest.Index{
			Path: "/status", Root: root, Size: 8192, Entries: 200, Distinct: 5, Undetermined: 1,
			Spec: map[string]any{"path": "/status"}, SpecDigest: other,
		}},
		manifest.PredicateSupersede: &manifest.Superseded{
			Head: head, By: manifest.Successor{ArtifactID: id, ManifestID: mf}, Kind: "correct", Reason: new("a wrong region"),
		},
		manifest.PredicateTombstone: &manifest.Tombstone{
			Head: head, RequestedBy: "owner", Authority: manifest.Decided{CheckedAt: "2026-11-06T04:50:00Z"}, EffectiveAt: "2026-11-06T04:50:00.25Z",
		},
		manifest.PredicateDeletion: &manifest.Deletion{Head: head, TombstoneID: "tb_" + strings.Repeat("d", 32), Locations: []manifest.Location{
			{Part: "bytes", Place: "objects", State: "deleted", Method: new("unlink"), At: new("2026-11-06T05:00:00Z"), SharedChunks: new(int64(2))},
			{Part: "manifest", Place: "objects", State: "pending"},
			{Part: "record_map", Place: "objects", State: "shared"},
		}},
		manifest.PredicateAudit: &manifest.Audit{Head: head, Tool: "leafproof 0.1", Checked: []manifest.Rebuilt{
			{Part: "index", Path: new("/status"), Claimed: root, Found: other, Outcome: "differs"},
			{Part: "bytes", Claimed: root, Found: root, Outcome: "same"},
		}},
		manifest.PredicateReceipt: receiptBody(t, key),
		manifest.PredicateAdmission: &manifest.Admission{
			Head: head, ReceiptID: "rc_" + strings.Repeat("e", 32), ReceiptDigest: root, Size: 900,
			Admitted: [][2]int64{{0, 100}, {300, 800}},
			Omitted: []manifest.Omitted{
				{Range: [2]int64{100, 300}, Reason: "elided"},
				{Range: [2]int64{800, 850}, Reason: "policy"},
				{Range: [2]int64{850, 900}, Reason: "token_budget"},
			}, SerialisedDigest: other,
		},
	}
}

func encode(t testing.TB, b manifest.Body) []byte {
	t.Helper()
	payload, err := manifest.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// Every kind comes back as it was written, under its own type and no other.
func TestKindRoundTrip(t *testing.T) {
	ids := map[string]bool{}
	all := bodies(t, "one")
	if len(all) != len(manifest.Kinds()) {
		t.Fatalf("%d bodies, %d kinds", len(all), len(manifest.Kinds()))
	}
	for want, body := range all {
		payload := encode(t, body)
		if got, err := manifest.StatementKind(payload); err != nil || got != want {
			t.Errorf("%s: StatementKind = %q, %v", want, got, err)
		}
		d, err := manifest.ParseStatement(payload, want)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if again := encode(t, d.Body); !bytes.Equal(again, payload) {
			t.Errorf("%s is written as\n%s, then as\n%s", want, payload, again)
		}
		if d.Kind.PredicateType != want || ids[d.ID] || len(d.ID) != 35 {
			t.Errorf("%s: kind %s, id %s", want, d.Kind.PredicateType, d.ID)
		}
		ids[d.ID] = true
		if _, err := manifest.ParseManifest(payload); !errors.Is(err, manifest.ErrMalformed) || !strings.Contains(err.Error(), "/predicateType") {
			t.Errorf("%s passes for a manifest: %v", want, err)
		}
		for other := range all {
			if d, err := manifest.ParseStatement(payload, other); other != want && (d != nil || !strings.Contains(err.Error(), "/predicateType")) {
				t.Errorf("%s passes for %s: %v", want, other, err)
			}
		}
	}
	// A manifest is none of them, and neither is a foreign type.
	for want := range all {
		if d, err := manifest.ParseStatement(statement(t, predicate()), want); d != nil || !strings.Contains(err.Error(), "/predicateType") {
			t.Errorf("a manifest passes for %s: %v", want, err)
		}
	}
	for _, want := range []string{"", manifest.PredicateManifest, "urn:x-leafproof:read-receipt/v2"} {
		if d, err := manifest.ParseStatement(encode(t, all[manifest.PredicateReceipt]), want); d != nil || !errors.Is(err, manifest.ErrUnsupported) {
			t.Errorf("ParseStatement of %q = %v, %v", want, d, err)
		}
	}
}

// What a kind may not say is refused, both when it is written and when it is read.
func TestKindRefusals(t *testing.T) {
	type change = func(manifest.Body)
	receipt := func(f func(*manifest.Receipt)) change { return func(b manifest.Body) { f(b.(*manifest.Receipt)) } }
	admission := func(f func(*manifest.Admission)) change {
		return func(b manifest.Body) { f(b.(*manifest.Admission)) }
	}
	deletion := func(f func(*manifest.Deletion)) change { return func(b manifest.Body) { f(b.(*manifest.Deletion)) } }
	audit := func(f func(*manifest.Audit)) change { return func(b manifest.Body) { f(b.(*manifest.Audit)) } }
	index := func(f func(*manifest.IndexAdded)) change {
		return func(b manifest.Body) { f(b.(*manifest.IndexAdded)) }
	}
	head := func(f func(*manifest.Head)) change { return func(b manifest.Body) { f(b.About()) } }
	for name, test := range map[string]struct {
		kind   string
		change change
		at     string
	}{
		"no artifact":       {manifest.PredicateAudit, head(func(h *manifest.Head) { h.ArtifactID = "art_x" }), "/artifact_id"},
		"a manifest's name": {manifest.PredicateAudit, head(func(h *manifest.Head) { h.ManifestID = h.ArtifactID }), "/manifest_id"},
		"a tenant pattern":  {manifest.PredicateAudit, head(func(h *manifest.Head) { h.Scope.TenantID = "a*" }), "/scope/tenant_id"},
		"no run name":       {manifest.PredicateAudit, head(func(h *manifest.Head) { h.Scope.RunID = new("") }), "/scope/run_id"},
		"a NUL in a source": {manifest.PredicateAudit, head(func(h *manifest.Head) { h.SourceID = new("a\x00") }), "/source_id"},
		"no key":            {manifest.PredicateAudit, head(func(h *manifest.Head) { h.Issuer.KeyID = "one" }), "/issuer/key_id"},
		"a local time":      {manifest.PredicateAudit, head(func(h *manifest.Head) { h.IssuedAt = "2026-11-06T04:50:00+01:00" }), "/issued_at"},
		"no nonce":          {manifest.PredicateAudit, head(func(h *manifest.Head) { h.Nonce = "" }), "/nonce"},

		"another path":         {manifest.PredicateIndex, index(func(b *manifest.IndexAdded) { b.Index.Path = "" }), "/index/spec/path"},
		"more distinct":        {manifest.PredicateIndex, index(func(b *manifest.IndexAdded) { b.Index.Distinct = 201 }), "/index/distinct"},
		"undetermined below 0": {manifest.PredicateIndex, index(func(b *manifest.IndexAdded) { b.Index.Undetermined = -1 }), "/index/undetermined"},
		"no spec":              {manifest.PredicateIndex, index(func(b *manifest.IndexAdded) { b.Index.Spec = nil }), "/index/spec"},

		"supersedes itself": {manifest.PredicateSupersede, func(b manifest.Body) { s := b.(*manifest.Superseded); s.By.ArtifactID = s.ArtifactID }, "/superseded_by/artifact_id"},
		"another kind":      {manifest.PredicateSupersede, func(b manifest.Body) { b.(*manifest.Superseded).Kind = "redirect" }, "/kind"},
		"an empty reason":   {manifest.PredicateTombstone, func(b manifest.Body) { b.(*manifest.Tombstone).Reason = new("") }, "/reason"},
		"a long reason":     {manifest.PredicateTombstone, func(b manifest.Body) { b.(*manifest.Tombstone).Reason = new(strings.Repeat("x", 1025)) }, "/reason"},
		"asked by nobody":   {manifest.PredicateTombstone, func(b manifest.Body) { b.(*manifest.Tombstone).RequestedBy = "" }, "/requested_by"},

		"complete, but pending":   {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.Complete = true }), "/complete"},
		"not complete, and done":  {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.Locations = b.Locations[:1] }), "/complete"},
		"no location":             {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.Locations = nil }), "/locations"},
		"deleted, not how":        {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.Locations[0].Method = nil }), "/locations/0/method"},
		"pending, and since when": {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.Locations[1].At = new("2026-11-06T05:00:00Z") }), "/locations/1/at"},
		"a foreign tombstone":     {manifest.PredicateDeletion, deletion(func(b *manifest.Deletion) { b.TombstoneID = "rc_" + strings.Repeat("d", 32) }), "/tombstone_id"},

		"same, but not":     {manifest.PredicateAudit, audit(func(b *manifest.Audit) { b.Checked[0].Outcome = "same" }), "/checked/0/outcome"},
		"differs, but not":  {manifest.PredicateAudit, audit(func(b *manifest.Audit) { b.Checked[1].Outcome = "differs" }), "/checked/1/outcome"},
		"bytes with a path": {manifest.PredicateAudit, audit(func(b *manifest.Audit) { b.Checked[1].Path = new("/a") }), "/checked/1/path"},
		"nothing checked":   {manifest.PredicateAudit, audit(func(b *manifest.Audit) { b.Checked = nil }), "/checked"},

		"a gap in the prompt":    {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Omitted[0].Range[1] = 299 }), ""},
		"an overlap":             {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Omitted[0].Range[1] = 301 }), ""},
		"less than the answer":   {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Size = 901 }), ""},
		"more than the answer":   {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Size = 899 }), ""},
		"omitted for no reason":  {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Omitted[1].Reason = "" }), "/omitted/1/reason"},
		"admitted out of order":  {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { slices.Reverse(b.Admitted) }), "/admitted/1"},
		"an empty admitted part": {manifest.PredicateAdmission, admission(func(b *manifest.Admission) { b.Admitted[0][1] = 0 }), "/admitted/0"},

		"a value of no place":     {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Examined.Basis, b.Result.Span = "range", &[2]int64{4, 4} }), "/result/span"},
		"a place of a query":      {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Result.Span = &[2]int64{4, 5} }), "/result/span"},
		"complete too early":      {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Completion = manifest.Completion{Stop: "complete", More: "no"} }), "/completion/stop"},
		"complete, and more":      {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Completion.Stop = "complete" }), "/completion/more"},
		"all matched, not all":    {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Result.Matched, b.Result.MatchedSoFar = new(int64(10)), nil }), "/result/matched"},
		"another stop":            {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Completion.Stop = "done" }), "/completion/stop"},
		"another action":          {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Request.Action = "delete" }), "/request/action"},
		"no selector":             {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Request.Selector = nil }), "/request/selector"},
		"no query id":             {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Request.QID = "q" }), "/request/qid"},
		"a limit of 0":            {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Request.Limit = new(int64(0)) }), "/request/limit"},
		"complete, omitted some":  {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Capture.Status = manifest.StatusComplete }), "/capture/status"},
		"ranges that touch":       {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Disclosed.Ranges[1][0] = 400 }), "/disclosed/ranges/1"},
		"a page 2 from nowhere":   {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Page.Number = new(int64(2)) }), "/page"},
		"numbered, none before":   {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Page.Continued = true }), "/page/number"},
		"page 1 behind another":   {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Page.Continued, b.Page.Previous = true, new(b.Result.Digest) }), "/page/number"},
		"read by nobody":          {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Principal = "" }), "/principal"},
		"an epoch below 0":        {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Authority.Epoch = -1 }), "/authority/epoch"},
		"a digest in upper case":  {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Result.Digest = strings.ToUpper(b.Result.Digest) }), "/result/digest"},
		"examined less than none": {manifest.PredicateReceipt, receipt(func(b *manifest.Receipt) { b.Examined.Records = -1 }), "/examined/records"},
	} {
		t.Run(name, func(t *testing.T) {
			body := bodies(t, "one")[test.kind]
			good := encode(t, body)
			test.change(body)
			payload, err := manifest.Encode(body)
			e, ok := errors.AsType[*manifest.Error](err)
			if !ok || e.At != "/predicate"+test.at && !(test.at == "" && strings.HasPrefix(e.At, "/predicate")) || payload != nil {
				t.Fatalf("Encode = %v at %v, want a refusal at /predicate%s", payload, err, test.at)
			}
			// The same from a stranger, who writes what he likes.
			forged, err := manifest.Canonical(raw(body, good, t))
			if err != nil {
				return // it has no canonical form
			}
			if d, err := manifest.ParseStatement(forged, test.kind); d != nil || err == nil {
				t.Errorf("ParseStatement lets pass %s", forged)
			}
		})
	}
}

// raw is the statement good with the predicate of another body.
func raw(body manifest.Body, good []byte, t *testing.T) map[string]any {
	t.Helper()
	var st map[string]any
	if err := manifest.Decode(good, &st); err != nil {
		t.Fatal(err)
	}
	st["predicate"] = body
	return st
}

// What is not exactly one statement of the kind is refused, whoever signed it.
func TestParseStatementRefusals(t *testing.T) {
	good := string(encode(t, bodies(t, "one")[manifest.PredicateReceipt]))
	swap := func(old, with string) string {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q stands %d times", old, strings.Count(good, old))
		}
		return strings.Replace(good, old, with, 1)
	}
	id := headOf(t, "one").ArtifactID
	for name, test := range map[string]struct {
		payload string
		err     error
	}{
		"good":                     {good, nil},
		"another _type":            {swap("Statement/v1", "Statement/v0.1"), manifest.ErrMalformed},
		"a member twice":           {swap(`"order":"document"`, `"order":"document","order":"document"`), manifest.ErrNotCanonical},
		"an unknown member":        {swap(`"order":"document"`, `"order":"document","ordered":true`), manifest.ErrMalformed},
		"a member in another case": {swap(`"purpose":"triage"`, `"Purpose":"triage"`), manifest.ErrNotCanonical},
		"both cases":               {swap(`"predicate":{`, `"predicate":{"Scope":{"run_id":null,"tenant_id":"other"},`), manifest.ErrMalformed},
		"a member missing":         {swap(`"purpose":"triage",`, ``), manifest.ErrMalformed},
		"a space":                  {swap(`"order":"document"`, `"order": "document"`), manifest.ErrNotCanonical},
		"a float":                  {swap(`"max_stale_ms":1000`, `"max_stale_ms":1e3`), manifest.ErrNotCanonical},
		"a huge number":            {swap(`"max_stale_ms":1000`, `"max_stale_ms":1e400`), manifest.ErrNotCanonical},
		"a lone surrogate":         {swap(`"triage"`, `"\ud834"`), manifest.ErrNotCanonical},
		"a NUL in the reader":      {swap(`"alice@example.com"`, `"alice\u0000"`), manifest.ErrMalformed},
		"deep":                     {swap(`["eq",["/status"],["s","open"]]`, strings.Repeat("[", 10000)+strings.Repeat("]", 10000)), manifest.ErrNotCanonical},
		"two subjects":             {strings.Replace(good, `"subject":[{`, `"subject":[{"digest":{"leafproof.manifest_id":"mf_x"},"name":"x"},{`, 1), manifest.ErrMalformed},
		"no subject":               {good[:strings.Index(good, `"subject":[`)] + `"subject":[]}`, manifest.ErrMalformed},
		"another subject":          {strings.Replace(good, `"name":"`+id, `"name":"art_`+strings.Repeat("a", 32), 1), manifest.ErrID},
		"another digest":           {strings.Replace(good, `"leafproof.manifest_id":"mf_`, `"leafproof.manifest_id":"mf_a`, 1), manifest.ErrDigest},
		"a second digest":          {strings.Replace(good, `"digest":{"leafproof`, `"digest":{"blake3":"00","leafproof`, 1), manifest.ErrDigest},
		"no digest":                {good[:strings.Index(good, `"subject":[`)] + `"subject":[{"digest":{},"name":"` + id + `"}]}`, manifest.ErrDigest},
		"empty":                    {"", manifest.ErrNotCanonical},
		"null":                     {"null", manifest.ErrMalformed},
		"more than 1 MiB":          {swap(`"triage"`, `"`+strings.Repeat("x", 1<<20)+`"`), manifest.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := manifest.ParseStatement([]byte(test.payload), manifest.PredicateReceipt)
			if !errors.Is(err, test.err) || (d == nil) != (err != nil) {
				t.Errorf("ParseStatement = %v, %v, want %v", d, err, test.err)
			}
		})
	}
}

// storePolicy admits keys named by their roles: "one" speaks as everything here.
func storePolicy(t testing.TB, lines ...string) *manifest.Policy {
	t.Helper()
	var text strings.Builder
	text.WriteString("policy p version 1\n")
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		_, pub := testKey(name)
		if rest == "" {
			text.WriteString(line + "\n")
			continue
		}
		if name == "threshold" || name == "retired" {
			text.WriteString(line + "\n")
			continue
		}
		text.WriteString("key " + pub.OpenSSHLine() + " name=" + name + " " + rest + "\n")
	}
	return parsePolicy(t, text.String())
}

func TestVerifyStatement(t *testing.T) {
	const all = "roles=manifest,index,receipt,supersede,tombstone,deletion,audit,admission tenants=*"
	one, pubOne := testKey("one")
	two, pubTwo := testKey("two")
	sign := func(b manifest.Body) manifest.Envelope {
		env, err := manifest.Sign(encode(t, b), one)
		if err != nil {
			t.Fatal(err)
		}
		return env
	}
	receipt := sign(receiptBody(t, "one"))
	both, err := receipt.Cosign(two)
	if err != nil {
		t.Fatal(err)
	}
	payload := encode(t, receiptBody(t, "one"))
	edit := func(f func(*manifest.Envelope)) manifest.Envelope {
		env := receipt
		env.Signatures = slices.Clone(env.Signatures)
		f(&env)
		return env
	}
	byTwo, err := manifest.Sign(payload, two)
	if err != nil {
		t.Fatal(err)
	}
	signedManifest, _ := signed(t)
	rawSig, err := one.Sign(nil, payload, crypto.Hash(0))
	if err != nil {
		t.Fatal(err)
	}
	altered := bytes.Replace(payload, []byte(`"returned":10`), []byte(`"returned":11`), 1)
	for name, test := range map[string]struct {
		env    manifest.Envelope
		policy *manifest.Policy
		err    error
	}{
		"good":                      {receipt, storePolicy(t, "one "+all), nil},
		"no policy":                 {receipt, nil, manifest.ErrNoPolicy},
		"a manifest for a receipt":  {signedManifest, storePolicy(t, "one "+all), manifest.ErrMalformed},
		"a tombstone for a receipt": {sign(bodies(t, "one")[manifest.PredicateTombstone]), storePolicy(t, "one "+all), manifest.ErrMalformed},
		"another payload type":      {edit(func(e *manifest.Envelope) { e.PayloadType = "application/json" }), storePolicy(t, "one "+all), manifest.ErrMalformed},
		"no signature":              {edit(func(e *manifest.Envelope) { e.Signatures = nil }), storePolicy(t, "one "+all), manifest.ErrMalformed},
		"a signature twice":         {edit(func(e *manifest.Envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) }), storePolicy(t, "one "+all), manifest.ErrMalformed},
		"an altered payload":        {edit(func(e *manifest.Envelope) { e.Payload = base64.StdEncoding.EncodeToString(altered) }), storePolicy(t, "one "+all), manifest.ErrSignature},
		"signed without its type":   {edit(func(e *manifest.Envelope) { e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(rawSig) }), storePolicy(t, "one "+all), manifest.ErrSignature},
		"another's signature":       {edit(func(e *manifest.Envelope) { e.Signatures[0].Sig = byTwo.Signatures[0].Sig }), storePolicy(t, "one "+all), manifest.ErrSignature},
		"the issuer did not sign":   {byTwo, storePolicy(t, "one "+all, "two "+all), manifest.ErrSignature},
		"a key that is unknown":     {receipt, storePolicy(t, "two "+all), manifest.ErrUnknownKey},
		"only a manifest's key":     {receipt, storePolicy(t, "one roles=manifest,tombstone tenants=*"), manifest.ErrRole},
		"another tenant's key":      {receipt, storePolicy(t, "one roles=receipt tenants=other"), manifest.ErrScope},
		"another source's key":      {receipt, storePolicy(t, "one roles=receipt tenants=* sources=app.*"), manifest.ErrScope},
		"a key of last year":        {receipt, storePolicy(t, "one roles=receipt tenants=* not-after=2026-01-01T00:00:00Z"), manifest.ErrTimeWindow},
		"a retired key":             {receipt, storePolicy(t, "one "+all, "retired "+pubOne.Fingerprint()+" at=2026-01-01T00:00:00Z"), manifest.ErrRetired},
		"one of two":                {receipt, storePolicy(t, "one "+all, "two "+all, "threshold receipt 2"), manifest.ErrThreshold},
		"two of two":                {both, storePolicy(t, "one "+all, "two "+all, "threshold receipt 2"), nil},
		"two, one in another role":  {both, storePolicy(t, "one "+all, "two roles=manifest tenants=*", "three "+all, "threshold receipt 2"), manifest.ErrThreshold},
		"cosigned by a stranger":    {both, storePolicy(t, "one "+all), nil},
		"an ad-hoc key":             {receipt, manifest.AdHoc(pubOne), manifest.ErrRole},
	} {
		t.Run(name, func(t *testing.T) {
			d, keys, err := manifest.VerifyStatement(test.env, manifest.PredicateReceipt, test.policy, at)
			if !errors.Is(err, test.err) {
				t.Fatalf("error = %v, want %v", err, test.err)
			}
			if (d == nil) != (err != nil) || (len(keys) == 0) != (err != nil) {
				t.Errorf("document %v, keys %v, error %v", d, keys, err)
			}
		})
	}
	// Every kind needs its own role.
	for want, body := range bodies(t, "one") {
		kind, _ := manifest.KindOf(want)
		if _, _, err := manifest.VerifyStatement(sign(body), want, storePolicy(t, "one roles="+kind.Role+" tenants=*"), at); err != nil {
			t.Errorf("%s by a key of the role %s: %v", want, kind.Role, err)
		}
		for _, other := range manifest.Kinds() {
			if other.Role == kind.Role {
				continue
			}
			if _, _, err := manifest.VerifyStatement(sign(body), want, storePolicy(t, "one roles="+other.Role+" tenants=*"), at); !errors.Is(err, manifest.ErrRole) {
				t.Errorf("%s by a key of the role %s: %v", want, other.Role, err)
			}
		}
	}
	if pubOne == pubTwo {
		t.Fatal("the keys are one")
	}
}

// A receipt beside a manifest is the fact scan.
func TestVerifyReceipt(t *testing.T) {
	one, pubOne := testKey("one")
	two, _ := testKey("two")
	m, err := manifest.ParseManifest(statement(t, predicate()))
	if err != nil {
		t.Fatal(err)
	}
	const good = "roles=receipt tenants=*"
	for name, test := range map[string]struct {
		change func(*manifest.Receipt)
		env    func(manifest.Envelope) manifest.Envelope
		policy *manifest.Policy
		want   string
	}{
		"good":           {policy: storePolicy(t, "one "+good), want: "attested(one, receipt)"},
		"no policy":      {want: "unverifiable(no policy)"},
		"ad-hoc key":     {policy: manifest.AdHoc(pubOne), want: "not-claimed(ad-hoc key)"},
		"another role":   {policy: storePolicy(t, "one roles=manifest tenants=*"), want: "unverifiable(key has not this role: one may not speak as receipt)"},
		"other artifact": {change: func(b *manifest.Receipt) { b.ArtifactID = "art_" + strings.Repeat("a", 32) }, policy: storePolicy(t, "one "+good), want: "MISMATCH(the receipt is about another artifact)"},
		"other manifest": {change: func(b *manifest.Receipt) { b.ManifestID = "mf_" + strings.Repeat("a", 32) }, want: "MISMATCH(the receipt is about another artifact)"},
		"other capture":  {change: func(b *manifest.Receipt) { b.Capture.Records = new(int64(2)) }, policy: storePolicy(t, "one "+good), want: "MISMATCH(the receipt says of the capture what the manifest does not)"},
		"other tenant":   {change: func(b *manifest.Receipt) { b.Scope.TenantID = "tenant_b" }, policy: storePolicy(t, "one roles=receipt tenants=tenant_b"), want: "MISMATCH(the receipt is about another artifact)"},
		"other run":      {change: func(b *manifest.Receipt) { b.Scope.RunID = nil }, policy: storePolicy(t, "one "+good), want: "MISMATCH(the receipt is about another artifact)"},
		"other source":   {change: func(b *manifest.Receipt) { b.SourceID = new("infra.x") }, policy: storePolicy(t, "one "+good), want: "MISMATCH(the receipt is about another artifact)"},
		"bad signature": {env: func(e manifest.Envelope) manifest.Envelope {
			e.Signatures = []manifest.Signature{{KeyID: pubOne.Fingerprint(), Sig: base64.StdEncoding.EncodeToString(make([]byte, 64))}}
			return e
		}, policy: storePolicy(t, "one "+good), want: "MISMATCH(signature does not verify: that by " + pubOne.Fingerprint() + ")"},
		"by somebody else": {env: func(e manifest.Envelope) manifest.Envelope {
			p, _ := e.PayloadBytes()
			e, _ = manifest.Sign(p, two)
			return e
		}, policy: storePolicy(t, "one "+good), want: "MISMATCH(signature does not verify: the statement names the issuer " + pubOne.Fingerprint() + ", which did not sign it)"},
	} {
		t.Run(name, func(t *testing.T) {
			b := receiptBody(t, "one")
			if test.change != nil {
				test.change(b)
			}
			env, err := manifest.Sign(encode(t, b), one)
			if err != nil {
				t.Fatal(err)
			}
			if test.env != nil {
				env = test.env(env)
			}
			r, fact, err := manifest.VerifyReceipt(env, m, test.policy, at)
			if err != nil || fact.Name != manifest.FactScan || fact.String() != test.want {
				t.Errorf("VerifyReceipt = %s is %s, %v, want %s", fact.Name, fact, err, test.want)
			}
			if (r != nil) != (fact.State == manifest.Attested) {
				t.Errorf("%s, receipt %v", fact, r)
			}
		})
	}
	env, _ := signed(t)
	if r, fact, err := manifest.VerifyReceipt(env, m, nil, at); !errors.Is(err, manifest.ErrMalformed) || r != nil || fact != (manifest.Fact{}) {
		t.Errorf("a manifest for a receipt: %v, %v, %v", r, fact, err)
	}
}
