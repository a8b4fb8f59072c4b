package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"leafproof"
	"leafproof/manifest"
	"leafproof/ref"
	"leafproof/selector"
)

// Earlier is a capture that is to be acquired anew, or gone on with.
type Earlier struct {
	// Ref is the descriptor of what was captured; its bytes may be gone.
	Ref manifest.ArtifactRef
	// Call is what captured it, where this run has seen it.
	Call Call
	// Missing names what is to be there this time.
	Missing []string
}

// A Recovery is a capture that is to be acquired anew, or gone on with. That it may be
// was found out and taken from the run's budget when it was begun: what is left is to
// acquire it, here or by a program elsewhere, and to give what came to Record, once.
//
// A server of runs keeps one under a name of its own between two requests: one that
// names the reference (with what the tool demands) and is answered with the members of
// Earlier, and one with the result, whose JSON and blobs are a [Raw]. Neither the
// Recovery nor the name is anything that a model reads or writes.
type Recovery struct {
	Earlier
	// Rest says that what comes stands behind the bytes of the capture, and is of the
	// same source and snapshot: see [Run.BeginResume].
	Rest bool

	run        *Run
	id, tool   string
	supersedes *manifest.Supersede
	captured   *manifest.Manifest // where Rest
	done       atomic.Bool
}

// Refetch acquires anew what a reference leads to, for a tool whose demands it does
// not meet, with the Refetch of the tool that captured it: see BeginRefetch.
func (r *Run) Refetch(ctx context.Context, x ref.Ref, demand Evidence) (View, error) {
	rec, tool, err := r.refetch(ctx, x, demand, true)
	if err != nil {
		return View{}, err
	}
	value, err := guarded(tool.Name, func() (any, error) { return tool.Refetch(ctx, rec.Earlier) })
	return rec.Record(ctx, value, err)
}

// BeginRefetch finds out whether what a reference leads to may be acquired anew, for a
// tool whose demands it does not meet. It needs a task about the current state, leave to
// read the old capture now, and something left of the recovery budget, from which it
// takes. What comes is a new artifact, which supersedes the old one, and a new message:
// the reference goes on meaning what it meant.
//
// It is for who acquires it by himself, as for a tool that runs elsewhere. That the tool
// can is for him to know.
func (r *Run) BeginRefetch(ctx context.Context, x ref.Ref, demand Evidence) (*Recovery, error) {
	rec, _, err := r.refetch(ctx, x, demand, false)
	return rec, err
}

// refetch begins a refetch, by the tool's own function where it is here.
func (r *Run) refetch(ctx context.Context, x ref.Ref, demand Evidence, here bool) (*Recovery, *Tool, error) {
	old, err := r.earlier(ctx, x)
	if err != nil {
		return nil, nil, err
	}
	if !r.task.AsOf.IsZero() || !demand.AsOf.IsZero() {
		return nil, nil, refuse(leafproof.CodeEvidence, leafproof.Stop, "task", "The task is about an earlier state, for which nothing newer stands in.")
	}
	as, err := r.h.store.Assess(ctx, r.caller, old.id, demand.need(r, used{id: old.id}))
	if err != nil {
		return nil, nil, err
	}
	d := &Decision{Decision: leafproof.Admit, Unmet: []Unmet{}}
	d.add("", as)
	switch {
	case as.Authority.State != leafproof.Holds:
		return nil, nil, &leafproof.Error{Code: as.Authority.Code, Message: as.Authority.Reason, Action: as.Authority.Action, Retryable: as.Authority.Retryable}
	case as.Decision == leafproof.Admit || as.Decision == leafproof.Qualify:
		return nil, nil, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "source", "Nothing that is required is missing: the reference can be used.")
	case old.tool == nil || here && old.tool.Refetch == nil:
		return nil, nil, refuse(leafproof.CodeEvidence, leafproof.Defer, "source", "What captured the value cannot acquire it anew.")
	}
	if err := r.budget.Take(old.size); err != nil {
		return nil, nil, err
	}
	old.Missing = d.Missing
	rec := &Recovery{Earlier: old.Earlier, run: r, id: old.id, tool: old.tool.Name}
	if as.Identity.Code != leafproof.CodeArtifactDeleted { // a deleted one cannot be superseded
		rec.supersedes = &manifest.Supersede{ArtifactID: old.id, Kind: "reacquire"}
	}
	return rec, old.tool, nil
}

// Resume goes on with a capture that is partial, with the Resume of the tool that
// captured it: see BeginResume.
func (r *Run) Resume(ctx context.Context, x ref.Ref) (View, error) {
	rec, tool, err := r.resume(ctx, x, true)
	if err != nil {
		return View{}, err
	}
	rest, err := guarded(tool.Name, func() (Blob, error) { return tool.Resume(ctx, rec.Earlier) })
	return rec.Record(ctx, rest, err)
}

