package bundle_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/manifest/tlog"
	"leafproof/merkle"
	"leafproof/selector"
)

// TestEveryFact (case 76 is in it) shows each fact of the verdict fail for a reason of its own, while
// all that does not hang on it stays as it was; and each that may rest on a word
// merely attested, with the key and the role.
//
// A signature and its key carry all that a statement says: what hangs on them
// cannot be judged once they are gone, and is listed.
func TestEveryFact(t *testing.T) {
	said := []string{
		manifest.FactSignature, manifest.FactKey, manifest.FactScope, manifest.FactCapture, manifest.FactSource, manifest.FactTimes,
		manifest.FactExpiry, manifest.FactSupersession, manifest.FactLength,
	}
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(said), func(s string) bool { return s == name })
	}
	data := lines(300)
	expires := manifest.FormatTime(at.Add(time.Hour))
	src := sourceOf(t, data, "text", func(p *manifest.Predicate) {
		p.ArtifactRef.ExpiresAt = &expires
		p.Supersedes = []manifest.Supersede{{ArtifactID: "art_" + strings.Repeat("b", 32), Kind: "correct"}}
	})
	some, err := bundle.Bytes(src, merkle.Range{Start: 2000, End: 2600})
	file := write(t, some, err)
	rows, err := bundle.Records(t.Context(), src, 7, 11)
	records := write(t, rows, err)
	receipt := receiptFor(t, src, selector.RangeSelector("bytes", 2000, 2600), data[2000:2600])
	received := withReceipt(t, some, signBody(t, receipt, "store"))
	notOfThis := receiptFor(t, src, selector.RangeSelector("bytes", 2000, 2601), data[2000:2600])
	edit := func(old, new string) []byte {
		if !bytes.Contains(file, []byte(old)) {
			t.Fatalf("the file has no %s", old)
		}
		return reseal(bytes.Replace(file, []byte(old), []byte(new), 1))
	}
	flip := func(file []byte, fromEnd int) []byte {
		out := bytes.Clone(file)
		out[len(out)-fromEnd] ^= 1
		return reseal(out)
	}
	ended := &manifest.Tombstone{
		Head: headOf(t, src, "store"), RequestedBy: "alice", EffectiveAt: manifest.FormatTime(at),
		Authority: manifest.Decided{Epoch: 3, CheckedAt: manifest.FormatTime(at)},
	}
	role := policyOf(t, "roles=receipt tenants=*")
	elsewhere := policyOf(t, "roles=manifest tenants=others")
	bytesOf := func(from, to int64) *bundle.Claim {
		c := bundle.BytesClaim(merkle.Range{Start: from, End: to})
		return &c
	}
	// The map's section of the records bundle comes first, so its bytes are those
	// behind the header.
	mapByte := len(records) - bytes.Index(records, []byte("LFPRMAP1"))

	// The answer to a query: what tells of it alone is altered.
	events := incidents(600)
	withIndexes, indexes := withIndex(t, events, "/id")
	_, answered := prove(t, withIndexes, indexes[0], ask(t, `@.id >= 590`, 0))
	another := reseal(bytes.Replace(answered, []byte(`["ge","/id",["n","590"]]`), []byte(`["lt","/id",["n","590"]]`), 1))
	indexByte := len(answered) - bytes.Index(answered, []byte("LFPINDX1"))

	type row struct {
		file   []byte
		o      bundle.Options
		says   string   // of the fact, as far as it is told
		taking []string // facts that fail with it
	}
	admitted := bundle.Options{Policy: withLog(t, storePolicy(t)), At: at}
	logged := func(payload []byte) []byte {
		b, _ := committed(t, src, at, time.Time{}, tlog.LeafOf(manifest.RoleManifest, payload))
		return write(t, b, nil)
	}
	option := func(f func(*bundle.Options)) bundle.Options {
		o := admitted
		f(&o)
		return o
	}
	// A fact has several rows where there are several ways to fail.
	fails := map[string][]row{
		manifest.FactBytes: {
			{flip(file, 1), admitted, "MISMATCH(claims/0: ", []string{manifest.FactLength, manifest.FactSelector}},
			{edit(`"content_hash":"blake3:`+src.Manifest.Root.String(), `"content_hash":"blake3:`+merkle.Sum(nil).String()), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /content_hash)", nil},
		},
		manifest.FactLength: {{edit(fmt.Sprintf(`"size":%d}`, len(data)), fmt.Sprintf(`"size":%d}`, len(data)+1)), admitted, "MISMATCH(claims/0/size: ", nil}},
		manifest.FactSignature: {
			{badSignature(t, src, file), admitted, "MISMATCH(the signature by SHA256:", without(manifest.FactSignature)},
			{badSSH(t, src, file), admitted, "MISMATCH(the SSH signature: signature does not verify)", without(manifest.FactSignature)},
			{edit(`"artifact_id":"art_`, `"artifact_id":"arx_`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /artifact_id)", nil},
			{edit(`"tool_call_id":null`, `"tool_call_id":"x"`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /tool_call_id)", nil},
		},
		manifest.FactKey:      {{file, bundle.Options{Policy: role, At: at}, "unverifiable(key has not this role: one may not speak as manifest)", without(manifest.FactKey)}},
		manifest.FactSelector: {{file, option(func(o *bundle.Options) { o.Expect = bytesOf(2000, 2601) }), "MISMATCH(expected bytes 2000:2601, the bundle claims bytes 2000:2600)", nil}},
		manifest.FactScope: {
			{edit(`"tenant_id":"acme"`, `"tenant_id":"evil"`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /scope/tenant_id)", nil},
			{file, bundle.Options{Policy: elsewhere, At: at}, "unverifiable(key may not speak for this scope: one may not speak for tenant acme)", without(manifest.FactScope)},
		},
		manifest.FactCapture: {
			{edit(`"status":"complete"`, `"status":"unknown"`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /completeness/status)", nil},
			// More differences than are named say nothing of another fact.
			{edit(`"coverage":{"region":"eu"}`, `"coverage":{"`+strings.Join(strings.Split("abcdefghijklmnopqrstuv", ""), `":1,"`)+`":1}`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /completeness/coverage/a, ", nil},
		},
		manifest.FactSource: {{edit(`"source_id":"infra.events"`, `"source_id":"infra.alerts"`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /source_version/source_id)", nil}},
		manifest.FactTimes:  {{edit(`"created_at":"2026-`, `"created_at":"2027-`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /created_at)", nil}},
		manifest.FactExpiry: {{edit(`"expires_at":"2026-`, `"expires_at":"2036-`), admitted, "MISMATCH(ref_altered: the reference differs from the signed one at /expires_at)", nil}},
		manifest.FactSupersession: {{
			file, option(func(o *bundle.Options) { o.Later = []manifest.Envelope{forge(signBody(t, ended, "store"))} }),
			"MISMATCH(the later statement: signature does not verify", nil,
		}},
		manifest.FactRecordNumbers: {{flip(records, mapByte), admitted, "MISMATCH(claims/0/map: ", []string{manifest.FactBytes, manifest.FactLength, manifest.FactSelector}}},
		manifest.FactCommit:        {{logged([]byte("another")), admitted, "MISMATCH(the leaf is not in the tree", nil}},
		manifest.FactAnswer:        {{another, admitted, "MISMATCH(claims/0/pages: ", nil}},
		manifest.FactIndex:         {{flip(answered, indexByte), admitted, "MISMATCH(claims/0/header: ", nil}},
		manifest.FactScan:          {{withReceipt(t, some, signBody(t, notOfThis, "store")), admitted, "MISMATCH(the receipt is for ", nil}},
	}
	attested := map[string]row{
		manifest.FactLength:        {file: file, says: "attested(one, manifest)"},
		manifest.FactSignature:     {file: file, says: "attested(one, manifest)"},
		manifest.FactKey:           {file: file, says: "attested(one, manifest)"},
		manifest.FactScope:         {file: file, says: "attested(one, manifest)"},
		manifest.FactSelector:      {file: records, says: "attested(one, manifest)"},
		manifest.FactCapture:       {file: file, says: "attested(one, manifest)"},
		manifest.FactSource:        {file: file, says: "attested(one, manifest)"},
		manifest.FactTimes:         {file: file, says: "attested(one, manifest)"},
		manifest.FactExpiry:        {file: file, says: "attested(one, manifest)"},
		manifest.FactSupersession:  {file: file, says: "attested(one, manifest)"},
		manifest.FactRecordNumbers: {file: records, says: "attested(one, manifest)"},
		manifest.FactCommit:        {file: logged(src.Manifest.Payload), says: "attested(" + logOrigin + ", log)"},
		manifest.FactIndex:         {file: answered, says: "attested(one, manifest)"},
		manifest.FactScan:          {file: received, says: "attested(store, receipt)"},
	}
	var silent []string // no kind of claim speaks of these: no bundle can make them better or worse

	// These are shown with another kind of claim than the baseline's.
	otherKind := []string{manifest.FactRecordNumbers, manifest.FactAnswer, manifest.FactIndex}

	baseline := map[string]manifest.State{}
	judge := func(t *testing.T, r row) *manifest.Verdict {
		t.Helper()
		res, err := bundle.Verify(bytes.NewReader(r.file), int64(len(r.file)), r.o)
		if err != nil {
			t.Fatal(err)
		}
		return res.Verdict
	}
	for _, f := range judge(t, row{file: received, o: admitted}).Facts {
		baseline[f.Name] = f.State
	}
	for _, name := range manifest.FactNames() {
		rows := fails[name]
		if silent := slices.Contains(silent, name); silent != (len(rows) == 0) {
			t.Errorf("%s: %d ways to fail, and nothing speaks of it: %v", name, len(rows), silent)
		}
		for i, r := range rows {
			t.Run(fmt.Sprintf("%s fails %d", name, i), func(t *testing.T) {
				v := judge(t, r)
				f, _ := v.Fact(name)
				if !strings.HasPrefix(f.String(), r.says) {
					t.Errorf("it is %s, want %s", f, r.says)
				}
				want := 2
				if f.State == manifest.Mismatch {
					want = 3
				}
				if v.Exit() != want {
					t.Errorf("exit %d, want %d", v.Exit(), want)
				}
				if why := v.Sentence(); !strings.HasPrefix(why, map[int]string{2: "Not verified: ", 3: "Refused: "}[want]) {
					t.Errorf("sentence %q", why)
				}
				for _, other := range v.Facts {
					bad := other.State == manifest.Mismatch || other.State == manifest.Unverifiable
					if other.Name == name || slices.Contains(r.taking, other.Name) {
						continue
					}
					if bad || other.State != baseline[other.Name] && !slices.Contains(otherKind, name) && other.Name != manifest.FactScan {
						t.Errorf("%s went with it: %s", other.Name, other)
					}
				}
			})
		}
		r, ok := attested[name]
		if !ok {
			continue
		}
		t.Run(name+" merely attested", func(t *testing.T) {
			r.o = admitted
			v := judge(t, r)
			if f, _ := v.Fact(name); f.String() != r.says {
				t.Errorf("it is %s, want %s", f, r.says)
			}
			if v.Exit() != 0 {
				t.Errorf("exit %d: %s", v.Exit(), v.Sentence())
			}
			if err := v.RequireProven(name); err != nil || v.Exit() != 2 {
				t.Errorf("exit %d (%v) when it must be proven, want 2", v.Exit(), err)
			}
		})
	}
	for _, name := range silent {
		if f, _ := judge(t, row{file: received, o: admitted}).Fact(name); f.State != manifest.NotClaimed {
			t.Errorf("%s is %s; give it rows in this test", name, f)
		}
	}
}

// withLog is a policy that knows the log of [committed], too.
func withLog(t testing.TB, p *manifest.Policy) *manifest.Policy {
	t.Helper()
	pub, err := manifest.PublicKeyOf(signer("log"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := manifest.LogKey(logOrigin, pub)
	if err != nil {
		t.Fatal(err)
	}
	p, err = p.With(manifest.AddLog(key))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// policyOf is a policy with one line for the key "one".
func policyOf(t testing.TB, words string) *manifest.Policy {
	t.Helper()
	key, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.ParsePolicy([]byte("policy p version 1\nkey " + key.OpenSSHLine() + " name=one " + words + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// forge flips a bit of a signature.
func forge(env manifest.Envelope) manifest.Envelope {
	env.Signatures = slices.Clone(env.Signatures)
	sig := []byte(env.Signatures[0].Sig)
	if sig[0]++; sig[0] > 'z' {
		sig[0] = 'a'
	}
	env.Signatures[0].Sig = string(sig)
	return env
}

// badSignature puts a forged DSSE signature into a file.
func badSignature(t testing.TB, src bundle.Source, file []byte) []byte {
	t.Helper()
	return reseal(bytes.Replace(file, []byte(src.Envelope.Signatures[0].Sig), []byte(forge(src.Envelope).Signatures[0].Sig), 1))
}

// badSSH puts an SSH signature over another payload into a file: good in itself,
// by the right key, beside a good DSSE signature.
func badSSH(t testing.TB, src bundle.Source, file []byte) []byte {
	t.Helper()
	other, err := manifest.SignSSH(append(bytes.Clone(src.Manifest.Payload), ' '), manifest.NamespaceManifest, signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	escape := func(s string) []byte { return []byte(strings.ReplaceAll(s, "\n", `\n`)) }
	return reseal(bytes.Replace(file, escape(src.SSH), escape(other), 1))
}
