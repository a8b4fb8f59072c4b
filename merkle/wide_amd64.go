//go:build amd64 && !purego

package merkle

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// wide says that this processor has the wide code, and that its system saves the
// registers that it needs; wider, that it has that of 16 lanes.
var (
	wide  = cpuid.CPU.Supports(cpuid.AVX2)
	wider = wide && cpuid.CPU.Supports(cpuid.AVX512F)
)

// hash16 and hash8 compress 16 or 8 inputs of whole blocks of 64 bytes, of which
// input i begins at in + i×stride and has the counter counter + i×step, whose
// upper half does not change. The flags of a block are flags, and first for the
// first and last for the last block as well. out may be where the inputs begin if
// they have one block.
//
//go:noescape
func hash16(out *[wideLanes]cv, in *byte, stride, blocks int, counter uint64, step, flags, first, last uint32)

//go:noescape
func hash8(out *[wideLanes / 2]cv, in *byte, stride, blocks int, counter uint64, step, flags, first, last uint32)

// leaves16 writes the values of the first n leaves of a group, of which the first
// is number leaf of the blob, and anything after them. It needs wide.
func leaves16(out *[wideLanes]cv, p *[GroupSize]byte, n int, leaf int64) {
	if wider {
		hash16(out, &p[0], LeafSize, LeafSize/64, uint64(leaf), 1, 0, flagStart, flagEnd)
		return
	}
	const half = wideLanes / 2
	hash8((*[half]cv)(out[:half]), &p[0], LeafSize, LeafSize/64, uint64(leaf), 1, 0, flagStart, flagEnd)
	if n > half {
		hash8((*[half]cv)(out[half:]), &p[half*LeafSize], LeafSize, LeafSize/64, uint64(leaf)+half, 1, 0, flagStart, flagEnd)
	}
}

// parents16 writes the values of the parents of the first n pairs in p, and
// anything after them. It needs wide; out may be the start of p.
func parents16(out *[wideLanes]cv, p *[2 * wideLanes]cv, n int) {
	in := (*byte)(unsafe.Pointer(p))
	if wider {
		hash16(out, in, parentSize, 1, 0, 0, flagParent, 0, 0)
		return
	}
	const half = wideLanes / 2
	hash8((*[half]cv)(out[:half]), in, parentSize, 1, 0, 0, flagParent, 0, 0)
	if n > half {
		hash8((*[half]cv)(out[half:]), (*byte)(unsafe.Pointer(&p[wideLanes])), parentSize, 1, 0, 0, flagParent, 0, 0)
	}
}
