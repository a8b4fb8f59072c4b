package cas

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"leafproof/merkle"
)

// indexLimits says when the maps of the newest packs become an index file.
type indexLimits struct {
	keys  int // in the maps
	packs int // in the maps
	read  int // footers that a refresh had to read
}

// keyCost is about what one key in the maps takes, with their growth.
const keyCost = 160

// limitsOf divides the memory that the index may take: half for the maps, of
// which there are two while an index file is written, half for pages.
func limitsOf(memory int64) indexLimits {
	return indexLimits{keys: int(max(1, memory/4/keyCost)), packs: 512, read: 64}
}

// tail is the index over the newest packs.
type tail struct {
	packs []int32
	where map[merkle.Root]place
	again map[merkle.Root][]place // further copies, where a blob was healed or put twice
	keys  int
}

func newTail() *tail {
	return &tail{where: make(map[merkle.Root]place), again: make(map[merkle.Root][]place)}
}

func (t *tail) add(root merkle.Root, p place) {
	t.keys++
	if _, ok := t.where[root]; ok {
		t.again[root] = append(t.again[root], p)
	} else {
		t.where[root] = p
	}
}

// find appends the places of a root, the one met last first.
func (t *tail) find(root merkle.Root, out []place) []place {
	first, ok := t.where[root]
	if !ok {
		return out
	}
	again := t.again[root]
	for i := len(again) - 1; i >= 0; i-- {
		out = append(out, again[i])
	}
	return append(out, first)
}

// all yields every key with its place.
func (t *tail) all() iter.Seq2[merkle.Root, place] {
	return func(yield func(merkle.Root, place) bool) {
		for root, p := range t.where {
			if !yield(root, p) {
				return
			}
		}
		for root, places := range t.again {
			for _, p := range places {
				if !yield(root, p) {
					return
				}
			}
		}
	}
}

// findInFiles appends what the index files know of a root. On error it returns
// the file that cannot be used any more.
func (x *packs) findInFiles(root merkle.Root, out []place) ([]place, *indexFile, error) {
	x.files.RLock()
	defer x.files.RUnlock()
	for i := len(x.files.open) - 1; i >= 0; i-- {
		f := x.files.open[i]
		entries, err := f.find(root)
		if err != nil {
			return nil, f, err
		}
		for _, e := range entries {
			run, err := f.run(e.run)
			if err != nil {
				return nil, f, err
			}
			out = append(out, place{f.number[run.pack], run.at, run.codec, run.raw, run.stored, e.off, e.length})
		}
	}
	return out, nil, nil
}

// openFiles opens index files that are new, and closes those that are gone:
// another process has merged them into one that is new.
func (x *packs) openFiles(ctx context.Context) error {
	for range 3 { // again when one went away between listing and opening
		listed := make(map[Name]bool)
		for name, err := range x.b.List(ctx, x.tenant, KindIndex, nil) {
			if err != nil {
				return err
			}
			listed[name] = true
		}
		x.files.RLock()
		var gone []*indexFile
		fresh := maps.Clone(listed)
		for _, f := range x.files.open {
			delete(fresh, f.name)
			if !listed[f.name] && !f.private {
				gone = append(gone, f)
			}
		}
		x.files.RUnlock()
		missing := false
		for _, name := range slices.SortedFunc(maps.Keys(fresh), Name.Compare) {
			if x.broken[name] {
				continue
			}
			o, err := OpenObject(ctx, x.b, name)
			if errors.Is(err, ErrNotFound) {
				missing = true
				continue
			}
			if err == nil {
				err = x.install(o, name, false)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				x.breakFile(name, err)
			}
		}
		for _, f := range gone {
			x.close(f)
		}
		if !missing {
			break
		}
	}
	return nil
}

// install checks an index file and adds it to those in use, in exchange for old
// ones. On error it closes o.
func (x *packs) install(o Object, name Name, private bool, old ...*indexFile) error {
	f, err := openIndex(o, name, x.pages)
	if err != nil {
		o.Close()
		return err
	}
	f.private = private
	x.mu.Lock()
	f.number = make([]int32, len(f.packs))
	for i, p := range f.packs {
		f.number[i] = x.enter(p.name, int64(p.size))
		x.infos[f.number[i]].covers++
	}
	x.mu.Unlock()
	x.files.Lock()
	x.files.open = append(x.files.open, f)
	slices.SortStableFunc(x.files.open, func(a, b *indexFile) int { return cmp.Compare(b.shape.entries, a.shape.entries) })
	x.files.Unlock()
	for _, f := range old {
		x.close(f)
	}
	return nil
}

// close takes a file out of use.
func (x *packs) close(f *indexFile) {
	x.files.Lock()
	i := slices.Index(x.files.open, f)
	if i >= 0 {
		x.files.open = slices.Delete(x.files.open, i, i+1)
		f.o.Close()
	}
	x.files.Unlock()
	if i < 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, number := range f.number {
		x.infos[number].covers--
	}
}

