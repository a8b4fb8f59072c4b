package merkle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leafproof/merkle"
)

// A stranger is a verifier in another language, which shares no code with the
// package.
type stranger struct {
	program string
	script  string // in tools
	// driver reads cases from its input, one JSON text a line, and answers each
	// with a verdict in a line. It is given the script as its argument.
	driver     string
	driverName string
	driverArgs []string
	ranges     bool // it says which leaves were asked for
	slow       bool // a sample of what is long is enough for it
}

var strangers = map[string]stranger{
	"Python": {program: "python3", script: "verify.py", driver: pythonDriver, driverName: "driver.py", driverArgs: []string{"-B"}, slow: true},
	"JavaScript": {
		program: "node", script: "verify.mjs", driver: nodeDriver, driverName: "driver.mjs",
		driverArgs: []string{"--experimental-vm-modules", "--no-warnings"}, ranges: true,
	},
}

const pythonDriver = `
import base64, io, json, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import verify
for line in sys.stdin:
    case = json.loads(line)
    wanted = case["Wanted"] and tuple(case["Wanted"])
    try:
        data, size, proven = verify.verify(io.BytesIO(base64.b64decode(case["File"])), bytes.fromhex(case["Root"]), wanted, case["Bao"])
        print(json.dumps({"Size": size, "Proven": proven, "Data": base64.b64encode(data).decode()}))
    except (verify.Refused, SystemExit) as e:
        print(json.dumps({"Refused": str(e)}))
`

// nodeDriver loads the module where there is the language and nothing of Node,
// as in a browser, and nothing to import. JSON.parse would round a range.
const nodeDriver = `
import fs from "node:fs";
import vm from "node:vm";
const module = new vm.SourceTextModule(fs.readFileSync(process.argv[2], "utf8"), { context: vm.createContext({}) });
await module.link((name) => { throw new Error("it imports " + name); });
await module.evaluate();
const { verify } = module.namespace;
for (const line of fs.readFileSync(0, "utf8").trim().split("\n")) {
  const { Root, File, Bao, Wanted } = JSON.parse(line.replace(/"Wanted":\[(\d+),(\d+)\]/, '"Wanted":["$1","$2"]'));
  try {
    const { size, sizeProven, ranges, data } = verify(Root, Buffer.from(File ?? "", "base64"), { [Bao ? "bao" : "bytes"]: Wanted ?? undefined });
    const rest = JSON.stringify({ Proven: sizeProven, Ranges: ranges, Data: Buffer.from(data).toString("base64") });
    console.log('{"Size":' + size + "," + rest.slice(1));
  } catch (e) {
    if (e.constructor.name !== "Error") throw e;
    console.log(JSON.stringify({ Refused: e.message }));
  }
}
`

// find skips the test where the stranger's language is not there.
func (s stranger) find(t *testing.T) (program, script string) {
	t.Helper()
	program, err := exec.LookPath(s.program)
	if err != nil {
		t.Skipf("no %s to run tools/%s with: %v", s.program, s.script, err)
	}
	script, err = filepath.Abs(filepath.Join("..", "tools", s.script))
	if err != nil {
		t.Fatal(err)
	}
	// Read it, so that a cached result of the test is of this very script.
	if _, err := os.ReadFile(script); err != nil {
		t.Fatal(err)
	}
	return program, script
}

// judge returns the stranger's verdicts on cases.
func (s stranger) judge(t *testing.T, cases []strange) []verdict {
	t.Helper()
	program, script := s.find(t)
	driver := filepath.Join(t.TempDir(), s.driverName)
	if err := os.WriteFile(driver, []byte(s.driver), 0o600); err != nil {
		t.Fatal(err)
	}
	var in, out, errs bytes.Buffer
	encode := json.NewEncoder(&in)
	for _, c := range cases {
		if err := encode.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, append(slices.Clone(s.driverArgs), driver, script)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var verdicts []verdict
	for decode := json.NewDecoder(&out); ; {
		var v verdict
		err := decode.Decode(&v)
		if err == io.EOF {
			return verdicts
		} else if err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, v)
	}
}

// strange is a file that a verifier is shown.
type strange struct {
	name   string
	Root   string
	File   []byte
	Bao    bool
	Wanted []int64 // the bytes [a, b), nil if the file itself says them
}

type verdict struct {
	Refused string // why, empty if it is accepted
	Size    int64
	Proven  bool
	Ranges  [][2]int64
	Data    []byte
}

// own is the package's verdict.
func (c strange) own() verdict {
	v, err := c.read()
	if err != nil {
		return verdict{Refused: err.Error()}
	}
	return v
}

