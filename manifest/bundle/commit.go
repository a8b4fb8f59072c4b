package bundle

import (
	"fmt"

	"leafproof/manifest"
	"leafproof/manifest/tlog"
)

// Commit puts the proof that the manifest was committed into the bundle: where it
// stands in its store's log. A second takes its place. Nothing is checked here: a
// proof of something else is a MISMATCH to the verifier.
func (b *Bundle) Commit(p tlog.Proof) error {
	text := p.String()
	b.head.Commit = &text
	return b.encode()
}

// checkCommit judges the proof of commitment in a header, where there is one: the
// fact commit, and what it shows of the manifest's age.
func checkCommit(h *header, policy *manifest.Policy) (*tlog.Proof, manifest.Fact, manifest.Evidence, error) {
	var fact manifest.Fact
	if h.Commit == nil {
		return nil, fact, manifest.Evidence{}, nil
	}
	const at = "header/commit"
	p, err := tlog.ParseProof([]byte(*h.Commit))
	if err != nil {
		return nil, fact, manifest.Evidence{}, &Error{At: at, Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	payload, err := h.Manifest.PayloadBytes()
	if err != nil {
		return nil, fact, manifest.Evidence{}, &Error{At: "header/manifest", Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	fact, evidence := tlog.Commit(p, tlog.LeafOf(tlog.KindOf(manifest.PredicateManifest), payload), policy)
	return &p, fact, evidence, nil
}
