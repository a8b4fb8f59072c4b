package tlog

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// A log as static files: C2SP tlog-tiles.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	// CheckpointPath is the file that holds the newest checkpoint.
	CheckpointPath = "checkpoint"
	// MaxTileFile bounds every other file, in bytes: a bundle of entries of the
	// most that their two bytes of length can say.
	MaxTileFile = tileWidth * (2 + 1<<16)
)

// HashReader reads stored hashes of a tree by their places (see
// golang.org/x/mod/sumdb/tlog).
type HashReader = tlog.HashReader

// tilePath is where a tile stands; of entries, where the same tile of level 0 is.
func tilePath(t tlog.Tile, entries bool) string {
	path := strings.TrimPrefix(t.Path(), fmt.Sprintf("tile/%d/", t.H))
	if entries {
		_, n, _ := strings.Cut(path, "/")
		return "tile/entries/" + n
	}
	return "tile/" + path
}

// WriteTiles puts the files that a log needs when it has grown from old to size
// leaves, other than its checkpoint, which is to be put after them. entries gives
// the data of leaves [from, to). A file of a path is the same every time.
func WriteTiles(old, size int64, hashes HashReader, entries func(from, to int64) ([][]byte, error), put func(path string, data []byte) error) error {
	for _, t := range tlog.NewTiles(tileHeight, old, size) {
		data, err := tlog.ReadTileData(t, hashes)
		if err != nil {
			return err
		}
		if err := put(tilePath(t, false), data); err != nil {
			return err
		}
		if t.L > 0 {
			continue
		}
		from := t.N * tileWidth
		list, err := entries(from, from+int64(t.W))
		if err != nil {
			return err
		}
		bundle, err := formatEntries(list)
		if err != nil {
			return err
		}
		if err := put(tilePath(t, true), bundle); err != nil {
			return err
		}
	}
	return nil
}

func formatEntries(list [][]byte) ([]byte, error) {
	var b []byte
	for _, e := range list {
		if len(e) > 1<<16-1 {
			return nil, fmt.Errorf("%w: an entry of %d bytes", ErrTooLarge, len(e))
		}
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(e))), e...)
	}
	return b, nil
}

// ParseEntries reads a bundle of exactly n entries.
func ParseEntries(data []byte, n int) ([][]byte, error) {
	const op = "parse entries"
	if n < 0 || n > tileWidth || len(data) > MaxTileFile {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d entries in %d bytes", ErrTooLarge, n, len(data))}
	}
	list := make([][]byte, n)
	for i := range list {
		if len(data) < 2 || len(data)-2 < int(binary.BigEndian.Uint16(data)) {
			return nil, &Error{Op: op, Err: fmt.Errorf("%w: it ends in entry %d of %d", ErrMalformed, i, n)}
		}
		size := 2 + int(binary.BigEndian.Uint16(data))
		list[i], data = data[2:size], data[size:]
	}
	if len(data) > 0 {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes behind %d entries", ErrMalformed, len(data), n)}
	}
	return list, nil
}

// Tiles reads a log that somebody exported, and believes no file of it: every hash
// is checked against the root of the checkpoint.
type Tiles struct {
	Head Checkpoint
	read func(path string, most int64) ([]byte, error)
}

// NewTiles is the log of a checkpoint, whose signature the caller has checked. read
// gives a file of at most so many bytes.
func NewTiles(head Checkpoint, read func(path string, most int64) ([]byte, error)) *Tiles {
	return &Tiles{head, read}
}

// Hashes reads and checks stored hashes of the tree.
func (t *Tiles) Hashes() HashReader {
	return tlog.TileHashReader(tlog.Tree{N: t.Head.Size, Hash: t.Head.Root}, tileFiles{t})
}

// tileFiles is the log as x/mod reads it.
type tileFiles struct{ *Tiles }

