package selector

import (
	"bytes"
	"io"
	"math"
)

// eachLine calls line for every line, terminator excluded: LF, or CR LF. What
// follows the last terminator is a line if it is not empty. blank is true for
// a line of nothing but spaces, tabs and carriage returns.
func eachLine(in *stream, line func(s Span, blank bool) error) error {
	start, blank, cr := in.base, true, false // cr: the byte before this block is CR
	for {
		fresh, err := in.next(start)
		if err != nil {
			if err != io.EOF {
				return err
			}
			break
		}
		for p, at := in.data[fresh:], in.base+int64(fresh); len(p) > 0; {
			i := bytes.IndexByte(p, '\n')
			part := p
			if i >= 0 {
				part = p[:i]
			}
			blank = blank && onlySpace(part)
			if len(part) > 0 {
				cr = part[len(part)-1] == '\r'
			}
			if i < 0 {
				break
			}
			s := Span{Start: start, End: at + int64(i)}
			if cr {
				s.End--
			}
			if err := line(s, blank); err != nil {
				return err
			}
			p, at = p[i+1:], at+int64(i)+1
			start, blank, cr = at, true, false
		}
	}
	if start < in.end() {
		return line(Span{Start: start, End: in.end()}, blank)
	}
	return nil
}

func onlySpace(p []byte) bool {
	for _, c := range p {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// The states between two bytes of a CSV row.
const (
	csvRowStart   = iota // nothing of the row yet
	csvFieldStart        // after a delimiter
	csvField             // in a field without quotes
	csvQuoted            // in a quoted field
	csvQuote             // after a quote in a quoted field: its end, or the first of two
	csvQuoteCR           // after that and a CR, which the LF must follow
	csvBroken            // after the end of a quoted field and something else
)

// csvScan divides CSV rows. A quote opens a quoted field only at the field's
// first byte; elsewhere in an unquoted field it is data. Inside quotes two
// quotes stand for one, and delimiters and line ends are data. A byte after the
// closing quote that is neither delimiter nor line end makes the row broken;
// so does the end of the input inside quotes.
type csvScan struct {
	delimiter byte
	quote     int // -1: no quoting
	state     int
	fields    int64 // of the row, so far
	broken    bool
	value     []byte // room for a decoded field
}

func newCSVScan(d Dialect) csvScan {
	c := csvScan{delimiter: d.Delimiter[0], quote: -1}
	if d.Quote != "" {
		c.quote = int(d.Quote[0])
	}
	return c
}

// advance takes bytes up to and including the line end that closes the row, or
// all of p: it returns how many it took and whether the row is closed.
func (c *csvScan) advance(p []byte) (n int, closed bool) {
	for i := 0; i < len(p); i++ {
		ch := p[i]
		switch c.state {
		case csvQuoted:
			j := bytes.IndexByte(p[i:], byte(c.quote))
			if j < 0 {
				return len(p), false
			}
			i += j
			c.state = csvQuote
			continue
		case csvQuote:
			if int(ch) == c.quote {
				c.state = csvQuoted
				continue
			}
			if ch == '\r' {
				c.state = csvQuoteCR
				continue
			}
			if ch != c.delimiter && ch != '\n' {
				c.broken, c.state = true, csvBroken
				continue
			}
		case csvQuoteCR:
			if ch != '\n' {
				c.broken, c.state = true, csvBroken
			}
		case csvRowStart, csvFieldStart:
			if int(ch) == c.quote {
				c.state = csvQuoted
				continue
			}
			c.state = csvField
		}
		if ch == '\n' {
			c.fields++
			return i + 1, true
		}
		if ch == c.delimiter {
			c.fields++
			c.state = csvFieldStart
		}
	}
	return len(p), false
}

// finish closes the last row at the end of the input.
func (c *csvScan) finish() {
	c.fields++
	if c.state == csvQuoted || c.state == csvQuoteCR {
		c.broken = true
	}
}

// row begins the next row.
func (c *csvScan) row() { c.state, c.fields, c.broken = csvRowStart, 0, false }

// eachRow calls row for every row of a CSV file, terminator excluded; rows
// without a byte come with 0 fields.
func eachRow(in *stream, d Dialect, row func(s Span, fields int64, broken bool) error) error {
	c := newCSVScan(d)
	start, last := in.base, byte(0)
	emit := func(end int64) error {
		fields := c.fields
		if end == start {
			fields = 0
		}
		err := row(Span{Start: start, End: end}, fields, c.broken)
		c.row()
		return err
	}
	for {
		fresh, err := in.next(start)
		if err != nil {
			if err != io.EOF {
				return err
			}
			break
		}
		for p, at := in.data[fresh:], in.base+int64(fresh); len(p) > 0; {
			n, closed := c.advance(p)
			if !closed {
				last = p[len(p)-1]
				break
			}
			end := at + int64(n) - 1
			if n > 1 {
				last = p[n-2]
			}
			if last == '\r' && end > start {
				end--
			}
			if err := emit(end); err != nil {
				return err
			}
			last = 0
			p, at = p[n:], at+int64(n)
			start = at
		}
	}
	if start == in.end() {
		return nil
	}
	c.finish()
	return emit(in.end())
}

// csvRow decodes the fields of a row and gives those up to index want to yield,
// whose value is valid until it returns. It returns false for a broken row.
func csvRow(row []byte, d Dialect, want int64, yield func(i int64, value []byte)) bool {
	c := newCSVScan(d)
	rest := row
	for i := int64(0); ; i++ {
		value, n, ok := c.field(rest)
		if !ok {
			return false
		}
		if i <= want {
			yield(i, value)
		}
		if n == len(rest) {
			return true
		}
		rest = rest[n+1:] // behind the delimiter
	}
}

// field decodes the first field of p, which holds no line end outside quotes,
// and returns how many bytes it takes without its delimiter.
func (c *csvScan) field(p []byte) (value []byte, n int, ok bool) {
	if len(p) == 0 || int(p[0]) != c.quote {
		if i := bytes.IndexByte(p, c.delimiter); i >= 0 {
			return p[:i], i, true
		}
		return p, len(p), true
	}
	n, c.value = 1, c.value[:0]
	for {
		i := bytes.IndexByte(p[n:], byte(c.quote))
		if i < 0 {
			return nil, 0, false
		}
		c.value = append(c.value, p[n:n+i]...)
		n += i + 1
		if n == len(p) || p[n] == c.delimiter {
			return c.value, n, true
		}
		if int(p[n]) != c.quote {
			return nil, 0, false
		}
		c.value = append(c.value, p[n])
		n++
	}
}

// csvFields decodes a whole row.
func csvFields(row []byte, d Dialect) ([]string, bool) {
	var out []string
	ok := csvRow(row, d, math.MaxInt64, func(_ int64, v []byte) { out = append(out, string(v)) })
	return out, ok
}
