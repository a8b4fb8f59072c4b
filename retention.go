package leafproof

import (
	"maps"
	"math"
	"slices"
	"time"

	"leafproof/manifest"
)

// allTenants stands for the tenants that are not named.
const allTenants = "*"

// An InitOption changes what store [Init] makes.
type InitOption func(*format)

// WithRetention lets the artifacts of a tenant ("" is every tenant that is not named)
// expire so long after they were published, in whole seconds, where the put says
// nothing of it. What a put says wins: see [Facts]. Nothing is deleted by that: what
// has expired is refused, and a sweep reclaims it.
func WithRetention(tenant string, d time.Duration) InitOption {
	return func(f *format) {
		if tenant == "" {
			tenant = allTenants
		}
		if f.Retention == nil {
			f.Retention = make(map[string]int64)
		}
		f.Retention[tenant] = int64(d / time.Second)
	}
}

// checkRetention refuses names that no tenant has, and times that are none.
func (f *format) checkRetention() error {
	for _, tenant := range slices.Sorted(maps.Keys(f.Retention)) {
		if tenant != allTenants {
			if err := manifest.CheckName(tenant); err != nil {
				return wireError("retention", err)
			}
		}
		if n := f.Retention[tenant]; n < 1 || n > math.MaxInt64/int64(time.Second) {
			return fail(CodeSelectorInvalid, FixCall, "retention", "the standard time of %s is %d s, which is none", tenant, n)
		}
	}
	return nil
}

// standard is after how long an artifact of the tenant expires of which nothing is
// said; 0 is never.
func (s *Store) standard(tenant string) time.Duration {
	n, ok := s.retention[tenant]
	if !ok {
		n = s.retention[allTenants]
	}
	return time.Duration(n) * time.Second
}
