package selector

// tree is the containers of one JSON value in memory: enough to go from a value
// to its children and past them without reading what lies between. It takes 8
// bytes a container.
type tree struct {
	b     []byte
	conts []container // in the order in which they open
	open  []uint32    // room for building
}

// container is an array or object.
type container struct {
	end  uint32 // the index behind it
	next uint32 // the number of the first container that opens behind it
}

// maxTree is the longest value that a tree takes, in bytes.
const maxTree = 1 << 31

// ref is a value in a tree: where it begins, and the number of the container
// that it is, or that opens next.
type ref struct {
	pos  int
	cont uint32
}

// build reads the value at i, whose grammar was checked, and reports whether it
// has an end.
func (t *tree) build(b []byte, i int) bool {
	t.b, t.conts, t.open = b, t.conts[:0], t.open[:0]
	if len(b) >= maxTree {
		return false
	}
	if i < len(b) && b[i] != '{' && b[i] != '[' {
		return valueEnd(b, i) >= 0
	}
	for ; i < len(b); i++ {
		switch marks[b[i]] {
		case markQuote:
			end, _ := stringEnd(b, i+1)
			if end < 0 {
				return false
			}
			i = end - 1
		case markOpen:
			t.open = append(t.open, uint32(len(t.conts)))
			t.conts = append(t.conts, container{})
		case markClose:
			if len(t.open) == 0 {
				return false
			}
			t.conts[t.open[len(t.open)-1]] = container{end: uint32(i + 1), next: uint32(len(t.conts))}
			if t.open = t.open[:len(t.open)-1]; len(t.open) == 0 {
				return true
			}
		}
	}
	return false
}

// kind returns the first byte of a value.
func (t *tree) kind(r ref) byte { return t.b[r.pos] }

// isContainer reports whether a value is an array or object.
func (t *tree) isContainer(r ref) bool { return t.b[r.pos] == '{' || t.b[r.pos] == '[' }

// end returns the index behind a value.
func (t *tree) end(r ref) int {
	if t.isContainer(r) && int(r.cont) < len(t.conts) {
		return int(t.conts[r.cont].end)
	}
	return valueEnd(t.b, r.pos)
}

// after returns where a value ends and the number of the container that opens
// next.
func (t *tree) after(r ref) (int, uint32) {
	if t.isContainer(r) && int(r.cont) < len(t.conts) {
		c := t.conts[r.cont]
		return int(c.end), c.next
	}
	return valueEnd(t.b, r.pos), r.cont
}

// children is a walk over the members or elements of a container, in their
// order.
type children struct {
	t       *tree
	object  bool
	pos     int
	cont    uint32
	name    []byte // of the member that next returned: what stands between the quotes
	nameAt  int
	escaped bool
	index   int64 // of the element or member that next returned
}

func (t *tree) children(r ref) children {
	return children{t: t, object: t.b[r.pos] == '{', pos: r.pos + 1, cont: r.cont + 1, index: -1}
}

// next returns the next child; false behind the last one.
func (c *children) next() (r ref, ok bool) {
	b := c.t.b
	if c.pos < 0 {
		return r, false
	}
	i := skipSpace(b, c.pos)
	if i < len(b) && b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	if i >= len(b) || b[i] == '}' || b[i] == ']' {
		return r, false
	}
	if c.object {
		c.nameAt = i + 1
		if c.name, c.escaped, i = member(b, i); i < 0 {
			return r, false
		}
	}
	r = ref{pos: i, cont: c.cont}
	if c.pos, c.cont = c.t.after(r); c.pos >= 0 && c.pos <= i {
		c.pos = -1 // no value: the grammar was not checked after all
	}
	c.index++
	return r, true
}

// ambiguous reports whether the members of an object cannot be told apart: a
// name stands twice, or has a lone surrogate.
func (t *tree) ambiguous(r ref) bool {
	var few [16][]byte
	names := few[:0]
	for c := t.children(r); ; {
		if _, ok := c.next(); !ok {
			break
		}
		name := c.name
		if c.escaped {
			var ok bool
			if name, ok = unescape(name, nil); !ok {
				return true
			}
		}
		names = append(names, name)
	}
	return sameTwice(names)
}

// sameTwice reports whether two names are equal. It may sort them.
func sameTwice(names [][]byte) bool {
	if len(names) <= 16 {
		for i, a := range names {
			for _, b := range names[:i] {
				if string(a) == string(b) {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[string]struct{}, min(len(names), 1024))
	for _, n := range names {
		if _, ok := seen[string(n)]; ok {
			return true
		}
		seen[string(n)] = struct{}{}
	}
	return false
}

// elements appends the elements of an array.
func (t *tree) elements(r ref, to []ref) []ref {
	for c := t.children(r); ; {
		e, ok := c.next()
		if !ok {
			return to
		}
		to = append(to, e)
	}
}