func (c strange) read() (v verdict, err error) {
	root, err := merkle.ParseRoot(c.Root)
	if err != nil {
		return v, err
	}
	var s *merkle.SliceReader
	start, end := int64(0), int64(math.MaxInt64)
	if c.Wanted != nil {
		start, end = c.Wanted[0], c.Wanted[1]
	}
	if c.Bao {
		s, err = merkle.NewBaoReader(bytes.NewReader(c.File), root, start, end-start)
	} else {
		s, err = merkle.NewSliceReader(bytes.NewReader(c.File), root)
	}
	if err != nil {
		return v, err
	}
	if c.Wanted != nil {
		set, err := merkle.Leaves(s.Size(), merkle.Range{Start: start, End: end})
		if err != nil {
			return v, err
		}
		if !slices.Equal(set.Ranges(), s.Ranges()) {
			return v, fmt.Errorf("it holds the leaves %v, not %v", s.Ranges(), set.Ranges())
		}
	}
	pieces, err := drain(s)
	if err != nil {
		return v, err
	}
	for _, p := range pieces {
		n := int64(len(p.p))
		from, to := min(max(start-p.offset, 0), n), min(max(end-p.offset, 0), n)
		v.Data = append(v.Data, p.p[from:to]...)
	}
	for _, r := range s.Ranges() {
		v.Ranges = append(v.Ranges, [2]int64{r.Start, r.End})
	}
	v.Size, v.Proven = s.Size(), s.SizeProven()
	return v, nil
}

// TestStrangers: on slices and Bao slices, sound, altered and forged, verifiers
// that share no code with the package have its verdict, with the same bytes,
// the same ranges and the same word on the size.
func TestStrangers(t *testing.T) {
	all := strangeCases(t)
	wants := make([]verdict, len(all))
	accepted := 0
	for i, c := range all {
		wants[i] = c.own()
		if wants[i].Refused == "" {
			accepted++
		}
	}
	t.Logf("%d cases, of which %d are accepted", len(all), accepted)
	if accepted < len(all)/10 || accepted > len(all)/2 {
		t.Errorf("%d of %d cases are accepted: they show little", accepted, len(all))
	}
	for name, s := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases, want := all, wants
			if s.slow {
				cases, want = nil, nil
				for i, c := range all {
					if len(c.File) < 3000 || i%16 == 0 {
						cases, want = append(cases, c), append(want, wants[i])
					}
				}
			}
			got := s.judge(t, cases)
			if len(got) != len(cases) {
				t.Fatalf("%d verdicts on %d cases", len(got), len(cases))
			}
			for i, c := range cases {
				got, want := got[i], want[i]
				if (got.Refused == "") != (want.Refused == "") {
					t.Errorf("%s %v: refused %q, want %q: root %s, file %x", c.name, c.Wanted, got.Refused, want.Refused, c.Root, c.File[:min(len(c.File), 100)])
					continue
				}
				if got.Size != want.Size || got.Proven != want.Proven || !bytes.Equal(got.Data, want.Data) {
					t.Errorf("%s %v: size %d, proven %v, %d bytes, want %d, %v, %d", c.name, c.Wanted, got.Size, got.Proven, len(got.Data), want.Size, want.Proven, len(want.Data))
				}
				if s.ranges && !slices.Equal(got.Ranges, want.Ranges) {
					t.Errorf("%s %v: ranges %v, want %v", c.name, c.Wanted, got.Ranges, want.Ranges)
				}
			}
		})
	}
}

