package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// An IndexSource is an index of the artifact and the statement that names it.
type IndexSource struct {
	Facts manifest.Index
	Data  io.ReaderAt
	Tree  *merkle.Tree
	// Added is the statement of an index that was added after the manifest was
	// signed; nil for one that stands in it.
	Added *manifest.Envelope
}

// A QueryBundle is the bundle of an answer, and the answer.
type QueryBundle struct {
	*Bundle
	Found selector.Proven
	// Bytes are those of the records that the bundle shows, of which Found has the number.
	Bytes int64
	// Pages are the pages of the index that the bundle shows.
	Pages []merkle.Range

	manifest *manifest.Manifest
	prover   selector.Prover
	begun    func() (*selector.Completeness, error)
}

// Query returns the bundle that proves the answer to a question with an index. The
// query must have the artifact's redactions. The error wraps
// [selector.ErrUnprovable] where no proof over this index shows the answer.
func Query(ctx context.Context, src Source, index IndexSource, asked selector.Asked) (*QueryBundle, error) {
	if src.Map == nil {
		return nil, fmt.Errorf("%w: the artifact has no records", ErrClaim)
	}
	want, err := IndexWant(src.Manifest, index.Facts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClaim, err)
	}
	m, err := selector.OpenMap(src.Map, src.MapTree.Size(), src.Tree.Root(), src.Tree.Size(), want.Layout)
	if err != nil {
		return nil, err
	}
	q := &QueryBundle{manifest: src.Manifest, prover: selector.Prover{Asked: asked, Want: want, Index: index.Data, Map: m, Source: src.Data}}
	outline, err := q.prover.Outline(ctx)
	if err != nil {
		return nil, err
	}
	_, mapLeaves, err := q.prover.Begin(outline)
	if err != nil {
		return nil, err
	}
	q.begun = func() (*selector.Completeness, error) {
		c, _, err := q.prover.Begin(outline)
		return c, err
	}
	if q.Pages = outline.Pages; outline.Tail.End > outline.Tail.Start {
		q.Pages = append(q.Pages[:len(q.Pages):len(q.Pages)], outline.Tail)
	}
	if err := q.build(ctx, src, index, outline, mapLeaves); err != nil {
		return nil, err
	}
	found, err := q.finish(ctx, nil)
	if err != nil {
		return nil, err
	}
	q.Found = *found
	return q, nil
}

// finish decides the records that are shown, and gives the rows to emit: where their
// section was made, by what it has.
func (q *QueryBundle) finish(ctx context.Context, emit func(selector.Row) error) (*selector.Proven, error) {
	c, err := q.begun()
	if err != nil {
		return nil, err
	}
	s := q.sections[len(q.sections)-1]
	if q.claim.Sections.Records == nil || s.made == nil {
		return q.prover.Finish(ctx, c, emit)
	}
	next, stop := iter.Pull2(q.prover.Spans(ctx, c))
	defer stop()
	cutter := recordCutter{next: next, most: q.prover.Want.Layout.Limits.Record + 1, record: func(s selector.PlacedSpan, b []byte) error { return c.Record(s.Record, s.Span, b, emit) }}
	if err := cutter.advance(); err != nil {
		return nil, err
	}
	if err := cutter.all(merkle.NewBodyReader(s.body(), s.tree.Root(), s.set)); err != nil {
		return nil, err
	}
	return c.Finish(emit)
}

// Conclusion is the strongest sentence that the proof and the manifest justify.
func (q *QueryBundle) Conclusion() string { return conclusion(q.manifest, q.prover.Asked, &q.Found) }

// Rows gives the answer's rows to emit, as a verifier finds them.
func (q *QueryBundle) Rows(ctx context.Context, emit func(selector.Row) error) error {
	_, err := q.finish(ctx, emit)
	return err
}

