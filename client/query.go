package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/selector"
)

// A Question is a filter over the records of an artifact.
type Question struct {
	Where       string   `json:"where,omitempty"`    // see docs/FORMAT.md; "": every record
	OrderBy     []string `json:"order_by,omitempty"` // P or P:desc
	Select      []string `json:"select,omitempty"`
	Limit       int64    `json:"limit,omitempty"` // rows of a page; 0: all
	Cursor      string   `json:"cursor,omitempty"`
	Count       bool     `json:"count,omitempty"` // how many match, without rows
	MaxRecords  int64    `json:"max_records,omitempty"`
	MaxBytes    int64    `json:"max_bytes,omitempty"`
	ReturnBytes int64    `json:"return_bytes,omitempty"`

	// VerifyRows holds each row to the bytes that are proven to be that record, and to
	// Where, before it is given to emit, and no record comes twice. That none is missing,
	// and the order of OrderBy, stay the server's word.
	VerifyRows bool `json:"-"`
}

// A Row is a record that matches.
type Row struct {
	Record int64
	Span   [2]int64 // its bytes in the artifact
	// Bytes are the record's, where nothing is selected; valid until emit returns.
	Bytes []byte
	// Selected has the values that each of Question.Select selects in it.
	Selected [][]Value
	// Proven: these are the bytes of that record.
	Proven bool
}

// A Value is a part of a record.
type Value struct {
	Path  string
	Span  [2]int64
	Bytes []byte
}

// maxLine is how long a line with a row may be.
const maxLine = 256 << 20

// Query asks which records match, and gives each row to emit (nil: to nobody) as it
// comes; an error of emit ends it. The answer says what was examined, and its facts
// about the artifact are held to the manifest. Where a scan was cut short, the error
// says so and the answer stands beside it; what came without an answer is
// [ErrTruncated].
//
// Rows are the server's word unless VerifyRows is set; see [Artifact.QueryProven] for
// answers of which nothing is.
func (a *Artifact) Query(ctx context.Context, q Question, emit func(Row) error) (*selector.Answer, error) {
	r := &rows{a: a, ctx: ctx, q: q, emit: emit, last: -1}
	if q.VerifyRows && len(q.OrderBy) > 0 {
		r.seen = map[int64]bool{}
	}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	resp, err := a.c.do(ctx, &request{method: "POST", path: a.path("/query"), json: q, header: header("Accept", "application/x-ndjson")})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := isMedia(resp, "application/x-ndjson"); err != nil {
		return nil, err
	}
	in := &watched{r: resp.Body}
	lines := bufio.NewReaderSize(in, readRoom)
	for {
		line, err := readLine(lines)
		if err != nil {
			return nil, r.why(in, err)
		}
		if bytes.HasPrefix(line, []byte(`{"answer":`)) {
			if _, err := lines.ReadByte(); err == nil {
				return nil, refuse(ErrExtended, a.ID(), "rows behind the answer")
			}
			return r.end(line)
		}
		if err := r.row(line); err != nil {
			return nil, plainError(err)
		}
	}
}

// readLine reads a line without its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long) > maxLine {
			return nil, refuse(ErrTooLarge, "", "a row of more than %d bytes", maxLine)
		}
		line, err = in.ReadSlice('\n')
		long = append(long, line...)
	}
	if err != nil {
		return nil, err
	}
	return long[:len(long)-1], nil
}

// rows takes the rows of an answer as they come.
type rows struct {
	a     *Artifact
	ctx   context.Context
	q     Question
	emit  func(Row) error
	where *selector.Evaluator
	last  int64
	n     int64
	seen  map[int64]bool // records that came, where they come in another order
	held  []Row          // to be verified together
	bytes int            // of held
}

// prepare reads the condition, where rows are held to it.
func (r *rows) prepare() error {
	if !r.q.VerifyRows {
		return nil
	}
	if len(r.q.Select) > 0 {
		return errors.New("client: rows that are verified are whole records: select parts of them there")
	}
	layout, ok := r.a.layout()
	if !ok {
		return &Error{Code: "not_records", Action: "fix_call", At: r.a.ID(), Message: "it has no records", offset: -1}
	}
	if r.q.Where == "" {
		return nil
	}
	w, err := selector.ParseWhere(r.q.Where)
	if err != nil {
		return err
	}
	var hidden []string
	for _, x := range r.a.Ref.Completeness.Redactions {
		hidden = append(hidden, x.Path)
	}
	r.where, err = w.WithRedactions(hidden).Evaluator(layout)
	return err
}

// why is how the lines ended.
func (r *rows) why(in *watched, err error) error {
	switch {
	case in.err == io.EOF, errors.Is(in.err, io.ErrUnexpectedEOF): //nolint:errorlint // a reader's end is that value
		return refuse(ErrTruncated, r.a.ID(), "no answer behind %d rows", r.n)
	case in.err != nil:
		return unreachable(r.ctx, in.err)
	}
	return err
}

// wireRow is a row as it is sent.
type wireRow struct {
	Record   *int64        `json:"record"`
	Span     [2]int64      `json:"span"`
	Selected [][]wireValue `json:"selected"`
	wireBytes
}

