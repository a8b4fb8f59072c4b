package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
)

// Content is an artifact's bytes, opened for one caller: what a face needs that
// must say how many bytes come before the first one does. It gives nothing out by
// itself, and is no leave: each Write asks the gate. It is not safe for concurrent
// use, and must be closed.
type Content struct {
	a      *artifact
	data   *lentReader
	whole  bool
	failed bool
}

// Content opens the bytes of an artifact that who may read, or some of whose
// records he may read.
func (s *Store) Content(ctx context.Context, who Caller, id string) (*Content, error) {
	a, err := s.toRead(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if err := a.allows(manifest.SelectorByteRange); err != nil {
		return nil, a.tell(ctx, err)
	}
	_, err = a.permit(ctx)
	if err != nil && !refused(err) {
		return nil, err
	}
	whole := err == nil
	data, err := s.readers.take(ctx, s.objects, readerKey{cas.TenantOf(a.row.Tenant), a.m.Root}, a.m.Size)
	if err != nil {
		return nil, a.tell(ctx, err)
	}
	return &Content{a: a, data: data, whole: whole}, nil
}

// toRead is find for who wants bytes and nothing else: what it finds is shared with
// others, and must not be handed out.
func (s *Store) toRead(ctx context.Context, who Caller, id string) (*artifact, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	epoch, _, quick := s.catalogue.Quick() // before the look, which may be newer
	row, known := s.rows.get(epoch, id)
	if !quick || !known {
		var err error
		row, err = s.catalogue.Artifact(ctx, id)
		if errors.Is(err, catalogue.ErrNotFound) {
			return nil, s.absent(ctx, who, id, gate.Read)
		}
		if err != nil {
			return nil, wireError(id, err)
		}
		if quick {
			s.rows.put(epoch, id, row)
		}
	}
	a := s.artifact(who, row, gate.Read)
	if err := a.knock(ctx); err != nil {
		return nil, err
	}
	err := s.available(ctx, row)
	if err == nil {
		a.m, err = s.loadShared(ctx, row)
	}
	if err == nil && a.m.ArtifactID != id { // a damaged index of the catalogue leads to another row
		err = fmt.Errorf("%w: the catalogue leads to %s", errManifest, a.m.ArtifactID)
	}
	if err != nil {
		return nil, a.tell(ctx, err)
	}
	return a, nil
}

// Size is the number of bytes.
func (c *Content) Size() int64 { return c.a.m.Size }

// MediaType is what the manifest says of them.
func (c *Content) MediaType() string { return c.a.m.Predicate.Bytes.MediaType }

// Whole reports whether the caller may have all of the bytes. Root and SHA256, by
// which a guess at the others could be confirmed, are told to nobody else.
func (c *Content) Whole() bool { return c.whole }

// Root is the root of the bytes; zero for a caller who may not have all of them.
func (c *Content) Root() merkle.Root {
	if !c.whole {
		return merkle.Root{}
	}
	return c.a.m.Root
}

// SHA256 is the SHA-256 of the bytes in hex, where it was computed, and the caller
// may have all of them; else "".
func (c *Content) SHA256() string {
	if !c.whole {
		return ""
	}
	return c.a.m.Predicate.Bytes.Also["sha256"]
}

// Close ends the use of the content.
func (c *Content) Close() error {
	if c.data == nil {
		return nil
	}
	data := c.data
	c.data = nil
	return c.a.store.readers.give(data, c.failed)
}

// Look records that the caller is told what the content is, and no byte of it.
func (c *Content) Look(ctx context.Context) error {
	permit, err := c.a.permit(ctx, noByte...)
	if err != nil {
		return err
	}
	return c.a.disclosed(ctx, permit, Shown{Facts: true})
}

// Write writes the bytes of a range, which must lie within the content, as
// [Store.Read] does. What comes next is read and verified while w takes what came
// before. Where begin is not nil, it is called before the first byte, which is at
// hand then and may be shown; where there is none, at the end.
func (c *Content) Write(ctx context.Context, r merkle.Range, w io.Writer, begin func()) error {
	a := c.a
	if r.Start < 0 || r.End < r.Start || r.End > a.m.Size {
		return fail(CodeSelectorInvalid, FixCall, "bytes", "bytes %d:%d are outside %s, which has %d bytes",
			r.Start, r.End, a.row.ArtifactID, a.m.Size)
	}
	permit, err := a.permit(ctx, r)
	if err != nil {
		return err
	}
	out := &begun{w: w, begin: begin}
	gated, err := gate.NewWriter(ctx, a.whileStanding(ctx, out), permit, a.request)
	if err != nil {
		return wireError(a.row.ArtifactID, err)
	}
	if err := a.disclosed(ctx, permit, shownRanges(a.m.Size, r)); err != nil {
		return err
	}
	ahead := newReadAhead(c.data, r)
	defer ahead.stop()
	b, err := ahead.next()
	for ; err == nil && len(b) > 0; b, err = ahead.next() {
		if _, err = gated.Write(b); err != nil {
			break
		}
	}
	if err != nil {
		c.failed = true
		return wireError(a.row.ArtifactID, err)
	}
	out.start() // where there was no byte
	return nil
}

// begun calls begin before the first byte: it is at hand then, and may be shown.
type begun struct {
	w     io.Writer
	begin func() // nil: it was called, or there is nothing to call
}

func (b *begun) start() {
	if b.begin != nil {
		b.begin()
		b.begin = nil
	}
}

func (b *begun) Write(p []byte) (int, error) {
	b.start()
	return b.w.Write(p)
}

// readAhead reads a range in order. Where it is long, another goroutine reads and
// verifies the next piece while the last one is used.
type readAhead struct {
	data  io.ReaderAt
	left  merkle.Range
	room  *copyRoom   // of a short range
	ready chan piece  // of a long one
	free  chan []byte // rooms to read to
	done  chan struct{}
	used  []byte // the piece that was given out last
	ended sync.WaitGroup
}

type piece struct {
	b   []byte
	err error
}

// aheadPieces is how many pieces of copyBuffer bytes a long range keeps at hand.
const aheadPieces = 3

var aheadRooms = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

func newReadAhead(data io.ReaderAt, r merkle.Range) *readAhead {
	a := &readAhead{data: data, left: r}
	if r.End-r.Start <= copyBuffer {
		a.room = copyRooms.Get().(*copyRoom)
		return a
	}
	a.ready, a.free, a.done = make(chan piece, aheadPieces), make(chan []byte, aheadPieces), make(chan struct{})
	for range aheadPieces {
		a.free <- aheadRooms.Get().(*[copyBuffer]byte)[:]
	}
	a.ended.Go(a.run)
	return a
}

// run reads all pieces.
func (a *readAhead) run() {
	defer close(a.ready)
	for at := a.left.Start; at < a.left.End; {
		var b []byte
		select {
		case b = <-a.free:
		case <-a.done:
			return
		}
		// Pieces end at multiples of their size, so that groups are read once.
		n := min(copyBuffer-at%copyBuffer, a.left.End-at)
		err := readAll(a.data, b[:n], at)
		select {
		case a.ready <- piece{b[:n], err}:
		case <-a.done:
			return
		}
		if err != nil {
			return
		}
		at += n
	}
}

func readAll(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) || err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next returns the next piece, which is valid until the next call; none at the end.
func (a *readAhead) next() ([]byte, error) {
	if a.room != nil {
		b := a.room.in[:a.left.End-a.left.Start]
		err := readAll(a.data, b, a.left.Start)
		a.left.Start = a.left.End
		return b, err
	}
	if a.used != nil {
		a.free <- a.used[:copyBuffer]
		a.used = nil
	}
	p, ok := <-a.ready
	if !ok {
		return nil, nil
	}
	a.used = p.b
	return p.b, p.err
}

// stop ends the reading and waits for it: then the data may be closed.
func (a *readAhead) stop() {
	if a.room != nil {
		copyRooms.Put(a.room)
		return
	}
	close(a.done)
	a.ended.Wait()
	if a.used != nil {
		a.free <- a.used[:copyBuffer]
	}
	close(a.free)
	for b := range a.free {
		aheadRooms.Put((*[copyBuffer]byte)(b))
	}
}

// Envelope returns the signed manifest of an artifact as it is stored: canonical
// JSON {"manifest": DSSE, "ssh": SSH signature}, both of one payload.
func (s *Store) Envelope(ctx context.Context, who Caller, id string) ([]byte, error) {
	a, err := s.find(ctx, who, id, gate.Stat)
	if err != nil {
		return nil, err
	}
	permit, err := a.permit(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.disclosed(ctx, permit, Shown{Facts: true}); err != nil {
		return nil, err
	}
	return a.signed.object(), nil
}

// PrincipalNamed returns a principal by name, for a face that knows by other means
// than a bearer token who asks. Where there is none, the error is [ErrToken].
func (s *Store) PrincipalNamed(ctx context.Context, name Principal) (PrincipalInfo, error) {
	if checkPrincipal(name) != nil {
		return PrincipalInfo{}, ErrToken
	}
	p, err := s.catalogue.Principal(ctx, string(name))
	switch {
	case errors.Is(err, catalogue.ErrNoPrincipal), err == nil && p.RemovedAt != nil:
		return PrincipalInfo{}, ErrToken
	case err != nil:
		return PrincipalInfo{}, wireError("principal", err)
	}
	return principalInfo(p), nil
}
