package memory

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"leafproof/cas"
)

var _ cas.TenantLister = (*Backend)(nil)

// Tenants implements [cas.TenantLister].
func (b *Backend) Tenants(ctx context.Context) iter.Seq2[cas.Tenant, error] {
	return func(yield func(cas.Tenant, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(cas.Tenant{}, err)
			return
		}
		b.mu.RLock()
		seen := make(map[cas.Tenant]bool)
		for name := range b.objects {
			seen[name.Tenant] = true
		}
		b.mu.RUnlock()
		tenants := make([]cas.Tenant, 0, len(seen))
		for t := range seen {
			tenants = append(tenants, t)
		}
		slices.SortFunc(tenants, func(a, b cas.Tenant) int { return bytes.Compare(a[:], b[:]) })
		for _, t := range tenants {
			if !yield(t, nil) {
				return
			}
		}
	}
}