// drop takes a file out of use for good, because reading it failed.
func (x *packs) drop(f *indexFile, err error) {
	x.close(f)
	x.refreshing.Lock()
	defer x.refreshing.Unlock()
	if !f.private {
		x.breakFile(f.name, err)
	}
}

// breakFile notes that an index file cannot be used; refreshing is held.
func (x *packs) breakFile(name Name, err error) {
	x.broken[name] = true
	x.mu.Lock()
	x.damaged[name] = err
	x.mu.Unlock()
}

// indexTail writes an index file over the maps' packs if they have that many
// keys or packs; refreshing is held. An index file that cannot be written is no
// error of whoever needs the index: it then lies in a temporary file of this
// process, and if that fails too it stays in memory.
func (x *packs) indexTail(ctx context.Context, keys, packs int) {
	x.mu.Lock()
	if x.tail.keys < keys && len(x.tail.packs) < packs || len(x.tail.packs) == 0 {
		x.mu.Unlock()
		return
	}
	t := x.tail
	x.frozen, x.tail = t, newTail()
	src := x.tailSource(t)
	x.mu.Unlock()

	err := x.writeFile(ctx, src, false)
	if err != nil && ctx.Err() == nil {
		x.unwritten = err
		err = x.writeFile(ctx, src, true)
	}
	x.mu.Lock()
	x.frozen = nil
	if err == nil {
		for _, number := range t.packs {
			x.infos[number].covers--
		}
	} else {
		newer := x.tail
		x.tail = t
		t.packs = append(t.packs, newer.packs...)
		for root, p := range newer.all() {
			t.add(root, p)
		}
	}
	x.mu.Unlock()
	if err == nil {
		x.mergeFiles(ctx)
	}
}

// tailSource is the index file over a tail's packs, without those that are gone;
// mu is held.
func (x *packs) tailSource(t *tail) indexSource {
	var src indexSource
	numbers := make(map[int32]uint32)
	for _, number := range t.packs {
		if info := x.infos[number]; !x.gone(number) {
			src.packs = append(src.packs, indexPack{name: info.name, size: uint32(info.size)})
		}
	}
	slices.SortFunc(src.packs, func(a, b indexPack) int { return a.name.Compare(b.name) })
	for i, p := range src.packs {
		numbers[x.number[p.name]] = uint32(i)
	}
	var runs []indexRun
	for _, p := range t.all() {
		if pack, ok := numbers[p.pack]; ok {
			runs = append(runs, indexRun{pack, p.at, p.codec, p.raw, p.stored})
		}
	}
	slices.SortFunc(runs, indexRun.compare)
	runs = slices.Compact(runs)
	entries := make([]indexEntry, 0, len(runs))
	for root, p := range t.all() {
		if pack, ok := numbers[p.pack]; ok {
			run, _ := slices.BinarySearchFunc(runs, indexRun{pack: pack, at: p.at}, indexRun.compare)
			entries = append(entries, indexEntry{root, uint32(run), p.off, p.length})
		}
	}
	slices.SortFunc(entries, indexEntry.compare)
	for i, r := range runs {
		p := &src.packs[r.pack]
		if p.nRuns == 0 {
			p.firstRun = uint32(i)
		}
		p.nRuns++
	}
	src.runs, src.entries, src.atMost = without(runs), without(entries), uint64(len(entries))
	return src
}

func without[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// writeFile writes an index file and puts it in the place of old ones.
func (x *packs) writeFile(ctx context.Context, src indexSource, private bool, old ...*indexFile) error {
	if len(src.packs) == 0 {
		for _, f := range old {
			x.close(f)
		}
		return nil
	}
	b := x.b
	if private {
		b = struct{ Backend }{b} // without stages of its own: a temporary file
	}
	stage, err := NewStage(ctx, b, x.tenant)
	if err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			stage.Discard()
		}
	}()
	id, size, err := writeIndex(ctx, stage, src)
	if err != nil {
		return err
	}
	name := Name{Tenant: x.tenant, Kind: KindIndex, ID: id}
	if private {
		kept = true // install closes it on failure
		return x.install(&privateObject{stage, size}, name, true, old...)
	}
	// What stands under the name may be damaged: it is not used again.
	for n, err := range x.b.List(ctx, x.tenant, KindIndex, id[:]) {
		if err != nil {
			return err
		}
		name.Gen = n.Gen + 1
	}
	if err := stage.Commit(ctx, name, size); err != nil {
		return err
	}
	o, err := OpenObject(ctx, x.b, name)
	if err != nil {
		return err
	}
	return x.install(o, name, false, old...)
}

