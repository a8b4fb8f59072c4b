package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/manifest/bundle"
)

const pythonQueries = `
import base64, io, json, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import verify
for line in sys.stdin:
    case = json.loads(line)
    try:
        _, data, _ = verify.verify_bundle(io.BytesIO(base64.b64decode(case["File"])), base64.b64decode(case["Statement"]))
        print(json.dumps({"Rows": base64.b64encode(data).decode()}))
    except (verify.Refused, KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        print(json.dumps({"Refused": repr(e)}))
`

const nodeQueries = `
const { verifyQuery } = await import("file://" + process.argv[2]);
import("node:fs").then((fs) => {
  for (const line of fs.readFileSync(0, "utf8").trim().split("\n")) {
    const { File, Statement } = JSON.parse(line), bytes = (s) => new Uint8Array(Buffer.from(s, "base64"));
    try {
      const { rows } = verifyQuery(bytes(Statement), bytes(File));
      console.log(JSON.stringify({ Rows: Buffer.concat(rows.flatMap((r) => [r, Buffer.from("\n")])).toString("base64") }));
    } catch (e) { console.log(JSON.stringify({ Refused: String(e) })); }
  }
});
`

// oddities are records in which values are written in many ways, and some that
// cannot be told.
func oddities() []byte {
	values := []string{
		"1", "1.0", "1e0", "-0", "0.0", "12345678901234567890", "1.5e-7", "-2.50", "1e999999", "1e1000001", "-1e99999999999999999999", `""`, `"a"`, `"\u0061"`, `"\u0000b"`, `"é"`, `"e\u0301"`,
		`"\ud83d\ude00"`, `"\ud83d"`, `"` + strings.Repeat("x", 96) + `"`, `"` + strings.Repeat("x", 97) + `"`, `"` + strings.Repeat("x", 97) + `y"`, "true", "false", "null", "[]", "[1]", "{}", `{"a":1}`, "01", "NaN", "tru", `"` + "\t" + `"`,
	}
	var b bytes.Buffer
	for i := range 3 {
		for j, v := range values {
			fmt.Fprintf(&b, `{"i":%d,"v":%s,"deep":{"a/b":[%s]},"pad":"%s"}`+"\n", 100*i+j, v, v, strings.Repeat("p", 40*i))
		}
	}
	b.WriteString(`{"v":1,"v":1}` + "\n" + `{"v":1,"\u0076":2}` + "\n" + `{"w":1,"w":2,"v":1}` + "\n" + `[1,2]` + "\n" + `7` + "\n" + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "\n")
	for _, deep := range []int{510, 511, 512} { // with the object 512 at most
		b.WriteString(`{"v":1,"x":` + strings.Repeat("[", deep) + strings.Repeat("]", deep) + "}\n")
	}
	return b.Bytes()
}

