package manifest_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
)

// fullPolicy uses every statement that there is.
func fullPolicy() string {
	key := func(name string) string { _, pub := testKey(name); return pub.OpenSSHLine() }
	print := func(name string) string { _, pub := testKey(name); return pub.Fingerprint() }
	return strings.Join([]string{
		"# who may speak for acme",
		"policy acme-2026-11 version 7 expires 2027-02-01T00:00:00Z",
		"",
		"key " + key("one") + " name=ingest-eu roles=manifest tenants=tenant_acme_prod sources=infra.* not-before=2026-01-01T00:00:00Z not-after=2027-01-01T00:00:00Z",
		"key\t" + key("two") + "   name=store-1 roles=receipt,tombstone,deletion tenants=*   # the store",
		"key " + key("three") + " name=old roles=manifest tenants=* sources=*",
		"key " + key("four") + " name=stolen roles=manifest tenants=*",
		"key " + key("five") + " name=wide roles=manifest,audit tenants=tenant_*,lab.*.prod sources=*",
		"retired " + print("three") + " at=2026-10-01T00:00:00Z",
		"compromised " + print("four") + " since=2026-09-20T00:00:00Z",
		"threshold audit 1",
	}, "\n") + "\n"
}

func parsePolicy(t testing.TB, text string) *manifest.Policy {
	t.Helper()
	p, err := manifest.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPolicyRoundTrip(t *testing.T) {
	p := parsePolicy(t, fullPolicy())
	text := p.String()
	again := parsePolicy(t, text)
	if again.String() != text {
		t.Errorf("String is not stable:\n%s\n%s", text, again)
	}
	if p.Name() != "acme-2026-11" || p.Version() != 7 || manifest.FormatTime(p.Expires()) != "2027-02-01T00:00:00Z" || len(p.Keys()) != 5 {
		t.Errorf("%s version %d expires %v with %d keys", p.Name(), p.Version(), p.Expires(), len(p.Keys()))
	}
	_, two := testKey("two")
	want := "key " + two.OpenSSHLine() + " name=store-1 roles=receipt,tombstone,deletion tenants=* sources=*\n"
	if !strings.Contains(text, want) {
		t.Errorf("the policy\n%s\nlacks\n%s", text, want)
	}
	crlf := parsePolicy(t, strings.ReplaceAll(fullPolicy(), "\n", "\r\n"))
	if crlf.String() != text {
		t.Error("line ends of another system give another policy")
	}
}

// TestDocumentedPolicy: the example in docs/FORMAT.md is a policy.
func TestDocumentedPolicy(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "\n```\n# who may speak for acme\n")
	text, _, _ = strings.Cut(text, "```")
	p := parsePolicy(t, text)
	if n := strings.Count(text, "\n"); n < 10 || len(p.Keys()) != 5 || len(p.Logs()) != 1 || len(p.Witnesses()) != 1 || p.Version() != 7 {
		t.Errorf("%d lines, %s", n, p)
	}
	states := map[string]int{}
	for _, k := range p.Keys() {
		states[p.StateOf(k.Public, at)]++
	}
	if states[manifest.KeyRetired] != 1 || states[manifest.KeyCompromised] != 1 {
		t.Errorf("states are %v", states)
	}
}

// TestC2SPKey: the key of the example note is read, and is the key of the note.
func TestC2SPKey(t *testing.T) {
	text := strings.TrimSpace(string(vector(t, "trust/signed-note/example.vkey")))
	v, err := manifest.ParseVerifierKey(text)
	if err != nil || v.Name != "example.com/foo" || v.ID() != 0x530d903a || v.Cosigns() || v.String() != text {
		t.Fatalf("ParseVerifierKey = %v, %v", v, err)
	}
	note, signature, _ := strings.Cut(string(vector(t, "trust/signed-note/example.note")), "\n\n")
	b, err := base64.StdEncoding.DecodeString(strings.Fields(signature)[2])
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Public.Verify([]byte(note+"\n"), b[4:]); err != nil || binary.BigEndian.Uint32(b) != v.ID() {
		t.Errorf("the note: %v, signed by %x", err, b[:4])
	}
}