type wireValue struct {
	Path string   `json:"path"`
	Span [2]int64 `json:"span"`
	wireBytes
}

type wireBytes struct {
	Value  json.RawMessage `json:"value"`
	Text   *string         `json:"text"`
	Base64 *string         `json:"base64"`
}

func (w wireBytes) bytes() ([]byte, error) {
	switch {
	case w.Text != nil:
		return []byte(*w.Text), nil
	case w.Base64 != nil:
		return base64.StdEncoding.DecodeString(*w.Base64)
	}
	return w.Value, nil
}

func (r *rows) row(line []byte) error {
	var in wireRow
	if err := decode(line, &in); err != nil {
		return err
	}
	size, count := r.a.Size(), r.a.Records()
	inside := func(s [2]int64) bool { return s[0] >= 0 && s[0] <= s[1] && s[1] <= size }
	switch {
	case in.Record == nil || *in.Record < 0 || *in.Record >= count || !inside(in.Span):
		return refuse(ErrRow, r.a.ID(), "a row of a record that there is not among %d", count)
	case len(r.q.OrderBy) == 0 && *in.Record <= r.last:
		return refuse(ErrRow, r.a.ID(), "record %d behind record %d", *in.Record, r.last)
	case r.seen[*in.Record]:
		return refuse(ErrRow, r.a.ID(), "record %d twice", *in.Record)
	case r.q.Limit > 0 && r.n >= r.q.Limit:
		return refuse(ErrRow, r.a.ID(), "more than %d rows", r.q.Limit)
	}
	r.last = *in.Record
	if r.seen != nil {
		r.seen[*in.Record] = true
	}
	r.n++
	row := Row{Record: *in.Record, Span: in.Span}
	var err error
	if row.Bytes, err = in.bytes(); err != nil {
		return refuse(ErrProtocol, r.a.ID(), "the bytes of record %d are no base64", row.Record)
	}
	for _, list := range in.Selected {
		values := []Value{}
		for _, v := range list {
			b, err := v.bytes()
			if err != nil || !inside(v.Span) {
				return refuse(ErrProtocol, r.a.ID(), "a value of record %d has no bytes", row.Record)
			}
			values = append(values, Value{v.Path, v.Span, b})
		}
		row.Selected = append(row.Selected, values)
	}
	if !r.q.VerifyRows {
		return r.give(row)
	}
	row.Bytes = bytes.Clone(row.Bytes)
	return r.hold(row)
}

func (r *rows) give(row Row) error {
	if r.emit == nil {
		return nil
	}
	if err := r.emit(row); err != nil {
		return &writeError{err}
	}
	return nil
}

// hold keeps a row until it can be verified with its neighbours.
func (r *rows) hold(row Row) error {
	if n := len(r.held); n > 0 {
		before := r.held[n-1]
		// A row of CSV may hold line ends, so that only one at a time has one place.
		csv := r.a.Manifest.Predicate.Records.Format == selector.FormatCSV
		if csv || row.Record != before.Record+1 || n >= 1024 || r.bytes > 1<<20 {
			if err := r.prove(); err != nil {
				return err
			}
		}
	}
	r.held, r.bytes = append(r.held, row), r.bytes+len(row.Bytes)
	return nil
}

// prove verifies the rows that are held, and gives them on.
func (r *rows) prove() error {
	if len(r.held) == 0 {
		return nil
	}
	first := r.held[0].Record
	part := [2]int64{first, first + int64(len(r.held))}
	var out bytes.Buffer
	if err := r.a.Read(r.ctx, Part{Records: &part}, &out); err != nil {
		return err
	}
	rest := out.Bytes()
	for _, row := range r.held {
		n := int(row.Span[1] - row.Span[0])
		if n >= len(rest) || rest[n] != '\n' || !sameButLines(rest[:n], row.Bytes) {
			return refuse(ErrRow, r.a.ID(), "record %d is another one than the row says", row.Record)
		}
		if r.where != nil && r.where.Eval(rest[:n]) != selector.Matched {
			return refuse(ErrRow, r.a.ID(), "record %d does not match", row.Record)
		}
		row.Bytes, row.Proven = rest[:n], true
		if err := r.give(row); err != nil {
			return err
		}
		rest = rest[n+1:]
	}
	if len(rest) > 0 {
		return refuse(ErrRow, r.a.ID(), "record %d is longer than the row says", part[1]-1)
	}
	r.held, r.bytes = r.held[:0], 0
	return nil
}

// sameButLines compares a record's bytes with those of a line, in which spaces stand
// for line ends between the tokens of a value.
func sameButLines(record, line []byte) bool {
	if len(record) != len(line) {
		return false
	}
	for i, b := range record {
		if b != line[i] && (b != '\n' && b != '\r' || line[i] != ' ') {
			return false
		}
	}
	return true
}

