package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// IndexFile says what index to build of a file: the one that a spec describes, or the
// one over a path, of records that are found as a put finds them.
type IndexFile struct {
	Spec []byte // canonical JSON, as a manifest has it; nil: the fields below

	Path    string
	Records string // see [PutOptions]
	CSV     CSV
	At      string
	Name    string // a hint, as in PutOptions
	// Redactions are the JSON Pointers of the values that the producer removed.
	Redactions []string

	Memory   int64             // see [IndexOptions]
	Progress func(bytes int64) // of the bytes read, of which each is read three times
}

// BuildIndex builds the index of a file of size bytes, with no store, and writes its
// bytes to w: they are those that a store has of the same records. It returns what a
// manifest says of it.
func BuildIndex(ctx context.Context, src io.ReaderAt, size int64, o IndexFile, w io.Writer) (manifest.Index, error) {
	var none manifest.Index
	if o.Progress != nil {
		src = watched{src, o.Progress}
	}
	layout, path, err := o.settle(src, size)
	if err != nil {
		return none, wireError("", err)
	}
	tree := merkle.NewBuilder(nil)
	if _, err := io.Copy(tree, contextReader{ctx, io.NewSectionReader(src, 0, size)}); err != nil {
		return none, wireError("", err)
	}
	root, err := tree.Seal()
	if err != nil {
		return none, wireError("", err)
	}
	var rooms [3]spillFile // of the map, of the sort and of the index
	for i := range rooms {
		defer rooms[i].Close()
	}
	info, stats, full, err := selector.BuildMap(ctx, src, size, root, layout, &rooms[0])
	if err != nil {
		return none, wireError("", err)
	}
	if o.Spec != nil && !slices.Equal(full.Dialect.Columns, layout.Dialect.Columns) {
		return none, fail(CodeSelectorInvalid, FixCall, "spec", "the spec is of other columns than the file has")
	}
	m, err := selector.OpenMap(&rooms[0], info.Size, root, size, full)
	if err != nil {
		return none, wireError("", err)
	}
	build := selector.IndexBuild{
		Source: src, Map: m, Layout: full, Trust: stats.Trust(), Redactions: o.Redactions, Paths: []*selector.KeyPath{path},
		Memory: o.Memory, Spill: &rooms[1],
	}
	infos, err := build.Build(ctx, []io.WriterAt{&rooms[2]})
	if err != nil {
		return none, wireError("", err)
	}
	x, err := indexFacts(full, path, o.Redactions, infos[0])
	if err != nil {
		return none, wireError("", err)
	}
	tree = merkle.NewBuilder(nil)
	if _, err := io.Copy(io.MultiWriter(tree, w), contextReader{ctx, io.NewSectionReader(&rooms[2], 0, x.Size)}); err != nil {
		return none, wireError("", err)
	}
	root, err = tree.Seal()
	x.Root = root.String()
	return x, wireError("", err)
}

// settle finds the layout and the path.
func (o *IndexFile) settle(src io.ReaderAt, size int64) (l selector.Layout, p *selector.KeyPath, err error) {
	if o.Spec != nil {
		l, p, o.Redactions, err = selector.ParseIndexSpec(o.Spec)
		return l, p, err
	}
	if p, err = selector.ParseKeyPath(o.Path); err != nil {
		return l, p, err
	}
	put := PutOptions{Records: o.Records, At: o.At, CSV: o.CSV, Name: o.Name}
	put.settleRecords()
	head := make([]byte, min(detectBytes, size))
	if n, err := src.ReadAt(head, 0); n < len(head) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return l, p, err
	}
	d := &Draft{}
	if l, err = d.chooseLayout(head, put); err == nil && l.Format == selector.FormatBytes {
		err = fail(CodeSelectorInvalid, FixCall, "records", "an index is over records, and these bytes have none: %s", d.chosen)
	}
	if err != nil {
		return l, p, fmt.Errorf("records: %w", err)
	}
	return l, p, nil
}

// contextReader reads until a context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
