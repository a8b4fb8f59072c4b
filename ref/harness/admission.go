package harness

import (
	"context"
	"encoding/json"
	"fmt"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// The reasons why a part of an answer was not given to a model.
const (
	ReasonBudget = "token_budget"
	ReasonPolicy = "policy"
	ReasonElided = "elided"
)

// An Admission says what of an answer a model was given: by what was serialised for it,
// not by what was fetched. Ranges are bytes of the answer: the rows of a query with a
// newline after each, or the value.
type Admission struct {
	Part       uint64             `json:"part"`
	ArtifactID string             `json:"artifact_id"`
	ManifestID string             `json:"manifest_id"`
	QID        string             `json:"qid"`
	Stop       string             `json:"stop"` // as in the answer
	More       string             `json:"more"`
	Undecided  int64              `json:"undecidable"`
	Size       int64              `json:"size"`
	Admitted   [][2]int64         `json:"admitted"`
	Omitted    []manifest.Omitted `json:"omitted"`
	// Serialised is BLAKE3 of what the model was given, in hex. It is not stored: it
	// follows from the part.
	Serialised string `json:"serialised_digest,omitempty"`
	// Receipt is the id of the answer's receipt, where one was asked for.
	Receipt string `json:"receipt_id,omitempty"`
}

// admitted is an admission on its way.
type admitted struct {
	Admission
	receipt *leafproof.Statement
}

// said begins an admission about an answer; nil where no artifact answered.
func said(a *selector.Answer, size int64) *admitted {
	if a == nil {
		return nil
	}
	return &admitted{Admission: Admission{
		ArtifactID: a.ArtifactID, ManifestID: a.ManifestID, QID: a.QID, Stop: a.Stop, More: a.More, Undecided: a.Undecidable, Size: size,
		Admitted: [][2]int64{}, Omitted: []manifest.Omitted{},
	}}
}

// admit adds the next bytes of the answer, which the model is given.
func (a *admitted) admit(n int64) {
	at := a.end()
	if k := len(a.Admitted); k > 0 && a.Admitted[k-1][1] == at {
		a.Admitted[k-1][1] = at + n
	} else if n > 0 {
		a.Admitted = append(a.Admitted, [2]int64{at, at + n})
	}
}

// omit adds the next bytes of the answer, which the model is not given.
func (a *admitted) omit(n int64, reason string) {
	at := a.end()
	if k := len(a.Omitted); k > 0 && a.Omitted[k-1].Range[1] == at && a.Omitted[k-1].Reason == reason {
		a.Omitted[k-1].Range[1] = at + n
	} else if n > 0 {
		a.Omitted = append(a.Omitted, manifest.Omitted{Range: [2]int64{at, at + n}, Reason: reason})
	}
}

func (a *admitted) end() (at int64) {
	if k := len(a.Admitted); k > 0 {
		at = a.Admitted[k-1][1]
	}
	if k := len(a.Omitted); k > 0 {
		at = max(at, a.Omitted[k-1].Range[1])
	}
	return at
}

// evidence is the admission as a gate takes it.
func (a *Admission) evidence() *manifest.Admission {
	return &manifest.Admission{
		Head: manifest.Head{ArtifactID: a.ArtifactID, ManifestID: a.ManifestID}, ReceiptID: a.Receipt,
		Size: a.Size, Admitted: a.Admitted, Omitted: a.Omitted, SerialisedDigest: a.Serialised,
	}
}

// answer is what a gate needs of the answer.
func (a *Admission) answer() *selector.Answer {
	return &selector.Answer{
		ArtifactID: a.ArtifactID, ManifestID: a.ManifestID, QID: a.QID, Stop: a.Stop, More: a.More, Undecidable: a.Undecided,
	}
}

// admissions is the hidden part of a message that keeps what of its answers the model
// was given.
type admissions struct {
	Admissions []Admission `json:"admissions"`
}

// admissionsPart is the hidden part for the parts of a message; nil where there is
// nothing to say.
func admissionsPart(parts []*admitted) (*ref.Part, error) {
	var all admissions
	for i, a := range parts {
		if a == nil {
			continue
		}
		if a.Part = uint64(i); a.receipt != nil {
			a.Receipt = a.receipt.ID
		}
		all.Admissions = append(all.Admissions, a.Admission)
	}
	if all.Admissions == nil {
		return nil, nil
	}
	text, err := json.Marshal(all)
	return &ref.Part{Value: text, Hidden: true}, err
}

// serialised takes in what was serialised for the model: the run's transcript is a copy
// of some of the artifact from then on, which its inventory lists. The admission of an
// answer that has a receipt is signed.
func (r *Run) serialised(ctx context.Context, a *admitted, text []byte) error {
	if a == nil {
		return nil
	}
	if err := r.copied(ctx, a.ArtifactID); err != nil || a.receipt == nil {
		return err
	}
	_, err := r.h.store.Admit(ctx, r.caller, leafproof.Admitted{
		Receipt: a.receipt, Admitted: a.Admitted, Omitted: a.Omitted, Serialised: merkle.Sum(text),
	})
	if err != nil {
		return fmt.Errorf("the admission could not be signed: %w", err)
	}
	return nil
}

// copied enters the run's transcript in the inventory of an artifact, once.
func (r *Run) copied(ctx context.Context, id string) error {
	r.mu.Lock()
	known := r.copies[id]
	r.copies[id] = true
	r.mu.Unlock()
	if known {
		return nil
	}
	_, err := r.h.store.RegisterCopy(ctx, r.caller, leafproof.Copy{
		ArtifactID: id, Kind: leafproof.CopyPreview, Where: "previews in the transcript of run " + r.id,
	})
	if err == nil || leafproof.CodeOf(err) == leafproof.CodeStoreFull { // what was read is shown also where nothing can be written
		return nil
	}
	r.mu.Lock()
	delete(r.copies, id)
	r.mu.Unlock()
	return fmt.Errorf("the preview could not be entered as a copy: %w", err)
}

// Admissions says what of the answers in a message the model was given. It reads the
// transcript: after a restart too.
func (r *Run) Admissions(ctx context.Context, seq uint64) ([]Admission, error) {
	e, err := r.transcript.Entry(ctx, seq)
	if err != nil || len(e.Parts) == 0 {
		return nil, err
	}
	last := e.Parts[len(e.Parts)-1]
	if !last.Hidden {
		return nil, nil
	}
	var all admissions
	if err := json.Unmarshal(last.Value, &all); err != nil {
		return nil, nil //nolint:nilerr // whoever wrote the part hid something else: nothing was admitted
	}
	for i := range all.Admissions {
		a := &all.Admissions[i]
		if a.Part >= uint64(len(e.Parts)) {
			continue
		}
		text, err := e.Parts[a.Part].View(seq, a.Part)
		if err != nil {
			return nil, err
		}
		a.Serialised = merkle.Sum(r.profile.Result(text)).String()
	}
	return all.Admissions, nil
}
