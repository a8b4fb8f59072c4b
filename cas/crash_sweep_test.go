package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// beforeSweep publishes blobs of all placements, ends some of them, leaves some
// that were never published, and lets a writer die with an unfinished file.
func beforeSweep(w *writer) error {
	err := errors.Join(
		w.publish(1000, 1001, 1002, 1003), // a pack with holes
		w.publish(2000, 2001),             // a pack of which nothing is needed
		w.publish(20_000), w.publish(20_001), w.publishAs(cas.Whole, 300),
		w.publishAs(cas.ChunkedRecords, 40_000), w.publishAs(cas.ChunkedRecords, 90_000),
		w.end(1001, 1002, 1003, 2000, 2001, 20_001, 90_000),
		w.junk(700, 30_000),
		w.fsys.MkdirAll(tenant.String()+"/tmp", 0o700),
	)
	if err != nil {
		return err
	}
	file, err := w.fsys.OpenFile(tenant.String()+"/tmp/.tmp-00000000000000000000000000000000", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString("unfinished")
	return errors.Join(err, file.Close())
}

func (w *writer) publish(sizes ...int) error { return w.publishAs(cas.Auto, sizes...) }

// publishAs puts blobs and publishes them in one commit: they are held then.
func (w *writer) publishAs(place cas.Placement, sizes ...int) error {
	w.told.doubt(sizes...)
	b, roots, err := w.batchOf(place, sizes...)
	if b != nil {
		defer b.Discard()
	}
	if err == nil {
		err = w.told.roots.publish(w.told.book, b.Lease(), roots...)
	}
	if err != nil {
		return err
	}
	w.told.set(held, sizes...)
	return nil
}

// junk puts blobs that nobody publishes.
func (w *writer) junk(sizes ...int) error {
	w.told.doubt(sizes...)
	b, _, err := w.batchOf(cas.Auto, sizes...)
	if b != nil {
		b.Discard()
	}
	return err
}

func (w *writer) batchOf(place cas.Placement, sizes ...int) (*cas.Batch, []merkle.Root, error) {
	b := w.s.Begin(context.Background(), tenant)
	var roots []merkle.Root
	for _, size := range sizes {
		info, err := b.Put(context.Background(), bytes.NewReader(blobOf(size).data), place)
		if err != nil {
			return b, nil, err
		}
		roots = append(roots, info.Root)
	}
	return b, roots, b.Commit(context.Background())
}

// end ends all publications of blobs.
func (w *writer) end(sizes ...int) error {
	w.told.set(unsure, sizes...)
	for _, size := range sizes {
		for i, root := range w.told.roots.fork().list {
			if root == blobOf(size).root {
				w.told.roots.end(i)
			}
		}
	}
	return nil
}

// sweep is one gc. What it could not look at is an error here.
func (w *writer) sweep() error {
	report, err := w.s.Sweep(context.Background(), cas.SweepOptions{Book: w.told.book, Roots: w.told.roots})
	return errors.Join(append(report.Kept, err)...)
}

// checkSweep sweeps what there is in another process, and returns what it took
// too much and left too much. o is its own.
func (o *told) checkSweep(fsys *crashfs.FS) (problems []string) {
	note := func(err error) {
		if err != nil {
			problems = append(problems, "swept: "+err.Error())
		}
	}
	w := newWriter(fsys, o)
	note(w.sweep())
	note(w.sweep()) // leftovers that the first one only found
	note(w.s.Close())
	for _, s := range o.checkStore(fsys, cas.New(disk.New(fsys), cas.Options{})) {
		problems = append(problems, "swept: "+s)
	}
	var live []merkle.Root
	for i, root := range o.roots.list {
		if !o.roots.gone[i] {
			live = append(live, root)
		}
	}
	for _, kind := range []cas.Kind{cas.KindBlob, cas.KindOutboard, cas.KindRecipe} {
		for name, err := range disk.New(fsys).List(context.Background(), tenant, kind, nil) {
			note(err)
			if !slices.Contains(live, name.ID) {
				note(fmt.Errorf("%s is left", name))
			}
		}
	}
	if left := temps(fsys); len(left) > 0 {
		note(fmt.Errorf("%q is left", left))
	}
	if _, names, err := o.book.View(context.Background(), -1); err != nil || len(names) > 0 {
		note(fmt.Errorf("%q is condemned, %v", names, err))
	}
	return problems
}
