package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// A ClaimIndex names the index that proves an answer.
type ClaimIndex struct {
	Path string `json:"path"` // as the signed statement spells it
	Root string `json:"root"`
	Size int64  `json:"size"` // bytes
}

// pageLeaves is how many leaves a page of an index has.
const pageLeaves = selector.IndexPageSize / merkle.LeafSize

// An Answer is what a query claim was found to prove.
type Answer struct {
	selector.Proven
	Asked selector.Asked
	Index manifest.Index
	// Pages are the pages of the index that the bundle shows, from 0: keys and the
	// numbers of the records that have them. The header's counts are shown, too.
	Pages []merkle.Range
	// Conclusion is the strongest sentence that the proof and the manifest justify.
	Conclusion string
}

// A Question is what a caller expects a query claim to answer. A condition, a
// limit, an order or a count that is not given is one that the claim must not have.
type Question struct {
	Where string   // see [selector.ParseWhere]
	Order []string // see [selector.ParseOrder]
	Limit int64    // rows; 0: all
	Count bool     // only how many records match, and none of them
}

// query returns the question as a query of records of a manifest.
func (q Question) query(m *manifest.Manifest) (*selector.Query, error) {
	out := &selector.Query{}
	if q.Where != "" {
		where, err := selector.ParseWhere(q.Where)
		if err != nil {
			return nil, err
		}
		out.Where = where
	}
	for _, text := range q.Order {
		o, err := selector.ParseOrder(text)
		if err != nil {
			return nil, err
		}
		out.Order = append(out.Order, o)
	}
	return hide(out, m), nil
}

// redactions are the pointers of the values that the producer removed or masked.
func redactions(m *manifest.Manifest) (paths []string) {
	for _, r := range m.Predicate.ArtifactRef.Completeness.Redactions {
		paths = append(paths, r.Path)
	}
	return paths
}

// hide gives a query the artifact's redactions.
func hide(q *selector.Query, m *manifest.Manifest) *selector.Query {
	paths := redactions(m)
	if q.Where != nil {
		q.Where = q.Where.WithRedactions(paths)
	}
	for i, o := range q.Order {
		q.Order[i] = o.WithRedactions(paths)
	}
	return q
}

// queryCheck is one query claim being checked.
type queryCheck struct {
	*checker
	at    string
	claim Claim
	root  merkle.Root // of the index
	index manifest.Index
	want  selector.IndexWant
	asked selector.Asked

	header, pages, tail, mapped, records *io.SectionReader
	pageRuns                             []merkle.Range
	tailRun                              merkle.Range
	mapSet                               merkle.LeafSet
	mapRoot                              merkle.Root

	word manifest.Fact // whose word the index is
}

func (c *checker) checkQuery(claim Claim, at string, body *io.SectionReader) (*io.SectionReader, error) {
	q := &queryCheck{checker: c, at: at, claim: claim}
	if err := q.open(); err != nil {
		return nil, err
	}
	rest, err := q.cut(body)
	if err != nil {
		return nil, err
	}
	var index manifest.Fact
	if q.rebuild != nil {
		if index, err = q.rebuiltFact(q.index); err != nil {
			return rest, err
		}
	}
	q.indexFact(index)
	found, err := q.run()
	if found == nil || err != nil {
		return rest, err
	}
	return rest, q.proven(found)
}

// open holds the claim's members to the manifest.
func (q *queryCheck) open() error {
	c, rec := q.claim, q.m.Predicate.Records
	switch {
	case c.Query == nil || c.Index == nil || c.Ranges != nil || c.Range != nil || c.Size != nil || c.Pointer != nil || c.Sections.Proof != nil || c.Sections.Document != nil:
		return malformed(q.at, "a query claim has a query, an index and sections, and perhaps a limit, a position or a count")
	case rec == nil || rec.Map == nil:
		return malformed(q.at, "the manifest names no record map")
	case c.Limit != nil && *c.Limit < 1, c.Shown != nil && *c.Shown < 1, c.Count != nil && !*c.Count:
		return malformed(q.at, "a limit, a position or a count that says nothing")
	}
	text, err := manifest.Canonical(c.Query)
	if err != nil {
		return malformed(q.at+"/query", "%v", err)
	}
	query, err := selector.ParseNormalised(text, Layout(rec))
	if err != nil {
		return malformed(q.at+"/query", "%v", err)
	}
	q.claim.text = askedText(query)
	q.res.Claim.text = q.claim.text
	q.asked = selector.Asked{Query: hide(query, q.m), Count: c.Count != nil}
	if c.Limit != nil {
		q.asked.Limit = *c.Limit
	}
	if err := q.findIndex(); err != nil {
		return err
	}
	if q.root, err = merkle.ParseRoot(q.index.Root); err == nil {
		q.mapRoot, err = merkle.ParseRoot(rec.Map.Root)
	}
	if err != nil {
		return malformed("header/manifest", "%v", err)
	}
	q.want, err = IndexWant(q.m, q.index)
	if err != nil {
		return malformed(q.at+"/index", "%v", err)
	}
	return nil
}

