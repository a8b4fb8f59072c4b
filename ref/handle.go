package ref

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"leafproof/merkle"
	"leafproof/selector"
)

// A Handle is what a tool gets for a reference in a lazy parameter. Nothing was read
// when the tool gets it. Each method that reads asks the authority anew, through the
// [Source]; what was allowed for one page says nothing of the next. It is safe for
// concurrent use, for as long as the run lasts.
type Handle struct {
	r     *Resolver
	ref   Ref
	model bool // a model wrote it
}

// Ref is the reference as the model wrote it, with the seq that it meant: what a recipe
// over the handle has as its source.
func (h *Handle) Ref() Ref { return h.ref }

// Shown returns a handle on what a model's reference leads to, as [Resolver.Args] makes
// one for a lazy parameter: only what the run has shown can be meant. Nothing is read.
func (r *Resolver) Shown(ctx context.Context, ref Ref) (*Handle, error) {
	full, err := r.shown(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &Handle{r: r, ref: full, model: true}, nil
}

// Target is what a handle leads to. No model reads it.
type Target struct {
	Info   *Info           // the artifact; nil where it is a value of the transcript
	Value  json.RawMessage // the value, where it stands in the transcript or had to be read to get there
	Path   string          // the value at this pointer of the artifact or Value
	Filter *string         // of the array that stands there, those elements; nil: all of the value
	Pin    Pin             // for a recipe over the handle
}

// Target says what the handle leads to now.
func (h *Handle) Target(ctx context.Context) (Target, error) {
	p, err := h.locate(ctx)
	if err != nil {
		return Target{}, err
	}
	t := Target{Value: p.value, Path: p.path, Filter: p.filter, Pin: p.pin()}
	if p.id != "" {
		if t.Info, err = h.r.stat(ctx, p); err != nil {
			return Target{}, err
		}
	}
	return t, nil
}

// Artifact is the artifact that the handle leads to now, by its id; "" where that is a
// value of the transcript. Nothing of it is read, nor is it asked whether it may be:
// only what a name leads to is.
func (h *Handle) Artifact(ctx context.Context) (string, error) {
	w := walk{r: h.r, left: h.r.limits.Resolve, bare: true}
	p, err := w.locate(ctx, h.ref, h.model)
	if err != nil {
		return "", err
	}
	return p.id, nil
}

func (h *Handle) locate(ctx context.Context) (*place, error) { return h.r.locate(ctx, h.ref, h.model) }

// Value reads all that the handle leads to: what an eager parameter is given.
func (h *Handle) Value(ctx context.Context) (json.RawMessage, Use, error) {
	got, err := h.r.resolve(ctx, h.ref, h.model, h.r.limits.Bytes, asValue)
	return got.value, got.use, err
}

// Read writes a part of what the handle leads to, as [Source] does. The answer is nil
// for a value of the transcript.
func (h *Handle) Read(ctx context.Context, what Selection, w io.Writer) (*selector.Answer, error) {
	p, err := h.locate(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case p.value != nil || p.filter != nil:
	case what.Pointer != nil:
		path := p.path + *what.Pointer
		what.Pointer = &path
		answer, err := h.r.source.Read(ctx, p.id, what, w)
		return answer, h.fault(p, err)
	case !p.derived:
		answer, err := h.r.source.Read(ctx, p.id, what, w)
		return answer, h.fault(p, err)
	}
	value, answer, err := h.r.value(ctx, p, h.r.limits.Bytes, asValue)
	if err != nil {
		return nil, err
	}
	return answer, h.fault(p, writePart(ctx, value, what, w))
}

// fault is an error of the store or of a path, with a text that a model may read.
func (h *Handle) fault(p *place, err error) error {
	switch {
	case err == nil:
		return nil
	case gone(err) && p.derived:
		return stale(p.path, err)
	}
	return sourceError(err)
}

// writePart writes a part of a JSON value in memory.
func writePart(ctx context.Context, value []byte, what Selection, w io.Writer) error {
	switch {
	case what.Pointer != nil:
		v, err := pointed(ctx, value, *what.Pointer)
		if err == nil {
			_, err = w.Write(append(bytes.Clone(v), '\n'))
		}
		return err
	case what.Records != nil:
		n := int64(0)
		err := elements(value, func(v []byte) error {
			n++
			if n-1 < what.Records.Start || n-1 >= what.Records.End {
				return nil
			}
			_, err := w.Write(append(bytes.Clone(v), '\n'))
			return err
		})
		if errors.Is(err, errKind) {
			err = errNoArray
		}
		return err
	case what.Bytes != nil:
		r := *what.Bytes
		if r.Start < 0 || r.End < r.Start || r.End > int64(len(value)) {
			return fmt.Errorf("%w: bytes %d:%d of a value of %d", selector.ErrRange, r.Start, r.End, len(value))
		}
		value = value[r.Start:r.End]
	}
	_, err := w.Write(value)
	return err
}

// Query gives those elements of the array at a path below the handle that satisfy a
// condition to emit, as [Source] does.
func (h *Handle) Query(ctx context.Context, path string, q Query, emit func(Row) error) (*selector.Answer, error) {
	p, err := h.locate(ctx)
	if err != nil {
		return nil, err
	}
	if p.filter != nil {
		if err := h.r.settle(ctx, p); err != nil {
			return nil, err
		}
	}
	answer, err := h.r.query(ctx, p, path, q, emit)
	return answer, h.fault(p, err)
}

// Open returns a reader of the bytes that the handle leads to. Of a whole artifact, each
// Read asks the store for the range that it reads.
func (h *Handle) Open(ctx context.Context) (io.ReadSeekCloser, error) {
	p, err := h.locate(ctx)
	if err != nil {
		return nil, err
	}
	if p.value == nil && p.filter == nil && !p.derived {
		info, err := h.r.stat(ctx, p)
		if err != nil {
			return nil, err
		}
		at := &rangeReader{ctx: ctx, source: h.r.source, id: p.id}
		return file{io.NewSectionReader(at, 0, info.Size)}, nil
	}
	value, _, err := h.r.value(ctx, p, h.r.limits.Bytes, asValue)
	if err != nil {
		return nil, err
	}
	return file{io.NewSectionReader(bytes.NewReader(value), 0, int64(len(value)))}, nil
}

// file ends the use of a section without any more.
type file struct{ *io.SectionReader }

func (file) Close() error { return nil }

// rangeReader reads ranges of an artifact, each with leave of its own.
type rangeReader struct {
	ctx    context.Context
	source Source
	id     string
}

func (r *rangeReader) ReadAt(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	out := fixed{p: p}
	_, err := r.source.Read(r.ctx, r.id, Selection{Bytes: &merkle.Range{Start: off, End: off + int64(len(p))}}, &out)
	if err != nil {
		return out.n, sourceError(err)
	}
	if out.n < len(p) {
		return out.n, io.ErrUnexpectedEOF
	}
	return out.n, nil
}

// fixed writes into a slice and no further.
type fixed struct {
	p []byte
	n int
}

func (f *fixed) Write(b []byte) (int, error) {
	n := copy(f.p[f.n:], b)
	f.n += n
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}
