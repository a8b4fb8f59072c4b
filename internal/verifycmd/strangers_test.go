package verifycmd_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/internal/verifycmd"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// strangers is a real store with an artifact of every kind, and what somebody who
// checks bundles of it has.
type strangers struct {
	dir     string // the store's folder
	store   *leafproof.Store
	proofs  map[string][]byte // bundles, by kind
	excerpt map[string]string // what each of them proves
	content map[string]string // the whole artifacts
	ids     map[string]string
}

func newStrangers(t *testing.T) *strangers {
	t.Helper()
	ctx := t.Context()
	s := &strangers{dir: filepath.Join(t.TempDir(), "store"), proofs: map[string][]byte{}, excerpt: map[string]string{}, content: map[string]string{}, ids: map[string]string{}}
	if err := leafproof.Init(ctx, s.dir); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.store, err = leafproof.Open(ctx, s.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.store.Close() })
	var rows strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&rows, "{\"n\":%d,\"text\":%q}\n", i, strings.Repeat("é", i%31))
	}
	pointer, all := "/a~1b/list/1", "/a~1b"
	document := `{"pad":"` + strings.Repeat("x", 3000) + `","a/b":{"list":[0,{"c":"é\n\u00e9"}],"z":null}, "end":[]}` + "\n"
	lines := strings.SplitAfter(rows.String(), "\n")
	s.prove(t, "bytes", rows.String(), leafproof.Selector{Bytes: &merkle.Range{Start: 1500, End: 30_000}}, rows.String()[1500:30_000])
	s.prove(t, "records", rows.String(), leafproof.Selector{Records: &merkle.Range{Start: 1990, End: 2000}}, strings.Join(lines[1990:2000], ""))
	s.prove(t, "pointer", document, leafproof.Selector{Pointer: &pointer, Whole: true}, `{"c":"é\n\u00e9"}`+"\n")
	s.prove(t, "value", document, leafproof.Selector{Pointer: &all}, `{"list":[0,{"c":"é\n\u00e9"}],"z":null}`+"\n")
	s.prove(t, "empty", "", leafproof.Selector{Bytes: &merkle.Range{}}, "")
	return s
}

// prove keeps content and a bundle of a part of it.
func (s *strangers) prove(t *testing.T, kind, content string, sel leafproof.Selector, excerpt string) {
	t.Helper()
	ctx := t.Context()
	d, err := s.store.Put(ctx, strings.NewReader(content), leafproof.PutOptions{Name: map[bool]string{true: "x.json", false: "x.ndjson"}[sel.Pointer != nil]})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.store.Publish(ctx, d, leafproof.Facts{SourceID: "infra.events"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := s.store.Prove(ctx, leafproof.Owner, ref.ArtifactID, sel, &out); err != nil {
		t.Fatal(err)
	}
	s.proofs[kind], s.excerpt[kind], s.content[kind], s.ids[kind] = out.Bytes(), excerpt, content, ref.ArtifactID
}

// blocks are the shell lines of docs/VERIFY.md, as they stand there.
func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "VERIFY.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```\n").FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	return out
}

// TestVerifyMD: the lines of the document are those that --howto prints.
func TestVerifyMD(t *testing.T) {
	got, want := blocks(t), verifycmd.Steps("e.proof", "manifest.pub", "tools/verify.py")
	if len(got) != len(want)+5 {
		t.Fatalf("%d blocks of shell lines, want %d steps and 5 others", len(got), len(want))
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "VERIFY.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range want {
		if got[i] != s.Lines {
			t.Errorf("step %d is\n%swant\n%s", i, got[i], s.Lines)
		}
		if title := fmt.Sprintf("\n### %d. %s\n", i, s.Title); !bytes.Contains(text, []byte(title)) {
			t.Errorf("no heading %q", title)
		}
	}
	var out bytes.Buffer
	name := "it's here.proof"
	if code, err := verifycmd.Run(verifycmd.Options{Howto: true, File: name}, &out, &out); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	for i, s := range verifycmd.Steps(`'it'\''s here.proof'`, "manifest.pub", "tools/verify.py") {
		if want := fmt.Sprintf("\n# %d. %s.\n%s", i, s.Title, s.Lines); !strings.Contains(out.String(), want) {
			t.Errorf("--howto lacks\n%s", want)
		}
	}
}

