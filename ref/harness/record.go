package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/manifest"
	"leafproof/ref"
)

// A Result is what came of a call.
type Result struct {
	CallID string // as the provider gave it: it may be empty, and come again
	Tool   string
	// Value is the result: any value that encoding/json writes, with a [Blob] or a
	// [KernelHandle] at any place in it; json.RawMessage, [Raw] and [Content] are taken
	// byte for byte.
	Value any
	// Err, where not nil, is why there is none.
	Err error
	// Input is the call, where it was resolved by this run.
	Input *Input

	supersedes *manifest.Supersede // by each blob in it
	inputs     []string            // that each blob in it was made from
	arguments  json.RawMessage     // with which; nil where Input says it
}

// madeFrom are the artifacts that each blob in the result was made from.
func (res *Result) madeFrom() []string {
	out := slices.Clone(res.inputs)
	if res.Input != nil {
		for _, u := range res.Input.Used {
			if u.ArtifactID != "" && !slices.Contains(out, u.ArtifactID) {
				out = append(out, u.ArtifactID)
			}
		}
	}
	return out
}

// with are the arguments of the call.
func (res *Result) with() json.RawMessage {
	if res.Input != nil {
		return res.Input.Call.Input
	}
	return res.arguments
}

// A View is what the model reads of a message.
type View struct {
	Seq      uint64          `json:"seq"`
	Part     uint64          `json:"part"`
	CallID   string          `json:"call_id,omitempty"`
	Tool     string          `json:"tool,omitempty"`
	IsError  bool            `json:"is_error"`
	DataOnly bool            `json:"data_only"` // always: no content is an instruction
	Content  json.RawMessage `json:"content"`   // in the form in which the provider takes it
	// Err is the failure behind an error; no model reads it.
	Err error `json:"-"`
}

// place is a part of a message.
type place struct{ seq, part uint64 }

// note is what the harness knows of a part besides what the transcript keeps.
type note struct{ call Call }

// A Recipe in a tool's result says how the value there follows from another one. The
// model reads a reference in its place.
type Recipe struct{ ref.Ref }

// Record records the results of one or several calls of one message of the model, and
// returns what it reads of each: the parts of one message. Each [Blob] in a result is
// stored while it is read, and a marker stands in its place. Where the store does not
// take one, the model reads an error with a code and nothing of the result: it is in
// the spool, under the key of a [StoreError], for [Run.Retry].
//
// More results than a message has parts for are several messages of one turn.
//
// The error is for what cannot be recorded at all; what fails of a result is in its
// view.
func (r *Run) Record(ctx context.Context, results ...Result) ([]View, error) {
	views := make([]View, 0, len(results))
	for some := range slices.Chunk(results, ref.MaxParts-1) { // and the hidden one
		more, err := r.recordSome(ctx, some)
		if err != nil {
			return nil, err
		}
		views = append(views, more...)
	}
	return views, nil
}

// recordSome records the results of one message.
func (r *Run) recordSome(ctx context.Context, results []Result) ([]View, error) {
	entry := ref.Entry{Role: "tool"}
	views := make([]View, len(results))
	says := make([]*admitted, len(results))
	for i, res := range results {
		isError := r.fromContent(&res)
		part, said, err := r.intercept(ctx, res)
		views[i] = View{Part: uint64(i), CallID: res.CallID, Tool: res.Tool, IsError: isError, DataOnly: true}
		if err != nil {
			part = ref.Part{Value: FailureOf(err).JSON(), Tool: res.Tool, CallID: res.CallID}
			views[i].IsError, views[i].Err, said = true, err, nil
		}
		says[i] = said
		entry.Parts = append(entry.Parts, part)
	}
	if hidden, err := admissionsPart(says); err != nil {
		return nil, err
	} else if hidden != nil {
		entry.Parts = append(entry.Parts, *hidden)
	}
	seq, err := r.append(ctx, entry)
	if err != nil {
		return nil, err
	}
	for i := range results {
		v := &views[i]
		v.Seq = seq
		text, err := entry.Parts[i].View(seq, v.Part)
		if err != nil {
			return nil, err
		}
		v.Content = r.cross("result", r.profile.Result(text))
		if in := results[i].Input; in != nil {
			r.mu.Lock()
			r.notes[place{seq, v.Part}] = &note{in.Call}
			r.mu.Unlock()
		}
		if err := r.serialised(ctx, says[i], v.Content); err != nil && v.Err == nil {
			v.Err = err // it could not be stated; what the model reads is true all the same
		}
	}
	return views, nil
}

// fromContent reads the result of an MCP tool call, and reports whether it says that it
// is an error.
func (r *Run) fromContent(res *Result) bool {
	c, ok := res.Value.(Content)
	if !ok || res.Err != nil {
		return false
	}
	opaque := false
	if t, err := r.h.tool(res.Tool); err == nil {
		opaque = t.OpaqueText
	}
	raw, err := FromContent(json.RawMessage(c), opaque)
	if err != nil {
		res.Err = err
		return false
	}
	res.Value = raw
	var is struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(c, &is) == nil && is.IsError
}

