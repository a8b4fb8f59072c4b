package harness

import (
	"context"
	"encoding/json"
	"slices"

	"leafproof"
	"leafproof/ref"
)

// A Recalled call is what is to be kept of one whose tool runs elsewhere, so that its
// result, or a read of a lazy parameter, may come to another process.
type Recalled struct {
	Call Call
	// Inputs are the artifacts that it rests on.
	Inputs []string
	// Lazy are the references of the parameters that the tool reads by itself, each in
	// its envelope, with the message that it meant.
	Lazy map[string]json.RawMessage
}

// Recalled is what is to be kept of the call.
func (in *Input) Recalled() Recalled {
	out := Recalled{Call: in.Call, Lazy: map[string]json.RawMessage{}}
	for _, u := range in.Used {
		if u.ArtifactID != "" && !slices.Contains(out.Inputs, u.ArtifactID) {
			out.Inputs = append(out.Inputs, u.ArtifactID)
		}
	}
	for param, h := range in.Lazy {
		out.Lazy[param] = ref.Append(nil, h.Ref())
	}
	return out
}

// Recall is the call again: what it was resolved to is not in it, but what a result of
// it states, and the lazy parameters, of which each read asks the gate.
func (r *Run) Recall(ctx context.Context, k Recalled) (*Input, error) {
	in := &Input{Run: r, Call: k.Call, Lazy: map[string]*ref.Handle{}}
	for _, id := range k.Inputs {
		if err := leafproof.CheckID(id); err != nil {
			return nil, err
		}
		in.Used = append(in.Used, ref.Use{ArtifactID: id})
	}
	for param, text := range k.Lazy {
		inner, _, err := ref.Detect(text)
		if err != nil {
			return nil, err
		}
		x, err := ref.ParseModel(inner, r.h.limits)
		if err != nil {
			return nil, err
		}
		if in.Lazy[param], err = r.resolver.Shown(ctx, x); err != nil {
			return nil, err
		}
	}
	return in, nil
}
