package merkle_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
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

// strangeCases returns excerpts of blobs of many sizes, excerpts forged for
// sizes that no blob has, and alterations of both.
func strangeCases(t *testing.T) (cases []strange) {
	rng := rand.New(rand.NewPCG(9, 10))
	sizes := []int64{0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 5000, 16_383, 16_384, 16_385, 17_409, 32_768, 40_000}
	for range 12 {
		sizes = append(sizes, rng.Int64N(9000))
	}
	for _, size := range sizes {
		data := pattern(int(size), uint64(size))
		root := merkle.Sum(data).String()
		for _, last := range []bool{false, true} {
			ranges := randomRanges(rng, size, 1+rng.IntN(3))
			file := slice(t, data, last, ranges...)
			cases = append(cases, strange{fmt.Sprintf("slice %v of %d bytes, last %v", ranges, size, last), root, file, false, nil})
		}
		for _, r := range append(randomRanges(rng, size, 1), merkle.Range{Start: 1024, End: 1024}) {
			wanted := []int64{r.Start, r.End}
			cases = append(cases, strange{fmt.Sprintf("slice of %d bytes, its range known", size), root, slice(t, data, true, r), false, wanted})
			var w bytes.Buffer
			if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), r.Start, r.End-r.Start); err != nil {
				t.Fatal(err)
			}
			cases = append(cases, strange{fmt.Sprintf("Bao slice of %d bytes", size), root, w.Bytes(), true, wanted})
		}
	}
	for _, size := range []int64{math.MaxInt64, math.MaxInt64 - 1023, math.MaxInt64 - 1024, 1<<62 + 1, 1 << 53, 5<<50 + 7, 1<<42 + 1, 1 << 42, 100_000} {
		leaves := (size-1)/1024 + 1
		for _, leaf := range []int64{0, 15, 1<<31 - 1, 1 << 32, rng.Int64N(leaves), leaves - 17, leaves - 2, leaves - 1} {
			if leaf >= leaves {
				continue
			}
			start := leaf * 1024
			r := merkle.Range{Start: start, End: min(start, size-2500) + 2500}
			cases = append(cases, forged(t, rng, size, false, r), forged(t, rng, size, true, r))
			if leaf+1 == leaves {
				cases = append(cases, forged(t, rng, size, true, merkle.Range{Start: math.MaxInt64 - 5, End: math.MaxInt64}))
			}
		}
		cases = append(cases, forged(t, rng, size, false, merkle.Range{Start: 5, End: 6}, merkle.Range{Start: size / 3, End: size / 3}, merkle.Range{Start: size, End: size}))
	}
	for _, c := range slices.Clone(cases) {
		for _, name := range slices.Sorted(maps.Keys(alterations)) {
			if bad, ok := alterations[name](rng, c); ok {
				bad.name = name + ", " + c.name
				cases = append(cases, bad)
			}
		}
		for range 6 {
			if bad, ok := alterHead(rng, c); ok {
				bad.name = "head, " + c.name
				cases = append(cases, bad)
			}
		}
	}
	return cases
}

