package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"leafproof/merkle"
)

const (
	copyBuffers = 4         // in flight between reading and hashing
	copySize    = 512 << 10 // bytes of each
)

// copyRooms are the buffers, for reuse.
var copyRooms = sync.Pool{New: func() any { return new([copySize]byte) }}

// stagedWhole is a blob whose bytes and outboard are in unfinished objects.
type stagedWhole struct {
	root        merkle.Root
	size        int64
	data, nodes Stage
}

func (w *stagedWhole) discard() error { return errors.Join(w.data.Discard(), w.nodes.Discard()) }

// putWhole stores head followed by r (which may be nil) as an object of its
// own. The bytes stream into an unfinished object while their outboard streams
// into another; both get their names when the root is known: the data first,
// so that an outboard without data never shows.
func (s *Store) putWhole(ctx context.Context, tenant Tenant, h *hold, head []byte, r io.Reader) (Info, error) {
	w, err := s.stageWhole(ctx, tenant, head, r)
	if err != nil {
		return Info{}, &Error{Op: "put", Err: plain(err)}
	}
	defer w.discard()
	if err := s.settleWhole(ctx, tenant, h, w); err != nil {
		return Info{}, &Error{Op: "put", Root: w.root, Err: plain(err)}
	}
	return Info{w.root, w.size, Whole}, nil
}

// stageWhole reads a blob into unfinished objects.
func (s *Store) stageWhole(ctx context.Context, tenant Tenant, head []byte, r io.Reader) (*stagedWhole, error) {
	in := io.Reader(bytes.NewReader(head))
	if r != nil {
		in = io.MultiReader(in, r)
	}
	data, err := NewStage(ctx, s.b, tenant)
	if err != nil {
		return nil, err
	}
	nodes, err := NewStage(ctx, s.b, tenant)
	if err != nil {
		return nil, errors.Join(err, data.Discard())
	}
	w := &stagedWhole{data: data, nodes: nodes}
	if w.root, w.size, err = ingest(ctx, in, data, nodes); err != nil {
		return nil, errors.Join(err, w.discard())
	}
	return w, nil
}

// settleWhole makes staged blobs durable, all that are given at once, and uses
// them up.
func (s *Store) settleWhole(ctx context.Context, tenant Tenant, h *hold, blobs ...*stagedWhole) error {
	var data, nodes []Staged
	for _, w := range blobs {
		name, err := s.place(ctx, h, Name{Tenant: tenant, Kind: KindBlob, ID: w.root}, func(o Object) (bool, error) {
			if o.Size() != w.size {
				return false, nil
			}
			got, err := merkle.BuildAt(ctx, o, w.size, nil)
			if errors.Is(err, merkle.ErrChanged) {
				return false, nil
			}
			return got == w.root, err
		})
		if err != nil {
			return err
		}
		data = append(data, Staged{w.data, name, w.size})
	}
	if err := s.commitStages(ctx, data); err != nil {
		return err
	}
	for _, w := range blobs {
		n := merkle.OutboardSize(w.size)
		if n == 0 {
			continue
		}
		name, err := s.place(ctx, h, Name{Tenant: tenant, Kind: KindOutboard, ID: w.root}, func(o Object) (bool, error) {
			return sameBytes(ctx, o, n, io.NewSectionReader(w.nodes, 0, n))
		})
		if err != nil {
			return err
		}
		nodes = append(nodes, Staged{w.nodes, name, n})
	}
	return s.commitStages(ctx, nodes)
}

func (s *Store) commitStages(ctx context.Context, list []Staged) error {
	if len(list) == 1 {
		return list[0].Stage.Commit(ctx, list[0].Name, list[0].Size)
	}
	return CommitStages(ctx, s.b, list)
}

// settle gives a staged object its name, as place says.
func (s *Store) settle(ctx context.Context, h *hold, name Name, stage Stage, size int64, check func(Object) (bool, error)) error {
	name, err := s.place(ctx, h, name, check)
	if err != nil {
		return err
	}
	return stage.Commit(ctx, name, size)
}

// place returns the name under which to commit an object, pinned. A resident
// object under that name that passes the check stays: to commit under its name
// writes nothing then, but makes sure that the name is durable, or puts the bytes
// back if it was deleted since the check. One that does not pass, or is
// condemned, is superseded by the next generation.
func (s *Store) place(ctx context.Context, h *hold, name Name, check func(Object) (bool, error)) (Name, error) {
	resident, err := s.latest(ctx, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return name, err
	}
	name, pinErr := h.free(ctx, resident)
	if pinErr != nil || err != nil || name != resident { // there is none, or it is condemned
		return name, pinErr
	}
	sound, err := s.sound(ctx, resident, check)
	switch {
	case errors.Is(err, ErrNotFound): // deleted meanwhile: its name is free
	case err != nil:
		return name, err
	case !sound && resident.Gen == math.MaxUint32:
		return name, &Error{Op: "heal", Name: resident, Err: fmt.Errorf("%w: no generation is left", ErrCorrupt)}
	case !sound:
		resident.Gen++
		return h.free(ctx, resident)
	}
	return resident, nil
}

