package manifest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxInteger is 2^53−1, up to which every JSON implementation is exact.
const maxInteger = 1<<53 - 1

// SyntaxError says why and where a document is not canonical JSON. It wraps
// [ErrNotCanonical].
type SyntaxError struct {
	Offset  int64  // of the offending byte; −1 where that is not known
	Pointer string // RFC 6901, of the value that holds it; after 200 bytes it is cut and ends in "…"
	Reason  string
}

// Error names the reason, the offset and the place.
func (e *SyntaxError) Error() string {
	switch {
	case e.Offset < 0 && e.Pointer == "":
		return fmt.Sprintf("%v: %s", ErrNotCanonical, e.Reason)
	case e.Offset < 0:
		return fmt.Sprintf("%v: in %s: %s", ErrNotCanonical, Printable(e.Pointer), e.Reason)
	case e.Pointer == "":
		return fmt.Sprintf("%v: byte %d: %s", ErrNotCanonical, e.Offset, e.Reason)
	}
	return fmt.Sprintf("%v: byte %d, in %s: %s", ErrNotCanonical, e.Offset, Printable(e.Pointer), e.Reason)
}

// Unwrap returns [ErrNotCanonical].
func (e *SyntaxError) Unwrap() error { return ErrNotCanonical }

func checkCanonical(b []byte, maxSize, maxDepth int) error {
	if len(b) > maxSize {
		return &Error{Op: "parse", Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), maxSize)}
	}
	s := scanner{b: b, maxDepth: maxDepth}
	if err := s.value(); err != nil {
		return err
	}
	if s.pos < len(b) {
		return s.fail("something follows the value")
	}
	return nil
}

// scanner walks a document once and allocates only for the path of an error, for
// names that hold an escape and for the stack.
type scanner struct {
	b        []byte
	pos      int
	maxDepth int
	path     []step
}

func (s *scanner) fail(format string, args ...any) error {
	return &SyntaxError{Offset: int64(s.pos), Pointer: string(appendPointer(nil, s.path)), Reason: fmt.Sprintf(format, args...)}
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.b) {
		return s.b[s.pos]
	}
	return 0
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case s.pos == len(s.b):
		return s.fail("the document ends inside a value")
	case c == '{':
		return s.object()
	case c == '[':
		return s.array()
	case c == '"':
		_, err := s.text(false)
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		return s.fail("white space")
	default:
		return s.fail("a value cannot begin with %q", c)
	}
}

func (s *scanner) literal(word string) error {
	if !strings.HasPrefix(string(s.b[s.pos:min(len(s.b), s.pos+len(word))]), word) {
		return s.fail("not a value")
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) number() error {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	first := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	digits := string(s.b[first:min(s.pos, first+17)])
	end := s.peek()
	n, err := strconv.ParseInt(digits, 10, 64)
	failAt := func(reason string) error {
		s.pos = start
		return s.fail("%s", reason)
	}
	switch {
	case digits == "":
		return failAt("a number without digits")
	case digits[0] == '0' && len(digits) > 1:
		return failAt("a number with a leading zero")
	case end == '.' || end == 'e' || end == 'E':
		return failAt("a number that is not a plain integer; write it as a decimal string")
	case err != nil || n > maxInteger:
		return failAt("an integer beyond ±(2^53−1); write it as a decimal string")
	case n == 0 && first > start:
		return failAt("a negative zero")
	}
	return nil
}

// enter opens an array or object and reports whether it is empty.
func (s *scanner) enter(index int, closing byte) (empty bool, err error) {
	if len(s.path) >= s.maxDepth {
		return false, s.fail("more than %d levels", s.maxDepth)
	}
	s.pos++
	if s.peek() == closing {
		s.pos++
		return true, nil
	}
	s.path = append(s.path, step{index: index})
	return false, nil
}

func (s *scanner) leave() {
	s.pos++
	s.path = s.path[:len(s.path)-1]
}

func (s *scanner) array() error {
	empty, err := s.enter(0, ']')
	if empty || err != nil {
		return err
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
			s.path[len(s.path)-1].index++
		case ']':
			s.leave()
			return nil
		default:
			return s.fail("an array goes on with neither a comma nor a bracket")
		}
	}
}

func (s *scanner) object() error {
	empty, err := s.enter(-1, '}')
	if empty || err != nil {
		return err
	}
	for first := true; ; first = false {
		top := &s.path[len(s.path)-1]
		top.open = true
		if s.peek() != '"' {
			return s.fail("a member without a name in quotes")
		}
		at := s.pos
		name, err := s.text(true)
		if err != nil {
			return err
		}
		last := top.name
		top.name, top.open = name, false
		if order := bytes.Compare(name, last); !first && order <= 0 {
			s.pos = at
			if order == 0 {
				return s.fail("the member %s stands twice", quote(string(name)))
			}
			return s.fail("the member %s is not in sorted order", quote(string(name)))
		}
		if s.peek() != ':' {
			return s.fail("a name is not followed by a colon")
		}
		s.pos++
		if err := s.value(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.leave()
			return nil
		default:
			return s.fail("an object goes on with neither a comma nor a brace")
		}
	}
}

// text reads a string. A name is decoded and must be printable ASCII, which
// makes the order of its bytes that of RFC 8785 too.
func (s *scanner) text(isName bool) (name []byte, err error) {
	s.pos++
	start := s.pos
	for {
		if s.pos >= len(s.b) {
			return nil, s.fail("the document ends inside a string")
		}
		switch c := s.b[s.pos]; {
		case c == '"':
			if isName {
				name = unescapeName(s.b[start:s.pos])
			}
			s.pos++
			return name, nil
		case c == '\\':
			n, err := s.escape(isName)
			if err != nil {
				return nil, err
			}
			s.pos += n
		case c < 0x20:
			return nil, s.fail("a raw control character")
		case c == 0x7f:
			return nil, s.fail("U+007F")
		case c < 0x80:
			s.pos++
		case isName:
			return nil, s.fail("a member name outside printable ASCII")
		default:
			r, n := utf8.DecodeRune(s.b[s.pos:])
			switch {
			case r == utf8.RuneError && n == 1:
				return nil, s.fail("invalid UTF-8")
			case r == 0x2028 || r == 0x2029:
				return nil, s.fail("%U", r)
			}
			s.pos += n
		}
	}
}

// escape returns the length of the escape at s.pos, which must be the only
// spelling of its character.
func (s *scanner) escape(isName bool) (int, error) {
	if s.pos+1 >= len(s.b) {
		return 0, s.fail("the document ends inside a string")
	}
	c := s.b[s.pos+1]
	switch {
	case c == '"' || c == '\\':
		return 2, nil
	case isName:
		return 0, s.fail("a member name outside printable ASCII, or with a needless escape")
	case strings.IndexByte("bfnrt", c) >= 0:
		return 2, nil
	case c != 'u':
		return 0, s.fail("a needless or unknown escape")
	}
	hex := string(s.b[s.pos+2 : min(len(s.b), s.pos+6)])
	n, err := strconv.ParseUint(hex, 16, 16)
	switch {
	case len(hex) < 4 || err != nil:
		return 0, s.fail("an escape without four hex digits")
	case 0xd800 <= n && n < 0xe000:
		return 0, s.fail("an escaped surrogate")
	case n >= 0x20 || strings.IndexByte("\b\f\n\r\t", byte(n)) >= 0:
		return 0, s.fail("a needless escape")
	case hex != fmt.Sprintf("%04x", n):
		return 0, s.fail("an escape with upper-case digits")
	}
	return 6, nil
}