// forged returns an excerpt of a tree of which only the path to the selected
// leaves exists. Nobody can tell it from one of a blob of that size.
func forged(t *testing.T, rng *rand.Rand, size int64, bao bool, ranges ...merkle.Range) strange {
	t.Helper()
	set := leaves(t, size, ranges...)
	unit := int64(16)
	if bao {
		unit = 1
	}
	count := (size-1)/1024 + 1
	var subtree func(lo, hi int64, flags uint32) (words, []byte)
	subtree = func(lo, hi int64, flags uint32) (value words, enc []byte) {
		selected := int64(0)
		for _, r := range set.Ranges() {
			selected += max(min(r.End, hi)-max(r.Start, lo), 0)
		}
		switch {
		case selected == 0:
			for i := range value {
				value[i] = rng.Uint32()
			}
			return value, nil
		case selected == hi-lo && selected <= unit:
			n := selected * 1024
			if hi == count {
				n -= 1023 - (size-1)%1024
			}
			p := pattern(int(n), uint64(rng.Uint32()))
			return twinValue(p, int(lo), flags), p
		}
		n := int64(1)
		for 2*n < hi-lo {
			n *= 2
		}
		left, encLeft := subtree(lo, lo+n, 0)
		right, encRight := subtree(lo+n, hi, 0)
		both := twinBytes(left, right)
		return twinCompress(twinIV, both, 0, parentFlag|flags), slices.Concat(both, encLeft, encRight)
	}
	value, enc := subtree(0, count, rootFlag)
	c := strange{name: fmt.Sprintf("forged, %d bytes %v", size, ranges), Root: merkle.Root(twinBytes(value)).String(), Bao: bao}
	if bao {
		c.Wanted = []int64{ranges[0].Start, ranges[0].End}
	} else {
		numbers := []uint64{uint64(len(set.Ranges()))}
		end := int64(0)
		for _, r := range set.Ranges() {
			numbers = append(numbers, uint64(r.Start-end), uint64(r.End-r.Start-1))
			end = r.End
		}
		c.File = head(0, numbers)
	}
	c.File = append(binary.LittleEndian.AppendUint64(c.File, uint64(size)), enc...)
	return c
}

func head(flags byte, numbers []uint64) []byte {
	b := append([]byte("lps1"), flags)
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// alterations change a file or what it is compared with. What results may be
// sound, or not be possible (false).
var alterations = map[string]func(*rand.Rand, strange) (strange, bool){
	"bit": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = bytes.Clone(c.File)
		c.File[rng.IntN(len(c.File))] ^= 1 << rng.IntN(8)
		return c, true
	},
	"early bit": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = bytes.Clone(c.File)
		c.File[rng.IntN(min(len(c.File), 20))] ^= 1 << rng.IntN(8)
		return c, true
	},
	"cut": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = c.File[:rng.IntN(len(c.File))]
		return c, true
	},
	"cut by one": func(_ *rand.Rand, c strange) (strange, bool) {
		c.File = c.File[:len(c.File)-1]
		return c, true
	},
	"trailing": func(rng *rand.Rand, c strange) (strange, bool) {
		c.File = append(bytes.Clone(c.File), byte(rng.IntN(2)))
		return c, true
	},
	"root": func(rng *rand.Rand, c strange) (strange, bool) {
		at := rng.IntN(64)
		digit := "0"
		if c.Root[at] == '0' {
			digit = "1"
		}
		c.Root = c.Root[:at] + digit + c.Root[at+1:]
		return c, true
	},
	"range": func(rng *rand.Rand, c strange) (strange, bool) {
		start := []int64{0, rng.Int64N(5000), math.MaxInt64 - 4000}[rng.IntN(3)]
		c.Wanted = []int64{start, start + rng.Int64N(3000)}
		return c, true
	},
	"range nearby": func(rng *rand.Rand, c strange) (strange, bool) {
		if c.Wanted == nil || c.Wanted[1] > math.MaxInt64-2000 {
			return c, false
		}
		a := max(c.Wanted[0]-rng.Int64N(700), 0)
		c.Wanted = []int64{a, max(a, c.Wanted[1]+rng.Int64N(1000)-500)}
		return c, true
	},
	"length": func(rng *rand.Rand, c strange) (strange, bool) {
		at := 0
		if !c.Bao {
			h, ok := parseHead(c.File)
			if !ok {
				return c, false
			}
			at = h.size
		}
		c.File = bytes.Clone(c.File)
		size := binary.LittleEndian.Uint64(c.File[at:])
		switch rng.IntN(4) {
		case 0:
			size = rng.Uint64()
		case 1:
			size ^= 1 << rng.IntN(64)
		default: // often as good as the true one
			size += rng.Uint64N(2048) - 1024
		}
		binary.LittleEndian.PutUint64(c.File[at:], size)
		return c, true
	},
	"one leaf more": func(_ *rand.Rand, c strange) (strange, bool) {
		h, ok := parseHead(c.File)
		if c.Bao || !ok {
			return c, false
		}
		h.numbers[len(h.numbers)-1]++
		c.File = append(head(h.flags, h.numbers), c.File[h.size:]...)
		return c, true
	},
	"the other kind": func(_ *rand.Rand, c strange) (strange, bool) {
		c.Bao = !c.Bao
		if c.Bao && c.Wanted == nil {
			c.Wanted = []int64{0, 1}
		}
		// Python takes it for what it begins with.
		return c, c.Bao
	},
}

