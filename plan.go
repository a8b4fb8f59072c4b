package leafproof

import (
	"context"
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
	var files []*cas.Reader
	done := func() {
		for _, f := range files {
			f.Close()
		}
	}
	var open []selector.KeyIndex
	for _, x := range indexes {
		path, err := selector.ParseKeyPath(x.Path)
		if err != nil || !path.Serves(task.Where, task.Order) {
			continue
		}
		index, file, err := a.openIndex(ctx, x.Index)
		if err != nil {
			continue
		}
		open, files = append(open, index), append(files, file)
	}
	if len(open) == 0 || task.Consult(ctx, open, rows) == nil {
		return done
	}
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
	index, err := selector.OpenIndex(file, x.Size, path, selector.IndexSource{
		Root: a.m.Root, Size: a.m.Size, Records: a.m.Predicate.Records.Count, Layout: a.layout(), Redactions: a.redacted(),
	})
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return index, file, nil
}
