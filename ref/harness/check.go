package harness

import (
	"context"
	"errors"
	"strings"

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
	Stale       = "stale"       // a recipe over a name that leads to another artifact now
	Corrupt     = "corrupt"     // its bytes or manifest are not what was signed
	Unreachable = "unreachable" // it cannot be told now
)

// Checked is the state of one reference of a transcript.
type Checked struct {
	Seq        uint64         `json:"seq"`
	Part       uint64         `json:"part"`
	Field      string         `json:"field"` // "" is the whole part; of a key the key
	Kind       string         `json:"kind"`  // blob, recipe, or key: one that was shown by itself, and part its place
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
		check := func(c Checked, id string) error {
			got, ok := seen[id]
			if !ok {
				if got, err = checkArtifact(ctx, s, who, id); err != nil {
					return err
				}
				seen[id] = got
			}
			c.ArtifactID, c.State, c.Code, c.Reason = id, got.State, got.Code, got.Reason
			out = append(out, c)
			return nil
		}
		for i, part := range e.Parts {
			for _, slot := range part.Slots {
				id, kind := slotArtifact(slot)
				if id == "" { // it follows from a value of the transcript
					continue
				}
				if err := check(Checked{Seq: seq, Part: uint64(i), Field: slot.Field, Kind: kind}, id); err != nil {
					return out, err
				}
				if last := &out[len(out)-1]; last.State == Alive {
					if err := checkName(ctx, s, who, slot.Recipe, last); err != nil {
						return out, err
					}
				}
			}
		}
		for i, m := range e.Keys {
			if err := check(Checked{Seq: seq, Part: uint64(i), Field: m.Key, Kind: "key"}, m.ArtifactID); err != nil {
				return out, err
			}
		}
	}
}

// checkName looks whether the name that a recipe begins at leads where it did.
func checkName(ctx context.Context, s *leafproof.Store, who leafproof.Caller, r ref.Ref, c *Checked) error {
	name, ok := strings.CutPrefix(rootKey(r), "name/")
	if !ok {
		return nil
	}
	st, err := s.Resolve(ctx, who, c.ArtifactID)
	if err != nil {
		return err
	}
	now, err := s.Name(ctx, who, st.Ref.Scope.TenantID, name, 0)
	code := leafproof.CodeOf(err)
	switch {
	case err == nil && now.ArtifactID == c.ArtifactID:
	case err == nil, code == leafproof.CodeRefNotFound, code == leafproof.CodeArtifactDeleted, code == leafproof.CodeArtifactExpired:
		c.State, c.Code, c.Reason = Stale, leafproof.CodeRefStalePath, "its name leads elsewhere now"
	default:
		return err
	}
	return nil
}

// rootKey is the key that a recipe begins at; "" where that is a message.
func rootKey(r ref.Ref) string {
	for {
		switch y := r.(type) {
		case ref.JSONPointer:
			r = y.Source
		case ref.JSONQuery:
			r = y.Source
		case ref.Blob:
			if y.Source == nil {
				return y.Key
			}
			r = y.Source
		default:
			return ""
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
