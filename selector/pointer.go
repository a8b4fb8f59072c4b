package selector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// step is one step of a path into a JSON value: the member with a name, the
// element with an index, or whichever of the two there is.
type step struct {
	name  string
	index int64 // -1: no array has it
	named bool  // objects are entered
}

// CheckPointer reports whether s is a JSON Pointer (RFC 6901): empty, or
// tokens that each begin with a slash, with ~ only in ~0 and ~1. The error is
// an ErrSelector that names the byte.
func CheckPointer(s string) error {
	_, err := parsePointer(s)
	return err
}

// parsePointer returns the steps of a JSON Pointer. A token that is an array
// index without leading zeros enters arrays; every token enters objects.
func parsePointer(s string) ([]step, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > maxPointer:
		return nil, fail("pointer", -1, ErrSelector, "longer than %d bytes", maxPointer)
	case !utf8.ValidString(s):
		return nil, fail("pointer", -1, ErrSelector, "not valid UTF-8")
	case s[0] != '/':
		return nil, fail("pointer", 0, ErrSelector, "%q does not begin with a slash; did you mean %q?", s, "/"+s)
	}
	var path []step
	at := int64(1)
	for raw := range strings.SplitSeq(s[1:], "/") {
		name := raw
		for i := 0; i < len(raw); i++ {
			if raw[i] == '~' && (i+1 == len(raw) || raw[i+1] != '0' && raw[i+1] != '1') {
				return nil, fail("pointer", at+int64(i), ErrSelector, "~ must be followed by 0 or 1")
			}
		}
		if strings.Contains(raw, "~") {
			name = strings.ReplaceAll(strings.ReplaceAll(raw, "~1", "/"), "~0", "~")
		}
		path = append(path, step{name: name, index: arrayIndex(name), named: true})
		at += int64(len(raw)) + 1
	}
	return path, nil
}

// arrayIndex reads an array index as RFC 6901 section 4 writes it, without
// leading zeros; -1 for anything else, "-" included.
func arrayIndex(s string) int64 {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return -1
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// pointerText writes a path as a JSON Pointer.
func pointerText(path []step) string {
	var b strings.Builder
	for _, st := range path {
		b.WriteByte('/')
		name := st.name
		if !st.named {
			name = strconv.FormatInt(st.index, 10)
		}
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// walk follows a path into the value of a scanner and reads on to the value's
// end, since a name on the path may stand a second time behind the first.
type walk struct {
	s       *scanner
	path    []step
	hit     func(t token) error // takes the whole value that t begins
	found   bool
	twice   bool   // a name on the path stands twice
	at      int64  // where it stands the second time
	scratch []byte // for unescaping names
}

// run reads the whole value and what follows it.
func (w *walk) run() error {
	t, err := w.s.next()
	if err == nil {
		err = w.value(t, 0)
	}
	if err == nil {
		_, err = w.s.next() // white space, then the end
	}
	return err
}

// value takes the value that t begins, i steps into the path.
func (w *walk) value(t token, i int) error {
	if i == len(w.path) {
		w.found = true
		return w.hit(t)
	}
	switch {
	case t.kind == '{' && w.path[i].named:
		return w.object(i)
	case t.kind == '[' && w.path[i].index >= 0:
		return w.array(i)
	}
	_, err := w.s.skip(t)
	return err
}

func (w *walk) object(i int) error {
	want := w.path[i].name
	for seen := false; ; {
		w.s.keep = 6*len(want) + 3 // a longer name cannot be this one, however escaped
		t, err := w.s.next()
		w.s.keep = 0
		if err != nil || t.kind == '}' {
			return err
		}
		same := w.same(t, want)
		v, err := w.s.next()
		if err != nil {
			return err
		}
		if same && !seen {
			seen = true
			err = w.value(v, i+1)
		} else {
			if same && !w.twice {
				w.twice, w.at = true, t.start
			}
			_, err = w.s.skip(v)
		}
		if err != nil {
			return err
		}
	}
}

// same reports whether the name that the scanner just read is want.
func (w *walk) same(t token, want string) bool {
	raw := w.s.text
	if int64(len(raw)) != t.end-t.start {
		return false // cut: too long to be the name
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == want
	}
	if w.scratch == nil {
		w.scratch = make([]byte, 0, 64)
	}
	name, ok := unquote(raw, w.scratch)
	return ok && string(name) == want
}

func (w *walk) array(i int) error {
	for n := int64(0); ; n++ {
		t, err := w.s.next()
		if err != nil || t.kind == ']' {
			return err
		}
		if n == w.path[i].index {
			err = w.value(t, i+1)
		} else {
			_, err = w.s.skip(t)
		}
		if err != nil {
			return err
		}
	}
}

// FindPointer returns the span of the value at pointer in a JSON document of
// size bytes, which may begin with a byte order mark. It reads the whole
// document, in one pass with bounded memory, since only the end shows that no
// name on the path stands twice.
//
// It fails with ErrSelector for a bad pointer, ErrPointer where nothing stands,
// and ErrUndecidable for a duplicate name on the path or bytes that are not
// one JSON value.
func FindPointer(ctx context.Context, src io.ReaderAt, size int64, pointer string) (Span, error) {
	path, err := parsePointer(pointer)
	if err != nil {
		return Span{}, err
	}
	start, err := afterBOM(src, size)
	if err != nil {
		return Span{}, err
	}
	var span Span
	w := walk{s: scanSource(ctx, src, start, size), path: path}
	w.hit = func(t token) error {
		end, err := w.s.skip(t)
		span = Span{Start: t.start, End: end}
		return err
	}
	switch err := w.run(); {
	case errors.Is(err, errSyntax) || errors.Is(err, errDepth):
		e := err.(*Error)
		return Span{}, fail("pointer", e.Offset, ErrUndecidable, "the document does not parse: %v: %s", e.Err, e.Detail)
	case err != nil:
		return Span{}, err
	case w.twice:
		return Span{}, fail("pointer", w.at, ErrUndecidable, "a name on the path %s stands twice", pointer)
	case !w.found:
		return Span{}, fail("pointer", -1, ErrPointer, "%s", pointer)
	}
	return span, nil
}

// afterBOM returns where the text of a source begins: 0, or 3 after a UTF-8
// byte order mark.
func afterBOM(src io.ReaderAt, size int64) (int64, error) {
	var p [3]byte
	if size < int64(len(p)) {
		return 0, nil
	}
	if err := readFull(src, p[:], 0); err != nil {
		return 0, err
	}
	if bytes.Equal(p[:], bom) {
		return 3, nil
	}
	return 0, nil
}