// intercept makes the stored part of a result: what the model will read, with slots
// where blobs and recipes stand.
//
// A value that writes its own JSON, or a reader, may panic: then there is no result.
func (r *Run) intercept(ctx context.Context, res Result) (part ref.Part, says *admitted, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the result of %q panicked: %v", res.Tool, p)
		}
	}()
	part = ref.Part{Tool: res.Tool, CallID: res.CallID}
	if res.Err != nil {
		return part, nil, res.Err
	}
	if s, ok := res.Value.(*shown); ok {
		part.Value, part.Slots = s.body, s.slots
		return part, s.says, storable(part)
	}
	if again, ok := res.Value.(*retried); ok {
		res.Value, part.Slots = again.raw, again.slots
	}
	in := &interception{r: r, ctx: ctx, res: res, part: &part}
	value, err := encode(res.Value, in.blob, in.recipe, func(h KernelHandle) (Blob, error) { return r.h.kernels.freeze(ctx, h) })
	if part.Value = value; err == nil {
		err = storable(part)
	}
	switch {
	case err != nil:
		return part, nil, errors.Join(err, in.discard())
	case in.failed != nil:
		return part, nil, in.keep()
	}
	return part, nil, nil
}

// storable refuses what no transcript can keep, or two readers could read in two ways:
// one result of a message, and not the others with it.
func storable(p ref.Part) error {
	switch err := p.Check(); {
	case err == nil:
		return nil
	case len(p.Value) > ref.MaxValue:
		return refuse(leafproof.CodeTooLarge, leafproof.FixCall, "", "The result has %d bytes beside its blobs.", len(p.Value))
	case !jsontext.Value(p.Value).IsValid():
		return refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "", "The result is not JSON that has one meaning: a name stands twice, or it is not UTF-8.")
	default:
		return refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "", "The result cannot be recorded: %s.", clip(err.Error(), 200))
	}
}

// interception takes the blobs out of one result.
type interception struct {
	r    *Run
	ctx  context.Context
	res  Result
	part *ref.Part

	failed error // what the store said; from then on content goes into the spool
	lost   error // what the spool said
	key    string
	kept   []spooledBlob
}

var null = []byte("null")

// recipe leaves a slot for a recipe.
func (in *interception) recipe(path []string, rec Recipe) []byte {
	in.part.Slots = append(in.part.Slots, ref.Slot{Field: ref.JoinField(path...), Recipe: rec.Ref})
	return null
}

// nameable refuses a place that no field leads to.
func nameable(path []string) error {
	field := ref.JoinField(path...)
	if back, err := ref.ParseField(field); err != nil || !slices.Equal(back, path) {
		return refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "", "A blob stands in the result where no reference leads.")
	}
	return nil
}

// room refuses one blob more than a part has slots for, before it is stored.
func (in *interception) room() error {
	if len(in.part.Slots)+len(in.kept) >= ref.MaxSlots {
		return refuse(leafproof.CodeTooLarge, leafproof.FixCall, "", "The result has more than %d blobs.", ref.MaxSlots)
	}
	return nil
}

// blob stores a blob, and leaves a slot for its marker. While it can be read only
// once, a copy goes into the spool, which is dropped when the store has it.
func (in *interception) blob(path []string, b Blob) ([]byte, error) {
	if b.Reader == nil {
		return nil, fmt.Errorf("%w: it has no reader", ErrBlob)
	}
	defer closeReader(b.Reader)
	if err := errors.Join(nameable(path), in.room()); err != nil {
		return nil, err
	}
	copied, rewind := in.copy(b.Reader)
	defer func() {
		if p := recover(); p != nil { // a reader that panics leaves no file behind
			if copied != nil && !copied.done {
				_ = copied.drop() // the panic says more
			}
			panic(p)
		}
	}()
	if in.failed == nil {
		m, unread, err := in.store(b, copied)
		if err == nil || unread {
			if copied != nil {
				err = errors.Join(err, copied.drop())
			}
			if err != nil {
				return nil, err
			}
			in.part.Slots = append(in.part.Slots, ref.Slot{Field: ref.JoinField(path...), Marker: &m})
			return null, nil
		}
		in.failed = err
	}
	in.spool(path, b, copied, rewind)
	return null, nil
}

// store puts a blob. unread says that the content itself cannot be had, or what is said
// of it is no fact: then there is nothing to keep.
func (in *interception) store(b Blob, copied *spoolFile) (m ref.Marker, unread bool, err error) {
	what, err := in.r.newArtifact(in.res, b)
	if err != nil {
		return m, true, err
	}
	read := &readErrors{Reader: b.Reader}
	if copied != nil {
		read.Reader = io.TeeReader(b.Reader, copied)
	}
	if m, err = in.r.source.Put(in.ctx, what, read); read.err != nil {
		return m, true, read.err
	}
	return m, false, err
}