// BeginResume finds out whether a capture that is partial can be gone on with, where the
// source can continue it consistently: what comes must be of the same source and
// snapshot, which is stated with it. The old capture and what came after it are a new
// artifact. All else is refused, and a new capture is to be acquired. A task about an
// earlier state may be served so: the snapshot is the same.
//
// As BeginRefetch, it takes from the recovery budget, and is for who acquires the rest
// by himself.
func (r *Run) BeginResume(ctx context.Context, x ref.Ref) (*Recovery, error) {
	rec, _, err := r.resume(ctx, x, false)
	return rec, err
}

func inconsistent(why string) error {
	return refuse(leafproof.CodeEvidence, leafproof.Refetch, "source", "The capture cannot be gone on with: %s. Acquire a new one.", why)
}

// resume begins to go on, by the tool's own function where it is here.
func (r *Run) resume(ctx context.Context, x ref.Ref, here bool) (*Recovery, *Tool, error) {
	old, err := r.earlier(ctx, x)
	if err != nil {
		return nil, nil, err
	}
	st, err := r.h.store.Resolve(ctx, r.caller, old.id)
	if err != nil {
		return nil, nil, err
	}
	was := st.Ref
	switch {
	case was.Completeness.Status != manifest.StatusPartial:
		return nil, nil, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "source", "The capture is not partial: there is nothing to go on with.")
	case old.tool == nil || here && old.tool.Resume == nil:
		return nil, nil, inconsistent("its source offers no continuation")
	case was.SourceVersion.SourceID == nil || was.SourceVersion.SnapshotID == nil:
		return nil, nil, inconsistent("it does not say of which snapshot it is")
	case !joins(st.Manifest):
		return nil, nil, inconsistent("its format has an end")
	}
	if err := r.budget.Take(old.size); err != nil {
		return nil, nil, err
	}
	for _, o := range was.Completeness.Omissions {
		text, err := json.Marshal(o.What)
		if err != nil {
			return nil, nil, err
		}
		old.Missing = append(old.Missing, strings.Trim(string(text), `"`))
	}
	old.Ref = was
	return &Recovery{
		Earlier: old.Earlier, Rest: true, run: r, id: old.id, tool: old.tool.Name,
		supersedes: &manifest.Supersede{ArtifactID: old.id, Kind: "correct"}, captured: st.Manifest,
	}, old.tool, nil
}

// errRecovered is a recovery whose result came before.
var errRecovered = errors.New("the result of the recovery was given already")

// Record records what came of a recovery as a new message: the value, as that of a
// [Result], or the error for which there is none. Of a capture that is gone on with the
// value is one [Blob], or a [Raw] that is one at the pointer "", and there is no message
// where the rest cannot be had or is not the rest.
func (rec *Recovery) Record(ctx context.Context, value any, failed error) (View, error) {
	if rec.done.Swap(true) {
		return View{}, errRecovered
	}
	res := Result{CallID: rec.Call.ID, Tool: rec.tool, Value: value, Err: failed, supersedes: rec.supersedes}
	if !rec.Rest {
		return rec.run.recordOne(ctx, res)
	}
	if failed != nil {
		return View{}, failed
	}
	rest, err := oneBlob(value)
	if err != nil {
		return View{}, err
	}
	defer closeReader(rest.Reader)
	facts, _, err := leafproof.ParseFacts(orEmpty(rest.Facts))
	if err != nil {
		return View{}, err
	}
	was := rec.Ref.SourceVersion
	if facts.SourceID != *was.SourceID || facts.SnapshotID != *was.SnapshotID {
		return View{}, inconsistent("what comes now is of another snapshot")
	}
	before, stop := rec.run.reader(ctx, rec.id)
	defer stop()
	whole := rest
	whole.Reader = joined(before, rest.Reader)
	whole.Records, whole.MediaType = rec.captured.Predicate.Records.Format, rec.captured.Predicate.Bytes.MediaType
	res.Value, res.inputs = whole, []string{rec.id}
	return rec.run.recordOne(ctx, res)
}

// oneBlob is the blob that a value is.
func oneBlob(value any) (Blob, error) {
	switch v := value.(type) {
	case Blob:
		if v.Reader != nil {
			return v, nil
		}
	case Raw:
		if b, ok := v.Blobs[""]; ok && len(v.Blobs) == 1 && b.Reader != nil {
			return b, nil
		}
	}
	return Blob{}, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "", "What a capture is gone on with is one blob.")
}

