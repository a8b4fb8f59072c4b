package merkle_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/merkle"
)

// verifyPy runs tools/verify.py, the second implementation, on a file.
type verifyPy struct{ python, script, dir string }

func newVerifyPy(t *testing.T) verifyPy {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("no python3 to run tools/verify.py with: %v", err)
	}
	script := filepath.Join("..", "tools", "verify.py")
	if _, err := os.ReadFile(script); err != nil {
		t.Fatal(err)
	}
	return verifyPy{python, script, t.TempDir()}
}

// run returns the exit code and what was printed.
func (v verifyPy) run(t *testing.T, file []byte, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), v.python, append([]string{"-B", v.script}, args...)...)
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

// TestPython: what WriteSlice and WriteBao write, an implementation that shares
// no code with them accepts, with the same bytes and the same word on the size.
func TestPython(t *testing.T) {
	v := newVerifyPy(t)
	rng := rand.New(rand.NewPCG(9, 10))
	for _, size := range []int64{0, 1025, 16385, 40_000} {
		data := pattern(int(size), uint64(size))
		root := merkle.Sum(data).String()
		for _, last := range []bool{false, true} {
			ranges := randomRanges(rng, size, 3)
			asked := leaves(t, size, ranges...)
			var want []byte
			for _, r := range asked.Bytes() {
				want = append(want, data[r.Start:r.End]...)
			}
			proven := "not proven"
			if last || asked.HasLast() {
				proven = "proven"
			}
			report := fmt.Sprintf("%d bytes verified; size %d, %s\n", len(want), size, proven)
			code, out, errs := v.run(t, slice(t, data, last, ranges...), "-o", "-", root, "-")
			if code != 0 || out != string(want) || errs != report {
				t.Errorf("slice %v of %d bytes: exit %d, %d bytes out, want %d; %s, want %s", ranges, size, code, len(out), len(want), errs, report)
			}
		}
		r := randomRanges(rng, size, 1)[0]
		var w bytes.Buffer
		if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), r.Start, r.End-r.Start); err != nil {
			t.Fatal(err)
		}
		want := data[min(r.Start, size):min(r.End, size)]
		code, out, errs := v.run(t, w.Bytes(), "-o", "-", root, "-", fmt.Sprintf("%d:%d", r.Start, r.End))
		if code != 0 || out != string(want) {
			t.Errorf("Bao slice %v of %d bytes: exit %d, %d bytes out, want %d; %s", r, size, code, len(out), len(want), errs)
		}
	}
}

// TestPythonRefuses: it refuses what is altered or was not asked for, writes
// nothing then, and tells its reasons apart by exit code.
func TestPythonRefuses(t *testing.T) {
	v := newVerifyPy(t)
	data := pattern(5000, 1)
	root := merkle.Sum(data).String()
	file := slice(t, data, true, merkle.Range{Start: 1024, End: 2000})
	var w bytes.Buffer
	if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), 1024, 1000); err != nil {
		t.Fatal(err)
	}
	bao := w.Bytes()
	for name, test := range map[string]struct {
		file []byte
		args []string
		code int
	}{
		"good slice":            {file, []string{root, "-"}, 0},
		"good slice, its range": {file, []string{root, "-", "1024:2000"}, 0},
		"good Bao slice":        {bao, []string{root, "-", "1024:2024"}, 0},
		"good Bao slice, told":  {bao, []string{"--bao", root, "-", "1024:2024"}, 0},
		"another range":         {file, []string{root, "-", "0:2000"}, 3},
		"another Bao range":     {bao, []string{root, "-", "0:1024"}, 3},
		"another root":          {file, []string{merkle.Sum(nil).String(), "-"}, 3},
		"empty file":            {nil, []string{root, "-"}, 3},
		"truncated":             {file[:len(file)-1], []string{root, "-"}, 3},
		"trailing":              {append(bytes.Clone(file), 0), []string{root, "-"}, 3},
		"truncated Bao":         {bao[:len(bao)-1], []string{root, "-", "1024:2024"}, 3},
		"trailing Bao":          {append(bytes.Clone(bao), 0), []string{root, "-", "1024:2024"}, 3},
		"empty blob, any root":  {make([]byte, 8), []string{root, "-", "0:0"}, 3},
		"last leaf added twice": {append([]byte("lps1\x01\x01\x04\x00"), bao...), []string{root, "-"}, 3},
		"long varint":           {append([]byte("lps1\x01\x81\x00"), file[6:]...), []string{root, "-"}, 3},
		"Bao without a range":   {bao, []string{root, "-"}, 64},
		"no root":               {file, []string{"-"}, 64},
		"upper-case root":       {file, []string{strings.ToUpper(root), "-"}, 64},
		"backwards":             {file, []string{root, "-", "9:3"}, 64},
		"unknown option":        {file, []string{"-x", root, "-"}, 64},
		"missing file":          {nil, []string{root, filepath.Join(v.dir, "missing")}, 1},
		"unwritable out":        {file, []string{"-o", filepath.Join(v.dir, "no", "out"), root, "-"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(v.dir, strings.ReplaceAll(name, " ", "_"))
			args := test.args
			if test.code != 1 {
				args = append([]string{"-o", out}, args...)
			}
			code, stdout, stderr := v.run(t, test.file, args...)
			if code != test.code {
				t.Fatalf("exit %d, want %d: %s", code, test.code, stderr)
			}
			if _, err := os.ReadFile(out); (err == nil) != (code == 0) {
				t.Errorf("exit %d, but reading the output file says %v", code, err)
			}
			if code != 0 && (stdout != "" || stderr == "" || strings.Contains(stderr, "Traceback")) {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
}

// flipAll is run in one process: it flips bits of the file given and prints
// which of them verify all the same.
const flipAll = `
import io, sys
sys.path.insert(0, sys.argv[1])
import verify
root, wanted = bytes.fromhex(sys.argv[2]), tuple(map(int, sys.argv[3].split(":")))
good = sys.stdin.buffer.read()
verify.verify(io.BytesIO(good), root, wanted, False)
for bit in list(range(8 * 80)) + list(range(8 * 80, 8 * len(good), 97)):
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    try:
        verify.verify(io.BytesIO(bytes(bad)), root, wanted, False)
        print("bit", bit, "verifies")
    except verify.Refused:
        pass
print("done")
`

// TestPythonFlips: no flipped bit of a slice or of a Bao slice that has its last
// leaf verifies.
func TestPythonFlips(t *testing.T) {
	v := newVerifyPy(t)
	data := pattern(5000, 1)
	var w bytes.Buffer
	if err := merkle.WriteBao(&w, tree(t, data), bytes.NewReader(data), 4500, 100); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file   []byte
		wanted string
	}{
		"slice":     {slice(t, data, true, merkle.Range{Start: 1024, End: 2000}), "1024:2000"},
		"Bao slice": {w.Bytes(), "4500:4600"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), v.python, "-B", "-c", flipAll, filepath.Dir(v.script), merkle.Sum(data).String(), test.wanted)
			cmd.Stdin = bytes.NewReader(test.file)
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