// findIndex takes the index that the claim names from the manifest, or from the
// statement beside it.
func (q *queryCheck) findIndex() error {
	same := func(x manifest.Index) bool {
		return x.Path == q.claim.Index.Path && x.Root == q.claim.Index.Root && x.Size == q.claim.Index.Size
	}
	q.word = q.checker.word
	if i := slices.IndexFunc(q.m.Predicate.Indexes, same); i >= 0 {
		if q.added != nil {
			return malformed("header/index", "the manifest has the index, and needs no other statement of it")
		}
		q.index = q.m.Predicate.Indexes[i]
		return nil
	}
	if q.added == nil {
		return malformed(q.at+"/index", "no statement in the bundle names this index")
	}
	if err := q.takeAdded(); err != nil {
		return err
	}
	if !same(q.index) {
		return malformed("header/index", "the statement is about another index than the claim")
	}
	return nil
}

// takeAdded takes the index from the statement beside the manifest, and who vouches
// for it.
func (q *queryCheck) takeAdded() error {
	payload, err := q.added.PayloadBytes()
	if err != nil {
		return malformed("header/index", "%v", err)
	}
	doc, err := manifest.ParseStatement(payload, manifest.PredicateIndex)
	if err != nil {
		return malformed("header/index", "%v", err)
	}
	q.index = doc.Body.(*manifest.IndexAdded).Index
	if err := doc.Body.About().Fits(q.m); err != nil {
		return malformed("header/index", "%v", err)
	}
	_, keys, err := manifest.VerifyStatement(*q.added, manifest.PredicateIndex, q.policy, q.now)
	q.word = manifest.Fact{State: manifest.Unverifiable}
	switch {
	case errors.Is(err, manifest.ErrSignature):
		q.word.State, q.word.Reason = manifest.Mismatch, "the statement of the index: "+reason(err)
	case errors.Is(err, manifest.ErrNoPolicy):
		q.word.Reason = manifest.NoPolicy
	case err != nil:
		q.word.Reason = "the statement of the index: " + reason(err)
	default:
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i] = k.Name
		}
		q.word = manifest.Fact{State: manifest.Attested, By: strings.Join(names, "+"), Role: doc.Kind.Role}
	}
	return nil
}

// IndexWant is what a statement says of an index of the artifact, as a verifier
// holds it to an index's bytes. It fails where the spec of the statement is not the
// one that follows from the manifest.
func IndexWant(m *manifest.Manifest, x manifest.Index) (selector.IndexWant, error) {
	var none selector.IndexWant
	rec := m.Predicate.Records
	if rec == nil || rec.Map == nil {
		return none, errors.New("the manifest names no record map")
	}
	path, err := selector.ParseKeyPath(x.Path)
	if err != nil {
		return none, err
	}
	spec, err := manifest.Canonical(x.Spec)
	if err != nil {
		return none, err
	}
	follows, err := selector.IndexSpec(Layout(rec), path, redactions(m))
	if err != nil {
		return none, err
	}
	digest := selector.SpecDigest(follows)
	if !bytes.Equal(spec, follows) || merkle.Root(digest).String() != x.SpecDigest {
		return none, fmt.Errorf("the index over %s was made by other rules than the manifest's records have", manifest.IndexOver(x.Path))
	}
	return selector.IndexWant{
		Path: path, Layout: Layout(rec), Redactions: redactions(m), Spec: digest, Size: x.Size,
		Source:  selector.MapWant{Root: m.Root, Size: m.Size, Layout: Layout(rec), Records: rec.Count, MapSize: rec.Map.Size},
		Entries: x.Entries, Distinct: x.Distinct, Undetermined: x.Undetermined,
	}, nil
}

