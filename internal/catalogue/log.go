package catalogue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"leafproof/merkle"

	"golang.org/x/mod/sumdb/tlog"
)

// Leaf is an entry of the commit log (RFC 6962), as the catalogue keeps it. The
// zero Leaf is none: what is published with it is not logged.
type Leaf struct {
	Kind   string // as in "manifest"; the catalogue does not interpret it
	Digest merkle.Root
	Hash   tlog.Hash // of the leaf in the tree
	Index  int64     // from 0; set by the catalogue
}

// Head is a state of the commit log that somebody signed. The catalogue does not
// read the note.
type Head struct {
	Size      int64
	At        time.Time // kept to the microsecond
	Note      []byte
	Witnessed bool // others than the log signed it too
}

// Sealer signs the root of the log when it has so many leaves. It may fail: then
// what was published stands without a checkpoint, until the next one.
type Sealer func(size int64, root tlog.Hash, at time.Time) ([]byte, error)

// Commits is the part of a catalogue that keeps the commit log. A leaf is appended
// in the transaction that publishes what it is of, all of a group commit in one,
// and sealed there. No leaf is ever changed or removed.
type Commits interface {
	// Seal sets who signs checkpoints from now on; nil is nobody.
	Seal(Sealer)
	// Append enters leaves that belong to no row, in this order, and seals them. A
	// leaf with the kind and digest of one that is there is not entered again.
	Append(ctx context.Context, leaves ...Leaf) error
	// Backfill enters the leaf of an artifact that was published without one; for
	// one that has one it changes nothing.
	Backfill(ctx context.Context, artifactID string, leaf Leaf) error
	// LogSize is the number of leaves.
	LogSize(ctx context.Context) (int64, error)
	// Leaves returns leaves from an index on; at most limit, which is from 1 to [MaxList].
	Leaves(ctx context.Context, from int64, limit int) ([]Leaf, error)
	// LeafOf returns the leaf of an artifact or a statement, by its id, or [ErrNotFound].
	LeafOf(ctx context.Context, id string) (Leaf, error)
	// Unlogged returns artifacts without a leaf with Seq > after, in the order of Seq,
	// deleted ones too; at most limit.
	Unlogged(ctx context.Context, after int64, limit int) ([]Artifact, error)
	// Orphans returns leaves that were entered with an artifact or a statement of which
	// there is no row any more; at most limit.
	Orphans(ctx context.Context, limit int) ([]Leaf, error)
	// LogHashes reads stored hashes of the tree by their places (see
	// golang.org/x/mod/sumdb/tlog).
	LogHashes(ctx context.Context) tlog.HashReader
	// HeadOf returns the first head that holds a leaf, or the first such that was
	// witnessed, or ErrNotFound.
	HeadOf(ctx context.Context, index int64, witnessed bool) (Head, error)
	// NewestHead returns the head of the most leaves, or ErrNotFound.
	NewestHead(ctx context.Context) (Head, error)
	// Witnessed exchanges the note of a head for one with more signatures.
	Witnessed(ctx context.Context, size int64, note []byte) error
}