// need skips where a program is not at hand.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("there is no %s", p)
		}
	}
}

// hand runs shell lines over a bundle, in a folder with the files that they name.
// It returns the number of the block that refused, -1 for none, what was printed,
// and the excerpt written.
func (s *strangers) hand(t *testing.T, lines []string, proof []byte, env ...string) (refused int, printed, excerpt string) {
	t.Helper()
	dir := t.TempDir()
	tool, err := os.ReadFile(filepath.Join("..", "..", "tools", "verify.py"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(leafproof.PublicKeyPath(s.dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"e.proof": proof, "manifest.pub": key, "tools/verify.py": tool} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var script strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&script, "echo '== %d' >&2\n%s", i, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Env, cmd.Stdin = dir, append(os.Environ(), append(env, "TMPDIR="+dir)...), strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if paths, _ := filepath.Glob(filepath.Join(dir, "tmp.*", "excerpt")); len(paths) == 1 {
		b, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		excerpt = string(b)
	}
	if err == nil {
		return -1, string(out), excerpt
	}
	marks := regexp.MustCompile(`(?m)^== (\d+)$`).FindAllSubmatch(out, -1)
	refused, err = strconv.Atoi(string(marks[len(marks)-1][1]))
	if err != nil {
		t.Fatal(err)
	}
	return refused, string(out), excerpt
}

// reseal makes line 1 fit what follows it, as whoever alters a bundle would.
func reseal(file []byte) []byte {
	i := bytes.IndexByte(file, '\n')
	return append(fmt.Appendf(nil, "leafproof bundle v1 %s\n", merkle.Sum(file[i+1:])), file[i+1:]...)
}

// TestByHand, case 36, runs the lines of docs/VERIFY.md as they stand there.
func TestByHand(t *testing.T) {
	need(t, "bash", "sed", "jq", "b3sum", "ssh-keygen", "openssl", "python3", "realpath")
	s := newStrangers(t)
	steps := blocks(t)[:len(verifycmd.Steps("", "", ""))]
	for _, kind := range []string{"bytes", "records", "pointer", "value", "empty"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			artifact := filepath.Join(t.TempDir(), "artifact")
			if err := os.WriteFile(artifact, []byte(s.content[kind]), 0o600); err != nil {
				t.Fatal(err)
			}
			refused, printed, excerpt := s.hand(t, steps, s.proofs[kind], "ARTIFACT="+artifact)
			if refused >= 0 {
				t.Fatalf("step %d refused:\n%s", refused, printed)
			}
			if excerpt != s.excerpt[kind] {
				t.Errorf("the excerpt is %.80q, want %.80q", excerpt, s.excerpt[kind])
			}
			if !strings.Contains(printed, `Good "manifest@leafproof" signature`) {
				t.Errorf("ssh-keygen did not speak:\n%s", printed)
			}
		})
	}
}

// TestByHandAltered alters one byte and says which step refuses: that step, alone
// behind those that take the bundle apart. Line 1 is made to fit again, but for the
// step that reads it.
func TestByHandAltered(t *testing.T) {
	need(t, "bash", "sed", "jq", "b3sum", "ssh-keygen", "openssl", "python3", "realpath")
	s := newStrangers(t)
	steps := blocks(t)[:len(verifycmd.Steps("", "", ""))]
	good := s.proofs["records"]
	// alter changes a byte of the header, so many behind some text.
	alter := func(kind, after string, skip int) []byte {
		out := bytes.Clone(s.proofs[kind])
		i := bytes.Index(out, []byte(after))
		if i < 0 {
			t.Fatalf("no %s", after)
		}
		i += len(after) + skip
		if out[i]++; out[i] == '[' || out[i] == '{' || out[i] == ':' || out[i] == ',' {
			out[i] = 'A'
		}
		return reseal(out)
	}
	flip := func(kind string, fromEnd int) []byte {
		out := bytes.Clone(s.proofs[kind])
		out[len(out)-fromEnd] ^= 1
		return reseal(out)
	}
	artifact := filepath.Join(t.TempDir(), "artifact")
	if err := os.WriteFile(artifact, []byte("x"+s.content["records"][1:]), 0o600); err != nil {
		t.Fatal(err)
	}
	accident := bytes.Clone(good)
	accident[len(accident)-1] ^= 1
	mapAt := len(good) - bytes.Index(good, []byte("LFPRMAP1")) - 100
	for name, test := range map[string]struct {
		proof []byte
		step  int
		env   string
	}{
		"by accident":         {accident, 1, ""},
		"the SSH signature":   {alter("records", "SSH SIGNATURE-----\\n", 200), 3, ""},
		"the DSSE signature":  {alter("records", `"sig":"`, 10), 4, ""},
		"the payload type":    {alter("records", `"payloadType":"application/vnd.in-tot`, 0), 4, ""},
		"the payload":         {alterPayload(t, good), 3, ""},
		"the reference":       {alter("records", `"ref":{"artifact_id":"art_`, 0), 5, ""},
		"its tenant":          {reseal(bytes.Replace(good, []byte(`"tenant_id":"local"`), []byte(`"tenant_id":"locam"`), 1)), 5, ""},
		"the last byte":       {flip("bytes", 1), 6, ""},
		"a node of the proof": {flip("bytes", 29_000), 6, ""},
		"a record":            {flip("records", 1), 6, ""},
		"the record map":      {flip("records", mapAt), 6, ""},
		"the document":        {flip("pointer", 1), 6, ""},
		"the value":           {flip("value", 1), 6, ""},
		"the claim":           {alter("records", `"range":[`, 0), 6, ""},
		"the pointer":         {alter("pointer", `"pointer":"/a~1b/`, 0), 6, ""},
		"the artifact":        {good, 7, "ARTIFACT=" + artifact},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{}
			if test.env != "" {
				env = append(env, test.env)
			}
			lines := []string{steps[0], steps[2], steps[test.step]}
			if refused, printed, _ := s.hand(t, lines, test.proof, env...); refused != 2 {
				t.Errorf("block %d of 0, 2 and %d refused, want the last:\n%s", refused, test.step, printed)
			}
			if test.env != "" {
				return
			}
			// Ours refuses it too.
			file := filepath.Join(t.TempDir(), "e.proof")
			if err := os.WriteFile(file, test.proof, 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if code, err := verifycmd.Run(verifycmd.Options{File: file, Policy: leafproof.PolicyPath(s.dir)}, &out, &out); code != verifycmd.ExitMismatch {
				t.Errorf("exit %d (%v), want a mismatch:\n%s", code, err, out.String())
			}
		})
	}
}