// cut takes the claim's sections off the front of the file's rest.
func (q *queryCheck) cut(body *io.SectionReader) (rest *io.SectionReader, err error) {
	rest = body
	s := q.claim.Sections
	for _, part := range []struct {
		name string
		sec  *Section
		to   **io.SectionReader
	}{
		{"header", s.Header, &q.header}, {"pages", s.Pages, &q.pages}, {"undetermined", s.Undetermined, &q.tail}, {"map", s.Map, &q.mapped}, {"records", s.Records, &q.records},
	} {
		if part.sec == nil {
			continue
		}
		if *part.to, rest, err = cut(rest, part.sec, q.at+"/"+part.name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Header == nil || !slices.Equal(s.Header.Leaves, [][2]int64{{0, 1}}):
		return nil, malformed(q.at+"/header", "it is the first leaf of the index")
	case (s.Map == nil) != (s.Records == nil):
		return nil, malformed(q.at, "the map and the records come together")
	case s.Records != nil && s.Records.Leaves != nil:
		return nil, malformed(q.at+"/records", "their leaves follow from the record map")
	}
	if q.pageRuns, err = pageRuns(s.Pages, q.at+"/pages"); err != nil {
		return nil, err
	}
	tail, err := pageRuns(s.Undetermined, q.at+"/undetermined")
	if err != nil {
		return nil, err
	}
	if len(tail) > 1 {
		return nil, malformed(q.at+"/undetermined", "it is one run of pages")
	}
	if len(tail) == 1 {
		q.tailRun = tail[0]
	}
	if s.Map != nil {
		if l := s.Map.Leaves; len(l) == 0 || l[0][0] != 0 {
			return nil, malformed(q.at+"/map/leaves", "leaf 0, the header, is missing")
		}
		if q.mapSet, err = merkle.LeafRanges(q.want.Source.MapSize, unpair(s.Map.Leaves)); err != nil {
			return nil, malformed(q.at+"/map/leaves", "%v", err)
		}
		if want := merkle.BodySize(q.mapSet); q.mapped.Size() != want {
			return nil, malformed(q.at+"/map", "a section of %d bytes, its leaves need %d", q.mapped.Size(), want)
		}
	}
	return rest, nil
}

// pageRuns reads the leaves of whole pages of an index as numbers of pages.
func pageRuns(s *Section, at string) ([]merkle.Range, error) {
	if s == nil {
		return nil, nil
	}
	var runs []merkle.Range
	for _, l := range s.Leaves {
		if l[0] < pageLeaves || l[0]%pageLeaves != 0 || l[1]%pageLeaves != 0 || l[1] <= l[0] {
			return nil, malformed(at+"/leaves", "%d:%d are not whole pages", l[0], l[1])
		}
		runs = append(runs, merkle.Range{Start: l[0]/pageLeaves - 1, End: l[1]/pageLeaves - 1})
	}
	if len(runs) == 0 {
		return nil, malformed(at+"/leaves", "they are missing")
	}
	return runs, nil
}

// leavesOfPages is the reverse of pageRuns.
func leavesOfPages(runs []merkle.Range) []merkle.Range {
	out := make([]merkle.Range, len(runs))
	for i, r := range runs {
		out[i] = merkle.Range{Start: (r.Start + 1) * pageLeaves, End: (r.End + 1) * pageLeaves}
	}
	return out
}

// verified reads the bytes that a section proves, one leaf after another.
type verified struct {
	br   *merkle.BodyReader
	left []byte
	err  error
}

func (v *verified) Read(p []byte) (int, error) {
	for len(v.left) == 0 && v.err == nil {
		_, v.left, v.err = v.br.Next()
	}
	if len(v.left) == 0 {
		return 0, v.err
	}
	n := copy(p, v.left)
	v.left = v.left[n:]
	return n, nil
}

// ofIndex opens a section over the index.
func (q *queryCheck) ofIndex(sec *io.SectionReader, leaves [][2]int64, name string) (func() io.Reader, error) {
	set, err := merkle.LeafRanges(q.index.Size, unpair(leaves))
	if err != nil {
		return nil, malformed(q.at+"/"+name+"/leaves", "%v", err)
	}
	if want := merkle.BodySize(set); sec.Size() != want {
		return nil, malformed(q.at+"/"+name, "a section of %d bytes, its leaves need %d", sec.Size(), want)
	}
	return func() io.Reader {
		return &verified{br: merkle.NewBodyReader(io.NewSectionReader(sec, 0, sec.Size()), q.root, set)}
	}, nil
}

// run checks the sections one after another. It returns nil where a fact says
// already what does not hold.
func (q *queryCheck) run() (*selector.Proven, error) {
	shown := int64(0)
	if q.claim.Shown != nil {
		shown = *q.claim.Shown
	}
	c, err := selector.NewCompleteness(q.asked, q.want, shown)
	if err != nil {
		return nil, q.refuse(err, "query")
	}
	open, err := q.ofIndex(q.header, q.claim.Sections.Header.Leaves, "header")
	if err != nil {
		return nil, err
	}
	leaf := make([]byte, merkle.LeafSize)
	head := open()
	if _, err = io.ReadFull(head, leaf); err == nil {
		err = ended(head)
	}
	if err == nil {
		err = c.Header(leaf)
	}
	if err != nil {
		return nil, q.refuse(err, "header")
	}
	open = func() io.Reader { return bytes.NewReader(nil) }
	if s := q.claim.Sections.Pages; s != nil {
		if open, err = q.ofIndex(q.pages, s.Leaves, "pages"); err != nil {
			return nil, err
		}
	}
	if err := c.Pages(q.pageRuns, open); err != nil {
		return nil, q.refuse(err, "pages")
	}
	open = func() io.Reader { return bytes.NewReader(nil) }
	if s := q.claim.Sections.Undetermined; s != nil {
		if open, err = q.ofIndex(q.tail, s.Leaves, "undetermined"); err != nil {
			return nil, err
		}
	}
	if err := c.Undetermined(q.tailRun, open()); err != nil {
		return nil, q.refuse(err, "undetermined")
	}
	if err := q.evaluate(c); err != nil {
		return nil, err
	}
	if q.failed {
		return nil, nil
	}
	found, err := c.Finish(q.emit)
	if err != nil {
		return nil, q.refuse(err, "records")
	}
	return found, nil
}

// ended reports whether a reader is at its end, where a body is checked to its
// last byte.
func ended(r io.Reader) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return merkle.ErrMalformed
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	default:
		return err
	}
}