const (
	maxLeafKind = 32
	maxNote     = 128 << 10
	// tileWidth is how many hashes stand in one row: one of 2^8 of a level, of which
	// each is the root of a full row of the level below.
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// versionLog is the version of the schema that brought the commit log.
const versionLog = 4

// logSchema belongs to version 4 of the schema. Of the lowest level only full
// tiles are kept: the hashes of the rest stand in the leaves. place is
// level * 2^48 + number.
const logSchema = `
CREATE TABLE log_leaves (
	idx          INTEGER PRIMARY KEY CHECK (idx >= 0),
	kind         TEXT    NOT NULL,
	digest       BLOB    NOT NULL CHECK (length(digest) = 32),
	hash         BLOB    NOT NULL CHECK (length(hash) = 32),
	artifact_seq INTEGER,
	statement_id TEXT
) STRICT;

CREATE UNIQUE INDEX log_of_artifact ON log_leaves (artifact_seq) WHERE artifact_seq IS NOT NULL;

CREATE UNIQUE INDEX log_of_statement ON log_leaves (statement_id) WHERE statement_id IS NOT NULL;

CREATE UNIQUE INDEX log_of_others ON log_leaves (kind, digest) WHERE artifact_seq IS NULL AND statement_id IS NULL;

CREATE TABLE log_tiles (
	place  INTEGER PRIMARY KEY,
	hashes BLOB NOT NULL CHECK (length(hashes) % 32 = 0 AND length(hashes) BETWEEN 32 AND 8192)
) STRICT;

CREATE TABLE log_heads (
	size      INTEGER PRIMARY KEY CHECK (size > 0),
	at        INTEGER NOT NULL,
	note      BLOB    NOT NULL,
	witnessed INTEGER NOT NULL CHECK (witnessed IN (0, 1))
) STRICT;

CREATE INDEX log_heads_witnessed ON log_heads (size) WHERE witnessed = 1;
`

func (l *Leaf) none() bool { return l.Kind == "" }

func (l *Leaf) check() error {
	if l.Kind == "" || len(l.Kind) > maxLeafKind || l.Digest.IsZero() || l.Hash == (tlog.Hash{}) {
		return &Error{Op: "append to the log", Subject: l.Digest.String(), Err: ErrInvalid, Detail: "a leaf without a kind, a digest or a hash"}
	}
	return nil
}

func checkHead(size int64, note []byte) error {
	if size < 1 || len(note) == 0 || len(note) > maxNote {
		return &Error{Op: "seal the log", Subject: fmt.Sprintf("at %d leaves", size), Err: ErrInvalid, Detail: fmt.Sprintf("a note of %d bytes", len(note))}
	}
	return nil
}

// edge is the right edge of the tree: enough to append and to know the root.
type edge struct {
	size   int64
	levels [][]tlog.Hash // the last tile of each level, while it is not full
	peaks  []tlog.Hash   // the roots of the perfect subtrees, the largest first
}

// tileKey is the place of a tile.
type tileKey struct {
	level int
	n     int64
}

func (k tileKey) place() int64 { return int64(k.level)<<48 | k.n }

// add appends a leaf. put gets the tiles that changed and are to be kept, and must
// not keep hold of them.
func (e *edge) add(h tlog.Hash, put func(tileKey, []tlog.Hash) error) error {
	e.peaks = append(e.peaks, h)
	for n := e.size; n&1 == 1; n >>= 1 {
		last := len(e.peaks) - 1
		e.peaks[last-1] = tlog.NodeHash(e.peaks[last-1], e.peaks[last])
		e.peaks = e.peaks[:last]
	}
	e.size++
	units := e.size // in hashes of the level
	for level := 0; ; level++ {
		if level == len(e.levels) {
			e.levels = append(e.levels, nil)
		}
		tile := append(e.levels[level], h)
		e.levels[level] = tile
		full := len(tile) == tileWidth
		if level > 0 || full {
			if err := put(tileKey{level, (units - 1) / tileWidth}, tile); err != nil {
				return err
			}
		}
		if !full {
			return nil
		}
		h = perfect(tile)
		e.levels[level] = tile[:0]
		units /= tileWidth
	}
}

// root is the root of the tree; of no leaves it is none.
func (e *edge) root() tlog.Hash {
	if len(e.peaks) == 0 {
		return tlog.Hash{}
	}
	h := e.peaks[len(e.peaks)-1]
	for _, peak := range slices.Backward(e.peaks[:len(e.peaks)-1]) {
		h = tlog.NodeHash(peak, h)
	}
	return h
}

// loadEdge makes the edge of a tree of a size; read gives the last tile of a level.
func loadEdge(size int64, read func(key tileKey, width int) ([]tlog.Hash, error)) (*edge, error) {
	e := &edge{size: size}
	for level, units := 0, size; units > 0; level, units = level+1, units/tileWidth {
		var tile []tlog.Hash
		if width := int(units % tileWidth); width > 0 {
			var err error
			if tile, err = read(tileKey{level, units / tileWidth}, width); err != nil {
				return nil, err
			}
		}
		e.levels = append(e.levels, tile)
	}
	for _, tile := range slices.Backward(e.levels) {
		for rest := tile; len(rest) > 0; {
			n := 1
			for 2*n <= len(rest) {
				n *= 2
			}
			e.peaks = append(e.peaks, perfect(rest[:n]))
			rest = rest[n:]
		}
	}
	return e, nil
}

// perfect is the root over a power of two of hashes.
func perfect(hashes []tlog.Hash) tlog.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	row := make([]tlog.Hash, len(hashes)/2)
	for {
		for i := range row {
			row[i] = tlog.NodeHash(hashes[2*i], hashes[2*i+1])
		}
		if len(row) == 1 {
			return row[0]
		}
		hashes, row = row, row[:len(row)/2]
	}
}

