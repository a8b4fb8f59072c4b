// Package harness runs tools for a model that works with references.
//
// A [Harness] has the tools; a [Run] is one conversation. The steps of a run are
// methods of their own, so that a program in another language can take them over HTTP,
// and a proxy can stand between two others:
//
//   - [Run.Declare] gives the tools' schemas, in which every property takes a reference;
//   - [Run.Resolve] takes a call, puts values in place of its references, and holds
//     what they lead to against what the tool demands;
//   - [Run.Record] takes a tool's result, stores each [Blob] in it, and gives what the
//     model reads in its place.
//
// [Run.Call] does the last two with the tool between them, and [Run.Loop] all of it
// until the model has no more calls.
//
// # What a model reads
//
// Everything that crosses into the model's view goes through one function, which
// [RunOptions].Watch sees. No storage key, digest, path or tenant is in it, no recipe
// and none of the store's own messages. A result is data: nothing in one is ever
// taken for an instruction, and every envelope says data_only.
package harness

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"leafproof"
	"leafproof/ref"
)

// A Tool is something that a model may call.
type Tool struct {
	Name        string
	Description string
	// Schema is the JSON Schema of the arguments, as its author wrote it.
	Schema json.RawMessage
	// Lazy are the parameters that the tool gets as handles in place of values.
	Lazy []string
	// Strings lets its parameters that take strings have any value as one: see
	// [ref.ToolSpec].
	Strings bool
	// Require is what the tool demands of the references that it is called with.
	Require []Evidence
	// OpaqueText says that the text blocks of its MCP results are content: see
	// [FromContent].
	OpaqueText bool
	// Do runs the tool. What it returns is recorded: see [Run.Record]. nil is a tool
	// that runs elsewhere, whose results come through Record.
	Do func(ctx context.Context, in *Input) (any, error)
	// Refetch, where set, acquires anew what an earlier call of the tool captured; see
	// [Run.Refetch].
	Refetch func(ctx context.Context, old Earlier) (any, error)
	// Resume, where set, goes on with a capture that is partial; see [Run.Resume].
	Resume func(ctx context.Context, old Earlier) (Blob, error)
}

// Options are the parts of a harness.
type Options struct {
	Store *leafproof.Store
	// Spool keeps what cannot be stored; nil: it is lost, and the error says so.
	Spool *Spool
	// Kernels have live objects, by name.
	Kernels map[string]Kernel
	// Limits bound what references may ask for; zero fields mean [ref.DefaultLimits].
	Limits ref.Limits
}

// A Harness has the tools. It is safe for concurrent use.
type Harness struct {
	store   *leafproof.Store
	spool   *Spool
	kernels kernels
	limits  ref.Limits
	tools   []Tool // by name

	mu       sync.Mutex
	declared map[ref.Profile][]ref.Declaration
	checked  map[string]*ref.Compiled
}

// New returns a harness with the tools given and those that every harness has:
// read_json, query_json, read_text, read_records and stat.
func New(o Options, tools ...Tool) (*Harness, error) {
	h := &Harness{
		store: o.Store, spool: o.Spool, kernels: o.Kernels, limits: o.Limits,
		declared: map[ref.Profile][]ref.Declaration{}, checked: map[string]*ref.Compiled{},
	}
	h.tools = append(Shipped(), tools...)
	slices.SortFunc(h.tools, func(a, b Tool) int { return cmp.Compare(a.Name, b.Name) })
	for i, t := range h.tools {
		if i > 0 && h.tools[i-1].Name == t.Name {
			return nil, fmt.Errorf("two tools are named %q", t.Name)
		}
		c, err := ref.CompileSchema(t.Schema, t.Lazy...)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", t.Name, err)
		}
		h.checked[t.Name] = c
	}
	return h, nil
}

func (h *Harness) tool(name string) (*Tool, error) {
	i, ok := slices.BinarySearchFunc(h.tools, name, func(t Tool, name string) int { return cmp.Compare(t.Name, name) })
	if !ok {
		return nil, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "tool", "There is no tool of that name.")
	}
	return &h.tools[i], nil
}

// declare returns the tools as a profile takes them: made once.
func (h *Harness) declare(p ref.Profile) ([]ref.Declaration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.declared[p]; ok {
		return d, nil
	}
	var list []ref.Declaration
	for _, t := range h.tools {
		list = append(list, ref.Declaration{Name: t.Name, Description: t.Description, Schema: t.Schema, Lazy: t.Lazy})
	}
	d, err := ref.Declare(list, p)
	if err == nil {
		h.declared[p] = d
	}
	return d, err
}

// Task says what a run is about, which decides whether newer observations may stand in
// for older ones.
type Task struct {
	// AsOf, where not zero, is the past moment that the task is about: nothing newer
	// may stand in. Zero: the task is about the current state.
	AsOf time.Time
}

// RunOptions say whose run it is.
type RunOptions struct {
	// Agent is the agent's own name for itself: data, of any characters.
	Agent string
	// Run is a name that a manifest takes ([leafproof.Facts].RunID). "" is that of the
	// transcript, or else a new one.
	Run     string
	Tenant  string // "" is the store's default
	Caller  leafproof.Caller
	Profile ref.Profile // zero: anthropic
	// Transcript is where the run is kept; nil: in memory. That of another run is
	// refused: what was shown in it was not shown in this one.
	Transcript ref.Transcript
	// Source, where set, stands in for the store's own.
	Source ref.Source
	Task   Task
	// Recovery bounds what the run spends on trying again and acquiring again.
	Recovery leafproof.BudgetLimits
	// SignAdmissions lets the store sign, for each answer of query_json, what of it the
	// model was given. It needs keys of the roles receipt and admission.
	SignAdmissions bool
	// Watch sees all that crosses into the model's view, as it crosses.
	Watch func(Crossing)
}

