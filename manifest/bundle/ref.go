package bundle

import (
	"strings"

	"leafproof/manifest"
)

// refMembers are the members of the ArtifactRef of which a fact speaks, and how to
// copy one. Of what is not named here only the signature speaks.
var refMembers = []struct {
	fact string
	copy func(to *manifest.ArtifactRef, from manifest.ArtifactRef)
}{
	{manifest.FactCapture, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.Completeness = from.Completeness }},
	{manifest.FactBytes, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.ContentHash = from.ContentHash }},
	{manifest.FactTimes, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.CreatedAt = from.CreatedAt }},
	{manifest.FactExpiry, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.ExpiresAt = from.ExpiresAt }},
	{manifest.FactScope, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.Scope = from.Scope }},
	{manifest.FactSource, func(to *manifest.ArtifactRef, from manifest.ArtifactRef) { to.SourceVersion = from.SourceVersion }},
}

// refFacts holds the bundle's reference against the signed one: what was altered
// is a MISMATCH of the fact that speaks of it, with the JSON Pointers of the
// differences of its kind. Each member is compared by itself, so that many
// differences in one hide none in another.
func refFacts(presented, signed manifest.ArtifactRef) []manifest.Fact {
	if len(manifest.RefDiff(presented, signed)) == 0 {
		return nil
	}
	var facts []manifest.Fact
	compare := func(name string, presented manifest.ArtifactRef) {
		if diff := manifest.RefDiff(presented, signed); len(diff) > 0 {
			facts = append(facts, manifest.Fact{
				Name: name, State: manifest.Mismatch,
				Reason: "ref_altered: the reference differs from the signed one at " + strings.Join(diff, ", "),
			})
		}
	}
	for _, m := range refMembers {
		one := signed
		m.copy(&one, presented)
		compare(m.fact, one)
		m.copy(&presented, signed)
	}
	compare(manifest.FactSignature, presented)
	return facts
}