// alterPayload changes a byte of the decoded payload.
func alterPayload(t *testing.T, file []byte) []byte {
	t.Helper()
	const before = `"payload":"`
	i := bytes.Index(file, []byte(before)) + len(before)
	text := file[i : i+bytes.IndexByte(file[i:], '"')]
	payload, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(payload, []byte(`"status":"unknown"`), []byte(`"status":"unknowm"`), 1)
	if bytes.Equal(other, payload) {
		t.Fatalf("the payload has no such status: %s", payload)
	}
	return reseal(bytes.Replace(file, text, []byte(base64.StdEncoding.EncodeToString(other)), 1))
}

// TestOthers shows the statement to programs that know it under their own names:
// each accepts it, and refuses it with one byte altered.
func TestOthers(t *testing.T) {
	need(t, "bash", "sed", "jq", "ssh-keygen", "realpath")
	s := newStrangers(t)
	all := blocks(t)
	steps, others := all, all[len(all)-3:]
	good := s.proofs["bytes"]
	sig := bytes.Clone(good)
	otherLetter(&sig[bytes.Index(sig, []byte(`"sig":"`))+12])
	i := bytes.Index(good, []byte("SSH SIGNATURE-----\\n"))
	ssh := bytes.Clone(good)
	ssh[i+200] ^= 1
	policy, err := os.ReadFile(leafproof.PolicyPath(s.dir))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	signers := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(signers, []byte(p.AllowedSigners()), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "allowed_signers")
	narrow := regexp.MustCompile(`(?m)^\*/\*`).ReplaceAllString(p.AllowedSigners(), "acme/*")
	if narrow == p.AllowedSigners() {
		t.Fatalf("no line for all tenants:\n%s", narrow)
	}
	if err := os.WriteFile(elsewhere, []byte(narrow), 0o600); err != nil {
		t.Fatal(err)
	}
	sigstore := os.Getenv("LEAFPROOF_SIGSTORE")
	for name, test := range map[string]struct {
		block  int
		needs  []string
		absent string // why it cannot be tried; "" for no reason
		env    string
		bad    [][]byte
	}{
		"ssh-keygen, with a policy": {0, nil, "", "SIGNERS=" + signers, [][]byte{ssh, reseal(alterPayload(t, good))}},
		"ssh-keygen, of a tenant":   {0, nil, "", "SIGNERS=" + elsewhere, [][]byte{good}},
		"python's cryptography":     {1, []string{"python3"}, without("python3", "-c", "import cryptography"), "", [][]byte{sig, reseal(alterPayload(t, good))}},
		"sigstore, from npm": {
			2,
			[]string{"node"},
			map[bool]string{true: "LEAFPROOF_SIGSTORE does not name a copy of tools/sigstore in which npm ci ran"}[sigstore == ""],
			"SIGSTORE=" + sigstore,
			[][]byte{sig, reseal(alterPayload(t, good))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			need(t, test.needs...)
			if test.absent != "" {
				t.Skip(test.absent)
			}
			lines := append([]string{steps[0], steps[2]}, others[test.block])
			if !slices.ContainsFunc(test.bad, func(b []byte) bool { return bytes.Equal(b, good) }) {
				if refused, printed, _ := s.hand(t, lines, good, test.env); refused >= 0 {
					t.Fatalf("block %d refused:\n%s", refused, printed)
				}
			}
			for i, bad := range test.bad {
				if refused, printed, _ := s.hand(t, lines, bad, test.env); refused != 2 {
					t.Errorf("altered %d: block %d refused, want the last:\n%s", i, refused, printed)
				}
			}
		})
	}
}

