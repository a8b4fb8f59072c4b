package harness_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// pythonKernel is a real python3 process that runs what it is told and writes its
// objects as JSON.
type pythonKernel struct {
	mu         sync.Mutex
	generation uint64
	cmd        *exec.Cmd
	in         io.WriteCloser
	out        *bufio.Reader
}

const pythonLoop = `
import sys, json, base64
scope = {}
for line in sys.stdin:
    op = json.loads(line)
    try:
        if op["op"] == "exec":
            exec(op["code"], scope)
            answer = {}
        else:
            text = json.dumps(scope[op["name"]], separators=(",", ":"))
            answer = {"data": base64.b64encode(text.encode()).decode()}
    except Exception as e:
        answer = {"error": repr(e)}
    print(json.dumps(answer), flush=True)
`

func startPython(t *testing.T) *pythonKernel {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	k := &pythonKernel{}
	k.reset(t)
	t.Cleanup(func() { k.stop() })
	return k
}

func (k *pythonKernel) stop() {
	if k.cmd != nil {
		k.in.Close()
		k.cmd.Wait()
	}
}

// reset begins the process anew: its objects are gone.
func (k *pythonKernel) reset(t *testing.T) {
	t.Helper()
	k.stop()
	k.cmd = exec.Command("python3", "-c", pythonLoop)
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.generation++
}

func (k *pythonKernel) ask(op map[string]string) (data string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	line, err := json.Marshal(op)
	if err == nil {
		_, err = k.in.Write(append(line, '\n'))
	}
	if err != nil {
		return "", err
	}
	text, err := k.out.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var answer struct{ Data, Error string }
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", err
	}
	if answer.Error != "" {
		return "", fmt.Errorf("python: %s", answer.Error)
	}
	return answer.Data, nil
}

func (k *pythonKernel) run(t *testing.T, code string) {
	t.Helper()
	if _, err := k.ask(map[string]string{"op": "exec", "code": code}); err != nil {
		t.Fatal(err)
	}
}

// Generation implements harness.Kernel.
func (k *pythonKernel) Generation(context.Context) (uint64, error) { return k.generation, nil }

// Freeze implements harness.Kernel.
func (k *pythonKernel) Freeze(_ context.Context, name string) (harness.Blob, error) {
	data, err := k.ask(map[string]string{"op": "dump", "name": name})
	return harness.Blob{Reader: base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)), MediaType: "application/json"}, err
}

// Case 26: an object that is changed and rebound after it was frozen leaves the artifact
// what it was; after a reset its handle is gone, and so is nothing that was frozen.
func TestKernel(t *testing.T) {
	k := startPython(t)
	var handle harness.KernelHandle
	sc := newScene(t, setup{
		opts: harness.Options{Kernels: map[string]harness.Kernel{"py": k}},
		tools: []harness.Tool{{
			Name: "compute", Description: "Runs the analysis.", Schema: json.RawMessage(`{"type":"object"}`),
			Do: func(_ context.Context, in *harness.Input) (any, error) {
				if _, err := in.Run.Kernel(t.Context(), handle); err != nil {
					return nil, err
				}
				return map[string]any{"rows": 2, "table": handle}, nil
			},
		}},
	})
	k.run(t, `state = {"rows": [{"id": 1, "n": 13911860366432393}, {"id": 2}]}`)
	handle = harness.KernelHandle{Kernel: "py", Generation: k.generation, Name: "state"}

	v := sc.good("compute", `{}`)
	const want = `{"rows":[{"id":1,"n":13911860366432393},{"id":2}]}`
	read := func(v harness.View, field string) string {
		t.Helper()
		return member(t, sc.good("read_json", `{"source":%s}`, refTo(v, field)), "preview")
	}
	if got := read(v, "table"); got != want {
		t.Fatalf("frozen as %s", got)
	}
	k.run(t, `state["rows"].append({"id": 3}); state["rows"][0]["id"] = 99`)
	if got := read(v, "table"); got != want {
		t.Errorf("after the object was changed: %s", got)
	}
	k.run(t, `state = "something else"`)
	if got := read(v, "table"); got != want {
		t.Errorf("after the name was bound anew: %s", got)
	}
	again, err := sc.run.Freeze(t.Context(), handle)
	if err != nil || again.IsError {
		t.Fatalf("%s, %v", again.Content, err)
	}
	if got := read(again, ""); got != `"something else"` {
		t.Errorf("frozen anew: %s", got)
	}
	if v.Seq == again.Seq {
		t.Error("one seq means two things")
	}

	k.reset(t)
	k.run(t, `state = "of the new process"`)
	sc.fails("kernel_generation_gone", "compute", `{}`)
	if gone, err := sc.run.Freeze(t.Context(), handle); err != nil || failureOf(t, gone).Code != "kernel_generation_gone" {
		t.Errorf("a handle of the old process: %s, %v", gone.Content, err)
	}
	handle.Kernel = "other"
	sc.fails("kernel_generation_gone", "compute", `{}`)
	if got := read(v, "table"); got != want {
		t.Errorf("after the reset: %s", got)
	}
}

// A kernel that is begun anew while it is frozen leaves nothing stored.
func TestKernelResetWhileFreezing(t *testing.T) {
	k := &fakeKernel{}
	var c *counting
	sc := newScene(t, setup{
		opts:    harness.Options{Kernels: map[string]harness.Kernel{"k": k}},
		wrapper: func(s ref.Source) ref.Source { c = &counting{Source: s}; return c },
	})
	v, err := sc.run.Freeze(t.Context(), harness.KernelHandle{Kernel: "k", Name: "x"})
	if err != nil || failureOf(t, v).Code != "kernel_generation_gone" {
		t.Errorf("%s, %v", v.Content, err)
	}
	if list, _, err := sc.store.List(t.Context(), leafproof.Owner, secretTenant, 0, 10); err != nil || len(list) != 0 {
		t.Errorf("%d artifacts, %v", len(list), err)
	}
}

// fakeKernel is begun anew while it is read from.
type fakeKernel struct{ generation uint64 }

func (k *fakeKernel) Generation(context.Context) (uint64, error) { return k.generation, nil }

func (k *fakeKernel) Freeze(context.Context, string) (harness.Blob, error) {
	return harness.Blob{Reader: io.MultiReader(strings.NewReader("[1,"), resetting{k}, strings.NewReader("2]"))}, nil
}

type resetting struct{ k *fakeKernel }

func (r resetting) Read([]byte) (int, error) {
	r.k.generation++
	return 0, io.EOF
}