func (tileFiles) Height() int                     { return tileHeight }
func (tileFiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (t tileFiles) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, tile := range tiles {
		b, err := t.file(tile, false)
		if err != nil {
			return nil, err
		}
		if len(b) < tile.W*tlog.HashSize {
			return nil, &Error{Op: "read tile", At: tilePath(tile, false), Err: fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))}
		}
		data[i] = b[:tile.W*tlog.HashSize]
	}
	return data, nil
}

// file reads a tile, or its full one where the part is gone.
func (t *Tiles) file(tile tlog.Tile, entries bool) ([]byte, error) {
	b, err := t.read(tilePath(tile, entries), MaxTileFile)
	if err != nil && tile.W < tileWidth && !entries {
		tile.W = tileWidth
		if full, fullErr := t.read(tilePath(tile, entries), MaxTileFile); fullErr == nil {
			return full, nil
		}
	}
	return b, err
}

// Root is the root that the tree had at a size.
func (t *Tiles) Root(size int64) (Hash, error) {
	if size < 0 || size > t.Head.Size {
		return Hash{}, fmt.Errorf("%w: %d leaves of %d", ErrConsistency, size, t.Head.Size)
	}
	return tlog.TreeHash(size, t.Hashes())
}

// Prove is a [Prover]. Since it has the whole tree, it knows a fork when it sees one.
func (t *Tiles) Prove(older, newer Checkpoint) ([]Hash, error) {
	for _, c := range []Checkpoint{older, newer} {
		if c.Origin != t.Head.Origin {
			return nil, fmt.Errorf("%w: %s, not %s", ErrOrigin, quote(t.Head.Origin), quote(c.Origin))
		}
		root, err := t.Root(c.Size)
		if err != nil {
			return nil, err
		}
		if root != c.Root {
			return nil, fmt.Errorf("%w: the tree of %d leaves began otherwise: two roots of %d leaves", ErrFork, t.Head.Size, c.Size)
		}
	}
	return ProveTree(older.Size, newer.Size, t.Hashes())
}

// Leaf reads a leaf and checks that it stands there.
func (t *Tiles) Leaf(index int64) (Leaf, error) {
	if index < 0 || index >= t.Head.Size {
		return Leaf{}, fmt.Errorf("%w: index %d of %d", ErrInclusion, index, t.Head.Size)
	}
	n := index / tileWidth
	tile := tlog.Tile{H: tileHeight, N: n, W: int(min(tileWidth, t.Head.Size-n*tileWidth))}
	b, err := t.file(tile, true)
	if err != nil {
		return Leaf{}, err
	}
	list, err := ParseEntries(b, tile.W)
	if err != nil {
		return Leaf{}, err
	}
	l, err := ParseLeaf(list[index-n*tileWidth])
	if err != nil {
		return Leaf{}, err
	}
	h, err := t.Hashes().ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
	if err != nil {
		return Leaf{}, err
	}
	if h[0] != l.Hash() {
		return Leaf{}, fmt.Errorf("%w: entry %d of %d", ErrInclusion, index, t.Head.Size)
	}
	return l, nil
}

// ProveLeaf makes the path of a leaf in the tree of a size.
func ProveLeaf(index, size int64, hashes HashReader) ([]Hash, error) {
	if index < 0 || index >= size {
		return nil, fmt.Errorf("%w: index %d of %d", ErrInclusion, index, size)
	}
	return tlog.ProveRecord(size, index, hashes)
}

// ProveTree makes the proof that a tree is the beginning of a larger one. Of an
// empty tree, and of one with itself, it has no hashes.
func ProveTree(older, newer int64, hashes HashReader) ([]Hash, error) {
	if older < 0 || older > newer {
		return nil, fmt.Errorf("%w: %d leaves, then %d", ErrConsistency, older, newer)
	}
	if older == 0 || older == newer {
		return nil, nil
	}
	return tlog.ProveTree(newer, older, hashes)
}

// RootOf is the root that a tree had at a size, out of its stored hashes.
func RootOf(size int64, hashes HashReader) (Hash, error) {
	if size < 0 || size > MaxSize {
		return Hash{}, fmt.Errorf("%w: %d leaves", ErrMalformed, size)
	}
	return tlog.TreeHash(size, hashes)
}
