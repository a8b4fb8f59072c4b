package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"unicode/utf8"

	"leafproof"
	"leafproof/selector"
)

// question is the body of POST /v1/artifacts/{id}/query.
type question struct {
	Where       string   `json:"where,omitempty"`
	OrderBy     []string `json:"order_by,omitempty"`
	Select      []string `json:"select,omitempty"`
	Limit       int64    `json:"limit,omitempty"`
	Cursor      string   `json:"cursor,omitempty"`
	Count       bool     `json:"count,omitempty"`
	MaxRecords  int64    `json:"max_records,omitempty"`
	MaxBytes    int64    `json:"max_bytes,omitempty"`
	ReturnBytes int64    `json:"return_bytes,omitempty"`
	Receipt     bool     `json:"receipt,omitempty"`
}

// The pages of a query that is answered with one JSON value.
const (
	defaultPage = 1 << 20 // bytes of records
	maxPage     = 8 << 20
	maxRows     = 10_000
)

const mediaNDJSON = "application/x-ndjson"

// answerQuery answers a question with one JSON value, which is a page, or with a line for
// each row and one for the answer, which come as they are found.
func (c *call) answerQuery() error {
	var in question
	if err := c.decode(&in); err != nil {
		return err
	}
	kind, err := c.accepts("application/json", mediaNDJSON)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Authorization, Accept")
	q := leafproof.Query{
		Where: in.Where, Order: in.OrderBy, Select: in.Select, Limit: in.Limit, Cursor: in.Cursor, Count: in.Count,
		MaxRecords: in.MaxRecords, MaxBytes: in.MaxBytes, ReturnBytes: in.ReturnBytes,
	}
	if in.Receipt {
		q.Receipt = new(leafproof.Statement)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.o.QueryTime)
	defer cancel()
	if kind == mediaNDJSON {
		return c.queryLines(ctx, q)
	}
	return c.queryPage(ctx, q)
}

// queryPage answers with {"rows":[…],"answer":{…}}; the status is 206 where the scan
// did not reach its end for another reason than a full page.
func (c *call) queryPage(ctx context.Context, q leafproof.Query) error {
	if !q.Count {
		if q.ReturnBytes == 0 {
			q.ReturnBytes = defaultPage
		}
		if q.Limit == 0 {
			q.Limit = maxRows
		}
		if q.Limit > maxRows || q.ReturnBytes > maxPage {
			return invalid(http.StatusBadRequest, "/limit", "a page has at most %d rows and %d bytes of them: %s has no such bound", maxRows, maxPage, mediaNDJSON)
		}
	}
	out := bytes.NewBuffer(nil)
	out.WriteString(`{"rows":[`)
	var line []byte
	n := 0
	var full error
	answer, err := c.s.store.Query(ctx, c.who, c.params["id"], q, func(r leafproof.Row) error {
		if n++; n > 1 {
			out.WriteByte(',')
		}
		line = appendRow(line[:0], r)
		if full = c.hold(len(line)); full != nil {
			return full
		}
		out.Write(line)
		return nil
	})
	if full != nil {
		return full
	}
	status := http.StatusOK
	if err != nil {
		if answer == nil || !cutShort(err) {
			return err
		}
		status = http.StatusPartialContent
		c.problem = leafproof.CodeOf(err)
	}
	out.WriteByte(']')
	if err := appendAnswer(out, c.s, c.who, answer, err, q.Receipt); err != nil {
		return err
	}
	out.WriteString("}\n")
	return c.jsonBytes(status, out.Bytes())
}