// tileReader reads stored hashes out of tiles. read gives at least the first width
// hashes of a tile.
type tileReader func(key tileKey, width int) ([]byte, error)

// ReadHashes implements [tlog.HashReader].
func (read tileReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	// The hashes of one proof stand in few tiles. Which are wanted, and how much of
	// each, is known before any is read.
	widths := map[tileKey]int{}
	for _, x := range indexes {
		t := tlog.TileForIndex(tileHeight, x)
		key := tileKey{t.L, t.N}
		widths[key] = max(widths[key], t.W)
	}
	tiles := make(map[tileKey][]byte, len(widths))
	for key, width := range widths {
		b, err := read(key, width)
		if err != nil {
			return nil, err
		}
		if len(b) < width*tlog.HashSize {
			return nil, fmt.Errorf("%w: the log lacks hashes of level %d", ErrDamaged, key.level*tileHeight)
		}
		tiles[key] = b
	}
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		t := tlog.TileForIndex(tileHeight, x)
		h, err := tlog.HashFromTile(t, tiles[tileKey{t.L, t.N}][:t.W*tlog.HashSize], x)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

func joinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

func splitHashes(b []byte) []tlog.Hash {
	hashes := make([]tlog.Hash, len(b)/tlog.HashSize)
	for i := range hashes {
		hashes[i] = tlog.Hash(b[i*tlog.HashSize:])
	}
	return hashes
}

// The engine in memory.

// logged is the state of [Memory]'s Commits.
type logged struct {
	leaves []Leaf
	of     map[string]int64 // artifact and statement ids
	edge   edge
	tiles  map[tileKey][]byte
	heads  []Head // by size
	sealer Sealer
}

// enter appends a leaf for an id ("" for none), with m locked.
func (m *Memory) enter(id string, leaf Leaf) {
	if leaf.none() {
		return
	}
	l := &m.logged
	if l.of == nil {
		l.of, l.tiles = map[string]int64{}, map[tileKey][]byte{}
	}
	leaf.Index = int64(len(l.leaves))
	l.leaves = append(l.leaves, leaf)
	if id != "" {
		l.of[id] = leaf.Index
	}
	_ = l.edge.add(leaf.Hash, func(k tileKey, tile []tlog.Hash) error { // this put cannot fail
		l.tiles[k] = joinHashes(tile)
		return nil
	})
}

// seal signs what was appended, with m locked.
func (m *Memory) seal() {
	l := &m.logged
	size := int64(len(l.leaves))
	if l.sealer == nil || size == 0 || len(l.heads) > 0 && l.heads[len(l.heads)-1].Size == size {
		return
	}
	now := m.tick()
	note, err := l.sealer(size, l.edge.root(), now)
	if err == nil && checkHead(size, note) == nil {
		l.heads = append(l.heads, Head{Size: size, At: micro(now), Note: slices.Clone(note)})
	}
}

// Seal implements [Commits].
func (m *Memory) Seal(by Sealer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logged.sealer = by
}

// Append implements [Commits].
func (m *Memory) Append(ctx context.Context, leaves ...Leaf) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if err := leaf.check(); err != nil {
			return err
		}
	}
	for _, leaf := range leaves {
		if !slices.ContainsFunc(m.logged.leaves, func(o Leaf) bool { return o.Kind == leaf.Kind && o.Digest == leaf.Digest }) {
			m.enter("", leaf)
		}
	}
	m.seal()
	return nil
}

