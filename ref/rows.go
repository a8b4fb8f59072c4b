package ref

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"slices"
	"sync"
	"time"

	"leafproof/merkle"
	"leafproof/selector"
)

// maxDocument is the largest value that is looked through in memory.
const maxDocument = 64 << 20

// cursorLife is how long a cursor into a value in memory is good for.
const cursorLife = 15 * time.Minute

// query asks the array at a path below a place that has no filter. The store does it
// where the elements are the artifact's records; else the array is read, and looked
// through here.
func (r *Resolver) query(ctx context.Context, p *place, path string, q Query, emit func(Row) error) (*selector.Answer, error) {
	path = p.path + path
	if p.value != nil {
		doc, err := pointed(ctx, p.value, path)
		if err != nil {
			return nil, err
		}
		return r.look(ctx, doc, nil, q, emit)
	}
	info, err := r.stat(ctx, p)
	if err != nil {
		return nil, err
	}
	switch info.Format {
	case "", selector.FormatBytes:
	case selector.FormatJSON:
		if path == info.Pointer {
			return r.source.Query(ctx, p.id, q, emit)
		}
	default:
		if path == "" {
			return r.source.Query(ctx, p.id, q, emit)
		}
	}
	doc, answer, err := r.document(ctx, p, path, maxDocument)
	if err != nil {
		return nil, err
	}
	return r.look(ctx, doc, answer, q, emit)
}

// mapBytes is an io.WriterAt in memory, for a record map.
type mapBytes struct{ b []byte }

func (m *mapBytes) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = slices.Grow(m.b, need-len(m.b))[:need]
	}
	return copy(m.b[off:], p), nil
}

// look asks the elements of an array in memory. of is what the store said of it, where
// it comes from there.
func (r *Resolver) look(ctx context.Context, doc []byte, of *selector.Answer, q Query, emit func(Row) error) (*selector.Answer, error) {
	if len(doc) == 0 || doc[0] != '[' {
		return nil, errNoArray
	}
	asked, task, total, err := arrayTask(ctx, doc, q)
	if err != nil {
		return nil, err
	}
	answer := &selector.Answer{
		Completeness: selector.Capture{Status: "unknown", Omissions: []selector.Omission{}, Redactions: []selector.Redaction{}},
		Assurance:    selector.AssuranceAttested,
	}
	if of != nil {
		answer.ArtifactID, answer.ManifestID, answer.SourceVersion = of.ArtifactID, of.ManifestID, of.SourceVersion
		answer.Completeness, answer.SupersededBy = of.Completeness, of.SupersededBy
	}
	answer.Selector = asked.Normalised(task.Layout)
	answer.QID, answer.Query, answer.Order = asked.QID(task.Layout), asked, selector.OrderText(asked.Order)
	answer.Basis, answer.RecordsTotal = selector.BasisScan, total
	binding := sync.OnceValue(func() selector.Binding { // to hash it takes as long as to look through it
		return selector.Binding{
			ArtifactID: answer.ArtifactID, ManifestID: merkle.Sum(doc).String(), QID: answer.QID, Order: answer.Order,
		}
	})
	if q.Cursor != "" {
		if task.From, err = selector.OpenCursor(r.key, binding(), time.Now(), q.Cursor); err != nil {
			return nil, err
		}
	}
	var give func(selector.Row) error
	if emit != nil && !q.Count {
		give = func(row selector.Row) error {
			return emit(Row{Record: row.Record, Span: row.Span, Bytes: row.Bytes, JSON: true})
		}
	}
	scan, err := task.Run(ctx, give)
	if err == nil && (scan.Stop == selector.StopDeadline || scan.Stop == selector.StopCancelled) {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	answer.Fill(scan)
	more := (scan.Stop == selector.StopPageLimit || scan.Stop == selector.StopByteLimit) && scan.More != selector.MoreNo
	if more && !q.Count && (len(task.Order) == 0 || scan.Returned > 0) {
		answer.Cursor = selector.SealCursor(r.key, cursorName, binding(), scan.Position, time.Now().Add(cursorLife))
	}
	answer.Conclude()
	return answer, nil
}

// cursorName says whose key a cursor into a value in memory is sealed with.
const cursorName = "resolver"

func newCursorKey() (key [32]byte) {
	rand.Read(key[:]) //nolint:errcheck // it never fails
	return key
}

// arrayTask reads what is asked of the elements of an array, and divides it.
func arrayTask(ctx context.Context, doc []byte, q Query) (*selector.Query, *selector.Task, int64, error) {
	layout, err := selector.NewLayout(selector.FormatJSON, "", nil)
	if err != nil {
		return nil, nil, 0, err
	}
	asked := &selector.Query{}
	if q.Where != "" {
		if asked.Where, err = selector.ParseWhere(q.Where); err == nil {
			err = asked.Where.Fits(layout)
		}
		if err != nil {
			return nil, nil, 0, err
		}
	}
	for _, text := range q.Order {
		o, err := selector.ParseOrder(text)
		if err == nil {
			err = o.Fits(layout)
		}
		if err != nil {
			return nil, nil, 0, err
		}
		asked.Order = append(asked.Order, o)
	}
	var room mapBytes
	var root merkle.Root // the map is nobody else's
	src := bytes.NewReader(doc)
	info, stats, layout, err := selector.BuildMap(ctx, src, int64(len(doc)), root, layout, &room)
	if err != nil {
		return nil, nil, 0, err
	}
	m, err := selector.OpenMap(bytes.NewReader(room.b), info.Size, root, int64(len(doc)), layout)
	if err != nil {
		return nil, nil, 0, err
	}
	return asked, &selector.Task{
		Source: io.ReaderAt(src), Map: m, Layout: layout, Where: asked.Where, Order: asked.Order,
		Trust:  selector.Trust{Validated: true, Undecidable: stats.Undecidable, Spans: stats.UndecidableSpans},
		Budget: selector.Budget{Limit: q.Limit, ReturnBytes: q.ReturnBytes},
	}, info.Records, nil
}