// joins reports whether more of the same can stand behind the bytes of an artifact.
func joins(m *manifest.Manifest) bool {
	rec := m.Predicate.Records
	return rec != nil && (rec.Format == selector.FormatNDJSON || rec.Format == selector.FormatText || rec.Format == selector.FormatConcat)
}

// joined is two texts of lines, one after the other.
func joined(a, b io.Reader) io.Reader {
	end := &lineEnd{r: a}
	return io.MultiReader(end, b)
}

// lineEnd gives its text a line end, where it has none.
type lineEnd struct {
	r    io.Reader
	last byte
	done bool
}

func (l *lineEnd) Read(p []byte) (int, error) {
	if l.done || len(p) == 0 {
		return 0, io.EOF
	}
	n, err := l.r.Read(p)
	if n > 0 {
		l.last = p[n-1]
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		l.done = true
		if l.last != 0 && l.last != '\n' {
			p[0] = '\n'
			return 1, nil
		}
	}
	return 0, err
}

// reader reads all of an artifact while it is asked for.
func (r *Run) reader(ctx context.Context, id string) (io.Reader, func()) {
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := r.source.Read(ctx, id, ref.Selection{}, pw)
		pw.CloseWithError(err)
	}()
	return pr, func() { cancel(); pr.Close(); <-done }
}

func (r *Run) recordOne(ctx context.Context, res Result) (View, error) {
	views, err := r.Record(ctx, res)
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// known is an earlier capture that a reference leads to.
type known struct {
	Earlier
	id   string
	size int64
	tool *Tool
}

// earlier finds the capture that a reference leads to, also where its bytes are gone.
func (r *Run) earlier(ctx context.Context, x ref.Ref) (*known, error) {
	id, at, part, err := r.artifactOf(ctx, x)
	if err != nil {
		return nil, err
	}
	k := &known{id: id}
	if k.tool, err = r.h.tool(part.Tool); err != nil {
		k.tool = nil
	}
	r.mu.Lock()
	if n := r.notes[at]; n != nil {
		k.Call = n.call
	}
	r.mu.Unlock()
	if k.Call.Tool == "" {
		k.Call = Call{ID: part.CallID, Tool: part.Tool}
	}
	info, err := r.h.store.Resolve(ctx, r.caller, id)
	if err == nil {
		k.Ref, k.size = info.Ref, info.Manifest.Size
		return k, nil
	}
	// What has expired or was deleted can be acquired anew all the same.
	switch leafproof.CodeOf(err) {
	case leafproof.CodeArtifactExpired, leafproof.CodeArtifactDeleted, leafproof.CodeIntegrityFailed:
		k.Ref.ArtifactID = id
		return k, nil
	}
	return nil, err
}

// artifactOf is the artifact that a reference which the model was shown leads to, and
// the part of the transcript in which it was captured. No byte of it is read, and its
// availability is not asked for.
func (r *Run) artifactOf(ctx context.Context, x ref.Ref) (string, place, ref.Part, error) {
	none := func(err error) (string, place, ref.Part, error) { return "", place{}, ref.Part{}, err }
	for range ref.DefaultLimits.Resolve {
		switch y := x.(type) {
		case ref.Message:
			seq, part, err := r.transcript.Shown(ctx, y.Seq, y.Part)
			if err != nil {
				return none(err)
			}
			i := slices.IndexFunc(part.Slots, func(s ref.Slot) bool { return s.Field == y.Field })
			switch {
			case i < 0:
				return none(refuse(leafproof.CodeEvidence, leafproof.FixCall, "source", "The reference leads to a value of the conversation, which no artifact vouches for."))
			case part.Slots[i].Marker != nil:
				return part.Slots[i].Marker.ArtifactID, place{seq, y.Part}, part, nil
			}
			x = part.Slots[i].Recipe
		case ref.Blob:
			if y.Source != nil {
				x = y.Source
				continue
			}
			return none(refuse(leafproof.CodeEvidence, leafproof.FixCall, "source", "Name the message that showed the value."))
		case ref.JSONPointer:
			x = y.Source
		case ref.JSONQuery:
			x = y.Source
		}
	}
	return none(ref.ErrDepth)
}

func orEmpty(doc json.RawMessage) json.RawMessage {
	if len(bytes.TrimSpace(doc)) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

// withSupersedes adds to a document of facts what the artifact takes the place of.
func withSupersedes(doc json.RawMessage, s *manifest.Supersede) (json.RawMessage, error) {
	if s == nil {
		return doc, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(orEmpty(doc), &all); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if old, ok := all["supersedes"]; ok {
		if err := json.Unmarshal(old, &list); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if all["supersedes"], err = json.Marshal(append(list, text)); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