// sliceHead is what stands before the length in a slice file.
type sliceHead struct {
	flags   byte
	numbers []uint64
	size    int // where the length begins
}

func parseHead(file []byte) (h sliceHead, ok bool) {
	rest, ok := bytes.CutPrefix(file, []byte("lps1"))
	if !ok || len(rest) < 2 {
		return h, false
	}
	h.flags, rest = rest[0], rest[1:]
	count := 1
	for len(h.numbers) < count {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return h, false
		}
		if h.numbers = append(h.numbers, v); len(h.numbers) == 1 {
			count = 1 + 2*int(min(v, 1<<20))
		}
		rest = rest[n:]
	}
	h.size = len(file) - len(rest)
	return h, len(rest) >= 8
}

// alterHead says the same, or something near it, in a head that may not be
// canonical, and leaves the body as it is.
func alterHead(rng *rand.Rand, c strange) (strange, bool) {
	h, ok := parseHead(c.File)
	if c.Bao || !ok {
		return c, false
	}
	body := c.File[h.size:]
	leaves := max(1, (binary.LittleEndian.Uint64(body)+1023)/1024)
	at := rng.IntN(len(h.numbers))
	end := uint64(0)
	for i := 1; i < len(h.numbers); i += 2 {
		end += h.numbers[i] + h.numbers[i+1] + 1
	}
	lastRange := len(h.numbers) - 2
	switch rng.IntN(8) {
	case 0: // a number that is not in its shortest form
		b := head(h.flags, h.numbers[:at])
		b = binary.AppendUvarint(b, h.numbers[at])
		b[len(b)-1] |= 0x80
		b = append(b, strings.Repeat("\x80", rng.IntN(9))...)
		b = append(b, 0)
		c.File = slices.Concat(b, head(0, h.numbers[at+1:])[5:], body)
		return c, true
	case 1: // flags
		h.flags = byte(1) << rng.IntN(8)
	case 2: // the last range one longer, which the flag says too
		if h.flags == 1 && end == leaves-1 {
			h.numbers[lastRange+1]++
		}
		h.flags ^= byte(rng.IntN(2))
	case 3: // the last leaf as a range of its own
		if h.flags == 1 && end < leaves-1 {
			h.flags = byte(rng.IntN(2))
			h.numbers[0]++
			h.numbers = append(h.numbers, leaves-1-end, 0)
		}
	case 4: // one range as two that touch
		i := 1 + 2*rng.IntN(int(h.numbers[0]))
		if n := h.numbers[i+1]; n > 0 {
			h.numbers[0]++
			h.numbers[i+1] = n - 1
			h.numbers = slices.Insert(h.numbers, i+2, 0, 0)
		}
	case 5: // around the number of leaves
		h.numbers[at] = leaves - 1 + rng.Uint64N(4)
	case 6: // numbers that do not fit
		h.numbers[at] = []uint64{0, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64, 1<<20 + 1}[rng.IntN(8)]
	default:
		h.numbers[at] += rng.Uint64N(3) - 1
	}
	c.File = append(head(h.flags, h.numbers), body...)
	return c, true
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
