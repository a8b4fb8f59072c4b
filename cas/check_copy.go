package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"leafproof/merkle"
)

// CopyOptions adjusts [Copy].
type CopyOptions struct {
	// BytesPerSecond bounds the rate of reading; 0 is no bound.
	BytesPerSecond int64
	// Progress, where set, is told of what was read, in steps.
	Progress func(bytes int64)
}

// CopyReport says what a [Copy] did.
type CopyReport struct {
	Copied, Resident int64     // objects: written now, and there already
	Bytes            int64     // of the objects written
	Damaged          []Finding // objects that were not copied, for they are damaged
}

// copied are the kinds that are copied, in this order: what refers to others
// comes behind them. Index files are made anew where they are wanted.
var copied = []Kind{KindPack, KindBlob, KindRecipe, KindOutboard, KindCache}

// Copy brings every object of one Backend to another that has it not. Each is
// verified as it stands on the other side, before it gets its name there; one
// that is damaged is reported and left out. An object that the other side has,
// of the same length, is left as it is and not read. So a copy that was
// interrupted goes on with what is missing, and one that is made again costs a
// listing. What is put, merged or deleted meanwhile makes it look again.
func Copy(ctx context.Context, from, to Backend, o CopyOptions) (CopyReport, error) {
	c := &copier{
		check: check{s: New(from, Options{CacheBytes: -1}), ctx: ctx, o: CheckOptions{Progress: o.Progress}, pace: &pace{rate: o.BytesPerSecond, start: time.Now()}},
		to:    to,
	}
	// A merge of packs deletes the old ones when the new one stands. The pass
	// that finds nothing gone and nothing new has seen all of one moment's
	// objects.
	const most = 10
	for range most {
		c.changed = false
		resident := c.report.Resident
		c.report.Resident, c.report.Damaged = 0, nil
		if err := c.pass(); err != nil {
			c.report.Resident = max(resident, c.report.Resident)
			return c.report, err
		}
		if !c.changed {
			c.report.Resident -= c.report.Copied // the last pass met them again
			return c.report, nil
		}
	}
	return c.report, &Error{Op: "copy", Err: errors.New("the objects change faster than they can be copied")}
}

type copier struct {
	check
	to      Backend
	changed bool
	report  CopyReport
}

func (c *copier) pass() error {
	for tenant, err := range ListTenants(c.ctx, c.s.b) {
		if err != nil {
			return err
		}
		for _, kind := range copied {
			for name, err := range c.s.b.List(c.ctx, tenant, kind, nil) {
				if err != nil {
					return err
				}
				if err := c.object(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *copier) object(name Name) error {
	o, f := c.open(name)
	switch {
	case f == nil:
	case f.Fault == "":
		c.changed = true // gone since it was listed
		return nil
	case f.Fault == FaultUnread:
		return f.Err
	default:
		c.damaged(*f)
		return nil
	}
	defer o.Close()
	there, err := OpenObject(c.ctx, c.to, name)
	switch {
	case err == nil:
		same := there.Size() == o.Size()
		if err := there.Close(); err != nil {
			return err
		}
		if same {
			c.report.Resident++
			return nil
		}
	case !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
		return err
	}
	stage, err := NewStage(c.ctx, c.to, name.Tenant)
	if err != nil {
		return err
	}
	defer stage.Discard()
	size := o.Size()
	if err := CopyExactly(c.ctx, io.NewOffsetWriter(stage, 0), io.NewSectionReader(o, 0, size), size); err != nil {
		if errors.Is(err, ErrSize) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return err
	}
	f, err = c.verify(name, stagedObject{stage, size})
	switch {
	case err != nil:
		return err
	case f != nil:
		c.damaged(*f)
		return nil
	}
	if there != nil { // of another length: that side's is damaged, and this one is not
		if err := c.to.Delete(c.ctx, name); err != nil {
			return err
		}
	}
	if err := stage.Commit(c.ctx, name, size); err != nil {
		return err
	}
	c.changed = true
	c.report.Copied++
	c.report.Bytes += size
	return nil
}

// damaged reports an object, unless a crash may have torn it and it is as good as
// missing then.
func (c *copier) damaged(f Finding) {
	if f.Name.Kind != KindCache {
		c.report.Damaged = append(c.report.Damaged, f)
	}
}

// stagedObject is a Stage as an Object.
type stagedObject struct {
	Stage
	size int64
}

func (o stagedObject) Size() int64  { return o.size }
func (o stagedObject) Close() error { return nil }

func (o stagedObject) ReadAt(p []byte, off int64) (int, error) {
	if off >= o.size {
		return 0, io.EOF
	}
	short := int64(len(p)) > o.size-off
	n, err := o.Stage.ReadAt(p[:min(int64(len(p)), o.size-off)], off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// verify checks a staged object deeply, as what its name says.
func (c *copier) verify(name Name, o Object) (*Finding, error) {
	wrong := func(err error) (*Finding, error) {
		if unlessDamage(err) != nil && !errors.Is(err, merkle.ErrMismatch) && !errors.Is(err, merkle.ErrMalformed) {
			return nil, err
		}
		return new(c.describe(name, o, FaultBytes, err)), nil
	}
	switch name.Kind {
	case KindPack:
		runs, keys, err := readFooter(o, o.Size(), name.ID)
		if err != nil {
			f, err := wrong(err)
			if f != nil {
				f.All = true
			}
			return f, err
		}
		return c.packRuns(name, o, runs, keys), nil
	case KindOutboard:
		size, err := c.sizeOf(name)
		if errors.Is(err, ErrNotFound) {
			return nil, nil // nothing to hold it against: a reader does
		}
		if err != nil {
			return nil, err
		}
		if err := merkle.NewTree(name.ID, size, o).VerifyOutboard(c.ctx); err != nil {
			return wrong(err)
		}
		return nil, nil
	case KindRecipe:
		size, err := sizeInRecipe(o)
		if err == nil {
			_, err = openRecipe(o, o.Size(), size)
		}
		if err != nil {
			return wrong(err)
		}
		return nil, nil
	case KindCache:
		sound, err := soundCached(c.ctx, name.ID, cachedSize(o.Size()), o)
		if err == nil && !sound {
			err = ErrCorrupt
		}
		if err != nil {
			return wrong(err)
		}
		return nil, nil
	}
	root, err := merkle.BuildAt(c.ctx, o, o.Size(), nil)
	if err == nil && root != name.ID {
		err = fmt.Errorf("%w: its root is %s", ErrCorrupt, root)
	}
	if err != nil {
		f, err := wrong(err)
		if f != nil {
			f.Blobs = []BlobDamage{{Root: name.ID, Size: -1}}
		}
		return f, err
	}
	return nil, nil
}

// sizeOf returns the size of the blob that an outboard is for, as the blob or its
// recipe states it; one that is damaged tells nothing and is ErrNotFound.
func (c *copier) sizeOf(outboard Name) (int64, error) {
	for _, kind := range []Kind{KindBlob, KindRecipe} {
		name, err := c.s.latest(c.ctx, Name{Tenant: outboard.Tenant, Kind: kind, ID: outboard.ID})
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		o, err := OpenObject(c.ctx, c.s.b, name)
		if err != nil {
			continue
		}
		size := o.Size()
		if kind == KindRecipe {
			size, err = sizeInRecipe(o)
		}
		o.Close()
		if err == nil {
			return size, nil
		}
	}
	return 0, ErrNotFound
}