// without says that a command fails; "" when it does not.
func without(name string, args ...string) string {
	if err := exec.Command(name, args...).Run(); err != nil {
		return fmt.Sprintf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return ""
}

// pythonDriver judges every FILE.proof of a folder against FILE.json, the statement.
const pythonDriver = `
import base64, importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
v = importlib.util.module_from_spec(spec)
spec.loader.exec_module(v)
for name in sorted(os.listdir(sys.argv[2])):
    if name.endswith(".proof"):
        path = os.path.join(sys.argv[2], name)
        with open(path, "rb") as f, open(path[:path.rindex("-")] + ".json", "rb") as s:
            try:
                claim, data, place = v.verify_bundle(f, s.read())
                print(json.dumps({"name": name, "data": base64.b64encode(data).decode(), "place": place}))
            except (v.Refused, KeyError, TypeError, ValueError, AttributeError) as e:
                print(json.dumps({"name": name, "refused": repr(e)}))
`

// TestPythonTwin flips bits of claims and sections and holds the two verifiers to
// each other: Python's accepts an excerpt exactly when ours does, with the same
// bytes. Where ours refuses the spelling, Python's may be content with less.
func TestPythonTwin(t *testing.T) {
	need(t, "python3")
	s := newStrangers(t)
	dir := t.TempDir()
	mutants := map[string][]byte{}
	for _, kind := range []string{"records", "pointer", "value", "empty"} {
		good := s.proofs[kind]
		head := bytes.IndexByte(good, '\n') + 1
		body := head + bytes.IndexByte(good[head:], '\n') + 1
		claims := bytes.Index(good, []byte(`,"manifest":`))
		mutants[kind+"-good"] = good
		for _, part := range [][2]int{{head, claims}, {body, len(good)}} {
			step := max(1, (part[1]-part[0])/40)
			for at := part[0]; at < part[1]; at += step {
				out := bytes.Clone(good)
				out[at] ^= 1 << (at % 8)
				mutants[fmt.Sprintf("%s-%d", kind, at)] = reseal(out)
			}
		}
		var env struct {
			Manifest struct {
				Payload []byte `json:"payload"`
			} `json:"manifest"`
		}
		if err := json.Unmarshal(good[head:body], &env); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, kind+".json"), env.Manifest.Payload, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range mutants {
		if err := os.WriteFile(filepath.Join(dir, name+".proof"), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-B", "-c", pythonDriver, filepath.Join("..", "..", "tools", "verify.py"), dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	policy, err := os.ReadFile(leafproof.PolicyPath(s.dir))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	accepted, lenient := 0, 0
	for line := range bytes.Lines(out) {
		var theirs struct {
			Name, Refused, Place string
			Data                 []byte
		}
		if err := json.Unmarshal(line, &theirs); err != nil {
			t.Fatal(err)
		}
		file := mutants[strings.TrimSuffix(theirs.Name, ".proof")]
		var ours bytes.Buffer
		res, err := bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: p, At: time.Now(), Out: &ours})
		refused := err != nil
		if err == nil {
			for _, name := range []string{manifest.FactBytes, manifest.FactLength, manifest.FactSelector, manifest.FactRecordNumbers} {
				f, _ := res.Verdict.Fact(name)
				refused = refused || f.State == manifest.Mismatch
			}
		}
		switch {
		case theirs.Refused != "" && !refused:
			t.Errorf("%s: Python refuses (%s), and ours does not", theirs.Name, theirs.Refused)
		case theirs.Refused == "" && err != nil && strings.Contains(err.Error(), "header"):
			lenient++
		case theirs.Refused == "" && refused:
			t.Errorf("%s: Python accepts %d bytes, ours refuses: %v", theirs.Name, len(theirs.Data), err)
		case theirs.Refused == "":
			accepted++
			if !bytes.Equal(theirs.Data, ours.Bytes()) {
				t.Errorf("%s: Python gives %d bytes, ours %d", theirs.Name, len(theirs.Data), ours.Len())
			}
		}
	}
	t.Logf("%d mutants: both accept %d, ours refuses the spelling of %d", len(mutants), accepted, lenient)
	if accepted < 4 || len(bytes.Split(bytes.TrimSpace(out), []byte("\n"))) != len(mutants) {
		t.Errorf("only %d were accepted, of %d answers", accepted, bytes.Count(out, []byte("\n")))
	}
}

// TestByHandReceipt checks the receipt of a value whose document is not in the
// bundle, and refuses one that stands beside the same bytes at another place.
func TestByHandReceipt(t *testing.T) {
	need(t, "bash", "sed", "jq", "b3sum", "ssh-keygen", "openssl", "python3", "realpath")
	s := newStrangers(t)
	pointer := "/a"
	document := `{"a":200,"note":"200","pad":"` + strings.Repeat("x", 4000) + `"}`
	var receipt leafproof.Statement
	s.prove(t, "vouched", document, leafproof.Selector{Pointer: &pointer, Receipt: &receipt}, "200\n")
	all := blocks(t)
	lines := all[:len(verifycmd.Steps("", "", ""))+1]
	env := "RECEIPTKEY=" + filepath.Join(s.dir, "keys", "receipt.pub")
	good := s.proofs["vouched"]
	if refused, printed, excerpt := s.hand(t, lines, good, env); refused >= 0 || excerpt != "200\n" {
		t.Fatalf("block %d refused; %q:\n%s", refused, excerpt, printed)
	}
	last := len(lines) - 1
	moved := reseal(bytes.Replace(good, []byte(`"ranges":[[5,8]]`), []byte(`"ranges":[[17,20]]`), 1))
	i := bytes.Index(good, []byte(`"receipt":`))
	signature := bytes.Clone(good)
	otherLetter(&signature[i+bytes.Index(good[i:], []byte(`"sig":"`))+12])
	for name, test := range map[string]struct {
		proof []byte
		env   string
	}{
		"moved":          {moved, env},
		"altered":        {reseal(signature), env},
		"of another key": {good, "RECEIPTKEY=" + filepath.Join(s.dir, "keys", "manifest.pub")},
	} {
		if bytes.Equal(test.proof, good) && test.env == env {
			t.Fatalf("%s: nothing was altered", name)
		}
		if refused, printed, _ := s.hand(t, lines, test.proof, test.env); refused != last {
			t.Errorf("%s: block %d refused, want %d:\n%s", name, refused, last, printed)
		}
	}
}

// TestPythonPointer holds Python's walk along a pointer to ours, where a name or a
// pointer is odd.
func TestPythonPointer(t *testing.T) {
	need(t, "python3")
	const driver = `
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
v = importlib.util.module_from_spec(spec)
spec.loader.exec_module(v)
for line in sys.stdin:
    doc, pointer = json.loads(line)
    try:
        print(json.dumps(v.Pointer(doc.encode("latin-1"), pointer).found))
    except (v.Refused, ValueError):
        print("null")
`
	docs := []string{
		"{\"\xff\":1}", "{\"\xff\":1,\"\xfe\":2,\"\xef\xbf\xbd\":3}", `{"\ud83d":1,"\ufffd":2}`, `{"\ud83d\ude00":1}`, "{\"\xf0\x9f\x98\x80\":1}",
		`{"~2":1,"~":2,"~1":3,"/":4,"":5}`, `{"~01":1}`, "\xef\xbb\xbf[1]", "[[1],[2,3]]", `{"0":[7],"00":8}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
		`{"a":{"b":1},"c":{"b":2}}`, `{"a":"{\"b\":1}"}`, `[01]`, `[1,]`, `{"a":1}{}`, `1 2`, ` [ 1 , 2 ] `, `{"\u0000":1}`, "[NaN]", "[\"\t\"]", "[-0, 1e400]",
	}
	pointers := []string{
		"", "/", "//", "/\ufffd", "/\U0001f600", "/~2", "/~0", "/~1", "/~", "/~01", "/~02", "/0", "/00", "/1", "/1/0", "/-", "/0/0", "/a", "/a/b", "/c/b", "/\x00", "a",
		"/18446744073709551616",
	}
	var in, want strings.Builder
	for _, doc := range docs {
		for _, p := range pointers {
			latin := make([]rune, len(doc))
			for i := range len(doc) {
				latin[i] = rune(doc[i])
			}
			line, err := json.Marshal([]string{string(latin), p})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&in, "%s\n", line)
			if span, err := selector.FindPointer(t.Context(), strings.NewReader(doc), int64(len(doc)), p); err != nil {
				want.WriteString("null\n")
			} else {
				fmt.Fprintf(&want, "[%d, %d]\n", span.Start, span.End)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", driver, filepath.Join("..", "..", "tools", "verify.py"))
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, wants := strings.Split(string(out), "\n"), strings.Split(want.String(), "\n")
	if len(got) != len(wants) {
		t.Fatalf("%d answers, want %d", len(got), len(wants))
	}
	for i := range got {
		if got[i] != wants[i] {
			t.Errorf("%q at %q: Python finds %s, we find %s", docs[i/len(pointers)], pointers[i%len(pointers)], got[i], wants[i])
		}
	}
}

// TestByHandCommit checks that the statement was committed, and refuses another
// place in the log, another tree, and another kind of statement.
func TestByHandCommit(t *testing.T) {
	need(t, "bash", "sed", "jq", "b3sum", "ssh-keygen", "openssl", "python3", "realpath")
	s := newStrangers(t)
	n := len(verifycmd.Steps("", "", ""))
	all := blocks(t)
	lines := append(slices.Clone(all[:n]), all[n+1])
	script, err := filepath.Abs(filepath.Join("..", "..", "tools", "tlog.py"))
	if err != nil {
		t.Fatal(err)
	}
	env := "TLOG=" + script
	good := s.proofs["bytes"]
	refused, printed, _ := s.hand(t, lines, good, env)
	if refused >= 0 || !regexp.MustCompile(`leaf \d+ of \d+ in leafproof/st_`).MatchString(printed) {
		t.Fatalf("block %d refused:\n%s", refused, printed)
	}
	i := bytes.Index(good, []byte(`"commit":"`))
	index := regexp.MustCompile(`index (\d+)\\n`).FindSubmatchIndex(good[i:])
	moved := bytes.Clone(good)
	moved[i+index[2]] ^= 1
	root := bytes.Clone(good)
	otherLetter(&root[i+bytes.Index(good[i:], []byte("\\n\\n"))-10]) // in the last hash of the path
	for name, proof := range map[string][]byte{"another place": reseal(moved), "another tree": reseal(root)} {
		if refused, printed, _ := s.hand(t, lines, proof, env); refused != len(lines)-1 {
			t.Errorf("%s: block %d refused, want %d:\n%s", name, refused, len(lines)-1, printed)
		}
	}
}

// otherLetter puts another letter of base64 in the place of one, so that what is
// altered still decodes.
func otherLetter(b *byte) {
	if *b == 'A' {
		*b = 'B'
	} else {
		*b = 'A'
	}
}
