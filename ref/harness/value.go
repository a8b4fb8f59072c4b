package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// value is what a reference leads to, ready to be read in parts.
type value struct {
	h    *ref.Handle
	to   ref.Target
	src  io.ReaderAt
	size int64
	// answer says of what artifact the bytes are; nil where they are the transcript's.
	answer *selector.Answer
	whole  bool // src is the artifact itself, and not a part that follows from it
	singly bool // its records are to be read one by one
}

// openValue finds what a handle leads to. The bytes of an artifact are read when they
// are asked for, each part with leave of its own; a value that follows from one by a
// recipe is evaluated now, within the limits of the resolver.
func openValue(ctx context.Context, h *ref.Handle) (*value, error) {
	to, err := h.Target(ctx)
	if err != nil {
		return nil, err
	}
	v := &value{h: h, to: to}
	switch {
	case to.Value != nil && to.Path == "" && to.Filter == nil:
		v.src, v.size = bytes.NewReader(to.Value), int64(len(to.Value))
	case to.Path == "" && to.Filter == nil:
		v.src, v.size, v.whole = &pieces{ctx: ctx, v: v}, to.Info.Size, true
	default:
		text, use, err := h.Value(ctx)
		if err != nil {
			return nil, err
		}
		v.src, v.size, v.answer = bytes.NewReader(text), int64(len(text)), use.Answer
	}
	return v, nil
}

// pieceSize is how much of an artifact is asked for at a time.
const pieceSize = 256 << 10

// pieces reads an artifact in pieces, and keeps the last few.
type pieces struct {
	ctx  context.Context
	v    *value
	kept [4]piece
	next int
}

type piece struct {
	at   int64
	data []byte
}

// ReadAt implements [io.ReaderAt] for one reader at a time.
func (p *pieces) ReadAt(out []byte, off int64) (n int, err error) {
	for n < len(out) {
		at := off + int64(n)
		if at >= p.v.size {
			return n, io.EOF
		}
		data, err := p.piece(at / pieceSize * pieceSize)
		if err != nil {
			return n, err
		}
		n += copy(out[n:], data[at%pieceSize:])
	}
	return n, nil
}

func (p *pieces) piece(at int64) ([]byte, error) {
	for _, k := range p.kept {
		if k.data != nil && k.at == at {
			return k.data, nil
		}
	}
	data, err := p.v.read(p.ctx, at, min(at+pieceSize, p.v.size))
	if err != nil {
		return nil, err
	}
	p.kept[p.next] = piece{at, data}
	p.next = (p.next + 1) % len(p.kept)
	return data, nil
}

// read reads bytes a to b of the artifact.
func (v *value) read(ctx context.Context, a, b int64) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(int(b - a))
	answer, err := v.h.Read(ctx, ref.Selection{Bytes: &merkle.Range{Start: a, End: b}}, &out)
	if err != nil {
		return nil, err
	}
	if v.answer == nil {
		v.answer = answer
	}
	if int64(out.Len()) != b-a {
		return nil, io.ErrUnexpectedEOF
	}
	return out.Bytes(), nil
}

// part reads bytes a to b of the value.
func (v *value) part(ctx context.Context, a, b int64) ([]byte, error) {
	if v.whole {
		return v.read(ctx, a, b)
	}
	out := make([]byte, b-a)
	if _, err := v.src.ReadAt(out, a); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return out, nil
}

// compact is a JSON value without the white space between its tokens.
func compact(raw []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}