// A Crossing is something on its way into the model's view.
type Crossing struct {
	Kind  string // protocol, tools, message or result
	Bytes []byte // exactly what is serialised for the model
}

// A Run is one conversation with a model. Its methods are safe for concurrent use; the
// order of what is recorded is that in which it comes.
type Run struct {
	h          *Harness
	id         string
	agent      string
	tenant     string
	caller     leafproof.Caller
	profile    ref.Profile
	transcript ref.Transcript
	source     ref.Source
	resolver   *ref.Resolver
	task       Task
	budget     *leafproof.Budget
	sign       bool
	watch      func(Crossing)

	mu       sync.Mutex
	turn     uint64
	answered bool // calls were resolved since the last result
	notes    map[place]*note
	copies   map[string]bool // artifacts whose inventory lists the transcript
}

// Begin begins a run.
func (h *Harness) Begin(ctx context.Context, o RunOptions) (*Run, error) {
	if o.Agent == "" {
		return nil, errors.New("a run has an agent")
	}
	if t, ok := o.Transcript.(interface{ Run() string }); ok {
		if o.Run == "" {
			o.Run = t.Run()
		}
		if t.Run() != o.Run {
			return nil, fmt.Errorf("the transcript is of the run %q, and not of %q", t.Run(), o.Run)
		}
	}
	if o.Run == "" {
		o.Run = "run-" + strings.ToLower(rand.Text())
	}
	if o.Profile == 0 {
		o.Profile = ref.ProfileAnthropic
	}
	if o.Transcript == nil {
		o.Transcript = ref.NewMemory(o.Run)
	}
	if o.Source == nil {
		var err error
		o.Source, err = h.store.References(ctx, o.Caller, leafproof.ReferenceOptions{Tenant: o.Tenant, Run: o.Run, Agent: o.Agent})
		if err != nil {
			return nil, err
		}
	}
	if _, err := h.declare(o.Profile); err != nil {
		return nil, err
	}
	turn, err := lastTurn(ctx, o.Transcript)
	if err != nil {
		return nil, err
	}
	return &Run{
		h: h, id: o.Run, agent: o.Agent, tenant: o.Tenant, caller: o.Caller, profile: o.Profile,
		transcript: o.Transcript, source: o.Source, resolver: ref.NewResolver(o.Transcript, o.Source, h.limits),
		task: o.Task, budget: leafproof.NewBudget(o.Recovery), watch: o.Watch,
		sign: o.SignAdmissions, turn: turn + 1, notes: map[place]*note{}, copies: map[string]bool{},
	}, nil
}

// lastTurn is the turn of the last entry of a transcript that is gone on with.
func lastTurn(ctx context.Context, t ref.Transcript) (uint64, error) {
	there := func(seq uint64) (ref.Entry, bool, error) {
		e, err := t.Entry(ctx, seq)
		if errors.Is(err, ref.ErrNotFound) {
			return e, false, nil
		}
		return e, err == nil, err
	}
	low, high := uint64(0), uint64(1) // low is there, or 0
	for {
		_, ok, err := there(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, 2*high
	}
	for low+1 < high {
		mid := low + (high-low)/2
		_, ok, err := there(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0, nil
	}
	e, _, err := there(low)
	return e.Turn, err
}

// ID is the run's name.
func (r *Run) ID() string { return r.id }

// Budget is what is left to the run for recovery.
func (r *Run) Budget() *leafproof.Budget { return r.budget }

// cross is the one way into the model's view.
func (r *Run) cross(kind string, b []byte) []byte {
	if r.watch != nil {
		r.watch(Crossing{kind, b})
	}
	return b
}

// Protocol is the paragraph of the system prompt that explains references.
func (r *Run) Protocol() string { return string(r.cross("protocol", []byte(ref.Protocol()))) }

// Declare returns the tools as the model is shown them: the same bytes each time.
func (r *Run) Declare() ([]ref.Declaration, error) {
	list, err := r.h.declare(r.profile)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		r.cross("tools", []byte(d.Name+"\n"+d.Description+"\n"))
		r.cross("tools", d.Schema)
	}
	return list, nil
}

// Message records a message that no tool made, such as the user's, and returns what
// the model reads of it: the text. A message of the assistant is recorded too, so that
// it can be meant; it does not cross.
func (r *Run) Message(ctx context.Context, role, text string) (View, error) {
	value, err := json.Marshal(text)
	if err != nil {
		return View{}, err
	}
	seq, err := r.append(ctx, ref.Entry{Role: role, Parts: []ref.Part{{Value: value}}})
	if err != nil {
		return View{}, err
	}
	if role != "assistant" {
		r.cross("message", []byte(text))
	}
	return View{Seq: seq, Content: value, DataOnly: true}, nil
}

// append enters an entry in the present turn.
func (r *Run) append(ctx context.Context, e ref.Entry) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Role == "tool" && r.answered {
		r.turn, r.answered = r.turn+1, false
	}
	e.Turn = r.turn
	return r.transcript.Append(ctx, e)
}
