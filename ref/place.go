package ref

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"leafproof/merkle"
	"leafproof/selector"
)

// place is what a reference leads to, before anything of it is read: an artifact or
// parts of one, or a value of the transcript.
type place struct {
	id      string  // the artifact; "" where it is a value of the transcript
	info    *Info   // nil: not asked yet
	path    string  // the value at this pointer
	filter  *string // of the array that stands there, those elements; nil: all of the value
	value   []byte  // where it was read: instead of path and filter
	via     Ref     // the recipe or blob that the model's reference led to
	derived bool    // a recipe says the path
}

// pin says which bytes it is made from.
func (p *place) pin() Pin {
	if p.id != "" {
		return Pin(p.id)
	}
	return Pin(pinValue + merkle.Sum(p.value).String())
}

// stale is the error of a recipe whose path is gone, or whose source is another now.
func stale(path string, cause error) error {
	return &Error{Err: ErrStalePath, Detail: fmt.Sprintf("Derived JSON path %s no longer exists.", clip(path)), Cause: cause}
}

// walk follows references from one to the next.
type walk struct {
	r    *Resolver
	left int      // references that may still be followed
	seen []string // the places of the transcript on the way
	bare bool     // nothing is read: the place is good for its artifact alone
}

// locate follows a reference to its place. model says that a model wrote it: it leads
// only to what was shown.
func (w *walk) locate(ctx context.Context, ref Ref, model bool) (*place, error) {
	if w.left--; w.left < 0 {
		return nil, fail(ErrDepth, "the reference leads through more references than are followed")
	}
	switch ref := ref.(type) {
	case Message:
		return w.message(ctx, ref, model)
	case Blob:
		return w.blob(ctx, ref, model)
	case JSONPointer:
		p, err := w.source(ctx, ref.Source, ref.Pin, ref.Path)
		if err != nil {
			return nil, err
		}
		p.via = ref
		return p, nil
	case JSONQuery:
		p, err := w.source(ctx, ref.Source, ref.Pin, ref.Path)
		if err != nil {
			return nil, err
		}
		p.via, p.filter = ref, &ref.Filter
		return p, nil
	}
	return nil, fail(ErrMalformed, "there is no reference")
}

// source follows the source of a recipe, which must lead to what it did when the recipe
// was made, and goes down its path.
func (w *walk) source(ctx context.Context, ref Ref, pin Pin, path string) (*place, error) {
	p, err := w.locate(ctx, ref, false)
	if errors.Is(err, ErrNotFound) {
		err = stale(path, err)
	}
	if err != nil {
		return nil, err
	}
	if got := p.pin(); got != pin {
		return nil, stale(path, fmt.Errorf("its source led to %s, and leads to %s now", pin, got))
	}
	if p.filter != nil && !w.bare { // the rows have to be there to look into them
		if err := w.r.settle(ctx, p); err != nil {
			return nil, err
		}
	}
	p.path, p.derived = p.path+path, true
	return p, nil
}

func (w *walk) message(ctx context.Context, m Message, model bool) (*place, error) {
	seq, part, err := w.r.part(ctx, m, model)
	if err != nil {
		return nil, err
	}
	m.Seq = &seq
	here := string(m.appendTo(nil))
	if slices.Contains(w.seen, here) {
		return nil, fail(ErrCycle, "the reference leads back to where it began")
	}
	w.seen = append(w.seen, here)
	slot, value, err := part.at(seq, m.Part, m.Field)
	switch {
	case errors.Is(err, errNoField):
		return nil, fail(ErrNotFound, fmt.Sprintf("part %d of message %d has no field %s", m.Part, seq, clip(m.Field)))
	case err != nil:
		return nil, err
	case slot == nil:
		return &place{value: value}, nil
	case slot.Marker != nil:
		return &place{id: slot.Marker.ArtifactID, via: Blob{Key: slot.Marker.Key}}, nil
	}
	return w.locate(ctx, slot.Recipe, false)
}

func (w *walk) blob(ctx context.Context, b Blob, model bool) (*place, error) {
	if b.Source != nil {
		return w.locate(ctx, b.Source, model)
	}
	if model {
		m, err := w.r.transcript.ShownKey(ctx, b.Key)
		if err != nil {
			return nil, err
		}
		return &place{id: m.ArtifactID, via: b}, nil
	}
	info, err := w.r.source.Stat(ctx, b.Key)
	if err != nil {
		return nil, sourceError(err)
	}
	return &place{id: info.ArtifactID, info: &info, via: b}, nil
}

// part returns the part that a message names.
func (r *Resolver) part(ctx context.Context, m Message, model bool) (uint64, Part, error) {
	if model {
		return r.transcript.Shown(ctx, m.Seq, m.Part)
	}
	if m.Seq == nil {
		return 0, Part{}, fail(ErrMalformed, "a reference of the server's to the current turn")
	}
	e, err := r.transcript.Entry(ctx, *m.Seq)
	if err != nil {
		return 0, Part{}, err
	}
	if m.Part >= uint64(len(e.Parts)) {
		return 0, Part{}, fail(ErrNotFound, "no such part")
	}
	return *m.Seq, e.Parts[m.Part], nil
}

// shown checks that a model may mean what it wrote, without a look at what it leads to,
// and fills in the seq of the current turn.
func (r *Resolver) shown(ctx context.Context, ref Ref) (Ref, error) {
	switch ref := ref.(type) {
	case Message:
		seq, part, err := r.transcript.Shown(ctx, ref.Seq, ref.Part)
		if err != nil {
			return nil, err
		}
		if _, _, err := part.at(seq, ref.Part, ref.Field); errors.Is(err, errNoField) {
			return nil, fail(ErrNotFound, fmt.Sprintf("part %d of message %d has no field %s", ref.Part, seq, clip(ref.Field)))
		} else if err != nil {
			return nil, err
		}
		ref.Seq = &seq
		return ref, nil
	case Blob:
		if ref.Source == nil {
			_, err := r.transcript.ShownKey(ctx, ref.Key)
			return ref, err
		}
		source, err := r.shown(ctx, ref.Source)
		return Blob{Source: source}, err
	}
	return nil, fail(ErrForbidden, "only the server makes such a reference")
}

// sourceError is an error of the store, with a text that a model may read.
func sourceError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok { // of this package, on its way through the store
		return e
	}
	return &Error{Err: err, Detail: "what the reference leads to could not be read"}
}

// stat asks the store about the artifact, once.
func (r *Resolver) stat(ctx context.Context, p *place) (*Info, error) {
	if p.info == nil {
		info, err := r.source.Stat(ctx, p.id)
		if err != nil {
			return nil, sourceError(err)
		}
		p.info = &info
	}
	return p.info, nil
}

// gone reports an error that says that a path leads nowhere.
func gone(err error) bool {
	return errors.Is(err, selector.ErrPointer) || errors.Is(err, errNoArray)
}

// errNoArray says that what stands at a path has no elements.
var errNoArray = fmt.Errorf("%w: no array stands there", selector.ErrNotRecords)

// bounded collects bytes up to a limit.
type bounded struct {
	bytes.Buffer
	most int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(b.Len()+len(p)) > b.most {
		return 0, tooLarge(b.most)
	}
	return b.Buffer.Write(p)
}

func tooLarge(most int64) error {
	return fail(ErrTooLarge, fmt.Sprintf("the values of this call have more than %d bytes together: the tool must take them lazily, or a part of them", most))
}
