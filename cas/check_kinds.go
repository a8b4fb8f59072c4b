package cas

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"leafproof/merkle"
)

// generations checks each object of a group by itself; all but the last are
// superseded.
func generations(names []Name, one func(Name) *Finding) []Finding {
	var found []Finding
	for i, name := range names {
		if f := one(name); f != nil && f.Fault != "" {
			f.Superseded = i < len(names)-1
			found = append(found, *f)
		}
	}
	return found
}

// packGroup checks the generations of a pack.
func (c *check) packGroup(names []Name) []Finding {
	// A generation is written when the one before is not the same to the byte, so
	// the last has all that the name says.
	return generations(names, c.pack)
}

func (c *check) pack(name Name) *Finding {
	o, f := c.open(name)
	if f != nil {
		f.All = true
		return f
	}
	defer o.Close()
	runs, keys, err := readFooter(o, o.Size(), name.ID)
	if err != nil {
		if errors.Is(err, errShort) {
			err = fmt.Errorf("%w: %w", errPack, err)
		}
		f := c.describe(name, o, FaultBytes, err)
		f.All = true
		return &f
	}
	if c.o.Deep {
		if f := c.packRuns(name, o, runs, keys); f != nil {
			return f
		}
	}
	c.visit(name, o.Size(), func(yield func(merkle.Root) bool) {
		for _, k := range keys {
			if !yield(k.root) {
				return
			}
		}
	})
	return nil
}

// packRuns checks the bytes between a pack's header and its footer.
func (c *check) packRuns(name Name, o Object, runs []packRun, keys []packKey) *Finding {
	byRun := slices.Clone(keys)
	slices.SortFunc(byRun, func(a, b packKey) int {
		return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.off, b.off))
	})
	var f *Finding
	for i, run := range runs {
		n, _ := slices.BinarySearchFunc(byRun, uint32(i)+1, func(k packKey, run uint32) int { return cmp.Compare(k.run, run) })
		mine := byRun[:n]
		byRun = byRun[n:]
		bad, err := c.packRun(o, run, mine)
		if err == nil {
			continue
		}
		if f == nil {
			d := c.describe(name, o, FaultBytes, fmt.Errorf("run %d: %w", i, err))
			f = &d
			if f.Fault == FaultUnread {
				return f
			}
		}
		f.Blobs = append(f.Blobs, bad...)
	}
	return f
}

