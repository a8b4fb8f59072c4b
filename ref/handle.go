package ref

// A Handle is what a tool gets for a reference in a lazy parameter. Nothing was read
// when the tool gets it. Each method that reads asks the authority anew, through the
// [Source]; what was allowed for one page says nothing of the next. It is safe for
// concurrent use, for as long as the run lasts.
type Handle struct {
	r   *Resolver
	ref Ref
}

// Ref is the reference as the model wrote it: what a recipe over the handle has as its
// source.
func (h *Handle) Ref() Ref { return h.ref }