// emit writes a row.
func (q *queryCheck) emit(r selector.Row) error {
	if q.row != nil {
		if err := q.row(r); err != nil {
			return &writeError{err}
		}
	}
	if q.out == nil {
		return nil
	}
	if _, err := q.out.Write(r.Bytes); err != nil {
		return &writeError{err}
	}
	if _, err := q.out.Write([]byte{'\n'}); err != nil {
		return &writeError{err}
	}
	return nil
}

// writeError is an error of Options.Out or Options.Row, which is not about the bundle.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// refuse turns a proof that does not hold into a MISMATCH of the fact that it
// speaks of, or into ErrMalformed, and passes other errors on.
func (q *queryCheck) refuse(err error, section string) error {
	mismatch := func(fact, format string, args ...any) error {
		q.failed = true
		q.v.Set(manifest.Fact{Name: fact, State: manifest.Mismatch, Reason: fmt.Sprintf(format, args...)})
		return nil
	}
	at := q.at + "/" + section
	fact := map[string]string{"map": manifest.FactRecordNumbers, "records": manifest.FactBytes}[section]
	if fact == "" {
		fact = manifest.FactIndex
	}
	if w := new(writeError); errors.As(err, &w) {
		return w.err
	}
	switch {
	case errors.Is(err, merkle.ErrMismatch):
		return mismatch(fact, "%s: %v", at, err)
	case errors.Is(err, selector.ErrIndex): // its bytes are those that were signed
		return mismatch(manifest.FactIndex, "%s: what was signed is no index: %v", at, err)
	case errors.Is(err, selector.ErrProof), errors.Is(err, selector.ErrUnprovable):
		return mismatch(manifest.FactAnswer, "%s: %v", at, detail(err))
	case errors.Is(err, selector.ErrLimit):
		q.failed = true
		q.v.Set(manifest.Fact{Name: manifest.FactAnswer, State: manifest.Unverifiable, Reason: detail(err)})
		return nil
	case errors.Is(err, selector.ErrMap), errors.Is(err, selector.ErrSelector), errors.Is(err, merkle.ErrMalformed), errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{At: at, Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	return err
}

// detail is a selector's error without the operation before it.
func detail(err error) string {
	if e, ok := errors.AsType[*selector.Error](err); ok && e.Detail != "" {
		return e.Detail
	}
	return err.Error()
}

// spans yields the places of the records that are shown, as the map's section has
// them.
func (q *queryCheck) spans(c *selector.Completeness) iter.Seq2[selector.PlacedSpan, error] {
	return func(yield func(selector.PlacedSpan, error) bool) {
		pages := q.mapSet.Ranges()
		if pages[0].Start++; pages[0].Start == pages[0].End {
			pages = pages[1:]
		}
		r := &verified{br: merkle.NewBodyReader(io.NewSectionReader(q.mapped, 0, q.mapped.Size()), q.mapRoot, q.mapSet)}
		header := make([]byte, merkle.LeafSize)
		if _, err := io.ReadFull(r, header); err != nil {
			yield(selector.PlacedSpan{}, err)
			return
		}
		for s, err := range selector.MapSpansOf(header, &placing{r: r, q: q}, pages, c.Shown(), q.want.Source) {
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// placing notes which records the pages of the map place, as they pass.
type placing struct {
	r io.Reader
	q *queryCheck
}

func (p *placing) Read(b []byte) (int, error) {
	n, err := io.ReadFull(p.r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	if n == merkle.LeafSize {
		if r, bad := selector.PageRecords(b); bad == nil {
			if p.q.res.Placed.End == 0 {
				p.q.res.Placed.Start = r.Start
			}
			p.q.res.Placed.End = max(p.q.res.Placed.End, r.End)
		}
	}
	return n, err
}

// evaluate verifies the records that are shown and hands them to c.
func (q *queryCheck) evaluate(c *selector.Completeness) error {
	some := false
	for range c.Shown() {
		some = true
		break
	}
	if some != (q.records != nil) {
		return q.refuse(fmt.Errorf("%w: records are shown: %v, and must be: %v", selector.ErrProof, q.records != nil, some), "records")
	}
	if !some {
		return nil
	}
	var ranges []merkle.Range
	for s, err := range q.spans(c) {
		if err != nil {
			return q.refuse(err, "map")
		}
		if ranges = appendSpan(ranges, s.Span); len(ranges) > maxRanges {
			return malformed(q.at+"/records", "over %d separate ranges", maxRanges)
		}
	}
	set, err := merkle.Leaves(q.m.Size, ranges...)
	if err != nil {
		return malformed(q.at+"/records", "%v", err)
	}
	if want := merkle.BodySize(set); q.records.Size() != want {
		return malformed(q.at+"/records", "a section of %d bytes, the records need %d", q.records.Size(), want)
	}
	next, stop := iter.Pull2(q.spans(c))
	defer stop()
	cutter := recordCutter{next: next, most: q.want.Layout.Limits.Record + 1, record: func(s selector.PlacedSpan, b []byte) error { return c.Record(s.Record, s.Span, b, q.emit) }}
	if err := cutter.advance(); err != nil {
		return q.refuse(err, "map")
	}
	if err := cutter.all(merkle.NewBodyReader(q.records, q.m.Root, set)); err != nil {
		return q.refuse(err, "records")
	}
	q.proved(set)
	return nil
}

// recordCutter cuts records out of the bytes it is given; spans and calls ascend.
type recordCutter struct {
	next   func() (selector.PlacedSpan, error, bool)
	record func(selector.PlacedSpan, []byte) error
	span   selector.PlacedSpan
	more   bool
	part   []byte // the beginning of the present record
	most   int64  // bytes of it that are kept: with as many it is beyond the limits, whatever follows
}

// all cuts the records out of a body.
func (c *recordCutter) all(br *merkle.BodyReader) error {
	for {
		off, p, err := br.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return c.close()
		}
		if err == nil {
			err = c.take(off, p)
		}
		if err != nil {
			return err
		}
	}
}

func (c *recordCutter) advance() error {
	var err error
	c.span, err, c.more = c.next()
	c.part = c.part[:0]
	return err
}

func (c *recordCutter) take(off int64, p []byte) error {
	for end := off + int64(len(p)); c.more && c.span.Start < end; {
		a, b := max(c.span.Start, off), min(c.span.End, end)
		piece := p[a-off : max(a, b)-off]
		if c.span.End > end {
			c.keep(piece)
			return nil
		}
		if len(c.part) > 0 {
			c.keep(piece)
			piece = c.part
		}
		if err := c.record(c.span, piece); err != nil {
			return err
		}
		if err := c.advance(); err != nil {
			return err
		}
	}
	return nil
}

func (c *recordCutter) keep(piece []byte) {
	c.part = append(c.part, piece[:min(int64(len(piece)), max(0, c.most-int64(len(c.part))))]...)
}

// close takes empty records that stand at the very end of the bytes.
func (c *recordCutter) close() error {
	for c.more {
		if err := c.record(c.span, c.part); err != nil {
			return err
		}
		if err := c.advance(); err != nil {
			return err
		}
	}
	return nil
}
