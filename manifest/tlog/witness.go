package tlog

import (
	"crypto"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"leafproof/manifest"
)

// MaxRequest bounds the text of a request, in bytes.
const MaxRequest = MaxCheckpoint + 8<<10

// Request asks a witness to cosign a checkpoint: the body of C2SP tlog-witness's
// add-checkpoint, which may as well go from hand to hand in a file.
type Request struct {
	Old        int64  // the size that the witness cosigned last; 0: none yet
	Proof      []Hash // that the tree of that size is the beginning of the new one
	Checkpoint Checkpoint
}

// String writes the request as [ParseRequest] reads it.
func (r Request) String() string {
	var b strings.Builder
	b.WriteString("old " + strconv.FormatInt(r.Old, 10) + "\n")
	writeHashes(&b, r.Proof)
	b.WriteString("\n" + r.Checkpoint.String())
	return b.String()
}

// ParseRequest reads a request in its one spelling; it checks only the form.
func ParseRequest(text []byte) (Request, error) {
	r, err := parseRequest(text)
	if err != nil {
		return Request{}, &Error{Op: "parse request to a witness", Err: err}
	}
	return r, nil
}

func parseRequest(text []byte) (r Request, err error) {
	if len(text) > MaxRequest {
		return r, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxRequest)
	}
	head, note, ok := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	old, begins := strings.CutPrefix(lines[0], "old ")
	if !ok || !begins {
		return r, fmt.Errorf("%w: want a first line old SIZE, and a checkpoint after an empty line", ErrMalformed)
	}
	if r.Old, err = decimal(old); err != nil {
		return r, err
	}
	if r.Proof, err = hashLines(lines[1:]); err != nil {
		return r, err
	}
	r.Checkpoint, err = parseCheckpoint([]byte(note))
	return r, err
}

// ParseCosignatures reads what a witness answers: one or more signature lines.
func ParseCosignatures(text []byte) ([]Signature, error) {
	const op = "parse cosignatures"
	if len(text) > MaxCheckpoint {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %d bytes", ErrTooLarge, len(text))}
	}
	err := checkText(text)
	var sigs []Signature
	if err == nil {
		sigs, err = parseSignatures(string(text))
	}
	if err == nil && len(sigs) == 0 {
		err = fmt.Errorf("%w: no signature", ErrMalformed)
	}
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	return sigs, nil
}

// Witness cosigns checkpoints of other logs, of each log one history only.
type Witness struct {
	Name   string
	Key    crypto.Signer
	Logs   []manifest.VerifierKey
	Memory *Memory // the last checkpoint that was cosigned, of each log
}

// Cosign answers a request. The memory must be on disk before the answer is given
// away, or a crash could make the witness cosign a second history.
//
// The errors are those of the add-checkpoint of C2SP tlog-witness: [ErrUnknownLog]
// (404), [ErrUnsigned] or [ErrSignature] (403),
// [ErrStale], with the size in its text, or [ErrFork] (409), [ErrConsistency]
// (422), [ErrMalformed] (400).
func (w *Witness) Cosign(r Request, at time.Time) (Signature, error) {
	s, err := w.cosign(r, at)
	if err != nil {
		return Signature{}, &Error{Op: "cosign", At: r.Checkpoint.Origin, Err: err}
	}
	return s, nil
}

func (w *Witness) cosign(r Request, at time.Time) (Signature, error) {
	c := r.Checkpoint
	if err := w.signed(c); err != nil {
		return Signature{}, err
	}
	known, _ := w.Memory.Highest(c.Origin)
	switch {
	case r.Old > c.Size || r.Old == 0 && len(r.Proof) > 0:
		return Signature{}, fmt.Errorf("%w: from %d leaves to %d", ErrMalformed, r.Old, c.Size)
	case r.Old != known.Size:
		return Signature{}, fmt.Errorf("%w: %d leaves, not %d", ErrStale, known.Size, r.Old)
	}
	if err := w.Memory.See(c, func(_, _ Checkpoint) ([]Hash, error) { return r.Proof, nil }); err != nil {
		return Signature{}, err
	}
	return c.Cosign(w.Name, at, w.Key)
}

// signed says whether a log that the witness knows has signed the checkpoint.
func (w *Witness) signed(c Checkpoint) error {
	err := fmt.Errorf("%w %s", ErrUnknownLog, quote(c.Origin))
	for _, key := range w.Logs {
		if key.Name != c.Origin {
			continue
		}
		if _, err = c.SignedBy(key); err == nil || errors.Is(err, ErrSignature) {
			return err
		}
	}
	return err
}
