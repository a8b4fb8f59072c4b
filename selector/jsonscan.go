package selector

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// maxNesting is the depth at which a document is given up. It bounds the
// scanner's memory; records are held to Limits.Depth, which is lower.
const maxNesting = 10_000

// blockSize is how much of a source is read at a time.
const blockSize = 256 << 10

var (
	errSyntax = errors.New("not valid JSON")
	errDepth  = errors.New("nested too deeply")
)

// token is one JSON token: '{' '}' '[' ']', 'k' for a member name (with its
// colon consumed), '"' for a string, '0' for a number, 't', 'f', 'n', or 0 at
// the end of the input.
type token struct {
	kind       byte
	start, end int64
}

// What the scanner expects next.
const (
	wantValue       = iota
	wantValueOrEnd  // after [
	wantName        // after { and a comma
	wantNameOrClose // after {
	wantComma       // a comma or the close of the container
	wantNothing     // the value is complete
)

// scanner reads the tokens of one JSON value, checking the grammar of RFC 8259
// but neither UTF-8 nor duplicate names, with memory that does not grow with
// the input. It is the span side of what jsontext validates: the two are held
// together by a test on random input.
type scanner struct {
	ctx   context.Context
	src   io.ReaderAt // where the input comes from; nil: from feed
	feed  *stream     // nil, too: all of the input is in buf
	hold  int64       // feed keeps the bytes from here on; -1: none
	end   int64       // where the input ends
	limit int         // nesting allowed

	buf   []byte
	base  int64 // offset of buf[0]
	pos   int   // in buf
	state int
	stack []byte // the containers that are open, '{' or '['
	deep  int    // the deepest nesting seen

	keep  int    // how many bytes of the next name to keep in text
	text  []byte // the raw name, quotes included; cut at keep bytes
	block []byte // the buffer of a streaming scanner
}

// scanBytes returns a scanner over bytes in memory.
func scanBytes(p []byte, limit int) *scanner {
	return &scanner{buf: p, end: int64(len(p)), limit: limit}
}

// scanSource returns a scanner over [start, end) of a source.
func scanSource(ctx context.Context, src io.ReaderAt, start, end int64) *scanner {
	return &scanner{ctx: ctx, src: src, base: start, end: end, limit: maxNesting}
}

// scanStream returns a scanner over a stream that was begun.
func scanStream(feed *stream) *scanner {
	return &scanner{feed: feed, hold: -1, base: feed.base, limit: maxNesting}
}

// reset begins anew with other bytes in memory.
func (s *scanner) reset(p []byte, limit int) {
	*s = scanner{buf: p, end: int64(len(p)), limit: limit, stack: s.stack[:0], text: s.text[:0]}
}

func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

func (s *scanner) bad(format string, args ...any) error {
	return fail("json", s.offset(), errSyntax, format, args...)
}

// fill reads the next block. At the end of the input it returns io.EOF.
func (s *scanner) fill() error {
	if s.feed != nil {
		keep := s.offset()
		if s.hold >= 0 {
			keep = s.hold
		}
		fresh, err := s.feed.next(keep)
		if err == nil {
			s.buf, s.base, s.pos = s.feed.data, s.feed.base, fresh
		}
		return err
	}
	next := s.base + int64(len(s.buf))
	if s.src == nil || next >= s.end {
		return io.EOF
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.block == nil {
		s.block = make([]byte, min(blockSize, s.end-next))
	}
	p := s.block[:min(int64(len(s.block)), s.end-next)]
	if err := readFull(s.src, p, next); err != nil {
		return err
	}
	s.buf, s.base, s.pos = p, next, 0
	return nil
}

// readFull fills p from src at off. A source that is too short has changed.
func readFull(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fail("read", off+int64(n), ErrChanged, "the source ends early")
	}
	return err
}