// end takes the last line.
func (r *rows) end(line []byte) (*selector.Answer, error) {
	if err := r.prove(); err != nil {
		return nil, plainError(err)
	}
	var in struct {
		Answer *selector.Answer `json:"answer"`
		Error  *struct {
			Code      string `json:"code"`
			Detail    string `json:"detail"`
			Retryable bool   `json:"retryable"`
			Action    string `json:"action"`
			At        string `json:"at"`
			Status    int    `json:"status"`
		} `json:"error"`
	}
	if err := decode(line, &in); err != nil {
		return nil, err
	}
	if in.Answer == nil {
		return nil, refuse(ErrProtocol, r.a.ID(), "the answer is null")
	}
	if err := r.a.about(in.Answer); err != nil {
		return nil, err
	}
	if in.Answer.Returned != r.n {
		return nil, refuse(ErrRow, r.a.ID(), "%d rows came, and the answer counts %d", r.n, in.Answer.Returned)
	}
	if e := in.Error; e != nil {
		if !isCode(e.Code) {
			return nil, refuse(ErrProtocol, r.a.ID(), "an error without a code")
		}
		return in.Answer, &Error{
			Code: e.Code, Message: manifest.Printable(e.Detail), Retryable: e.Retryable, Action: manifest.Printable(e.Action),
			At: manifest.Printable(e.At), Status: e.Status, offset: -1,
		}
	}
	return in.Answer, nil
}

// about holds what an answer says of the artifact to the manifest.
func (a *Artifact) about(ans *selector.Answer) error {
	m, ref := a.Manifest, a.Ref
	if ans.ArtifactID != a.ID() {
		return refuse(ErrArtifact, a.ID(), "the answer is about %s", manifest.Printable(ans.ArtifactID))
	}
	capture := ans.Completeness
	signed := bundle.Capture(m)
	same := func(x, y any) bool {
		p, errP := json.Marshal(x)
		q, errQ := json.Marshal(y)
		return errP == nil && errQ == nil && bytes.Equal(p, q)
	}
	for at, ok := range map[string]bool{
		"/manifest_id":                     ans.ManifestID == m.ManifestID,
		"/source_version":                  same(ans.SourceVersion, ref.SourceVersion),
		"/capture_completeness/status":     capture.Status == signed.Status,
		"/capture_completeness/coverage":   same(capture.Coverage, signed.Coverage),
		"/capture_completeness/records":    same(capture.Records, signed.Records),
		"/capture_completeness/omissions":  same(capture.Omissions, signed.Omissions) || len(capture.Omissions)+len(signed.Omissions) == 0,
		"/capture_completeness/redactions": same(capture.Redactions, signed.Redactions) || len(capture.Redactions)+len(signed.Redactions) == 0,
		"/records_total":                   ans.RecordsTotal == a.Records() || m.Predicate.Records == nil,
	} {
		if !ok {
			return refuse(ErrAltered, at, "the answer says another thing there than was signed")
		}
	}
	return nil
}

// A ProvenAnswer is what a proof shows of a question.
type ProvenAnswer struct {
	bundle.Answer
	// Result is the verification, with the facts that rest on somebody's word: that
	// the index is honest is the fact index.
	Result *bundle.Result
}

// QueryProven asks for the answer to a question and the proof of it over a signed index
// of the artifact: that each row is a record that matches, that none is missing, and
// their order. Where, OrderBy, Limit and Count of the question are asked, and nothing
// else of it may be set. emit (nil: nobody) gets rows when all was verified, and proof
// (nil: nothing) the bundle, which verifies offline.
//
// Where no index proves such an answer the server says selector_invalid.
func (a *Artifact) QueryProven(ctx context.Context, q Question, emit func(Row) error, proof io.Writer) (*ProvenAnswer, error) {
	plain := Question{Where: q.Where, OrderBy: q.OrderBy, Limit: q.Limit, Count: q.Count, VerifyRows: q.VerifyRows}
	if !slices.Equal(q.Select, plain.Select) || q.Cursor != "" || q.MaxRecords != 0 || q.MaxBytes != 0 || q.ReturnBytes != 0 {
		return nil, errors.New("client: a proof is of whole records and of all that match, or the first of them")
	}
	plain.VerifyRows = false
	o := bundle.Options{ExpectQuery: &bundle.Question{Where: q.Where, Order: q.OrderBy, Limit: q.Limit, Count: q.Count}}
	s, res, err := a.proof(ctx, struct {
		Query Question `json:"query"`
	}{plain}, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if res.Answer == nil || res.Answer.Asked.Count != q.Count {
		return nil, refuse(ErrRange, a.ID(), "the proof is of another question")
	}
	if proof != nil {
		if _, err := io.Copy(proof, io.NewSectionReader(s, 0, s.n)); err != nil {
			return nil, err
		}
	}
	if emit != nil && !q.Count {
		o.Row = func(r selector.Row) error {
			return emit(Row{Record: r.Record, Span: [2]int64{r.Span.Start, r.Span.End}, Bytes: r.Bytes, Proven: true})
		}
		if err := a.again(s, o); err != nil {
			return nil, err
		}
	}
	return &ProvenAnswer{*res.Answer, res}, nil
}
