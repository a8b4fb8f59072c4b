package castest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"leafproof/cas"
)

// tenants is the whole list, or the error that ended it.
func tenants(ctx context.Context, b cas.Backend) ([]cas.Tenant, error) {
	var out []cas.Tenant
	for t, err := range cas.ListTenants(ctx, b) {
		if err != nil {
			return out, err
		}
		out = append(out, t)
	}
	return out, nil
}

func tenantsAll(t *testing.T, b cas.Backend) {
	got, err := tenants(t.Context(), b)
	if _, able := b.(cas.TenantLister); !able {
		if !errors.Is(err, errors.ErrUnsupported) || got != nil {
			t.Errorf("ListTenants without the ability = %v, %v, want ErrUnsupported", got, err)
		}
		return
	}
	if err != nil || got != nil {
		t.Errorf("ListTenants of an empty backend = %v, %v", got, err)
	}
	var want []cas.Tenant
	for _, label := range []string{"b", "a", "c", "d"} {
		name := numbered(cas.KindBlob, 7, 0)
		name.Tenant = cas.TenantOf(label)
		put(t, b, name, []byte("x"))
		name.Kind = cas.KindPack
		put(t, b, name, []byte("x"))
		want = append(want, name.Tenant)
	}
	slices.SortFunc(want, func(a, b cas.Tenant) int { return slices.Compare(a[:], b[:]) })
	if got, err = tenants(t.Context(), b); err != nil || !slices.Equal(got, want) {
		t.Errorf("ListTenants = %v, %v, want %v", got, err, want)
	}
	seen := 0
	for range cas.ListTenants(t.Context(), b) {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("a caller that stopped after one tenant saw %d", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tenants(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("ListTenants with a cancelled context = %v", err)
	}
}

// straysNone: what the backend itself wrote is no stray.
func straysNone(t *testing.T, b cas.Backend) {
	for _, kind := range cas.Kinds() {
		put(t, b, numbered(kind, 9, 1), []byte("x"))
	}
	for s, err := range cas.ListStrays(t.Context(), b) {
		t.Errorf("ListStrays = %+v, %v, want nothing", s, err)
	}
}