// Backfill implements [Commits].
func (m *Memory) Backfill(ctx context.Context, artifactID string, leaf Leaf) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := leaf.check(); err != nil {
		return err
	}
	if _, ok := m.byID[artifactID]; !ok {
		return notFound("log", artifactID)
	}
	if _, ok := m.logged.of[artifactID]; !ok {
		m.enter(artifactID, leaf)
	}
	m.seal()
	return nil
}

// LogSize implements [Commits].
func (m *Memory) LogSize(ctx context.Context) (int64, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	return int64(len(m.logged.leaves)), err
}

// Leaves implements [Commits].
func (m *Memory) Leaves(ctx context.Context, from int64, limit int) ([]Leaf, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("leaves", limit); err != nil {
		return nil, err
	}
	all := m.logged.leaves
	from = min(max(from, 0), int64(len(all)))
	return slices.Clone(all[from:min(from+int64(limit), int64(len(all)))]), nil
}

// LeafOf implements [Commits].
func (m *Memory) LeafOf(ctx context.Context, id string) (Leaf, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Leaf{}, err
	}
	i, ok := m.logged.of[id]
	if !ok {
		return Leaf{}, notFound("find in the log", id)
	}
	return m.logged.leaves[i], nil
}

// Unlogged implements [Commits].
func (m *Memory) Unlogged(ctx context.Context, after int64, limit int) ([]Artifact, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := checkList("unlogged", limit); err != nil {
		return nil, err
	}
	var list []Artifact
	for _, a := range m.rows {
		if _, ok := m.logged.of[a.ArtifactID]; !ok && a.Seq > after && len(list) < limit {
			list = append(list, a.clone())
		}
	}
	return list, nil
}

// Orphans implements [Commits]: in memory nothing is lost.
func (m *Memory) Orphans(ctx context.Context, limit int) ([]Leaf, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkList("orphans", limit)
	}
	return nil, err
}

// LogHashes implements [Commits].
func (m *Memory) LogHashes(ctx context.Context) tlog.HashReader {
	return tileReader(func(key tileKey, width int) ([]byte, error) {
		err := m.open(ctx)
		defer m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if b, ok := m.logged.tiles[key]; ok || key.level > 0 {
			return b, nil
		}
		var hashes []tlog.Hash
		from := min(key.n*tileWidth, int64(len(m.logged.leaves)))
		for _, l := range m.logged.leaves[from:min(from+int64(width), int64(len(m.logged.leaves)))] {
			hashes = append(hashes, l.Hash)
		}
		return joinHashes(hashes), nil
	})
}

// HeadOf implements [Commits].
func (m *Memory) HeadOf(ctx context.Context, index int64, witnessed bool) (Head, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Head{}, err
	}
	for _, h := range m.logged.heads {
		if h.Size > index && (h.Witnessed || !witnessed) {
			h.Note = slices.Clone(h.Note)
			return h, nil
		}
	}
	return Head{}, notFound("find a checkpoint for", fmt.Sprintf("leaf %d", index))
}

// NewestHead implements [Commits].
func (m *Memory) NewestHead(ctx context.Context) (Head, error) {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return Head{}, err
	}
	if n := len(m.logged.heads); n > 0 {
		h := m.logged.heads[n-1]
		h.Note = slices.Clone(h.Note)
		return h, nil
	}
	return Head{}, notFound("find a checkpoint of", "the log")
}

// Witnessed implements [Commits].
func (m *Memory) Witnessed(ctx context.Context, size int64, note []byte) error {
	err := m.open(ctx)
	defer m.mu.Unlock()
	if err == nil {
		err = checkHead(size, note)
	}
	if err != nil {
		return err
	}
	for i := range m.logged.heads {
		if h := &m.logged.heads[i]; h.Size == size {
			h.Note, h.Witnessed = slices.Clone(note), true
			return nil
		}
	}
	return notFound("cosign", fmt.Sprintf("the checkpoint of %d leaves", size))
}
