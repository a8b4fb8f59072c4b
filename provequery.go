package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"leafproof/cas"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// A ProvenAnswer is what a bundle proves that [Store.ProveQuery] wrote. The answer's
// basis is the index, and its assurance proven; examined are the records that the
// bundle shows. Of one that its limit cut, matched is what the proof shows.
type ProvenAnswer struct {
	selector.Answer
	Claim bundle.Claim
	Found selector.Proven
	Index string // the path of the index that proves it
}

// ProveQuery writes a bundle that proves the answer to a query to anybody who holds
// the store's policy: that these records match, and that no other does. An index
// proves it, and the bundle shows more than the answer: the pages of the index
// around the keys that were asked for, the pages of the record map with the
// records, and the leaves of 1 KiB around them. What it says is said of every
// record, so Authority is asked about all of them.
//
// The error has [CodeSelectorInvalid] where no index proves such an answer: of a
// substring, a pattern, or a field without an index. [Store.Query] answers those
// by a scan, and its receipt has the store's word for it.
func (s *Store) ProveQuery(ctx context.Context, who Caller, id string, q Query, w io.Writer) (*ProvenAnswer, error) {
	a, err := s.find(ctx, who, id, gate.Prove)
	if err != nil {
		return nil, err
	}
	// Before the records are looked at: why there is no proof says something of them.
	if rec := a.m.Predicate.Records; rec != nil {
		a.request.Placed = merkle.Range{Start: 0, End: rec.Count}
	}
	if _, err := a.permit(ctx, noByte...); err != nil {
		return nil, err
	}
	p, err := a.proveQuery(ctx, q)
	if err != nil {
		return nil, a.tell(ctx, err)
	}
	defer p.close()
	ranges := p.b.Leaves().Bytes()
	if len(ranges) == 0 {
		ranges = noByte
	}
	a.request.Index, a.request.Pages = p.index.Facts.Path, p.b.Pages
	permit, err := a.permit(ctx, ranges...)
	if err != nil {
		return nil, err
	}
	if err := p.receipt(ctx, q, permit); err != nil {
		return nil, wireError(id, err)
	}
	if err := a.commit(ctx, p.b.Bundle); err != nil {
		return nil, wireError(id, err)
	}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, w), permit, a.request)
	if err != nil {
		return nil, wireError(id, err)
	}
	if err := a.disclosed(ctx, permit, exported(a.m.Size, a.request)); err != nil {
		return nil, err
	}
	if err := a.exported(ctx, "a bundle of "+p.b.Claim().String()); err != nil {
		return nil, wireError(id, err)
	}
	if _, err := p.b.WriteTo(gated); err != nil {
		return nil, wireError(id, err)
	}
	answer := p.answer()
	answer.Assurance, answer.Conclusion = selector.AssuranceProven, p.b.Conclusion()
	return &ProvenAnswer{Answer: *answer, Claim: p.b.Claim(), Found: p.b.Found, Index: p.index.Facts.Path}, nil
}

// queryProof is a bundle of an answer on its way.
type queryProof struct {
	a     *artifact
	asked *selector.Query
	b     *bundle.QueryBundle
	index bundle.IndexSource
	files []*cas.Reader
	rooms []*spillFile
}

func (p *queryProof) close() {
	for _, f := range p.files {
		f.Close()
	}
	for _, r := range p.rooms {
		r.Close()
	}
}

// proveQuery makes the bundle, over the index with the fewest candidates.
func (a *artifact) proveQuery(ctx context.Context, q Query) (_ *queryProof, err error) {
	if q.Cursor != "" || len(q.Select) > 0 || q.MaxRecords != 0 || q.MaxBytes != 0 || q.ReturnBytes != 0 {
		return nil, fail(CodeSelectorInvalid, FixCall, "prove", "a proof is of whole records and of all that match, or the first of them: no cursor, selection or budget goes with it")
	}
	answer, task, err := a.ask(q)
	if err != nil {
		return nil, err
	}
	p := &queryProof{a: a, asked: answer.Query}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	asked := selector.Asked{Query: &selector.Query{Where: task.Where, Order: task.Order}, Limit: q.Limit, Count: q.Count}
	if err := p.choose(ctx, asked); err != nil {
		return nil, err
	}
	data, err := a.data(ctx)
	if err != nil {
		return nil, err
	}
	mapped, _, _, err := a.records(ctx)
	if err != nil {
		data.Close()
		return nil, err
	}
	p.files = append(p.files, data, mapped)
	src := bundle.Source{
		Manifest: a.m, Envelope: a.signed.Manifest, SSH: a.signed.SSH,
		Data: data, Tree: data.Tree(), Map: mapped, MapTree: mapped.Tree(),
		Room: func() (selector.Spill, error) {
			p.rooms = append(p.rooms, new(spillFile))
			return p.rooms[len(p.rooms)-1], nil
		},
	}
	if p.b, err = bundle.Query(ctx, src, p.index, asked); err != nil {
		return nil, err
	}
	return p, nil
}

