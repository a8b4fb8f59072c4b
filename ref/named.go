package ref

import (
	"fmt"
	"unicode/utf8"
)

// namedParts decides what a model may mean: which parts and keys were shown to it, on which
// branch. It grows with the number of entries and parts, not with their values.
type namedParts struct {
	entries  []meta   // by seq − 1
	branches []branch // 0 is the trunk
	shows    map[Place][]uint64
	keys     map[string][]shownKey
}

// meta is what is remembered of an entry.
type meta struct {
	turn   uint64
	branch int
	hidden []bool // by part
}

// branch begins behind the entry after of another one.
type branch struct {
	of    int
	after uint64
}

type shownKey struct {
	by     uint64 // the entry that shows it
	marker Marker
}

func newNamed() *namedParts {
	return &namedParts{branches: []branch{{of: -1}}, shows: map[Place][]uint64{}, keys: map[string][]shownKey{}}
}

// len is the number of entries.
func (n *namedParts) len() uint64 { return uint64(len(n.entries)) }

// settle fills in the turn, and refuses an entry that cannot be the next one.
func (n *namedParts) settle(e *Entry, limits Limits) error {
	last := uint64(1)
	if len(n.entries) > 0 {
		last = n.entries[len(n.entries)-1].turn
	}
	if e.Turn == 0 {
		e.Turn = last
	}
	switch {
	case e.Turn < last && len(n.entries) > 0, e.Turn > maxInt:
		return fail(ErrEntry, fmt.Sprintf("turn %d comes after turn %d", e.Turn, last))
	case e.Fork > n.len(), e.Compact > n.len()+1:
		return fail(ErrEntry, "a fork or compaction behind the end of the transcript")
	case len(e.Parts) > MaxParts, len(e.Shows) > MaxSlots, len(e.Keys) > MaxSlots:
		return fail(ErrEntry, "too many parts, places or keys in one entry")
	case len(e.Role) > maxKey, !utf8.ValidString(e.Role):
		return fail(ErrEntry, "the role is too long or not UTF-8")
	}
	for _, p := range e.Parts {
		if err := p.check(limits); err != nil {
			return err
		}
	}
	for _, p := range e.Shows {
		if p.Seq == 0 || p.Seq > n.len() || p.Part >= uint64(len(n.entries[p.Seq-1].hidden)) {
			return fail(ErrEntry, fmt.Sprintf("it shows part %d of entry %d, which there is not", p.Part, p.Seq))
		}
	}
	for _, m := range e.Keys {
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

// add takes in an entry that settle has not refused.
func (n *namedParts) add(e Entry) {
	m := meta{turn: e.Turn, hidden: make([]bool, len(e.Parts))}
	for i, p := range e.Parts {
		m.hidden[i] = p.Hidden
	}
	if len(n.entries) > 0 {
		m.branch = n.entries[len(n.entries)-1].branch
	}
	if e.Fork > 0 {
		n.branches = append(n.branches, branch{of: n.entries[e.Fork-1].branch, after: e.Fork})
		m.branch = len(n.branches) - 1
	}
	n.entries = append(n.entries, m)
	for _, p := range e.Shows {
		n.shows[p] = append(n.shows[p], n.len())
	}
	for _, k := range e.Keys {
		n.keys[k.Key] = append(n.keys[k.Key], shownKey{n.len(), k})
	}
}

// visible reports an entry that lies on the present branch: one between whose end and
// the last entry no fork began.
func (n *namedParts) visible(seq uint64) bool {
	if seq == 0 || seq > n.len() {
		return false
	}
	at := n.entries[n.len()-1].branch
	for limit := n.len(); at >= 0; at = n.branches[at].of {
		if n.entries[seq-1].branch == at {
			return seq <= limit
		}
		limit = min(limit, n.branches[at].after)
	}
	return false
}

// part reports a part that the model may mean.
func (n *namedParts) part(seq, part uint64) bool {
	if !n.visible(seq) || part >= uint64(len(n.entries[seq-1].hidden)) {
		return false
	}
	if !n.entries[seq-1].hidden[part] {
		return true
	}
	for _, by := range n.shows[Place{seq, part}] {
		if n.visible(by) {
			return true
		}
	}
	return false
}

// find is what the model means by seq and part.
func (n *namedParts) find(seq *uint64, part uint64) (uint64, error) {
	if seq != nil {
		if !n.part(*seq, part) {
			return 0, fail(ErrNotFound, "no such part was shown in this conversation")
		}
		return *seq, nil
	}
	var at uint64
	count := 0
	for s := n.len(); s > 0 && n.entries[s-1].turn == n.entries[n.len()-1].turn; s-- {
		if n.part(s, part) {
			at, count = s, count+1
		}
	}
	if count != 1 {
		return 0, fail(ErrAmbiguousTurn, fmt.Sprintf("%d messages of the current turn have a part %d: name one by its seq", count, part))
	}
	return at, nil
}

// key is the marker that the model means by a key.
func (n *namedParts) key(key string) (Marker, error) {
	list := n.keys[key]
	for i := len(list) - 1; i >= 0; i-- {
		if n.visible(list[i].by) {
			return list[i].marker, nil
		}
	}
	return Marker{}, fail(ErrNotFound, "no such key was shown in this conversation")
}