func TestNewPolicy(t *testing.T) {
	_, one := testKey("one")
	p, err := manifest.NewPolicy("store-1", manifest.Key{Name: "manifest", Public: one, Roles: []string{manifest.RoleManifest}})
	if err != nil {
		t.Fatal(err)
	}
	want := "policy store-1 version 1\nkey " + one.OpenSSHLine() + " name=manifest roles=manifest tenants=* sources=*\n"
	if p.String() != want {
		t.Errorf("String = %q, want %q", p, want)
	}
	if _, err := p.Judge(manifest.RoleManifest, "local", "", one.Fingerprint(), at); err != nil {
		t.Error(err)
	}
	if _, err := manifest.NewPolicy("a b"); !errors.Is(err, manifest.ErrName) {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := manifest.NewPolicy("a", manifest.Key{Name: "x", Roles: []string{"manifest"}}); !errors.Is(err, manifest.ErrKey) {
		t.Errorf("no key: %v", err)
	}
}

func TestParsePolicyRefuses(t *testing.T) {
	_, one := testKey("one")
	_, two := testKey("two")
	line, print := one.OpenSSHLine(), one.Fingerprint()
	const head = "policy p version 1\n"
	vkey := strings.TrimSpace(string(vector(t, "trust/generated/vkey.txt")))
	_, loggers := testKey(vectorKey)
	vkeyLine := loggers.OpenSSHLine()
	good := "key " + line + " name=a roles=manifest tenants=*\n"
	for name, test := range map[string]struct {
		text string
		line int
		err  error
		says string
	}{
		"empty":               {"", 1, manifest.ErrMalformed, "no policy NAME"},
		"comments alone":      {"# a\n# b\n", 2, manifest.ErrMalformed, "no policy NAME"},
		"key first":           {good, 1, manifest.ErrMalformed, "first statement"},
		"second policy":       {head + head, 2, manifest.ErrMalformed, "second policy"},
		"version 0":           {"policy p version 0\n", 1, manifest.ErrMalformed, "number"},
		"version 01":          {"policy p version 01\n", 1, manifest.ErrMalformed, "number"},
		"version huge":        {"policy p version 99999999999999999999\n", 1, manifest.ErrMalformed, "number"},
		"policy name":         {"policy p/q version 1\n", 1, manifest.ErrName, ""},
		"expires":             {"policy p version 1 expires tomorrow\n", 1, manifest.ErrTime, ""},
		"expires without":     {"policy p version 1 expires\n", 1, manifest.ErrMalformed, "want policy"},
		"unknown statement":   {head + good + "\nallow all\n", 4, manifest.ErrMalformed, `"allow"`},
		"log":                 {head + "log l.example/x+abc\n", 2, manifest.ErrKey, "is not NAME+HASH+BASE64"},
		"log without a key":   {head + "log l.example/x\n", 2, manifest.ErrKey, "is not NAME+HASH+BASE64"},
		"log twice":           {head + strings.Repeat("log "+vkey+"\n", 2), 3, manifest.ErrPolicy, "the same key as the log log.holdfast.example/acme"},
		"log of another id":   {head + "log " + strings.Replace(vkey, "4156a065", "4156a066", 1) + "\n", 2, manifest.ErrKey, "has the id 4156a065"},
		"log renamed":         {head + "log x" + vkey + "\n", 2, manifest.ErrKey, "has the id"},
		"log that speaks":     {head + "log " + vkey + "\nkey " + vkeyLine + " name=a roles=manifest tenants=*\n", 3, manifest.ErrPolicy, "the same key as the log"},
		"log as a witness":    {head + "witness w1 " + vkey + "\n", 2, manifest.ErrKey, "key of a log"},
		"witness":             {head + "\nwitness w1 x\n", 3, manifest.ErrKey, "is not NAME+HASH+BASE64"},
		"witness alone":       {head + "\nwitness w1\n", 3, manifest.ErrMalformed, "want witness"},
		"same key twice":      {head + good + "key " + line + " name=b roles=audit tenants=*\n", 3, manifest.ErrPolicy, "the same key as a"},
		"same name twice":     {head + good + "key " + two.OpenSSHLine() + " name=a roles=audit tenants=*\n", 3, manifest.ErrPolicy, "second key of the name a"},
		"key type":            {head + "key ssh-rsa AAAA name=a roles=manifest tenants=*\n", 2, manifest.ErrKey, "ssh-rsa"},
		"key damaged":         {head + "key " + line[:len(line)-4] + " name=a roles=manifest tenants=*\n", 2, manifest.ErrKey, "damaged"},
		"key of small order":  {head + "key ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA name=a roles=manifest tenants=*\n", 2, manifest.ErrKey, "small order"},
		"key alone":           {head + "key\n", 2, manifest.ErrMalformed, "want key"},
		"no name":             {head + "key " + line + " roles=manifest tenants=*\n", 2, manifest.ErrName, ""},
		"no roles":            {head + "key " + line + " name=a tenants=*\n", 2, manifest.ErrPolicy, "roles="},
		"no tenants":          {head + "key " + line + " name=a roles=manifest\n", 2, manifest.ErrPolicy, "tenants="},
		"empty roles":         {head + "key " + line + " name=a roles= tenants=*\n", 2, manifest.ErrMalformed, "NAME=VALUE"},
		"unknown role":        {head + "key " + line + " name=a roles=manifest,king tenants=*\n", 2, manifest.ErrPolicy, `"king"`},
		"role twice":          {head + "key " + line + " name=a roles=manifest,manifest tenants=*\n", 2, manifest.ErrPolicy, "twice"},
		"role comma":          {head + "key " + line + " name=a roles=manifest, tenants=*\n", 2, manifest.ErrPolicy, `""`},
		"unknown option":      {head + "key " + line + " name=a roles=manifest tenants=* alg=none\n", 2, manifest.ErrMalformed, `"alg="`},
		"option twice":        {head + "key " + line + " name=a name=b roles=manifest tenants=*\n", 2, manifest.ErrMalformed, "stands twice"},
		"a word":              {head + "key " + line + " name=a roles=manifest tenants=* please\n", 2, manifest.ErrMalformed, `"please"`},
		"star inside":         {head + "key " + line + " name=a roles=manifest tenants=a*b\n", 2, manifest.ErrName, "*"},
		"star in a segment":   {head + "key " + line + " name=a roles=manifest tenants=a*.b\n", 2, manifest.ErrName, "*"},
		"two stars":           {head + "key " + line + " name=a roles=manifest tenants=**\n", 2, manifest.ErrName, "*"},
		"tenant with a slash": {head + "key " + line + " name=a roles=manifest tenants=a/b\n", 2, manifest.ErrName, "/"},
		"window reversed":     {head + "key " + line + " name=a roles=manifest tenants=* not-before=2027-01-01T00:00:00Z not-after=2026-01-01T00:00:00Z\n", 2, manifest.ErrPolicy, "not-before"},
		"window spelling":     {head + "key " + line + " name=a roles=manifest tenants=* not-after=2027-01-01\n", 2, manifest.ErrTime, ""},
		"expires in year 1":   {"policy p version 1 expires 0001-01-01T00:00:00Z\n", 1, manifest.ErrTime, "cannot be a bound"},
		"window to year 1":    {head + "key " + line + " name=a roles=manifest tenants=* not-after=0001-01-01T00:00:00Z\n", 2, manifest.ErrTime, "cannot be a bound"},
		"window from year 1":  {head + "key " + line + " name=a roles=manifest tenants=* not-before=0001-01-01T00:00:00Z\n", 2, manifest.ErrTime, "cannot be a bound"},
		"retired in year 1":   {head + good + "retired " + print + " at=0001-01-01T00:00:00Z\n", 3, manifest.ErrTime, "cannot be a bound"},
		"stolen in year 1":    {head + good + "compromised " + print + " since=0001-01-01T00:00:00Z\n", 3, manifest.ErrTime, "cannot be a bound"},
		"retired nobody":      {head + "retired " + print + " at=2026-10-01T00:00:00Z\n" + "key " + two.OpenSSHLine() + " name=b roles=audit tenants=*\n", 2, manifest.ErrMalformed, "no key line"},
		"retired twice":       {head + good + strings.Repeat("retired "+print+" at=2026-10-01T00:00:00Z\n", 2), 4, manifest.ErrMalformed, "twice"},
		"retired since":       {head + good + "retired " + print + " since=2026-10-01T00:00:00Z\n", 3, manifest.ErrMalformed, "at="},
		"retired no time":     {head + good + "retired " + print + "\n", 3, manifest.ErrMalformed, "want retired"},
		"retired a name":      {head + good + "retired a at=2026-10-01T00:00:00Z\n", 3, manifest.ErrMalformed, "fingerprint"},
		"compromised at":      {head + good + "compromised " + print + " at=2026-10-01T00:00:00Z\n", 3, manifest.ErrMalformed, "since="},
		"threshold too high":  {head + "threshold manifest 2\n" + good, 2, manifest.ErrMalformed, "never be met"},
		"threshold 0":         {head + good + "threshold manifest 0\n", 3, manifest.ErrMalformed, "number"},
		"threshold twice":     {head + good + "threshold manifest 1\nthreshold manifest 1\n", 4, manifest.ErrMalformed, "second threshold"},
		"threshold role":      {head + good + "threshold king 1\n", 3, manifest.ErrMalformed, "king"},
		"a line inside one":   {head + "# harmless\r" + "key x\n", 2, manifest.ErrMalformed, "U+000D"},
		"an escape sequence":  {head + "# \x1b[2K\n", 2, manifest.ErrMalformed, "U+001B"},
		"text turned around":  {head + "\t # a\u202eb\n", 2, manifest.ErrMalformed, "U+202E"},
		"a line separator":    {head + "# a\u2028b\n", 2, manifest.ErrMalformed, "U+2028"},
		"a NUL":               {"\x00" + head, 1, manifest.ErrMalformed, "U+0000"},
		"not UTF-8":           {head + "\xff\n", 0, manifest.ErrPolicy, "UTF-8"},
		"huge":                {head + strings.Repeat("#\n", 1<<20), 0, manifest.ErrTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := manifest.ParsePolicy([]byte(test.text))
			if p != nil || !errors.Is(err, manifest.ErrPolicy) || !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("ParsePolicy = %v, %v, want %v saying %q", p, err, test.err, test.says)
			}
			if e, _ := errors.AsType[*manifest.Error](err); test.line > 0 && (e == nil || e.At != fmt.Sprintf("line %d", test.line)) {
				t.Errorf("error %q does not name line %d", err, test.line)
			}
		})
	}
	many := strings.Builder{}
	many.WriteString(head)
	for i := range manifest.MaxPolicyKeys + 1 {
		_, pub := testKey(fmt.Sprint(i))
		fmt.Fprintf(&many, "key %s name=k%d roles=audit tenants=*\n", pub.OpenSSHLine(), i)
	}
	if _, err := manifest.ParsePolicy([]byte(many.String())); !errors.Is(err, manifest.ErrTooLarge) {
		t.Errorf("too many keys: %v", err)
	}
}

