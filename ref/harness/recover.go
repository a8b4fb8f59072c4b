package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

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

// Refetch acquires anew what a reference leads to, for a tool whose demands it does
// not meet. It needs a task about the current state, leave to read the old capture
// now, something left of the recovery budget, and a tool that can. What comes is a new
// artifact, which supersedes the old one, and a new message: the reference goes on
// meaning what it meant.
func (r *Run) Refetch(ctx context.Context, x ref.Ref, demand Evidence) (View, error) {
	old, err := r.earlier(ctx, x)
	if err != nil {
		return View{}, err
	}
	if !r.task.AsOf.IsZero() || !demand.AsOf.IsZero() {
		return View{}, refuse(leafproof.CodeEvidence, leafproof.Stop, "task", "The task is about an earlier state, for which nothing newer stands in.")
	}
	as, err := r.h.store.Assess(ctx, r.caller, old.id, demand.need(r, used{id: old.id}))
	if err != nil {
		return View{}, err
	}
	d := &Decision{Decision: leafproof.Admit, Unmet: []Unmet{}}
	d.add("", as)
	switch {
	case as.Authority.State != leafproof.Holds:
		return View{}, &leafproof.Error{Code: as.Authority.Code, Message: as.Authority.Reason, Action: as.Authority.Action, Retryable: as.Authority.Retryable}
	case as.Decision == leafproof.Admit || as.Decision == leafproof.Qualify:
		return View{}, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "source", "Nothing that is required is missing: the reference can be used.")
	case old.tool == nil || old.tool.Refetch == nil:
		return View{}, refuse(leafproof.CodeEvidence, leafproof.Defer, "source", "What captured the value cannot acquire it anew.")
	}
	if err := r.budget.Take(old.size); err != nil {
		return View{}, err
	}
	old.Missing = d.Missing
	value, err := guarded(old.tool.Name, func() (any, error) { return old.tool.Refetch(ctx, old.Earlier) })
	res := Result{CallID: old.Call.ID, Tool: old.tool.Name, Value: value, Err: err}
	if as.Identity.Code != leafproof.CodeArtifactDeleted { // a deleted one cannot be superseded
		res.supersedes = &manifest.Supersede{ArtifactID: old.id, Kind: "reacquire"}
	}
	return r.recordOne(ctx, res)
}

// Resume goes on with a capture that is partial, where the source can continue it
// consistently: what comes must be of the same source and snapshot, which the tool
// states with it. The old capture and what came after it are a new artifact. All else
// is refused, and a new capture is to be acquired. A task about an earlier state may
// be served so: the snapshot is the same.
func (r *Run) Resume(ctx context.Context, x ref.Ref) (View, error) {
	old, err := r.earlier(ctx, x)
	if err != nil {
		return View{}, err
	}
	inconsistent := func(why string) error {
		return refuse(leafproof.CodeEvidence, leafproof.Refetch, "source", "The capture cannot be gone on with: %s. Acquire a new one.", why)
	}
	st, err := r.h.store.Resolve(ctx, r.caller, old.id)
	if err != nil {
		return View{}, err
	}
	was := st.Ref
	switch {
	case was.Completeness.Status != manifest.StatusPartial:
		return View{}, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "source", "The capture is not partial: there is nothing to go on with.")
	case old.tool == nil || old.tool.Resume == nil:
		return View{}, inconsistent("its source offers no continuation")
	case was.SourceVersion.SourceID == nil || was.SourceVersion.SnapshotID == nil:
		return View{}, inconsistent("it does not say of which snapshot it is")
	case !joins(st.Manifest):
		return View{}, inconsistent("its format has an end")
	}
	if err := r.budget.Take(old.size); err != nil {
		return View{}, err
	}
	for _, o := range was.Completeness.Omissions {
		text, err := json.Marshal(o.What)
		if err != nil {
			return View{}, err
		}
		old.Missing = append(old.Missing, strings.Trim(string(text), `"`))
	}
	rest, err := guarded(old.tool.Name, func() (Blob, error) { return old.tool.Resume(ctx, old.Earlier) })
	if err != nil {
		return View{}, err
	}
	defer closeReader(rest.Reader)
	facts, _, err := leafproof.ParseFacts(orEmpty(rest.Facts))
	if err != nil {
		return View{}, err
	}
	if facts.SourceID != *was.SourceVersion.SourceID || facts.SnapshotID != *was.SourceVersion.SnapshotID {
		return View{}, inconsistent("what comes now is of another snapshot")
	}
	before, stop := r.reader(ctx, old.id)
	defer stop()
	whole := rest
	whole.Reader = joined(before, rest.Reader)
	whole.Records, whole.MediaType = st.Manifest.Predicate.Records.Format, st.Manifest.Predicate.Bytes.MediaType
	return r.recordOne(ctx, Result{
		CallID: old.Call.ID, Tool: old.tool.Name, Value: whole,
		supersedes: &manifest.Supersede{ArtifactID: old.id, Kind: "correct"}, inputs: []string{old.id},
	})
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
