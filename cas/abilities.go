package cas

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Kinds returns every kind of object that this version knows, ascending.
func Kinds() []Kind { return slices.Sorted(maps.Keys(kindNames)) }

// TenantLister is a [Backend] that can say whose objects it holds. Callers use
// [ListTenants].
type TenantLister interface {
	// Tenants yields each tenant that may have objects once, in ascending
	// order. One that never had an object is not yielded. A yielded error ends
	// the list.
	Tenants(ctx context.Context) iter.Seq2[Tenant, error]
}

// ListTenants yields the tenants of b in ascending order. When b is no
// [TenantLister] it yields an error that matches [errors.ErrUnsupported]: a
// Backend's List needs a tenant, so that none can be found through it.
func ListTenants(ctx context.Context, b Backend) iter.Seq2[Tenant, error] {
	if l, ok := b.(TenantLister); ok {
		return l.Tenants(ctx)
	}
	return func(yield func(Tenant, error) bool) {
		yield(Tenant{}, &Error{Op: "list tenants", Err: fmt.Errorf("%w by this backend", errors.ErrUnsupported)})
	}
}

// Stray is something that lies among a Backend's objects and is none of them.
type Stray struct {
	Path string // relative to the backend's folder, slash-separated
	Size int64  // bytes; 0 for a folder
	// Unfinished says that a writer made it for an object that has no name yet.
	// It may belong to one that is at work now.
	Unfinished bool
	// Upload, of what belongs to an [Upload], is the same text for all of it, and
	// Modified when it was changed.
	Upload   string
	Modified time.Time
}

// StrayLister is a [Backend] on something that others can write to. Callers use
// [ListStrays].
type StrayLister interface {
	// Strays yields all that is no object, in ascending order of paths within
	// each folder. Of a folder that cannot hold objects it yields the name
	// alone. A yielded error ends the list.
	Strays(ctx context.Context) iter.Seq2[Stray, error]
}

// ListStrays yields what lies among the objects of b and is none of them:
// nothing when b is no [StrayLister].
func ListStrays(ctx context.Context, b Backend) iter.Seq2[Stray, error] {
	if l, ok := b.(StrayLister); ok {
		return l.Strays(ctx)
	}
	return func(func(Stray, error) bool) {}
}
