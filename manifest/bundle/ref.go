package bundle

import (
	"slices"
	"strings"

	"leafproof/manifest"
)

// refMembers says which fact speaks of a member of the ArtifactRef. What is not
// named here only the signature speaks of.
var refMembers = map[string]string{
	"completeness":   manifest.FactCapture,
	"content_hash":   manifest.FactBytes,
	"created_at":     manifest.FactTimes,
	"expires_at":     manifest.FactExpiry,
	"scope":          manifest.FactScope,
	"source_version": manifest.FactSource,
}

// refFacts holds the bundle's reference against the signed one: what was altered
// is a MISMATCH of the fact that speaks of it, with the JSON Pointers of all
// differences of its kind.
func refFacts(presented, signed manifest.ArtifactRef) []manifest.Fact {
	differ := map[string][]string{}
	var names []string
	for _, p := range manifest.RefDiff(presented, signed) {
		member, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		name, ok := refMembers[member]
		if !ok {
			name = manifest.FactSignature
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		differ[name] = append(differ[name], p)
	}
	facts := make([]manifest.Fact, len(names))
	for i, name := range names {
		facts[i] = manifest.Fact{
			Name: name, State: manifest.Mismatch,
			Reason: "ref_altered: the reference differs from the signed one at " + strings.Join(differ[name], ", "),
		}
	}
	return facts
}
