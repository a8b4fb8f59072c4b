package merkle

// Limit sets how many blocks and how many of each kind of larger subtree v
// remembers; to be called before the first check.
func (v *Verifier) Limit(limits [2]int) { v.limits = limits }
