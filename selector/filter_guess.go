package selector

import "encoding/binary"

// Records of one source mostly have the same members in the same order. members
// remembers, for the objects at one node of a plan, which member followed which,
// so that the next one's name is not read but compared as it stands. A guess that
// fails costs that comparison; none can be wrong.
type members struct {
	at [memberSlots]memberGuess // 0 is the beginning of the object
}

// memberGuess is a member that was met.
type memberGuess struct {
	text        []byte // from the quote in front of its name to the colon behind it
	first, last uint64 // its first and last 8 bytes, where it has 8 to 16
	kid         int32  // what it enters; -1: nothing
	next        uint8  // which one came next
}

// stands returns the index behind the member's text, where that stands at i.
func (m *memberGuess) stands(b []byte, i int) (end int, ok bool) {
	end = i + len(m.text)
	if end > len(b) {
		return 0, false
	}
	if m.first != 0 {
		return end, binary.LittleEndian.Uint64(b[i:]) == m.first && binary.LittleEndian.Uint64(b[end-8:]) == m.last
	}
	return end, string(b[i:end]) == string(m.text)
}

const (
	memberSlots = 64
	// memberText is the longest text that is remembered.
	memberText = 64
)

// noMember begins no member.
var noMember = []byte{0}

func newMembers() *members {
	g := &members{}
	for i := range g.at {
		g.at[i] = memberGuess{text: noMember, kid: -1}
	}
	return g
}

// learn notes that a member came behind another, and returns its slot. In the last
// slot are those that are too long to be remembered.
func (g *members) learn(last uint8, text []byte, kid int32) uint8 {
	if len(text) > memberText {
		m := &g.at[memberSlots-1]
		m.kid, m.next = kid, 0
		return memberSlots - 1
	}
	h := uint32(len(text))
	for _, c := range text {
		h = (h ^ uint32(c)) * 0x01000193 // FNV
	}
	slot := uint8(1 + (h^h>>15)%(memberSlots-2))
	m := &g.at[slot]
	if string(m.text) != string(text) {
		if cap(m.text) < memberText {
			m.text = make([]byte, 0, memberText)
		}
		m.text, m.first, m.last, m.kid, m.next = append(m.text[:0], text...), 0, 0, kid, 0
		if n := len(text); n >= 8 && n <= 16 {
			m.first, m.last = binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[n-8:])
		}
	}
	g.at[last].next = slot
	return slot
}
