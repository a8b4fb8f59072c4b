package harness

import (
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/ref"
)

// A Kernel is a live environment whose objects can be rebound, changed in place, and
// lost: a Python process, say.
type Kernel interface {
	// Generation counts how often the kernel was begun anew. An error means that it
	// cannot be told, and then no object of it can be had.
	Generation(ctx context.Context) (uint64, error)
	// Freeze returns what an object is now, in a form that does not depend on the
	// kernel. What is changed after Freeze returned does not show in it.
	Freeze(ctx context.Context, name string) (Blob, error)
}

// KernelHandle names an object of a kernel in one of its generations. It is no
// reference: the name may mean something else a moment later. Where it stands in a
// tool's result, what it means then is frozen, stored, and replaced by a marker.
type KernelHandle struct {
	Kernel     string `json:"kernel"`
	Generation uint64 `json:"generation"`
	Name       string `json:"name"`
}

// MarshalJSON refuses, as that of [Blob] does: a live object has no value to write.
func (KernelHandle) MarshalJSON() ([]byte, error) { return nil, ErrBlob }

//

// kernels are those of a harness, by name.
type kernels map[string]Kernel

// live returns the kernel of a handle whose generation still runs.
func (k kernels) live(ctx context.Context, h KernelHandle) (Kernel, error) {
	kernel := k[h.Kernel]
	if kernel == nil {
		return nil, fmt.Errorf("%w: there is no kernel %q", ref.ErrKernelGone, h.Kernel)
	}
	now, err := kernel.Generation(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %q does not answer: %w", ref.ErrKernelGone, h.Kernel, err)
	}
	if now != h.Generation {
		return nil, fmt.Errorf("%w: %q of generation %d of %q, which is in generation %d", ref.ErrKernelGone, h.Name, h.Generation, h.Kernel, now)
	}
	return kernel, nil
}

// freeze returns what a live object is now. Reading it fails, and so nothing is
// stored, where the kernel was begun anew before the last byte.
func (k kernels) freeze(ctx context.Context, h KernelHandle) (Blob, error) {
	kernel, err := k.live(ctx, h)
	if err != nil {
		return Blob{}, err
	}
	b, err := kernel.Freeze(ctx, h.Name)
	if err != nil || b.Reader == nil {
		return Blob{}, fmt.Errorf("%q of kernel %q cannot be frozen: %w", h.Name, h.Kernel, errors.Join(err, ctx.Err()))
	}
	b.Reader = &frozen{Reader: b.Reader, live: func() error { _, err := k.live(ctx, h); return err }}
	return b, nil
}

// frozen ends only while its kernel lives.
type frozen struct {
	io.Reader
	live func() error
}

func (f *frozen) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		if gone := f.live(); gone != nil {
			return n, gone
		}
	}
	return n, err
}

// Close closes what is frozen.
func (f *frozen) Close() error { return closeReader(f.Reader) }

func closeReader(r io.Reader) error {
	if c, ok := r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