func TestJudge(t *testing.T) {
	p := parsePolicy(t, fullPolicy())
	later := func(s string) time.Time {
		got, err := manifest.ParseTime(s)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for name, test := range map[string]struct {
		key, role, tenant, source string
		at                        time.Time
		err                       error
	}{
		"good":                    {"one", "manifest", "tenant_acme_prod", "infra.incident-events", at, nil},
		"source, last star":       {"one", "manifest", "tenant_acme_prod", "infra.a.b", at, nil},
		"other tenant":            {"one", "manifest", "tenant_acme_test", "infra.x", at, manifest.ErrScope},
		"tenant as a prefix":      {"one", "manifest", "tenant_acme_prod2", "infra.x", at, manifest.ErrScope},
		"other source":            {"one", "manifest", "tenant_acme_prod", "billing.x", at, manifest.ErrScope},
		"source as a prefix":      {"one", "manifest", "tenant_acme_prod", "infrared.x", at, manifest.ErrScope},
		"no source":               {"one", "manifest", "tenant_acme_prod", "", at, manifest.ErrScope},
		"other role":              {"one", "receipt", "tenant_acme_prod", "infra.x", at, manifest.ErrRole},
		"role of another key":     {"two", "manifest", "tenant_acme_prod", "", at, manifest.ErrRole},
		"receipt":                 {"two", "receipt", "anybody", "", at, nil},
		"first moment":            {"one", "manifest", "tenant_acme_prod", "infra.x", later("2026-01-01T00:00:00Z"), nil},
		"before the window":       {"one", "manifest", "tenant_acme_prod", "infra.x", later("2025-12-31T23:59:59.999999999Z"), manifest.ErrTimeWindow},
		"the window's end":        {"one", "manifest", "tenant_acme_prod", "infra.x", later("2027-01-01T00:00:00Z"), manifest.ErrTimeWindow},
		"the policy's end":        {"five", "manifest", "tenant_acme_prod", "x", later("2027-02-01T00:00:00Z"), nil}, // see Expired
		"retired":                 {"three", "manifest", "x", "", at, manifest.ErrRetired},
		"retired, judged before":  {"three", "manifest", "x", "", later("2026-09-01T00:00:00Z"), manifest.ErrRetired},
		"compromised":             {"four", "manifest", "x", "", later("2026-01-01T00:00:00Z"), manifest.ErrCompromised},
		"unknown":                 {"six", "manifest", "tenant_acme_prod", "infra.x", at, manifest.ErrUnknownKey},
		"star at the end":         {"five", "manifest", "tenant_", "x", at, nil},
		"star as a segment":       {"five", "manifest", "lab.7.prod", "x", at, nil},
		"star is one segment":     {"five", "manifest", "lab.7.8.prod", "x", at, manifest.ErrScope},
		"star is not no segment":  {"five", "manifest", "lab..prod", "x", at, manifest.ErrScope},
		"star is a whole segment": {"five", "manifest", "lab.prod", "x", at, manifest.ErrScope},
		"no source, star":         {"five", "manifest", "tenant_acme_prod", "", at, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, pub := testKey(test.key)
			k, err := p.Judge(test.role, test.tenant, test.source, pub.Fingerprint(), test.at)
			if !errors.Is(err, test.err) {
				t.Fatalf("Judge = %v, want %v", err, test.err)
			}
			if known := !errors.Is(err, manifest.ErrUnknownKey); known != (k.Public == pub) {
				t.Errorf("Judge returned the key %q", k.Name)
			}
		})
	}
}
