package ref

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The limits of an entry.
const (
	MaxParts = 1 << 10  // parts of an entry
	MaxSlots = 1 << 12  // slots of a part
	MaxValue = 64 << 20 // bytes of a part's value
)

// View is what a model reads of the part, which stands at seq and n: its value byte for
// byte, with a [ModelMarker] in place of bytes and a [Message] reference in place of a
// recipe. There is no other way from a stored part to a model.
func (p Part) View(seq, n uint64) (json.RawMessage, error) {
	if len(p.Slots) == 0 {
		return p.Value, nil
	}
	spans, err := p.spans()
	if err != nil {
		return nil, err
	}
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return spans[a][0] - spans[b][0] })
	out := make([]byte, 0, len(p.Value)+160*len(spans))
	at := 0
	for _, i := range order {
		out = append(out, p.Value[at:spans[i][0]]...)
		out = p.Slots[i].view(out, seq, n)
		at = spans[i][1]
	}
	return append(out, p.Value[at:]...), nil
}

// view appends what a model reads of a slot.
func (s Slot) view(dst []byte, seq, n uint64) []byte {
	if s.Marker != nil {
		return s.Marker.ForModel(seq, n, s.Field).Append(dst)
	}
	return Append(dst, Message{Seq: &seq, Part: n, Field: s.Field})
}

// slotTree is a name on the way to slots.
type slotTree struct {
	kids map[string]*slotTree
	slot int // -1: none ends here
}

// spans finds where the slots stand in the value, and checks all of the part.
func (p Part) spans() ([][2]int, error) {
	root := &slotTree{slot: -1}
	for i, s := range p.Slots {
		path, err := ParseField(s.Field)
		if err != nil {
			return nil, err
		}
		n := root
		for _, name := range path {
			if n.slot >= 0 {
				return nil, fail(ErrEntry, fmt.Sprintf("the slot %s stands inside another", clip(s.Field)))
			}
			if n.kids[name] == nil {
				if n.kids == nil {
					n.kids = map[string]*slotTree{}
				}
				n.kids[name] = &slotTree{slot: -1}
			}
			n = n.kids[name]
		}
		if n.slot >= 0 || n.kids != nil {
			return nil, fail(ErrEntry, fmt.Sprintf("two slots meet at %s", clip(s.Field)))
		}
		n.slot = i
	}
	f := finder{raw: p.Value, d: decoder(p.Value), spans: make([][2]int, len(p.Slots))}
	err := f.find(root)
	if err == nil {
		err = ends(f.d)
	}
	switch {
	case err != nil:
		return nil, &Error{Err: ErrEntry, Detail: "the value of a part is not strict JSON", Cause: err}
	case f.found != len(p.Slots):
		return nil, fail(ErrEntry, "a slot stands where the value has nothing")
	}
	for i, at := range f.spans {
		if !isNull(p.Value[at[0]:at[1]]) {
			return nil, fail(ErrEntry, fmt.Sprintf("at the slot %s the value has something else than null", clip(p.Slots[i].Field)))
		}
	}
	return f.spans, nil
}

// finder reads a value once and notes where names lead.
type finder struct {
	raw   []byte
	d     *jsontext.Decoder
	spans [][2]int
	found int
}

func (f *finder) find(n *slotTree) error {
	if n == nil {
		return f.d.SkipValue()
	}
	if n.slot >= 0 {
		v, err := valueAt(f.d, f.raw)
		end := int(f.d.InputOffset())
		f.spans[n.slot] = [2]int{end - len(v), end}
		f.found++
		return err
	}
	kind := f.d.PeekKind()
	if len(n.kids) == 0 || kind != '{' && kind != '[' {
		return f.d.SkipValue()
	}
	if _, err := f.d.ReadToken(); err != nil {
		return err
	}
	for i := 0; f.d.PeekKind() != '}' && f.d.PeekKind() != ']'; i++ {
		name := ""
		if kind == '{' {
			t, err := f.d.ReadToken()
			if err != nil {
				return err
			}
			name = t.String()
		} else {
			name = strconv.Itoa(i)
		}
		if err := f.find(n.kids[name]); err != nil {
			return err
		}
	}
	_, err := f.d.ReadToken()
	return err
}

