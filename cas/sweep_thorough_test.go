package cas_test

import (
	"errors"
	"testing"

	"leafproof/cas"
	"leafproof/cas/memory"
)

// A thorough sweep leaves no blob behind that nothing needs, however few they are,
// and only of the tenants that it is for.
func TestSweepThorough(t *testing.T) {
	for name, test := range map[string]struct {
		thorough func(cas.Tenant) bool
		gone     bool
	}{
		"thorough":           {func(x cas.Tenant) bool { return x == tenant }, true},
		"for another tenant": {func(x cas.Tenant) bool { return x != tenant }, false},
		"not":                {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, memory.New())
			var blobs [][]byte
			for i := range 50 {
				blobs = append(blobs, random(uint64(i), 1000+i))
			}
			first := s.keep(t, blobs...)
			s.roots.end(first + 7)
			for range 2 { // the second finds nothing to do
				r, err := s.Sweep(t.Context(), cas.SweepOptions{Book: s.book, Roots: s.roots, Thorough: test.thorough})
				if err != nil || len(r.Kept) > 0 {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			other := s.another(t)
			for i, data := range blobs {
				want := error(nil)
				if i == 7 && test.gone {
					want = cas.ErrNotFound
				}
				if err := read(t, other, data); !errors.Is(err, want) {
					t.Errorf("blob %d: %v, want %v", i, err, want)
				}
			}
		})
	}
}
