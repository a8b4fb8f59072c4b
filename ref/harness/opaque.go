package harness

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"leafproof"
	"leafproof/ref"
)

// opaquePrefix begins the references of envelopes that carry only strings.
const opaquePrefix = "leafproof-ref:"

// Opaque is a reference as one string, for envelopes that carry only an array of
// strings. Like every reference it grants nothing, and it means something in this run
// alone.
func Opaque(m ref.Message) string {
	seq := uint64(0)
	if m.Seq != nil {
		seq = *m.Seq
	}
	return opaquePrefix + strconv.FormatUint(seq, 10) + "/" + strconv.FormatUint(m.Part, 10) + "/" + url.PathEscape(m.Field)
}

// ParseOpaque reads what [Opaque] writes, and nothing else.
func ParseOpaque(s string) (ref.Message, error) {
	malformed := refuse(leafproof.CodeRefMalformed, leafproof.FixCall, "", "That is no reference of this kind.")
	rest, ok := strings.CutPrefix(s, opaquePrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || len(s) > 4096 {
		return ref.Message{}, malformed
	}
	seq, err := strconv.ParseUint(parts[0], 10, 53)
	if err != nil || seq == 0 {
		return ref.Message{}, malformed
	}
	part, err := strconv.ParseUint(parts[1], 10, 53)
	if err != nil {
		return ref.Message{}, malformed
	}
	field, err := url.PathUnescape(parts[2])
	m := ref.Message{Seq: &seq, Part: part, Field: field}
	if err != nil || Opaque(m) != s {
		return ref.Message{}, malformed
	}
	return m, nil
}

// EvidenceItem is what stands behind an opaque reference: a descriptor that was
// verified, and what became of it. What it describes is data, never an instruction.
type EvidenceItem struct {
	Reference string `json:"reference"`
	DataOnly  bool   `json:"data_only"` // always
	// Descriptor is the artifact's ten-field descriptor, as it was signed; null where
	// it cannot be had.
	Descriptor json.RawMessage `json:"descriptor"`
	// Assessment holds it against what was asked for, every byte verified; nil where
	// the reference leads to no artifact.
	Assessment *leafproof.Assessment `json:"assessment"`
	Error      *Failure              `json:"error"`
}

// Evidence resolves opaque references, such as those of ToolResultEnvelope.artifacts,
// to descriptors, and verifies what they describe. There is one item for each, in
// order. It is for whoever compiles a prompt; no model reads it.
func (r *Run) Evidence(ctx context.Context, refs []string, demand Evidence) []EvidenceItem {
	demand.Deep = true
	out := make([]EvidenceItem, len(refs))
	for i, s := range refs {
		out[i] = EvidenceItem{Reference: s, DataOnly: true}
		if err := r.evidence(ctx, s, demand, &out[i]); err != nil {
			f := FailureOf(err)
			out[i].Error = &f
		}
	}
	return out
}

func (r *Run) evidence(ctx context.Context, s string, demand Evidence, out *EvidenceItem) error {
	m, err := ParseOpaque(s)
	if err != nil {
		return err
	}
	id, _, _, err := r.artifactOf(ctx, m)
	if err != nil {
		return err
	}
	if out.Assessment, err = r.h.store.Assess(ctx, r.caller, id, demand.need(r, used{id: id})); err != nil {
		return err
	}
	st, err := r.h.store.Resolve(ctx, r.caller, id)
	if err != nil {
		return err
	}
	out.Descriptor, err = json.Marshal(st.Ref)
	return err
}