// appendAnswer appends the members that follow the rows.
func appendAnswer(out *bytes.Buffer, s *Server, who leafproof.Caller, answer *selector.Answer, cut error, receipt *leafproof.Statement) error {
	members := []struct {
		name  string
		value any
		given bool
	}{
		{"answer", answer, answer != nil}, {"error", nil, cut != nil}, {"receipt", receipt, receipt != nil && receipt.ID != ""},
	}
	if cut != nil {
		p := s.problem(cut, who)
		if p.Code == leafproof.CodeScanIncomplete || p.Code == leafproof.CodeBudgetExhausted {
			p.Status = http.StatusPartialContent
			p.Title = http.StatusText(p.Status)
		}
		members[1].value = p
	}
	for _, m := range members {
		if !m.given {
			continue
		}
		b, err := encode(m.value)
		if err != nil {
			return err
		}
		out.WriteString(`,"` + m.name + `":`)
		out.Write(bytes.TrimSuffix(b, []byte("\n")))
	}
	return nil
}

// cutShort reports an error that comes with an answer of what was examined.
func cutShort(err error) bool {
	code := leafproof.CodeOf(err)
	return code == leafproof.CodeScanIncomplete || code == leafproof.CodeBudgetExhausted
}

// queryLines answers with a line for each row, and a last one with the answer. Where
// it is missing, something was cut.
func (c *call) queryLines(ctx context.Context, q leafproof.Query) error {
	c.w.Header().Set("Content-Type", mediaNDJSON)
	out := bytes.NewBuffer(make([]byte, 0, lineRoom+4<<10))
	var line []byte
	answer, err := c.s.store.Query(ctx, c.who, c.params["id"], q, func(r leafproof.Row) error {
		line = appendRow(line[:0], r)
		for i, b := range line { // between the tokens of a value
			if b == '\n' || b == '\r' {
				line[i] = ' '
			}
		}
		out.Write(line)
		out.WriteByte('\n')
		if out.Len() < lineRoom {
			return nil
		}
		_, err := c.w.Write(out.Bytes())
		out.Reset()
		return err
	})
	if err != nil && (answer == nil || !cutShort(err)) {
		return err
	}
	if err != nil {
		c.problem = leafproof.CodeOf(err)
	}
	var tail bytes.Buffer
	if err := appendAnswer(&tail, c.s, c.who, answer, err, q.Receipt); err != nil {
		return err
	}
	out.WriteByte('{')
	out.Write(tail.Bytes()[1:])
	out.WriteString("}\n")
	_, _ = c.w.Write(out.Bytes())
	return nil
}

// lineRoom is how many bytes of lines are sent at once.
const lineRoom = 32 << 10

// appendRow appends a row as JSON. Its bytes stand in it as they stand in the
// artifact: as value where they are a JSON value, else as text, or as base64 where
// they are no UTF-8.
func appendRow(dst []byte, r leafproof.Row) []byte {
	dst = append(dst, `{"record":`...)
	dst = appendSpan(strconv.AppendInt(dst, r.Record, 10), r.Span)
	if r.Selected == nil {
		dst = append(dst, ',')
		return append(appendValue(dst, r.Bytes, r.JSON), '}')
	}
	dst = append(dst, `,"selected":[`...)
	for i, values := range r.Selected {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for j, v := range values {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"path":`...)
			dst = appendSpan(appendText(dst, v.Path), v.Span)
			dst = append(dst, ',')
			dst = append(appendValue(dst, v.Bytes, r.JSON), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, "]}"...)
}

func appendSpan(dst []byte, s selector.Span) []byte {
	dst = append(dst, `,"span":[`...)
	dst = append(strconv.AppendInt(dst, s.Start, 10), ',')
	return append(strconv.AppendInt(dst, s.End, 10), ']')
}

func appendValue(dst, v []byte, isJSON bool) []byte {
	switch {
	case isJSON && json.Valid(v) && utf8.Valid(v):
		return append(append(dst, `"value":`...), v...)
	case utf8.Valid(v):
		return appendText(append(dst, `"text":`...), string(v))
	}
	dst = append(dst, `"base64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, v), '"')
}

func appendText(dst []byte, s string) []byte {
	b, err := encode(s)
	if err != nil {
		panic(errors.Join(errors.New("a string has no JSON"), err)) // each has one
	}
	return append(dst, bytes.TrimSuffix(b, []byte("\n"))...)
}