// sound opens an object and checks it. Only what the object itself is makes it
// unsound: other bytes, more or fewer of them. That it cannot be read now (no
// file handle left, no permission, a disk that fails) says nothing about it, and
// is an error like a missing object.
func (s *Store) sound(ctx context.Context, name Name, check func(Object) (bool, error)) (bool, error) {
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return false, unlessDamage(err)
	}
	defer o.Close()
	ok, err := check(o)
	return ok, unlessDamage(err)
}

// unlessDamage returns nil for an error that speaks of the object's bytes.
func unlessDamage(err error) error {
	if errors.Is(err, ErrCorrupt) || errors.Is(err, errPack) {
		return nil
	}
	return err
}

// latest returns the highest generation of a name, or ErrNotFound.
func (s *Store) latest(ctx context.Context, name Name) (Name, error) {
	last, found := Name{}, false
	for n, err := range s.b.List(ctx, name.Tenant, name.Kind, name.ID[:]) {
		if err != nil {
			return Name{}, err
		}
		last, found = n, true
	}
	if !found {
		return name, ErrNotFound
	}
	return last, nil
}

// ingest copies in to data and its outboard to nodes, and returns the root and
// the size. One goroutine reads and writes, another hashes.
func ingest(ctx context.Context, in io.Reader, data, nodes io.WriterAt) (merkle.Root, int64, error) {
	builder := merkle.NewBuilder(nodes)
	free, full := make(chan []byte, copyBuffers), make(chan []byte, copyBuffers)
	failed := make(chan struct{}) // closed when hashing failed
	hashed := make(chan error, 1)
	for range copyBuffers {
		free <- nil // made when first used: a small blob needs one
	}
	go func() {
		var err error
		for buf := range full {
			if err == nil {
				if _, err = builder.Write(buf); err != nil {
					close(failed)
				}
			}
			free <- buf
		}
		hashed <- err
	}()

	size, err := copyTo(ctx, in, data, free, full, failed)
	close(full)
	if e := <-hashed; err == nil {
		err = e
	}
	for len(free) > 0 {
		if buf := <-free; buf != nil {
			copyRooms.Put((*[copySize]byte)(buf[:copySize]))
		}
	}
	if err != nil {
		return merkle.Root{}, 0, err
	}
	root, err := builder.Seal()
	return root, size, err
}

// copyTo reads in to its end into buffers from free, writes each to data and
// hands it on to full.
func copyTo(ctx context.Context, in io.Reader, data io.WriterAt, free <-chan []byte, full chan<- []byte, failed <-chan struct{}) (int64, error) {
	var size int64
	for {
		var buf []byte
		select {
		case buf = <-free:
		case <-failed:
			return size, nil // the hashing goroutine has the reason
		}
		if err := ctx.Err(); err != nil {
			return size, err
		}
		if buf == nil {
			buf = copyRooms.Get().(*[copySize]byte)[:]
		}
		n, err := fillFrom(in, buf[:copySize])
		if n > 0 {
			if _, err := data.WriteAt(buf[:n], size); err != nil {
				return size, err
			}
			size += int64(n)
			full <- buf[:n]
		}
		switch {
		case err == io.EOF:
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

// fillFrom reads until p is full or r ends, which is io.EOF. Unlike
// [io.ReadFull] it does not confuse that end with an io.ErrUnexpectedEOF of r's
// own, by which a cut connection or a cut archive tells that bytes are missing.
func fillFrom(r io.Reader, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := r.Read(p[n:])
		n += m
		if err != nil && n < len(p) {
			return n, err
		}
	}
	return n, nil
}

// sameBytes reports whether o holds exactly the size bytes of want.
func sameBytes(ctx context.Context, o Object, size int64, want io.Reader) (bool, error) {
	if o.Size() != size {
		return false, nil
	}
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := min(int64(len(a)), size-off)
		if _, err := io.ReadFull(want, a[:n]); err != nil {
			return false, err
		}
		if err := readFullAt(o, b[:n], off); err != nil {
			if errors.Is(err, errShort) {
				return false, nil
			}
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
		off += n
	}
	return true, nil
}
