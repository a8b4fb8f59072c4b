package selector

// A keyFunc is a keyer for tests.
type keyFunc func(record []byte) ([]byte, bool)

func (f keyFunc) key(dst, record []byte, _ bool) ([]byte, Outcome) {
	k, ok := f(record)
	if !ok {
		return dst, Undecidable
	}
	return append(dst, k...), Matched
}

// SortBy orders a task's rows by any key, with so many bytes of memory.
func (t *Task) SortBy(f func(record []byte) ([]byte, bool), memory int64) {
	t.keys = func(Layout) (keyer, error) { return keyFunc(f), nil }
	t.room = memory
}

// SortRoom sets how many bytes a sort may take.
func (t *Task) SortRoom(memory int64) { t.room = memory }

// WriteIndex writes an index of entries, which are in order.
func WriteIndex(src IndexSource, p *KeyPath, list []KeyEntry) ([]byte, error) {
	spec, err := IndexSpec(src.Layout, p, src.Redactions)
	if err != nil {
		return nil, err
	}
	var out memWriter
	w := newIndexWriter(&out, src.Root, src.Size, SpecDigest(spec), src.Records)
	for _, e := range list {
		if err := w.add(e.Key, e.Record); err != nil {
			return nil, err
		}
	}
	_, err = w.finish()
	return out.b, err
}
