package merkle

import "math/bits"

// Where wide is true, 16 inputs are compressed at once (with AVX-512; with AVX2, in
// two times 8), and the value of each is there: a group's leaves cost one call, and
// their parents one for each level. guts, which everything else uses, keeps those
// values to itself and takes twice as long. Both agree, or the tests fail.

const (
	wideLanes = 16
	// wideFrom is how many parents at once take less time than one by one.
	wideFrom = 3

	flagStart  = 1 << 0 // of the first block of a leaf
	flagEnd    = 1 << 1 // of the last block of a leaf
	flagParent = 1 << 2
)

// values holds the values of neighbouring subtrees. The second half is there
// because parents16 reads as much.
type values [2 * wideLanes]cv

// leaves sets v to the values of the 2 to 16 leaves of p, the first of them
// number leaf of the blob, and returns how many there are. It needs wide.
func (v *values) leaves(p []byte, leaf int64) int {
	n := len(p) / LeafSize
	if cap(p) >= GroupSize {
		leaves16((*[wideLanes]cv)(v[:]), (*[GroupSize]byte)(p[:GroupSize]), n, leaf)
	} else {
		var group [GroupSize]byte
		copy(group[:], p)
		leaves16((*[wideLanes]cv)(v[:]), &group, n, leaf)
	}
	if last := p[n*LeafSize:]; len(last) > 0 {
		v[n] = leavesCV(last, leaf+int64(n), false)
		n++
	}
	return n
}

// parents replaces the first n pairs by their parents. It needs wide.
func (v *values) parents(n int) { parents16((*[wideLanes]cv)(v[:]), (*[2 * wideLanes]cv)(v), n) }

// up replaces the values of n ≥ 2 neighbours by those of their parents and
// returns how many they are. The last of an odd number stays as it is.
func (v *values) up(n int) int {
	odd := v[n-1]
	if n >= 4 {
		v.parents(n / 2)
	} else {
		v[0] = parentCV(&v[0], &v[1], false)
	}
	if n%2 != 0 {
		v[n/2] = odd
	}
	return (n + 1) / 2
}

// wideCV is leavesCV of at least two leaves.
func wideCV(p []byte, leaf int64, root bool) cv {
	var v values
	n := v.leaves(p, leaf)
	for n > 2 {
		n = v.up(n)
	}
	return parentCV(&v[0], &v[1], root)
}

// groupTree has the value of every subtree inside one group.
type groupTree [groupHeight]values

// groupHeight is the height of a group above its leaves.
const groupHeight = 4

// fill computes the values of the leaves of p, the first of them number leaf of
// the blob. It needs wide and at least two leaves.
func (t *groupTree) fill(p []byte, leaf int64) {
	n := t[0].leaves(p, leaf)
	for h := 1; h < groupHeight; h++ {
		t[h] = t[h-1]
		if n > 1 {
			n = t[h].up(n)
		}
	}
}

// value returns the value of the leaves [lo, hi), counted from the group's
// first, that are one subtree.
func (t *groupTree) value(lo, hi int64, root bool) cv {
	h := bits.Len64(uint64(hi - lo - 1))
	if h == groupHeight || root {
		mid := split(hi - lo)
		left, right := t.value(lo, lo+mid, false), t.value(lo+mid, hi, false)
		return parentCV(&left, &right, root)
	}
	return t[h][lo>>h]
}

// maxPieceLeaves is how many leaves the largest piece has.
const maxPieceLeaves = groupLeaves << largeHeight

// pieceTree holds the values of a piece, level after level.
type pieceTree struct {
	leaves [maxPieceLeaves]cv
	groups [largeHeight + 1]values
}

// groupsOf sets the first values of t.leaves to those of the groups of data, of
// which the first is number group of the blob, and returns how many they are.
func (t *pieceTree) groupsOf(data []byte, group int64) int {
	n := len(data) / LeafSize
	for i := 0; i < n; i += wideLanes {
		p := (*[GroupSize]byte)(data[i*LeafSize:])
		leaves16((*[wideLanes]cv)(t.leaves[i:]), p, wideLanes, group*groupLeaves+int64(i))
	}
	for range groupHeight {
		n /= 2
		for i := 0; i < n; i += wideLanes {
			// They come to stand before the pairs that are still to be read.
			parents16((*[wideLanes]cv)(t.leaves[i:]), (*[2 * wideLanes]cv)(t.leaves[2*i:]), n-i)
		}
	}
	return n
}

// widePieceCV is pieceCV where wide is true.
func widePieceCV(data []byte, group int64, out []byte) (cv, []byte) {
	var t pieceTree
	count := t.groupsOf(data, group)
	copy(t.groups[0][:], t.leaves[:count])
	top := 0
	for n := count; n > 1; top++ {
		t.groups[top+1] = t.groups[top]
		n = t.groups[top+1].up(n)
	}
	for i := range count {
		out = appendCV(out, &t.groups[0][i])
		for m, h := (i+1)/2, 1; (i+1)&(1<<h-1) == 0 && h <= top; m, h = m/2, h+1 {
			out = appendCV(out, &t.groups[h][m-1])
		}
	}
	return t.groups[top][0], out
}
