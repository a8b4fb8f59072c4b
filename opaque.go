package leafproof

import (
	"encoding/binary"

	"leafproof/internal/gate"
	"leafproof/merkle"
)

// contextPosition is the purpose for which the key of [positions] is derived.
const contextPosition = "leafproof 2026 list-position v1"

// positions hides from a caller how many rows the store has that are not his: the
// places in its lists are numbers of the whole store. The owner sees them as they
// are. Others see each at another place, which a key of the store and their name
// choose; it serves to go on from, and says nothing. They are below 2^52.
type positions struct{ key []byte }

func (s *Store) positions(who Caller) positions {
	if who.Principal == gate.Owner {
		return positions{}
	}
	k := merkle.DeriveKey(contextPosition, append(append([]byte(nil), s.cursorKey[:]...), who.Principal...))
	return positions{k[:]}
}

// show is what the caller sees of a place; hide finds the place of it. Both leave 0,
// the beginning and the end, as it is.
func (p positions) show(n int64) int64 { return p.walk(n, []byte{0, 1, 2, 3, 4, 5}, false) }

func (p positions) hide(n int64) int64 { return p.walk(n, []byte{5, 4, 3, 2, 1, 0}, true) }

func (p positions) walk(n int64, rounds []byte, back bool) int64 {
	if p.key == nil || n <= 0 || n >= 1<<52 {
		return n
	}
	for {
		if n = p.permute(n, rounds, back); n != 0 {
			return n
		}
	}
}

// permute is a Feistel network on two halves of 26 bits.
func (p positions) permute(n int64, rounds []byte, back bool) int64 {
	const half = 1<<26 - 1
	l, r := uint32(n>>26)&half, uint32(n)&half
	for _, round := range rounds {
		if back {
			l, r = r^p.mix(round, l), l
		} else {
			l, r = r, l^p.mix(round, r)
		}
	}
	return int64(l)<<26 | int64(r)
}

func (p positions) mix(round byte, half uint32) uint32 {
	in := binary.LittleEndian.AppendUint32(append(append([]byte(nil), p.key...), round), half)
	sum := merkle.Sum(in)
	return binary.LittleEndian.Uint32(sum[:]) & (1<<26 - 1)
}
