package manifest

import (
	"bytes"
	"fmt"
	"strings"
)

// maxRefDiff is how many differences [RefDiff] names.
const maxRefDiff = 16

// RefDiff returns where a presented reference differs from the signed one, as
// RFC 6901 pointers such as /scope/tenant_id in the order of the document; none
// when they are the same byte for byte. A list of another length is named as a
// whole. A presented reference that has no canonical form differs as a whole, at
// "". At most 16 places are named, and a last entry "… and 3 more" counts the
// others; a pointer of more than 200 bytes is cut and ends in "…".
func RefDiff(presented, signed ArtifactRef) []string {
	a, errA := Canonical(presented)
	b, errB := Canonical(signed)
	if errA != nil || errB != nil {
		return []string{""}
	}
	paths, n := diffJSON(a, b, maxRefDiff)
	if n > len(paths) {
		paths = append(paths, fmt.Sprintf("… and %d more", n-len(paths)))
	}
	return paths
}

// CheckRef is [RefDiff] as an error: it wraps [ErrRefAltered] and its At is the
// first path that differs.
func CheckRef(presented, signed ArtifactRef) error {
	diff := RefDiff(presented, signed)
	if len(diff) == 0 {
		return nil
	}
	return &Error{
		Op: "compare references", At: diff[0],
		Err: fmt.Errorf("%w: it differs from the signed one at %s", ErrRefAltered, strings.Join(diff, ", ")),
	}
}

// diffJSON returns the first places, at most most of them, at which two documents
// in canonical JSON differ, and the number of all.
//
// One of them comes from a stranger, so the time is linear in their length and
// nothing is kept but the stack and the paths asked for: they are walked side by
// side, which the one order of their members allows, and neither is decoded.
func diffJSON(a, b []byte, most int) (paths []string, n int) {
	if bytes.Equal(a, b) {
		return nil, 0
	}
	d := differ{a: cursor{b: a}, b: cursor{b: b}, most: most}
	d.value()
	for _, p := range d.paths[:min(d.n, most)] {
		paths = append(paths, string(p))
	}
	return paths, d.n
}

type differ struct {
	a, b  cursor
	path  []step
	most  int
	n     int      // the differences so far
	paths [][]byte // those of the first most that were ever found; d.n says how many count
}

// found notes a difference at the place where the walk stands.
func (d *differ) found() {
	if d.n < d.most {
		if d.n == len(d.paths) {
			d.paths = append(d.paths, nil)
		}
		d.paths[d.n] = appendPointer(d.paths[d.n][:0], d.path)
	}
	d.n++
}

func (d *differ) value() {
	switch x, y := d.a.peek(), d.b.peek(); {
	case x == '{' && y == '{':
		d.object()
	case x == '[' && y == '[':
		d.array()
	default:
		if !bytes.Equal(d.a.skip(), d.b.skip()) {
			d.found()
		}
	}
}

func (d *differ) array() {
	before := d.n
	d.path = append(d.path, step{})
	top := len(d.path) - 1
	moreA, moreB := d.a.enter(), d.b.enter()
	for moreA && moreB {
		d.value()
		moreA, moreB = d.a.next(), d.b.next()
		d.path[top].index++
	}
	d.path = d.path[:top]
	if !moreA && !moreB {
		return
	}
	for moreA {
		d.a.skip()
		moreA = d.a.next()
	}
	for moreB {
		d.b.skip()
		moreB = d.b.next()
	}
	// The elements do not answer to each other: only the list as a whole differs.
	d.n = before
	d.found()
}

func (d *differ) object() {
	d.path = append(d.path, step{index: -1})
	top := len(d.path) - 1
	nameA, moreA := d.a.member(d.a.enter())
	nameB, moreB := d.b.member(d.b.enter())
	for moreA || moreB {
		order := 0
		switch {
		case !moreB:
			order = -1
		case !moreA:
			order = 1
		default:
			order = bytes.Compare(nameA, nameB)
		}
		d.path[top].name = nameA
		if order > 0 {
			d.path[top].name = nameB
		}
		switch {
		case order == 0:
			d.value()
		case order < 0:
			d.found()
			d.a.skip()
		default:
			d.found()
			d.b.skip()
		}
		if order <= 0 {
			nameA, moreA = d.a.member(d.a.next())
		}
		if order >= 0 {
			nameB, moreB = d.b.member(d.b.next())
		}
	}
	d.path = d.path[:top]
}

// cursor reads a document that [CheckCanonical] let pass.
type cursor struct {
	b   []byte
	pos int
}

func (c *cursor) peek() byte { return c.b[c.pos] }

// enter steps into an array or object and reports whether anything is in it; an
// empty one is left behind.
func (c *cursor) enter() bool {
	c.pos++
	if c.b[c.pos] != ']' && c.b[c.pos] != '}' {
		return true
	}
	c.pos++
	return false
}

// next steps over what follows an element and reports whether it is another one.
func (c *cursor) next() bool {
	c.pos++
	return c.b[c.pos-1] == ','
}

// member reads a name and its colon, where there is one.
func (c *cursor) member(more bool) (name []byte, ok bool) {
	if !more {
		return nil, false
	}
	raw := c.text()
	c.pos++
	return unescapeName(raw[1 : len(raw)-1]), true
}

// text steps over a string and returns it with its quotes.
func (c *cursor) text() []byte {
	start := c.pos
	for c.pos++; c.b[c.pos] != '"'; c.pos++ {
		if c.b[c.pos] == '\\' {
			c.pos++
		}
	}
	c.pos++
	return c.b[start:c.pos]
}

// skip steps over a value and returns it.
func (c *cursor) skip() []byte {
	start, depth := c.pos, 0
	for c.pos < len(c.b) {
		switch c.b[c.pos] {
		case '"':
			c.text()
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth < 0 || depth == 0 && c.b[c.pos] == ',' {
			break
		}
		c.pos++
	}
	return c.b[start:c.pos]
}
