package harness

import (
	"context"
	"errors"

	"leafproof"
	"leafproof/ref"
)

// The states of a reference.
const (
	Alive       = "alive"
	Expired     = "expired"
	Deleted     = "deleted"
	Revoked     = "revoked"     // there is no leave to have it now
	Missing     = "missing"     // there is no such artifact, or it is another's
	Corrupt     = "corrupt"     // its bytes or manifest are not what was signed
	Unreachable = "unreachable" // it cannot be told now
)

// Checked is the state of one reference of a transcript.
type Checked struct {
	Seq        uint64         `json:"seq"`
	Part       uint64         `json:"part"`
	Field      string         `json:"field"` // "" is the whole part
	Kind       string         `json:"kind"`  // blob or recipe
	ArtifactID string         `json:"artifact_id"`
	State      string         `json:"state"`
	Code       leafproof.Code `json:"code,omitempty"`
	Reason     string         `json:"reason,omitempty"`
}

var states = map[leafproof.Code]string{
	leafproof.CodeArtifactExpired: Expired, leafproof.CodeArtifactDeleted: Deleted, leafproof.CodeAccessRevoked: Revoked,
	leafproof.CodeRefNotFound: Missing, leafproof.CodeIntegrityFailed: Corrupt, leafproof.CodeRefAltered: Corrupt,
}

// CheckTranscript looks at every reference of a transcript: whether what it leads to
// is there, all of its bytes verified, and may be had by the caller. Each artifact is
// read once.
func CheckTranscript(ctx context.Context, s *leafproof.Store, who leafproof.Caller, t ref.Transcript) ([]Checked, error) {
	var out []Checked
	seen := map[string]Checked{}
	for seq := uint64(1); ; seq++ {
		e, err := t.Entry(ctx, seq)
		if errors.Is(err, ref.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for i, part := range e.Parts {
			for _, slot := range part.Slots {
				id, kind := slotArtifact(slot)
				if id == "" { // it follows from a value of the transcript
					continue
				}
				c, ok := seen[id]
				if !ok {
					if c, err = checkArtifact(ctx, s, who, id); err != nil {
						return out, err
					}
					seen[id] = c
				}
				c.Seq, c.Part, c.Field, c.Kind = seq, uint64(i), slot.Field, kind
				out = append(out, c)
			}
		}
	}
}

// slotArtifact is the artifact of a slot; "" where it has none.
func slotArtifact(s ref.Slot) (id, kind string) {
	if s.Marker != nil {
		return s.Marker.ArtifactID, "blob"
	}
	var pin ref.Pin
	switch r := s.Recipe.(type) {
	case ref.JSONPointer:
		pin = r.Pin
	case ref.JSONQuery:
		pin = r.Pin
	}
	if leafproof.CheckID(string(pin)) != nil {
		return "", "recipe"
	}
	return string(pin), "recipe"
}

func checkArtifact(ctx context.Context, s *leafproof.Store, who leafproof.Caller, id string) (Checked, error) {
	c := Checked{ArtifactID: id, State: Alive}
	a, err := s.Assess(ctx, who, id, leafproof.Need{Deep: true})
	if err != nil {
		return c, err
	}
	bad := func(code leafproof.Code, reason string) {
		c.State, c.Code, c.Reason = states[code], code, reason
		if c.State == "" {
			c.State = Unreachable
		}
	}
	// The reason that says most comes first.
	for _, p := range a.Unmet {
		if p.Code == leafproof.CodeArtifactExpired || p.Code == leafproof.CodeArtifactDeleted {
			bad(p.Code, p.Found)
			return c, nil
		}
	}
	for _, v := range []leafproof.Verdict{a.Authority, a.Identity, a.Applicability} {
		if v.State != leafproof.Holds && v.Code != "" && v.Code != leafproof.CodeEvidence {
			bad(v.Code, v.Reason)
			return c, nil
		}
	}
	return c, nil
}
