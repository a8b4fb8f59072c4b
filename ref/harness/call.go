package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"leafproof"
	"leafproof/ref"
)

// A Call is what a model asks of a tool.
type Call struct {
	ID    string          `json:"id"` // as the provider gave it: it may be empty, and come again
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// Input is a call whose references are resolved.
type Input struct {
	Run  *Run
	Call Call
	// Args are the arguments, as the tool's own schema has them.
	Args json.RawMessage
	// Lazy are the handles of the parameters that the tool reads by itself.
	Lazy map[string]*ref.Handle
	Used []ref.Use
	// Decision is what became of the tool's demands: admit, or qualify with what is
	// unmet.
	Decision *Decision
}

// Resolve takes a call: it puts values in place of its references, holds them against
// the tool's schema, and what they lead to against what the tool demands. Where it
// fails the tool must not run; [FailureOf] says to the model why. Calls of one message
// are resolved before the results of any of them are recorded.
func (r *Run) Resolve(ctx context.Context, c Call) (*Input, error) {
	r.mu.Lock()
	r.answered = true
	r.mu.Unlock()
	t, err := r.h.tool(c.Tool)
	if err != nil {
		return nil, err
	}
	got, err := r.resolver.Args(ctx, ref.ToolSpec{Name: t.Name, Schema: t.Schema, Lazy: t.Lazy, Strings: t.Strings}, c.Input)
	if err != nil {
		return nil, err
	}
	in := &Input{Run: r, Call: c, Args: got.Args, Lazy: got.Lazy, Used: got.Used}
	uses, err := r.uses(ctx, got)
	if err != nil {
		return nil, err
	}
	for i, u := range uses {
		in.Used[i].ArtifactID = u.id // of a lazy parameter too: what the tool makes is made from it
	}
	if in.Decision, err = r.gate(ctx, t.Require, uses); err != nil {
		return nil, err
	}
	if ranks[in.Decision.Decision] >= ranks[leafproof.Deferred] {
		return nil, &GateError{in.Decision}
	}
	return in, nil
}

// uses are the artifacts that a call relies on, with what of their answers the model
// was given.
func (r *Run) uses(ctx context.Context, got *ref.Resolved) ([]used, error) {
	var out []used
	for _, u := range got.Used {
		one := used{param: u.Property, id: u.ArtifactID, answer: u.Answer}
		if h := got.Lazy[u.Property]; u.Lazy && h != nil && one.id == "" {
			var err error
			if one.id, err = h.Artifact(ctx); err == nil && one.id != "" { // no byte of it is read
				_, err = r.source.Stat(ctx, one.id)
			}
			if err != nil {
				return nil, err
			}
		}
		a, err := r.admissionOf(ctx, u.Ref)
		if err != nil {
			return nil, err
		}
		if a != nil && a.ArtifactID == one.id {
			one.admission = a.evidence()
			if one.answer == nil {
				one.answer = a.answer()
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// admissionOf is the admission of the answer whose value a reference stands for; nil
// where there is none.
func (r *Run) admissionOf(ctx context.Context, x ref.Ref) (*Admission, error) {
	m, ok := x.(ref.Message)
	if !ok || m.Field != "value" {
		return nil, nil
	}
	seq, _, err := r.transcript.Shown(ctx, m.Seq, m.Part)
	if err != nil {
		return nil, err
	}
	list, err := r.Admissions(ctx, seq)
	for i := range list {
		if list[i].Part == m.Part {
			return &list[i], nil
		}
	}
	return nil, err
}

// Call takes a call, runs its tool and records the result: what the model reads of it,
// also where it failed.
func (r *Run) Call(ctx context.Context, c Call) (View, error) {
	views, err := r.Calls(ctx, []Call{c})
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// Calls is Call for all the calls of one message of the model. They are all resolved
// before the first of them runs, and run in order.
func (r *Run) Calls(ctx context.Context, calls []Call) ([]View, error) {
	results := make([]Result, len(calls))
	for i, c := range calls {
		results[i] = Result{CallID: c.ID, Tool: c.Tool}
		results[i].Input, results[i].Err = r.Resolve(ctx, c)
	}
	for i, c := range calls {
		if res := &results[i]; res.Err == nil {
			res.Value, res.Err = r.execute(ctx, c.Tool, res.Input)
		}
	}
	return r.Record(ctx, results...)
}

// execute runs a tool.
func (r *Run) execute(ctx context.Context, name string, in *Input) (any, error) {
	t, err := r.h.tool(name)
	if err != nil {
		return nil, err
	}
	if t.Do == nil {
		return nil, fmt.Errorf("the tool %q runs elsewhere", name)
	}
	return guarded(name, func() (any, error) { return t.Do(ctx, in) })
}

// guarded runs what a tool's author wrote. What panics has failed.
func guarded[T any](name string, do func() (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			var none T
			value, err = none, fmt.Errorf("the tool %q panicked: %v", name, p)
		}
	}()
	return do()
}

// Kernel returns a kernel whose generation is that of a handle: [ref.ErrKernelGone]
// where it was begun anew since.
func (r *Run) Kernel(ctx context.Context, h KernelHandle) (Kernel, error) {
	return r.h.kernels.live(ctx, h)
}

// Freeze stores what a live object is now, and returns what the model reads of it: a
// marker, which never means the live object.
func (r *Run) Freeze(ctx context.Context, h KernelHandle) (View, error) {
	views, err := r.Record(ctx, Result{Tool: h.Kernel, Value: h})
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// receipt takes the signed receipt of an answer, where the run signs what it admits.
func (r *Run) receipt(into **leafproof.Statement) ref.Receipt {
	if !r.sign {
		return nil
	}
	return func(st any) {
		if s, ok := st.(*leafproof.Statement); ok {
			*into = s
		}
	}
}

// A Model is what a run speaks with.
type Model interface {
	// Next is given what is new to the model, and returns what it says.
	Next(ctx context.Context, new Turn) (Reply, error)
}

// A Turn is what a model is given: the protocol and the tools in the first one, and
// then what its calls came to.
type Turn struct {
	Protocol string
	Tools    []ref.Declaration
	Messages []View
}

// A Reply is what a model says. Without calls it is the last.
type Reply struct {
	Text  string
	Calls []Call
}

// ErrSteps is a model that had calls after as many turns as it may.
var ErrSteps = errors.New("the model did not come to an end")

// Loop gives a prompt to a model and runs what it calls until it has no more calls, for
// at most so many turns. It returns the model's last text.
func (r *Run) Loop(ctx context.Context, m Model, prompt string, turns int) (string, error) {
	tools, err := r.Declare()
	if err != nil {
		return "", err
	}
	first, err := r.Message(ctx, "user", prompt)
	if err != nil {
		return "", err
	}
	next := Turn{Protocol: r.Protocol(), Tools: tools, Messages: []View{first}}
	for range turns {
		reply, err := m.Next(ctx, next)
		if err != nil {
			return "", err
		}
		if reply.Text != "" {
			if _, err := r.Message(ctx, "assistant", reply.Text); err != nil {
				return "", err
			}
		}
		if len(reply.Calls) == 0 {
			return reply.Text, nil
		}
		next = Turn{}
		if next.Messages, err = r.Calls(ctx, reply.Calls); err != nil {
			return "", err
		}
	}
	return "", ErrSteps
}