// TestQueryStrangers holds the verifiers in Python and JavaScript to ours: they
// accept the same answers, with the same rows, and refuse what we refuse.
func TestQueryStrangers(t *testing.T) {
	data := oddities()
	many := bytes.Repeat([]byte(`{"v":"same"}`+"\n"), 9000) // an index of several pages
	type question struct {
		data  []byte
		path  string
		where []string
	}
	var conditions []string
	for _, lit := range []string{
		`1`, `0`, `-2.5`, `12345678901234567890`, `12345678901234567891`, `0.00000015`, `1e999999`, `""`, `"a"`, `"\u0000b"`, `"é"`, `"😀"`, `"` + strings.Repeat("x", 96) + `"`, `"` + strings.Repeat("x", 97) + `"`,
		`"` + strings.Repeat("x", 98) + `"`, `true`, `false`, `null`, `"none"`, `7e7`,
	} {
		conditions = append(conditions, `{"field":"/v","equals":`+lit+`}`)
	}
	var cases []strangerCase
	var want []struct {
		ok   bool
		rows []byte
	}
	add := func(src bundle.Source, b []byte) {
		var out bytes.Buffer
		res, err := verify(b, policy(t, "one"), &out)
		ok := err == nil && res.Verdict.Exit() == 0
		want = append(want, struct {
			ok   bool
			rows []byte
		}{ok, out.Bytes()})
		cases = append(cases, strangerCase{b, src.Manifest.Payload})
	}
	for _, q := range []question{
		{data, "/v", conditions},
		{data, "/deep/a~1b/0", []string{`{"field":"/deep/a~1b/0","equals":1}`, `{"field":"/deep/a~1b/0","equals":"none"}`}},
		{many, "/v", []string{`{"field":"/v","equals":"nothing"}`, `{"field":"/v","equals":"tame"}`}},
		{[]byte("\n"), "/v", []string{`{"field":"/v","equals":1}`}},
	} {
		src, x := withIndex(t, q.data, q.path)
		for i, where := range q.where {
			_, b := prove(t, src, x[0], ask(t, where, 0))
			add(src, b)
			if i%7 > 0 {
				continue
			}
			// A bit of the claim or of a section.
			head := bytes.IndexByte(b, '\n') + 1
			body := head + bytes.IndexByte(b[head:], '\n') + 1
			claims := bytes.Index(b, []byte(`,"manifest":`))
			for _, part := range [][2]int{{head, claims}, {body, len(b)}} {
				for at := part[0]; at < part[1]; at += 1 + (part[1]-part[0])/9 {
					mutant := bytes.Clone(b)
					mutant[at] ^= 1 << (at % 7)
					add(src, reseal(mutant))
				}
			}
		}
	}
	accepted := map[string]int{}
	askStrangers(t, cases, func(t *testing.T, who string, i int, theirs verdict) {
		switch w := want[i]; {
		case theirs.Refused != "" && w.ok:
			t.Errorf("case %d: refused (%s), and ours does not: %.300s", i, theirs.Refused, cases[i].File[85:])
		case theirs.Refused == "" && !w.ok:
			t.Errorf("case %d: accepted with %d bytes, and ours refuses: %.400s", i, len(theirs.Rows), cases[i].File[85:])
		case theirs.Refused == "" && w.ok:
			if accepted[who]++; !bytes.Equal(theirs.Rows, w.rows) {
				t.Errorf("case %d: %d bytes of rows, ours %d", i, len(theirs.Rows), len(w.rows))
			}
		}
	})
	for who, n := range accepted {
		if t.Logf("%s: %d cases, %d accepted by both", who, len(cases), n); n < 20 {
			t.Errorf("%s: only %d cases were accepted", who, n)
		}
	}
}

// strangerCase is a bundle, and the statement that is believed.
type strangerCase struct{ File, Statement []byte }

// verdict is what a stranger says of a case.
type verdict struct {
	Rows    []byte
	Refused string
}

// askStrangers has the verifiers in Python and JavaScript judge cases.
func askStrangers(t *testing.T, cases []strangerCase, each func(t *testing.T, who string, i int, v verdict)) {
	t.Helper()
	var in bytes.Buffer
	for _, c := range cases {
		if err := json.NewEncoder(&in).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"python3": {"-B", "-c", pythonQueries, "verify.py"},
		"node":    {"--input-type=module", "-e", nodeQueries, "-", "verify.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(name)
			if err != nil {
				t.Skip("not installed")
			}
			tool, err := filepath.Abs(filepath.Join("..", "..", "tools", args[len(args)-1]))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.ReadFile(tool); err != nil { // or a cached result would stand for another tool
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), program, append(args[:len(args)-1:len(args)-1], tool)...)
			var stderr bytes.Buffer
			cmd.Stdin, cmd.Stderr = bytes.NewReader(in.Bytes()), &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			answers := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
			if len(answers) != len(cases) {
				t.Fatalf("%d answers to %d cases", len(answers), len(cases))
			}
			for i, line := range answers {
				var v verdict
				if err := json.Unmarshal(line, &v); err != nil {
					t.Fatal(err)
				}
				each(t, name, i, v)
			}
		})
	}
}