// peek returns the next byte without taking it; io.EOF at the end.
func (s *scanner) peek() (byte, error) {
	if s.pos == len(s.buf) {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	return s.buf[s.pos], nil
}

// space skips white space and returns the byte after it.
func (s *scanner) space() (byte, error) {
	for {
		for s.pos < len(s.buf) {
			if c := s.buf[s.pos]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				return c, nil
			}
			s.pos++
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// need turns the end of the input into a syntax error.
func (s *scanner) need(err error) error {
	if err == io.EOF {
		return s.bad("unexpected end")
	}
	return err
}

// next returns the next token; the kind 0 after a complete value and nothing
// but white space.
func (s *scanner) next() (token, error) {
	c, err := s.space()
	if s.state == wantNothing {
		if err == io.EOF {
			return token{start: s.offset(), end: s.offset()}, nil
		}
		if err == nil {
			err = s.bad("more after the value")
		}
		return token{}, err
	}
	if err != nil {
		return token{}, s.need(err)
	}
	if s.state == wantComma && c == ',' {
		s.pos++
		if c, err = s.space(); err != nil {
			return token{}, s.need(err)
		}
		s.state = wantValue
		if s.stack[len(s.stack)-1] == '{' {
			s.state = wantName
		}
	} else if (s.state == wantComma || s.state == wantValueOrEnd || s.state == wantNameOrClose) && (c == '}' || c == ']') {
		return s.close(c)
	} else if s.state == wantComma {
		return token{}, s.bad("want a comma or the end of the container, not %q", c)
	}
	if s.state == wantName || s.state == wantNameOrClose {
		return s.name(c)
	}
	return s.value(c)
}

// close takes the end of a container.
func (s *scanner) close(c byte) (token, error) {
	if open := s.stack[len(s.stack)-1]; open+2 != c { // '{'+2 = '}', '['+2 = ']'
		return token{}, s.bad("%q closes %q", c, open)
	}
	t := token{kind: c, start: s.offset(), end: s.offset() + 1}
	s.pos++
	s.stack = s.stack[:len(s.stack)-1]
	s.after()
	return t, nil
}

// after sets what may follow a complete value.
func (s *scanner) after() {
	s.state = wantComma
	if len(s.stack) == 0 {
		s.state = wantNothing
	}
}

// name takes a member name and its colon.
func (s *scanner) name(c byte) (token, error) {
	if c != '"' {
		return token{}, s.bad("want a member name, not %q", c)
	}
	t := token{kind: 'k', start: s.offset()}
	s.text = s.text[:0]
	if err := s.str(s.keep); err != nil {
		return token{}, err
	}
	t.end = s.offset()
	c, err := s.space()
	if err != nil {
		return token{}, s.need(err)
	}
	if c != ':' {
		return token{}, s.bad("want a colon, not %q", c)
	}
	s.pos++
	s.state = wantValue
	return t, nil
}

// value takes a scalar or the beginning of a container.
func (s *scanner) value(c byte) (token, error) {
	t := token{kind: c, start: s.offset()}
	var err error
	switch {
	case c == '{' || c == '[':
		if len(s.stack) >= s.limit {
			return token{}, fail("json", s.offset(), errDepth, "more than %d levels", s.limit)
		}
		s.pos++
		s.stack = append(s.stack, c)
		s.deep = max(s.deep, len(s.stack))
		s.state = wantValueOrEnd
		if c == '{' {
			s.state = wantNameOrClose
		}
		t.end = s.offset()
		return t, nil
	case c == '"':
		err = s.str(0)
	case c == '-' || c >= '0' && c <= '9':
		t.kind = '0'
		err = s.number()
	case c == 't':
		err = s.literal("true")
	case c == 'f':
		err = s.literal("false")
	case c == 'n':
		err = s.literal("null")
	default:
		err = s.bad("want a value, not %q", c)
	}
	if err != nil {
		return token{}, err
	}
	t.end = s.offset()
	s.after()
	return t, nil
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		c, err := s.peek()
		if err != nil {
			return s.need(err)
		}
		if c != word[i] {
			return s.bad("want %s", word)
		}
		s.pos++
	}
	return nil
}

// stringStop marks the bytes at which the inner loop over a string stops.
var stringStop = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// str takes a string whose opening quote is next, and keeps up to keep bytes
// of it in s.text.
func (s *scanner) str(keep int) error {
	if keep > 0 {
		s.text = append(s.text, '"')
	}
	s.pos++
	for {
		i := s.pos
		for i < len(s.buf) && !stringStop[s.buf[i]] {
			i++
		}
		s.kept(keep, s.buf[s.pos:i])
		s.pos = i
		c, err := s.peek()
		if err != nil {
			return s.need(err)
		}
		switch {
		case !stringStop[c]: // a new block
		case c == '"':
			s.kept(keep, s.buf[s.pos:s.pos+1])
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(keep); err != nil {
				return err
			}
		default:
			return s.bad("control character %q in a string", c)
		}
	}
}

func (s *scanner) kept(keep int, p []byte) {
	if n := keep - len(s.text); n > 0 {
		s.text = append(s.text, p[:min(n, len(p))]...)
	}
}

// escape takes a backslash and what it escapes.
func (s *scanner) escape(keep int) error {
	s.kept(keep, s.buf[s.pos:s.pos+1])
	s.pos++
	c, err := s.peek()
	if err != nil {
		return s.need(err)
	}
	hex := 0
	if c == 'u' {
		hex = 4
	} else if bytes.IndexByte([]byte(`"\/bfnrt`), c) < 0 {
		return s.bad("unknown escape \\%c", c)
	}
	for {
		s.kept(keep, s.buf[s.pos:s.pos+1])
		s.pos++
		if hex == 0 {
			return nil
		}
		hex--
		if c, err = s.peek(); err != nil {
			return s.need(err)
		}
		if !isHex(c) {
			return s.bad("%q in a \\u escape", c)
		}
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// number takes a number, as the grammar of RFC 8259 section 6 has it.
func (s *scanner) number() error {
	if s.buf[s.pos] == '-' {
		s.pos++
	}
	c, err := s.peek()
	if err != nil {
		return s.need(err)
	}
	if c == '0' {
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if c, err = s.peek(); err == nil && c == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
		c, err = s.peek()
	}
	if err == nil && c|0x20 == 'e' {
		s.pos++
		if c, err = s.peek(); err == nil && (c == '+' || c == '-') {
			s.pos++
		}
		return s.digits()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// digits takes one digit or more.
func (s *scanner) digits() error {
	for n := 0; ; n++ {
		c, err := s.peek()
		if err != nil && err != io.EOF {
			return err
		}
		if err == io.EOF || c < '0' || c > '9' {
			if n == 0 {
				return s.bad("want a digit")
			}
			return nil
		}
		s.pos++
	}
}

// skip takes the rest of the value that t began, and returns its end.
func (s *scanner) skip(t token) (int64, error) {
	if t.kind != '{' && t.kind != '[' {
		return t.end, nil
	}
	for depth := len(s.stack); ; {
		t, err := s.next()
		if err != nil {
			return 0, err
		}
		if len(s.stack) < depth {
			return t.end, nil
		}
	}
}

// apart looks for what may follow a number or literal in concatenated JSON.
func (s *scanner) apart() error {
	c, err := s.peek()
	if err == io.EOF || err == nil && mayFollow(c) {
		return nil
	}
	if err == nil {
		err = s.bad("%q behind a value", c)
	}
	return err
}

// rest reads to the end of the input, and returns where it ends without the
// white space there.
func (s *scanner) rest() (int64, error) {
	end := s.offset()
	for {
		if p := bytes.TrimRight(s.buf[s.pos:], " \t\r\n"); len(p) > 0 {
			end = s.offset() + int64(len(p))
		}
		s.pos = len(s.buf)
		if err := s.fill(); err == io.EOF {
			return end, nil
		} else if err != nil {
			return 0, err
		}
	}
}

// mayFollow reports whether a byte may stand behind a number or literal.
func mayFollow(c byte) bool {
	return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '"' || c == '{' || c == '['
}

// apart is scanner.apart for a clean value of n bytes at the beginning of p.
func apart(p []byte, n int, whole bool) cleanResult {
	switch {
	case p[0] == '"' || p[0] == '{' || p[0] == '[' || n < len(p) && mayFollow(p[n]) || n == len(p) && whole:
		return isClean
	case n == len(p):
		return ranOut
	}
	return notClean
}