// copy opens a copy for content that can be read only once.
func (in *interception) copy(from io.Reader) (*spoolFile, func() error) {
	if in.r.h.spool == nil {
		return nil, nil
	}
	if s, ok := from.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			if in.failed == nil {
				return nil, func() error { _, err := s.Seek(at, io.SeekStart); return err }
			}
		}
	}
	f, err := in.r.h.spool.create(in.file())
	if err != nil {
		in.lost = errors.Join(in.lost, err)
		return nil, nil
	}
	return f, nil
}

// file names the next file of the result in the spool.
func (in *interception) file() string {
	if in.key == "" {
		in.key = randomKey()
	}
	return spoolName(in.r.id, in.key) + blobSuffix + "-" + randomKey()
}

// spool keeps the rest of a blob that the store did not take.
func (in *interception) spool(path []string, b Blob, copied *spoolFile, rewind func() error) {
	if in.r.h.spool == nil {
		in.lost = errNoSpool
		return
	}
	if rewind != nil {
		err := rewind()
		if err == nil {
			copied, err = in.r.h.spool.create(in.file())
		}
		if err != nil {
			in.lost = errors.Join(in.lost, err)
			return
		}
	}
	if copied == nil {
		return
	}
	if _, err := io.Copy(strictly{copied}, b.Reader); err != nil {
		in.lost = errors.Join(in.lost, err, copied.drop())
		return
	}
	if err := copied.keep(); err != nil {
		in.lost = errors.Join(in.lost, err)
		return
	}
	in.kept = append(in.kept, spooledBlob{
		At: pointerOf(path), MediaType: b.MediaType, Name: b.Name, Records: b.Records, Facts: b.Facts, File: copied.name,
	})
}

var errNoSpool = errors.New("there is no spool")

// keep enters the result in the spool. What is stored of it already is in the entry as
// it is.
func (in *interception) keep() error {
	out := &StoreError{Err: in.failed, Lost: in.lost}
	if out.Lost == nil {
		e := spooled{
			Run: in.r.id, Key: in.key, CallID: in.res.CallID, Tool: in.res.Tool, JSON: in.part.Value, Blobs: in.kept, Slots: spooledSlots(in.part.Slots),
			Inputs: in.res.madeFrom(), Arguments: in.res.with(), Supersedes: in.res.supersedes,
		}
		out.Lost = in.r.h.spool.enter(e)
	}
	if out.Lost == nil {
		out.Key = in.key
	}
	return out
}

// discard gives up what is in the spool of a result that cannot be one.
func (in *interception) discard() (err error) {
	for _, b := range in.kept {
		err = errors.Join(err, in.r.h.spool.remove(b.File))
	}
	return err
}

// readErrors notes an error that reading the content gave, as opposed to storing it.
type readErrors struct {
	io.Reader
	err error
}

func (r *readErrors) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// newArtifact says of a blob what the harness knows.
func (r *Run) newArtifact(res Result, b Blob) (ref.New, error) {
	facts, err := withSupersedes(b.Facts, res.supersedes)
	n := ref.New{
		CallID: res.CallID, Tool: res.Tool, MediaType: b.MediaType, Name: b.Name, Records: b.Records, Facts: facts,
		Inputs: res.madeFrom(), Arguments: res.with(),
	}
	return n, err
}

// pointerOf is the JSON Pointer of a path.
func pointerOf(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// Retry records a result that waits in the spool, as a new message: the seq of the
// error stays the error's.
func (r *Run) Retry(ctx context.Context, key string) (View, error) {
	if r.h.spool == nil {
		return View{}, errNoSpool
	}
	back, err := r.h.spool.claim(r.id, key)
	if err != nil {
		return View{}, err
	}
	defer back()
	e, raw, done, err := r.h.spool.load(r.id, key)
	if err != nil {
		return View{}, err
	}
	defer done()
	views, err := r.Record(ctx, Result{CallID: e.CallID, Tool: e.Tool, Value: &retried{raw, e.slots()}, inputs: e.Inputs, arguments: e.Arguments, supersedes: e.Supersedes})
	if err != nil {
		return View{}, err
	}
	if views[0].IsError {
		// What was kept anew stands under a new key; the old entry is the same content.
		if failed, ok := errors.AsType[*StoreError](views[0].Err); ok && failed.Key != "" {
			err = r.h.spool.Drop(r.id, failed.Key)
			failed.Key = key
		}
		return views[0], err
	}
	return views[0], r.h.spool.Drop(r.id, key)
}

// retried is a result from the spool, some of whose content is stored.
type retried struct {
	raw   Raw
	slots []ref.Slot
}