// packRun checks one run, and returns the blobs of it that cannot be read.
func (c *check) packRun(o Object, run packRun, keys []packKey) ([]BlobDamage, error) {
	all := func() []BlobDamage {
		out := make([]BlobDamage, len(keys))
		for i, k := range keys {
			out[i] = BlobDamage{Root: k.root, Size: int64(k.length)}
		}
		return out
	}
	stored := make([]byte, runHeaderSize+int(run.stored)) // bounded by the pack's size, which was read
	if err := readFullAt(o, stored, run.offset-runHeaderSize); err != nil {
		return all(), err
	}
	var problem error
	if !bytes.Equal(stored[:runHeaderSize], run.header()) {
		// Readers take the footer's word; the header is for a rescue by hand.
		problem = fmt.Errorf("%w: its header is not what the footer says", ErrCorrupt)
	}
	stored = stored[runHeaderSize:]
	if merkle.Sum(stored) != run.sum {
		problem = fmt.Errorf("%w: the stored bytes do not have their digest", ErrCorrupt)
	}
	raw, err := run.decode(stored)
	if err != nil {
		return all(), fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var bad []BlobDamage
	for _, k := range keys {
		if merkle.Sum(raw[k.off:k.off+k.length]) != k.root {
			bad = append(bad, BlobDamage{Root: k.root, Size: int64(k.length)})
			problem = cmp.Or(problem, fmt.Errorf("%w: blob %s", ErrCorrupt, k.root))
		}
	}
	return bad, problem
}

// header is the run's header in the pack.
func (r packRun) header() []byte {
	p := make([]byte, 0, runHeaderSize)
	p = binary.LittleEndian.AppendUint32(p, r.codec)
	p = binary.LittleEndian.AppendUint32(p, r.raw)
	p = binary.LittleEndian.AppendUint32(p, r.stored)
	return append(p, r.sum[:]...)
}

// decode returns a run's raw bytes, exactly as many as the footer says.
func (r packRun) decode(stored []byte) ([]byte, error) {
	return decodeRun(r.codec, r.raw, stored, nil)
}

// one is the sequence of one root.
func one(root merkle.Root) iter.Seq[merkle.Root] {
	return func(yield func(merkle.Root) bool) { yield(root) }
}

// blobGroup checks the generations of a blob and the outboard that readers take.
func (c *check) blobGroup(names []Name) []Finding {
	last := names[len(names)-1]
	found := generations(names[:len(names)-1], c.blobAlone)
	for i := range found {
		found[i].Superseded = true
	}
	return append(found, c.blob(last)...)
}

// blobAlone checks a superseded generation.
func (c *check) blobAlone(name Name) *Finding {
	o, f := c.open(name)
	if f != nil {
		return f
	}
	defer o.Close()
	if !c.o.Deep {
		return nil
	}
	root, err := merkle.BuildAt(c.ctx, o, o.Size(), nil)
	if err == nil && root != name.ID {
		err = fmt.Errorf("%w: its root is %s", ErrCorrupt, root)
	}
	if err == nil {
		return nil
	}
	return new(c.describe(name, o, FaultBytes, err))
}

func (c *check) blob(name Name) []Finding {
	affected := []BlobDamage{{Root: name.ID, Size: -1}}
	o, f := c.open(name)
	if f != nil {
		if f.Fault == "" {
			return nil
		}
		f.Blobs = affected
		return []Finding{*f}
	}
	defer o.Close()
	c.visit(name, o.Size(), one(name.ID))
	size := o.Size()
	want := merkle.OutboardSize(size)
	nodesName, nodes, bad := c.outboardOf(name)
	if bad != nil && bad.Fault == FaultUnread {
		return []Finding{*bad}
	}
	if nodes != nil {
		defer nodes.Close()
	}
	if !c.o.Deep {
		return c.lengths(name, o, nodesName, nodes, want)
	}
	compare := &comparison{have: nodes}
	var sink *comparison
	if nodes != nil && nodes.Size() == want {
		sink = compare
	}
	root, err := build(c, o, sink)
	if err == nil && root != name.ID {
		err = fmt.Errorf("%w: its root is %s", ErrCorrupt, root)
	}
	if err != nil {
		f := c.describe(name, o, FaultBytes, err)
		if f.Fault == FaultBytes && nodes != nil && nodes.Size() != want {
			f.Fault, f.Err = FaultLength, fmt.Errorf("%w: it has %d bytes, for which its outboard is too long or too short", ErrCorrupt, size)
		}
		f.Blobs = c.ranges(name.ID, size, o, nodes)
		return []Finding{f}
	}
	affected[0].Size = size
	switch {
	case want == 0: // an outboard beside it is found with the outboards
		return nil
	case bad != nil:
		bad.Blobs = affected
		return []Finding{*bad}
	case nodes == nil:
		return []Finding{{Name: name, Fault: FaultOutboard, Blobs: affected, Err: errors.New("readers cannot check its bytes")}}
	case nodes.Size() != want:
		f := c.describe(nodesName, nodes, FaultLength, fmt.Errorf("%w: it has %d bytes, not %d", ErrCorrupt, nodes.Size(), want))
		f.Blobs = affected
		return []Finding{f}
	case compare.err != nil:
		return []Finding{c.describe(nodesName, nodes, FaultBytes, compare.err)}
	case compare.wrong > 0:
		f := c.describe(nodesName, nodes, FaultBytes, fmt.Errorf("%w: %d of its values, the first at byte %d", ErrCorrupt, compare.wrong, compare.first))
		f.Blobs = c.ranges(name.ID, size, o, nodes)
		return []Finding{f}
	}
	return nil
}

// outboardOf opens the outboard that readers of a blob take.
func (c *check) outboardOf(blob Name) (Name, Object, *Finding) {
	name, err := c.s.latest(c.ctx, Name{Tenant: blob.Tenant, Kind: KindOutboard, ID: blob.ID})
	if errors.Is(err, ErrNotFound) {
		return Name{}, nil, nil
	}
	if err != nil {
		return name, nil, &Finding{Name: blob, Fault: FaultUnread, Err: err}
	}
	o, f := c.open(name)
	if f != nil && f.Fault == "" {
		f = nil
	}
	return name, o, f
}

// lengths is all that a shallow check asks of a blob.
func (c *check) lengths(name Name, o Object, nodesName Name, nodes Object, want int64) []Finding {
	affected := []BlobDamage{{Root: name.ID, Size: -1}}
	size := o.Size()
	switch {
	case size == 0 && name.ID != merkle.Sum(nil):
		return []Finding{{Name: name, Fault: FaultEmpty, Blobs: affected, Err: fmt.Errorf("%w: it has no bytes", ErrCorrupt)}}
	case nodes == nil && want > 0:
		return []Finding{{Name: name, Fault: FaultOutboard, Blobs: affected, Err: errors.New("readers cannot check its bytes")}}
	case nodes != nil && nodes.Size() == 0 && want > 0:
		return []Finding{{Name: nodesName, Fault: FaultEmpty, Blobs: affected, Err: fmt.Errorf("%w: it has no bytes", ErrCorrupt)}}
	case nodes != nil && nodes.Size() != want:
		return []Finding{{
			Name: name, Fault: FaultLength, Blobs: affected,
			Err: fmt.Errorf("%w: %d bytes do not go with an outboard of %d; a deep check tells which is damaged", ErrCorrupt, size, nodes.Size()),
		}}
	}
	return nil
}

// ranges returns the bytes of a blob that blob and outboard, as they are, do not
// prove.
func (c *check) ranges(root merkle.Root, size int64, data, nodes Object) []BlobDamage {
	d := BlobDamage{Root: root, Size: -1}
	if nodes != nil && merkle.OutboardSize(size) == nodes.Size() && size > merkle.GroupSize {
		if bad, err := unproven(c.ctx, root, size, data, nodes); err == nil && len(bad) > 0 {
			d.Size, d.Ranges = size, bad
		}
	}
	return []BlobDamage{d}
}

// outboardGroup checks that an outboard belongs to something; the comparison
// with its blob was made there.
func (c *check) outboardGroup(names []Name) []Finding {
	last := names[len(names)-1]
	blob, err := c.s.latest(c.ctx, Name{Tenant: last.Tenant, Kind: KindBlob, ID: last.ID})
	if errors.Is(err, ErrNotFound) {
		if _, err = c.s.latest(c.ctx, Name{Tenant: last.Tenant, Kind: KindRecipe, ID: last.ID}); err == nil {
			return nil // checked with the recipe
		}
	}
	if errors.Is(err, ErrNotFound) {
		return []Finding{{
			Name: last, Fault: FaultOrphan, Blobs: []BlobDamage{{Root: last.ID, Size: -1}},
			Err: errors.New("there is neither a blob nor a recipe of this root beside it"),
		}}
	}
	if err != nil {
		return []Finding{{Name: last, Fault: FaultUnread, Err: err}}
	}
	o, f := c.open(blob)
	if f != nil {
		return nil // found with the blobs
	}
	defer o.Close()
	if o.Size() <= merkle.GroupSize {
		// The blob was found to be cut, or the outboard has no business here.
		return []Finding{{
			Name: last, Fault: FaultOrphan, Blobs: []BlobDamage{{Root: last.ID, Size: -1}},
			Err: fmt.Errorf("its blob has %d bytes as it stands, which need none", o.Size()),
		}}
	}
	return nil
}

// cacheGroup has nothing to say: of a cached blob nobody was told that it stands,
// and one that is torn is not found.
func (c *check) cacheGroup([]Name) []Finding { return nil }

// indexGroup checks index files. What is damaged about one costs time and no
// blob, but readers should not have to meet it.
func (c *check) indexGroup(names []Name) []Finding {
	return generations(names, func(name Name) *Finding {
		o, f := c.open(name)
		if f != nil {
			return f
		}
		defer o.Close()
		index, err := openIndex(o, name, newPageCache(0))
		for i := uint64(0); err == nil && c.o.Deep && i < index.shape.pages(); i++ {
			_, err = index.page(i)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, errIndex) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return new(c.describe(name, o, FaultBytes, err))
	})
}

// build is [merkle.BuildAt] into a comparison, or into nothing.
func build(c *check, o Object, sink *comparison) (merkle.Root, error) {
	if sink == nil {
		return merkle.BuildAt(c.ctx, o, o.Size(), nil)
	}
	return merkle.BuildAt(c.ctx, o, o.Size(), sink)
}

// comparison is an outboard that is written to be compared with the one that is
// there: nothing is kept of it.
type comparison struct {
	have Object

	mu    sync.Mutex
	wrong int   // values that differ
	first int64 // the offset of the first
	err   error
}

// WriteAt takes values of an outboard, whole ones.
func (w *comparison) WriteAt(p []byte, off int64) (int, error) {
	have := make([]byte, len(p))
	err := readFullAt(w.have, have, off)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = cmp.Or(w.err, err)
		return len(p), nil // the blob's own root is wanted all the same
	}
	const value = 32
	for i := 0; i < len(p); i += value {
		end := min(i+value, len(p))
		if bytes.Equal(p[i:end], have[i:end]) {
			continue
		}
		if at := off + int64(i); w.wrong == 0 || at < w.first {
			w.first = at
		}
		w.wrong++
	}
	return len(p), nil
}