// errNoField says that a field leads nowhere.
var errNoField = errors.New("no such field")

// lookup finds the value that path leads to, in a value that was checked.
func lookup(value []byte, path []string) ([]byte, error) {
	root := &slotTree{slot: -1}
	n := root
	for _, name := range path {
		next := &slotTree{slot: -1}
		n.kids = map[string]*slotTree{name: next}
		n = next
	}
	n.slot = 0
	f := finder{raw: value, d: decoder(value), spans: make([][2]int, 1)}
	if err := f.find(root); err != nil {
		return nil, err
	}
	if f.found == 0 {
		return nil, errNoField
	}
	return value[f.spans[0][0]:f.spans[0][1]], nil
}

// at is what stands in a field of the part, as a model reads it: a slot, or a value of
// the transcript. Of a marker, size, opaque, format and format.mediaType can be named
// too, and value is the marker itself.
func (p Part) at(seq, n uint64, field string) (*Slot, []byte, error) {
	path, err := ParseField(field)
	if err != nil {
		return nil, nil, err
	}
	for i := range p.Slots {
		s := &p.Slots[i]
		to, err := ParseField(s.Field)
		if err != nil {
			return nil, nil, err
		}
		if len(to) > len(path) || !slices.Equal(to, path[:len(to)]) {
			continue
		}
		rest := path[len(to):]
		switch {
		case len(rest) == 0, s.Marker != nil && len(rest) == 1 && rest[0] == "value":
			return s, nil, nil
		case s.Marker == nil || rest[0] == "value":
			return nil, nil, errNoField
		}
		value, err := lookup(s.view(nil, seq, n), rest)
		return nil, value, err
	}
	view, err := p.View(seq, n)
	if err != nil {
		return nil, nil, err
	}
	value, err := lookup(view, path)
	return nil, value, err
}

// Check refuses, with [ErrEntry], a part that no transcript can keep: one too large, with
// a slot where none can stand, or of a value that is not strict JSON.
func (p Part) Check() error { return p.check(DefaultLimits) }

// check is Check with the limits of a transcript.
func (p Part) check(limits Limits) error {
	switch {
	case len(p.Value) > MaxValue:
		return fail(ErrEntry, fmt.Sprintf("a part of %d bytes: at most %d", len(p.Value), MaxValue))
	case len(p.Slots) > MaxSlots:
		return fail(ErrEntry, fmt.Sprintf("a part with %d slots: at most %d", len(p.Slots), MaxSlots))
	}
	for _, s := range p.Slots {
		if err := s.check(limits); err != nil {
			return err
		}
	}
	_, err := p.spans()
	return err
}

func (s Slot) check(limits Limits) error {
	if (s.Marker == nil) == (s.Recipe == nil) {
		return fail(ErrEntry, "a slot has either a marker or a recipe")
	}
	if s.Marker != nil {
		return s.Marker.check()
	}
	// What cannot be read back is not kept.
	if _, err := ParseServer(s.Recipe.appendTo(nil), limits); err != nil {
		return &Error{Err: ErrEntry, Detail: "a slot's recipe: " + err.Error(), Cause: err}
	}
	return nil
}

func (m Marker) check() error {
	switch {
	case m.Key == "" || len(m.Key) > maxKey || len(m.MediaType) > maxKey:
		return fail(ErrEntry, "a marker's key or media type is missing or too long")
	case !utf8.ValidString(m.Key), !utf8.ValidString(m.MediaType):
		return fail(ErrEntry, "a marker's key or media type is not UTF-8")
	case m.Size < 0 || m.Size > maxInt:
		return fail(ErrEntry, "a marker's size is out of range")
	case !isPin(m.ArtifactID) || m.ArtifactID[:len(pinArtifact)] != pinArtifact:
		return fail(ErrEntry, "a marker names no artifact")
	}
	return nil
}