// run runs the stranger as a command, and returns the exit code and what was
// printed.
func (s stranger) run(t *testing.T, file []byte, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	program, script := s.find(t)
	cmd := exec.CommandContext(t.Context(), program, append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(file), &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String()
}

// TestStrangersCommand: as commands they say what they verified, write nothing
// that is not, and tell their reasons apart by exit code.
func TestStrangersCommand(t *testing.T) {
	data := pattern(5000, 1)
	root := merkle.Sum(data).String()
	file := slice(t, data, true, merkle.Range{Start: 1024, End: 2000})
	unproven := slice(t, data, false, merkle.Range{Start: 1024, End: 2000})
	var w bytes.Buffer
	if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), 1024, 1000); err != nil {
		t.Fatal(err)
	}
	bao := w.Bytes()
	missing := filepath.Join(t.TempDir(), "no", "file")
	for name, test := range map[string]struct {
		file []byte
		args []string
		code int
		out  string // verified bytes
		size string // what is said of it
	}{
		"good slice":            {file, []string{root, "-"}, 0, string(data[1024:2048]), "proven"},
		"size not proven":       {unproven, []string{root, "-"}, 0, string(data[1024:2048]), "not proven"},
		"good slice, its range": {file, []string{root, "-", "1024:2000"}, 0, string(data[1024:2000]), "proven"},
		"good Bao slice":        {bao, []string{root, "-", "1024:2024"}, 0, string(data[1024:2024]), "not proven"},
		"good Bao slice, told":  {bao, []string{"--bao", root, "-", "1024:2024"}, 0, string(data[1024:2024]), "not proven"},
		"a slice told as Bao":   {file, []string{"--bao", root, "-", "1024:2024"}, 3, "", ""},
		"another range":         {file, []string{root, "-", "0:2000"}, 3, "", ""},
		"another Bao range":     {bao, []string{root, "-", "0:1024"}, 3, "", ""},
		"empty file":            {nil, []string{root, "-"}, 3, "", ""},
		"Bao without a range":   {bao, []string{root, "-"}, 64, "", ""},
		"no root":               {file, []string{"-"}, 64, "", ""},
		"upper-case root":       {file, []string{strings.ToUpper(root), "-"}, 64, "", ""},
		"backwards":             {file, []string{root, "-", "9:3"}, 64, "", ""},
		"no range":              {file, []string{root, "-", ""}, 64, "", ""},
		"signed range":          {file, []string{root, "-", "1024:+2000"}, 64, "", ""},
		"too much":              {file, []string{root, "-", "1024:2000", "x"}, 64, "", ""},
		"unknown option":        {file, []string{"-x", root, "-"}, 64, "", ""},
		"missing file":          {nil, []string{root, missing}, 1, "", ""},
		"unwritable out":        {file, []string{"-o", missing, root, "-"}, 1, "", ""},
	} {
		for language, s := range strangers {
			t.Run(language+"/"+name, func(t *testing.T) {
				t.Parallel()
				out := filepath.Join(t.TempDir(), "out")
				args := test.args
				if args[0] != "-o" {
					args = append([]string{"-o", out}, args...)
				}
				code, stdout, stderr := s.run(t, test.file, args...)
				if code != test.code {
					t.Fatalf("exit %d, want %d: %s", code, test.code, stderr)
				}
				got, err := os.ReadFile(out)
				if (err == nil) != (code == 0) || string(got) != test.out {
					t.Errorf("exit %d, but %d bytes are written, want %d; %v", code, len(got), len(test.out), err)
				}
				if code != 0 && (stdout != "" || !strings.HasPrefix(stderr, s.script+": ") || strings.Contains(stderr, "    at ")) {
					t.Errorf("stdout %q, stderr %q", stdout, stderr)
				}
				if want := fmt.Sprintf("%d bytes verified; size 5000, %s\n", len(test.out), test.size); code == 0 && (stdout != want || stderr != "") {
					t.Errorf("stdout %q, want %q; stderr %q", stdout, want, stderr)
				}
			})
		}
	}
	for language, s := range strangers {
		t.Run(language+"/standard output", func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := s.run(t, file, "-o", "-", root, "-")
			if code != 0 || stdout != string(data[1024:2048]) || stderr != "1024 bytes verified; size 5000, proven\n" {
				t.Errorf("exit %d, %d bytes out; %s", code, len(stdout), stderr)
			}
		})
	}
}

// TestStrangersFlips: no flipped bit of a slice or of a Bao slice that has its
// last leaf verifies.
func TestStrangersFlips(t *testing.T) {
	data := pattern(5000, 1)
	root := merkle.Sum(data).String()
	var w bytes.Buffer
	if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), 4500, 100); err != nil {
		t.Fatal(err)
	}
	var cases []strange
	for _, good := range []strange{
		{"slice", root, slice(t, data, true, merkle.Range{Start: 1024, End: 2000}), false, []int64{1024, 2000}},
		{"Bao slice", root, w.Bytes(), true, []int64{4500, 4600}},
	} {
		cases = append(cases, good)
		for bit := 0; bit < 8*len(good.File); bit++ {
			bad := good
			bad.name = fmt.Sprintf("%s, bit %d", good.name, bit)
			bad.File = bytes.Clone(good.File)
			bad.File[bit/8] ^= 1 << (bit % 8)
			cases = append(cases, bad)
			if bit >= 8*80 {
				bit += 96
			}
		}
	}
	for name, s := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, got := range s.judge(t, cases) {
				if (got.Refused == "") != !strings.Contains(cases[i].name, "bit") {
					t.Errorf("%s: refused %q", cases[i].name, got.Refused)
				}
			}
		})
	}
}