// choose opens the index that proves the answer with the fewest candidates.
func (p *queryProof) choose(ctx context.Context, asked selector.Asked) error {
	sources, err := p.a.indexSources(ctx)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fail(CodeSelectorInvalid, FixCall, "prove", "%s has no index, and without one no answer can be proven: `leafproof index add` makes one; a receipt has the store's word for a scan", p.a.row.ArtifactID)
	}
	var why error
	best := int64(math.MaxInt64)
	for _, x := range sources {
		cost, err := p.cost(ctx, asked, x)
		if err != nil {
			why = errors.Join(why, fmt.Errorf("%s: %w", x.Facts.Path, err))
			continue
		}
		if cost < best {
			best, p.index = cost, x.IndexSource
		}
	}
	if best == math.MaxInt64 {
		if several(asked.Query.Where, sources) {
			return fail(CodeSelectorInvalid, FixCall, "prove", "the parts of the or are found by several indexes, and a bundle has one: prove each part by itself; their rows together are the answer")
		}
		return why
	}
	_, file, err := p.a.openIndex(ctx, p.index.Facts)
	if err != nil {
		return err
	}
	p.files = append(p.files, file)
	p.index.Data, p.index.Tree = file, file.Tree()
	return nil
}

// several reports whether a condition is covered by several indexes, and by none
// alone.
func several(w *selector.Where, sources []indexSource) bool {
	var paths []*selector.KeyPath
	for _, x := range sources {
		if path, err := selector.ParseKeyPath(x.Facts.Path); err == nil {
			paths = append(paths, path)
		}
	}
	return w != nil && len(w.Access(paths, func(_ int, ranges []selector.KeyRange) int64 { return int64(len(ranges)) })) > 1
}

// cost is how many entries of an index stand where the answer may lie.
func (p *queryProof) cost(ctx context.Context, asked selector.Asked, x indexSource) (int64, error) {
	want, err := bundle.IndexWant(p.a.m, x.Facts)
	if err != nil {
		return 0, err
	}
	if _, err := selector.NewCompleteness(asked, want, 0); err != nil {
		return 0, err
	}
	index, file, err := p.a.openIndex(ctx, x.Facts)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n := index.Entries() - index.Tail()
	for _, r := range want.Path.Plan(asked.Query.Where).Ranges {
		from, err := index.Rank(ctx, r.From)
		if err != nil {
			return 0, err
		}
		to, err := index.Rank(ctx, r.To)
		if err != nil {
			return 0, err
		}
		n += to - from
	}
	if asked.Limit > 0 && want.Path.Orders(asked.Query.Order) {
		n = min(n, asked.Limit) // the first rows stand together
	}
	return n, nil
}

// indexSource is an index that a statement of the store names.
type indexSource struct{ bundle.IndexSource }

// indexSources lists the indexes of the artifact; their files are not open.
func (a *artifact) indexSources(ctx context.Context) ([]indexSource, error) {
	list, err := a.indexes(ctx)
	var out []indexSource
	for _, x := range list {
		source := bundle.IndexSource{Facts: x.Index}
		if x.Statement != nil {
			source.Added = &x.Statement.Envelope
		}
		out = append(out, indexSource{source})
	}
	return out, err
}

// answer states what the bundle shows, but for who vouches for it.
func (p *queryProof) answer() *selector.Answer {
	answer, found := p.a.answer(), p.b.Found
	answer.Query = p.asked
	answer.Selector, answer.QID = p.asked.Normalised(p.a.layout()), p.asked.QID(p.a.layout())
	answer.Order = selector.OrderText(p.asked.Order)
	scan := selector.Scan{
		Position: selector.Position{Examined: found.Shown, Bytes: p.b.Bytes, Matched: found.Matched, Undecidable: found.Undecidable},
		Stop:     selector.StopComplete, More: found.More, Returned: found.Returned,
		Indexed: true, Indexes: []string{p.index.Facts.Path}, Counted: !found.Cut,
	}
	if found.More != selector.MoreNo {
		scan.Stop = selector.StopPageLimit
	}
	answer.Fill(scan)
	return answer
}

// receipt puts a receipt into the bundle, where one is asked for.
func (p *queryProof) receipt(ctx context.Context, q Query, permit gate.Permit) error {
	rec, err := p.a.recorder(ctx, q.Receipt)
	if rec == nil || err != nil {
		return err
	}
	if err := p.b.Rows(ctx, func(r selector.Row) error {
		if _, err := rec.digest.Write(r.Bytes); err != nil {
			return err
		}
		_, err := rec.digest.Write(newline)
		return err
	}); err != nil {
		return err
	}
	rec.show(p.b.Leaves().Bytes()...)
	about := asked{where: q.Where, limit: q.Limit, placed: p.a.request.Placed, proven: true}
	about.index = &manifest.DisclosedIndex{Path: p.index.Facts.Path, Pages: pageList(p.b.Pages)}
	if err := rec.sign(ctx, permit, p.answer(), about); err != nil {
		return err
	}
	return p.b.AddReceipt(q.Receipt.Envelope)
}

// maxPageRuns bounds the runs of pages that are listed one by one.
const maxPageRuns = 64

// pageList is what is recorded of pages of an index.
func pageList(runs []merkle.Range) [][2]int64 {
	if n := len(runs); n > maxPageRuns {
		runs = []merkle.Range{{Start: runs[0].Start, End: runs[n-1].End}}
	}
	var out [][2]int64
	for _, r := range runs {
		out = append(out, [2]int64{r.Start, r.End})
	}
	return out
}
