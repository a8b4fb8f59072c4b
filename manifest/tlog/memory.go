package tlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The limits of a memory.
const (
	MaxMemory    = 16 << 20 // bytes of text
	maxPairs     = 256      // evidence that is kept; the first is never dropped
	maxPairBytes = 4 << 20  // bytes of that: anybody can make a note long, by lines of unknown keys
)

const memoryHead = "leafproof checkpoints v1\n"

// Memory is what a reader remembers of logs: the highest checkpoint of each, and
// the pairs of checkpoints that show that a log is not to be trusted. Signatures
// are checked before a checkpoint comes here. The zero Memory remembers nothing.
type Memory struct {
	highest  map[string]Checkpoint
	evidence []Conflict
	weight   int // bytes of the evidence
}

// Conflict is a pair of checkpoints of one log that an honest one never signs.
type Conflict struct {
	Kind          string // "fork" or "rollback"
	Before, After Checkpoint
}

// The kinds of conflicts.
const (
	kindFork     = "fork"
	kindRollback = "rollback"
)

// Highest is the largest tree of a log that was remembered.
func (m *Memory) Highest(origin string) (Checkpoint, bool) {
	c, ok := m.highest[origin]
	return c, ok
}

// Conflicts returns the evidence, in the order in which it was met.
func (m *Memory) Conflicts() []Conflict { return slices.Clone(m.evidence) }

// Prover gives the proof that one checkpoint's tree is the beginning of
// another's, which both are of one log. It may wrap [ErrFork] when it knows that
// it is not.
type Prover func(older, newer Checkpoint) ([]Hash, error)

// See compares a checkpoint of any age with what is remembered, and remembers it
// if it is higher. A log that was never seen is believed the first time. The error
// wraps [ErrFork], which is kept as evidence, or [ErrConsistency] when prove (nil:
// nobody can) does not show that both checkpoints are of one history.
func (m *Memory) See(c Checkpoint, prove Prover) error {
	known, ok := m.highest[c.Origin]
	if !ok {
		m.keep(c)
		return nil
	}
	older, newer := known, c
	if c.Size < known.Size {
		older, newer = c, known
	}
	var hashes []Hash
	var err error
	if older.Size != newer.Size && older.Size != 0 {
		if prove == nil {
			return m.fail(c, fmt.Errorf("%w: %d leaves and %d", ErrConsistency, older.Size, newer.Size))
		}
		hashes, err = prove(older, newer)
	}
	if err == nil {
		err = Consistent(older, newer, hashes)
	}
	if errors.Is(err, ErrFork) {
		m.blame(kindFork, known, c)
	}
	if err != nil {
		return m.fail(c, err)
	}
	if c.Size > known.Size {
		m.keep(c)
	}
	return nil
}

// SeeHead is See for what a log gives as its newest checkpoint: one that is lower
// than a remembered one is an [ErrRollback], and kept as evidence.
func (m *Memory) SeeHead(c Checkpoint, prove Prover) error {
	if known, ok := m.highest[c.Origin]; ok && c.Size < known.Size {
		m.blame(kindRollback, known, c)
		return m.fail(c, fmt.Errorf("%w: %d leaves, and had %d", ErrRollback, c.Size, known.Size))
	}
	return m.See(c, prove)
}

func (m *Memory) fail(c Checkpoint, err error) error {
	return &Error{Op: "compare checkpoints", At: c.Origin, Err: err}
}

func (m *Memory) keep(c Checkpoint) {
	if m.highest == nil {
		m.highest = map[string]Checkpoint{}
	}
	m.highest[c.Origin] = c
}

func (m *Memory) blame(kind string, before, after Checkpoint) {
	same := func(o Conflict) bool {
		return o.Kind == kind && o.Before.Text() == before.Text() && o.After.Text() == after.Text()
	}
	weight := len(before.String()) + len(after.String())
	if len(m.evidence) >= maxPairs || m.weight+weight > maxPairBytes || slices.ContainsFunc(m.evidence, same) {
		return
	}
	m.evidence = append(m.evidence, Conflict{kind, before, after})
	m.weight += weight
}

// String writes the memory as [ParseMemory] reads it.
func (m *Memory) String() string {
	var b strings.Builder
	b.WriteString(memoryHead)
	for _, origin := range slices.Sorted(maps.Keys(m.highest)) {
		note := m.highest[origin].String()
		b.WriteString("highest " + strconv.Itoa(len(note)) + "\n" + note)
	}
	for _, e := range m.evidence {
		before, after := e.Before.String(), e.After.String()
		b.WriteString(e.Kind + " " + strconv.Itoa(len(before)) + " " + strconv.Itoa(len(after)) + "\n" + before + after)
	}
	return b.String()
}

// ParseMemory reads what [Memory.String] writes and nothing else; of no text it is
// the zero Memory.
func ParseMemory(text []byte) (*Memory, error) {
	m := &Memory{}
	if len(text) == 0 {
		return m, nil
	}
	if err := m.parse(string(text)); err != nil {
		return nil, &Error{Op: "parse remembered checkpoints", Err: err}
	}
	return m, nil
}

func (m *Memory) parse(text string) error {
	if len(text) > MaxMemory {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxMemory)
	}
	rest, ok := strings.CutPrefix(text, memoryHead)
	if !ok {
		return fmt.Errorf("%w: the first line is not %s", ErrMalformed, strings.TrimSpace(memoryHead))
	}
	for rest != "" {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return fmt.Errorf("%w: %s has no end", ErrMalformed, quote(line))
		}
		w := strings.Split(line, " ")
		notes := make([]Checkpoint, len(w)-1)
		if len(notes) < 1 || len(notes) > 2 {
			return fmt.Errorf("%w: %s", ErrMalformed, quote(line))
		}
		for i := range notes {
			n, err := decimal(w[i+1])
			if err != nil {
				return err
			}
			if n > int64(len(after)) {
				return fmt.Errorf("%w: a note of %d bytes where %d are left", ErrMalformed, n, len(after))
			}
			if notes[i], err = parseCheckpoint([]byte(after[:n])); err != nil {
				return err
			}
			after = after[n:]
		}
		switch {
		case w[0] == "highest" && len(notes) == 1:
			m.keep(notes[0])
		case (w[0] == kindFork || w[0] == kindRollback) && len(notes) == 2 && notes[0].Origin == notes[1].Origin:
			m.blame(w[0], notes[0], notes[1])
		default:
			return fmt.Errorf("%w: %s", ErrMalformed, quote(line))
		}
		rest = after
	}
	if m.String() != text {
		return fmt.Errorf("%w: out of order, or an entry twice", ErrMalformed)
	}
	return nil
}