// mergeFiles merges index files until each is larger than the next smaller one
// by itself and more, so that few remain however many packs there are, and
// each key is written again a few times in all; refreshing is held.
func (x *packs) mergeFiles(ctx context.Context) {
	x.files.RLock()
	files := slices.Clone(x.files.open) // largest first
	x.files.RUnlock()
	sum, n := uint64(0), 0
	for n < len(files) {
		f := files[len(files)-1-n]
		if n > 0 && f.shape.entries > sum {
			break
		}
		sum += f.shape.entries
		n++
	}
	if n < 2 {
		return
	}
	old := files[len(files)-n:]
	if err := x.writeFile(ctx, x.mergeSource(old), false, old...); err != nil {
		// One of them may be bad: whoever meets that reads footers instead.
		// Else there is no room, and more files stay than need be.
		return
	}
	x.sweepFiles(ctx, old)
}

// sweepFiles deletes index files that are in no use any more, and those that
// were found broken. What cannot be deleted now is deleted some other time.
func (x *packs) sweepFiles(ctx context.Context, old []*indexFile) {
	var names []Name
	for _, f := range old {
		if !f.private {
			names = append(names, f.name)
		}
	}
	x.mu.RLock()
	for name, err := range x.damaged {
		if name.Kind == KindIndex && errors.Is(err, errIndex) {
			names = append(names, name)
		}
	}
	x.mu.RUnlock()
	if len(names) > 0 {
		_ = x.b.Delete(ctx, names...)
	}
}

// mergeSource is the index file over the packs of several, without those that
// are gone. A pack that more than one file has is taken from the first.
func (x *packs) mergeSource(files []*indexFile) indexSource {
	type taken struct {
		indexPack
		file, local int
	}
	var packs []taken
	var src indexSource
	x.mu.RLock()
	owned := make(map[int32]bool)
	for i, f := range files {
		src.atMost += f.shape.entries
		for j, number := range f.number {
			if !owned[number] && !x.gone(number) {
				owned[number] = true
				packs = append(packs, taken{f.packs[j], i, j})
			}
		}
	}
	x.mu.RUnlock()
	slices.SortFunc(packs, func(a, b taken) int { return a.name.Compare(b.name) })

	// shift[i][j] is what to add to the number of a run of file i's pack j, or
	// notTaken.
	const notTaken = int64(1) << 40
	shift := make([][]int64, len(files))
	for i, f := range files {
		shift[i] = slices.Repeat([]int64{notTaken}, len(f.packs))
	}
	next := uint32(0)
	for _, p := range packs {
		shift[p.file][p.local] = int64(next) - int64(p.firstRun)
		p.firstRun = next
		next += p.nRuns
		src.packs = append(src.packs, p.indexPack)
	}
	src.runs = func(yield func(indexRun, error) bool) {
		for i, p := range packs {
			for j := range p.nRuns {
				run, err := files[p.file].run(p.firstRun + j)
				run.pack = uint32(i)
				if !yield(run, err) || err != nil {
					return
				}
			}
		}
	}
	streams := make([]iter.Seq2[indexEntry, error], len(files))
	for i, f := range files {
		streams[i] = func(yield func(indexEntry, error) bool) {
			for p, err := range f.stream(f.shape.firstEntryPage(), f.shape.entries, keyRecord, keysPage) {
				if err != nil {
					yield(indexEntry{}, err)
					return
				}
				e := parseEntry(p)
				pack, found := slices.BinarySearchFunc(f.packs, e.run, func(p indexPack, run uint32) int {
					switch {
					case run < p.firstRun:
						return 1
					case run >= p.firstRun+p.nRuns:
						return -1
					}
					return 0
				})
				if !found {
					yield(indexEntry{}, errIndex)
					return
				}
				by := shift[i][pack]
				if by == notTaken {
					continue
				}
				e.run = uint32(int64(e.run) + by)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	src.entries = merged(streams)
	return src
}

// merged yields the entries of ascending streams in ascending order. The first
// error ends it.
func merged(streams []iter.Seq2[indexEntry, error]) iter.Seq2[indexEntry, error] {
	return func(yield func(indexEntry, error) bool) {
		type head struct {
			e    indexEntry
			next func() (indexEntry, error, bool)
		}
		var heads []head
		for _, s := range streams {
			next, stop := iter.Pull2(s)
			defer stop()
			e, err, ok := next()
			if err != nil {
				yield(e, err)
				return
			}
			if ok {
				heads = append(heads, head{e, next})
			}
		}
		for len(heads) > 0 {
			least := 0
			for i := range heads {
				if heads[i].e.compare(heads[least].e) < 0 {
					least = i
				}
			}
			if !yield(heads[least].e, nil) {
				return
			}
			e, err, ok := heads[least].next()
			switch {
			case err != nil:
				yield(e, err)
				return
			case ok:
				heads[least].e = e
			default:
				heads = slices.Delete(heads, least, least+1)
			}
		}
	}
}

// privateObject is an index file in a temporary file: where the store cannot be
// written.
type privateObject struct {
	Stage
	size int64
}

func (o *privateObject) Size() int64  { return o.size }
func (o *privateObject) Close() error { return o.Discard() }
