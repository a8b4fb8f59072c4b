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
