package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// A Rebuild has what it takes to make an artifact's indexes again: all of its
// bytes, and room.
type Rebuild struct {
	Data io.ReaderAt // safe for concurrent use
	Size int64
	// Room returns room for what is built, as often as it is called.
	Room func() (selector.Spill, error)
	// Memory bounds what the build takes, in bytes; 0: [RebuildMemory].
	Memory int64
}

// RebuildMemory is how many bytes a [Rebuild] takes that says nothing else.
const RebuildMemory = 16 << 20

// ErrOtherBytes is a [Rebuild] from bytes that are not the artifact's.
var ErrOtherBytes = errors.New("these are not the artifact's bytes")

// Rebuilt is what came out of a [Rebuild].
type Rebuilt struct {
	Map     merkle.Root   // of the record map
	Indexes []merkle.Root // of the indexes that were asked for
}

// Indexes makes the record map and indexes of an artifact again, whatever was
// signed of them, by the rules that follow from the manifest. Whoever has the
// bytes gets the same roots.
func (r *Rebuild) Indexes(ctx context.Context, m *manifest.Manifest, indexes []manifest.Index) (*Rebuilt, error) {
	rec := m.Predicate.Records
	if rec == nil {
		return nil, errors.New("the artifact has no records")
	}
	root, err := rootOf(ctx, r.Data, r.Size)
	if err != nil {
		return nil, err
	}
	if root != m.Root || r.Size != m.Size {
		return nil, fmt.Errorf("%w: %d bytes with the root %s", ErrOtherBytes, r.Size, root)
	}
	room, err := r.Room()
	if err != nil {
		return nil, err
	}
	info, stats, layout, err := selector.BuildMap(ctx, r.Data, m.Size, m.Root, Layout(rec), room)
	if err != nil {
		return nil, err
	}
	out := &Rebuilt{}
	if out.Map, err = rootOf(ctx, room, info.Size); err != nil || len(indexes) == 0 {
		return out, err
	}
	mapped, err := selector.OpenMap(room, info.Size, m.Root, m.Size, layout)
	if err != nil {
		return nil, err
	}
	b := selector.IndexBuild{Source: r.Data, Map: mapped, Layout: layout, Trust: stats.Trust(), Redactions: redactions(m), Memory: r.Memory}
	if b.Memory == 0 {
		b.Memory = RebuildMemory
	}
	var built []selector.Spill
	var writers []io.WriterAt
	for _, x := range indexes {
		path, err := selector.ParseKeyPath(x.Path)
		if err != nil {
			return nil, err
		}
		to, err := r.Room()
		if err != nil {
			return nil, err
		}
		b.Paths, built, writers = append(b.Paths, path), append(built, to), append(writers, to)
	}
	if b.Spill, err = r.Room(); err != nil {
		return nil, err
	}
	infos, err := b.Build(ctx, writers)
	if err != nil {
		return nil, err
	}
	for i, info := range infos {
		root, err := rootOf(ctx, built[i], info.Size)
		if err != nil {
			return nil, err
		}
		out.Indexes = append(out.Indexes, root)
	}
	return out, nil
}

// rootOf hashes size bytes.
func rootOf(ctx context.Context, r io.ReaderAt, size int64) (merkle.Root, error) {
	b := merkle.NewBuilder(nil)
	buf := make([]byte, 256<<10)
	for off := int64(0); off < size; off += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return merkle.Root{}, err
		}
		p := buf[:min(int64(len(buf)), size-off)]
		if n, err := r.ReadAt(p, off); n < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return merkle.Root{}, err
		}
		if _, err := b.Write(p); err != nil {
			return merkle.Root{}, err
		}
	}
	return b.Seal()
}

// rebuiltFact makes indexes of the artifact again and says what became of their
// honesty. A record map that comes out as another one is a MISMATCH of the record
// numbers.
func (c *checker) rebuiltFact(indexes ...manifest.Index) (manifest.Fact, error) {
	f := manifest.Fact{Name: manifest.FactIndex, State: manifest.Unverifiable}
	got, err := c.rebuild.Indexes(context.Background(), c.m, indexes)
	if errors.Is(err, ErrOtherBytes) {
		f.Reason = "the index was not built again: " + err.Error()
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if m := c.m.Predicate.Records.Map; m != nil && m.Root != got.Map.String() {
		c.v.Set(manifest.Fact{
			Name: manifest.FactRecordNumbers, State: manifest.Mismatch,
			Reason: fmt.Sprintf("built again from the artifact's bytes the record map has the root %s: the one that was signed is false", got.Map),
		})
	}
	var over []string
	for i, x := range indexes {
		if x.Root != got.Indexes[i].String() {
			f.State = manifest.Mismatch
			f.Reason = fmt.Sprintf("built again from the artifact's bytes the index over %s has the root %s: the one that was signed, %s, is false", manifest.IndexOver(x.Path), got.Indexes[i], x.Root)
			return f, nil
		}
		over = append(over, manifest.IndexOver(x.Path))
	}
	f.State, f.Detail = manifest.Proven, "over "+strings.Join(over, ", ")
	return f, nil
}

// rebuildAll makes the record map again, and all indexes that the bundle has
// statements of, beside a claim that is no answer to a query.
func (c *checker) rebuildAll() error {
	indexes := c.m.Predicate.Indexes
	if c.added != nil {
		q := queryCheck{checker: c}
		if err := q.takeAdded(); err != nil {
			return err
		}
		if q.word.State == manifest.Mismatch {
			q.indexFact(manifest.Fact{})
		}
		indexes = append(slices.Clone(indexes), q.index)
	}
	if rec := c.m.Predicate.Records; c.rebuild == nil || rec == nil || rec.Map == nil {
		return nil
	}
	f, err := c.rebuiltFact(indexes...)
	if err == nil && (len(indexes) > 0 || f.State != manifest.Proven) {
		c.v.Set(f)
	}
	return err
}

// Evidence returns a bundle of all of an artifact's bytes, with the statement of an
// index that was added later or nil: whoever verifies it can build every index
// again that was signed, and see which one is false.
func Evidence(src Source, added *manifest.Envelope) (*Bundle, error) {
	b, err := Bytes(src, merkle.Range{Start: 0, End: src.Tree.Size()})
	if err != nil {
		return nil, err
	}
	b.head.Index = added
	return b, b.encode()
}
