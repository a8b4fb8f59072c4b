package leafproof

import (
	"context"
	"io"
	"slices"

	"leafproof/cas"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// consult has a task spare itself what the artifact's indexes tell, and returns
// what to call when it has run. An index that is missing or damaged tells
// nothing: then every record is examined, and [Store.Check] says what is wrong
// with it. The gate was asked before: whoever may ask a query of all records may
// have it answered from an index of them.
func (a *artifact) consult(ctx context.Context, task *selector.Task, rows bool) func() {
	if task.Whole || task.Where == nil && len(task.Order) == 0 {
		return func() {}
	}
	indexes, err := a.indexes(ctx)
	if err != nil {
		return func() {}
	}
	var files []*lentReader
	damaged := false
	done := func() {
		for _, f := range files {
			a.store.readers.give(f, damaged)
		}
	}
	var open []selector.KeyIndex
	for _, x := range indexes {
		path, err := selector.ParseKeyPath(x.Path)
		if err != nil || !path.Serves(task.Where, task.Order) {
			continue
		}
		root, err := merkle.ParseRoot(x.Root)
		if err != nil {
			continue
		}
		file, err := a.lend(ctx, root, x.Size)
		if err != nil {
			continue
		}
		files = append(files, file)
		index, err := a.indexOn(file, x.Index, path)
		if err != nil {
			damaged = true
			continue
		}
		open = append(open, index)
	}
	if len(open) == 0 || task.Consult(ctx, open, rows) == nil {
		return done
	}
	damaged = true
	open = slices.DeleteFunc(open, func(x selector.KeyIndex) bool { return task.Consult(ctx, []selector.KeyIndex{x}, rows) != nil })
	if task.Consult(ctx, open, rows) != nil {
		task.Whole = true
	}
	return done
}

// openIndex opens an index that a statement names, if it is one of this
// artifact's records by the rules of today.
func (a *artifact) openIndex(ctx context.Context, x manifest.Index) (*selector.Index, *cas.Reader, error) {
	path, err := selector.ParseKeyPath(x.Path)
	if err != nil {
		return nil, nil, err
	}
	root, err := merkle.ParseRoot(x.Root)
	if err != nil {
		return nil, nil, err
	}
	file, err := a.store.objects.Open(ctx, cas.TenantOf(a.row.Tenant), root, x.Size)
	if err != nil {
		return nil, nil, err
	}
	index, err := a.indexOn(file, x, path)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return index, file, nil
}

// indexOn opens an index whose blob is open.
func (a *artifact) indexOn(file io.ReaderAt, x manifest.Index, path *selector.KeyPath) (*selector.Index, error) {
	return selector.OpenIndex(file, x.Size, path, selector.IndexSource{
		Root: a.m.Root, Size: a.m.Size, Records: a.m.Predicate.Records.Count, Layout: a.layout(), Redactions: a.redacted(),
	})
}
