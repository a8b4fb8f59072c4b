package ref

// A Resolver puts values in place of references, for one run. It is safe for concurrent
// use.
type Resolver struct {
	transcript Transcript
	source     Source
	limits     Limits
}

// NewResolver returns a resolver of the references of one run. Zero fields of limits
// mean [DefaultLimits].
func NewResolver(t Transcript, s Source, limits Limits) *Resolver {
	return &Resolver{transcript: t, source: s, limits: limits.or()}
}