// build makes the claim and its sections.
func (q *QueryBundle) build(ctx context.Context, src Source, index IndexSource, outline *selector.Outline, mapLeaves []merkle.Range) error {
	a := q.prover.Asked
	c := Claim{Kind: KindQuery, Index: &ClaimIndex{index.Facts.Path, index.Facts.Root, index.Facts.Size}, text: askedText(a.Query)}
	if err := json.Unmarshal(a.Query.Normalised(q.prover.Want.Layout), &c.Query); err != nil {
		return fmt.Errorf("%w: %w", ErrClaim, err)
	}
	if a.Limit > 0 {
		c.Limit = &a.Limit
	}
	if outline.Shown > 0 {
		c.Shown = &outline.Shown
	}
	if a.Count {
		c.Count = &a.Count
	}
	var sections []section
	add := func(tree *merkle.Tree, data io.ReaderAt, leaves []merkle.Range, stated bool) (*Section, error) {
		set, err := merkle.LeafRanges(tree.Size(), leaves)
		if err != nil {
			return nil, err
		}
		sections = append(sections, section{tree: tree, data: data, set: set})
		s := &Section{Length: merkle.BodySize(set)}
		if stated {
			s.Leaves = pairs(set.Ranges())
		}
		return s, nil
	}
	var err error
	if c.Sections.Header, err = add(index.Tree, index.Data, []merkle.Range{{Start: 0, End: 1}}, true); err != nil {
		return err
	}
	if len(outline.Pages) > 0 {
		if c.Sections.Pages, err = add(index.Tree, index.Data, leavesOfPages(outline.Pages), true); err != nil {
			return err
		}
	}
	if outline.Tail.End > outline.Tail.Start {
		if c.Sections.Undetermined, err = add(index.Tree, index.Data, leavesOfPages([]merkle.Range{outline.Tail}), true); err != nil {
			return err
		}
	}
	placed := merkle.Range{}
	if len(mapLeaves) > 0 {
		if placed, err = placedRecords(src.Map, merkle.Range{Start: mapLeaves[0].Start, End: mapLeaves[len(mapLeaves)-1].End}); err != nil {
			return err
		}
		withHead := mapLeaves
		if withHead[0].Start == 1 {
			withHead[0].Start = 0
		} else {
			withHead = append([]merkle.Range{{Start: 0, End: 1}}, withHead...)
		}
		if c.Sections.Map, err = add(src.MapTree, src.Map, withHead, true); err != nil {
			return err
		}
		leaves, err := q.recordLeaves(ctx, src)
		if err != nil {
			return err
		}
		if c.Sections.Records, err = add(src.Tree, src.Data, leaves, false); err != nil {
			return err
		}
		if src.Room != nil {
			room, err := src.Room()
			if err != nil {
				return err
			}
			if err := sections[len(sections)-1].make(ctx, room); err != nil {
				return err
			}
		}
	}
	q.Bundle = &Bundle{claim: c, sections: sections, placed: placed, head: header{
		Claims: []Claim{c}, Index: index.Added, Manifest: src.Envelope, Ref: src.Manifest.Predicate.ArtifactRef, SSH: src.SSH,
	}}
	return q.encode()
}

// recordLeaves returns the leaves of the artifact that the shown records stand in.
func (q *QueryBundle) recordLeaves(ctx context.Context, src Source) ([]merkle.Range, error) {
	c, err := q.begun()
	if err != nil {
		return nil, err
	}
	var spans []merkle.Range
	for s, err := range q.prover.Spans(ctx, c) {
		if err != nil {
			return nil, err
		}
		q.Bytes += s.Span.End - s.Span.Start
		if spans = appendSpan(spans, s.Span); len(spans) > maxRanges {
			return nil, fmt.Errorf("%w: the records stand in over %d separate ranges: a limit makes them fewer", ErrClaim, maxRanges)
		}
	}
	set, err := merkle.Leaves(src.Tree.Size(), spans...)
	return set.Ranges(), err
}
