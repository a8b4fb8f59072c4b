package ref

import (
	"context"
	"encoding/json"
)

// A Transcript is what a run has said and shown, in order. It only grows: an entry is
// never changed, moved or removed, and its seq never means another one, whatever is
// edited, retried, forked or compacted. It is safe for concurrent use.
//
// What a model may mean is decided here: see Shown and ShownKey.
type Transcript interface {
	// Append adds an entry at the end and returns its seq: 1 for the first entry, then
	// one more each. When it returns, the entry survives. It fails with [ErrEntry] for
	// one that cannot be.
	Append(ctx context.Context, e Entry) (seq uint64, err error)
	// Entry returns an entry, whoever may mean it: [ErrNotFound] where there is none.
	Entry(ctx context.Context, seq uint64) (Entry, error)
	// Shown returns the part that a model means by seq and part, and where it stands:
	// one that was shown to it, on the present branch. seq nil is the present turn
	// ([ErrAmbiguousTurn]). All else is [ErrNotFound].
	Shown(ctx context.Context, seq *uint64, part uint64) (uint64, Part, error)
	// ShownKey returns the marker of a key that was shown to the model, on the present
	// branch: [ErrNotFound] else.
	ShownKey(ctx context.Context, key string) (Marker, error)
}

// An Entry is one message of a transcript, or an event in it.
type Entry struct {
	// Turn is the number of the turn that it belongs to; 0 is that of the entry before.
	// Turns ascend. What a model means by a message without seq is one of the turn of
	// the last entry.
	Turn uint64
	// Role says whose message it is: "user", "assistant", "tool", "system", or "" for an
	// event. It decides nothing.
	Role  string
	Parts []Part // of the message, addressed by their place from 0
	// Fork, where not 0, makes this and what follows a branch that begins behind the
	// entry Fork: what came after that is out of the model's sight from here on, and
	// keeps its seq.
	Fork uint64
	// Compact, where not 0, says that what stands before the entry Compact was taken out
	// of the model's context. It was shown, and can be meant as before.
	Compact uint64
	// Shows names parts of earlier entries that were hidden, and keys, that are shown
	// to the model from now on.
	Shows []Place
	Keys  []Marker
}

// A Place is a part of an entry.
type Place struct{ Seq, Part uint64 }

// A Part is one value of a message: a tool's result, a text, an attachment. The value is
// what the model reads of it, but for its slots.
type Part struct {
	// Value is JSON; at each slot it has null.
	Value json.RawMessage
	// Slots are the places of Value where something else stands than the model reads:
	// bytes that went into the store, and recipes. What merely looks like a marker or a
	// reference in Value is data.
	Slots []Slot
	// Hidden says that the model has not been shown the part: it cannot mean it.
	Hidden bool
	Tool   string // that made it; may be empty
	CallID string // as the provider gave it: may be empty, and come again
}

// A Slot is a place of a [Part]. Exactly one of Marker and Recipe is set.
type Slot struct {
	Field  string  // where it stands: a dot path, "" is the whole value
	Marker *Marker // the model reads a [ModelMarker]
	Recipe Ref     // the model reads a [Message] that leads to the slot
}
