//go:build amd64 && !purego

package merkle

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// wide says that hash16 runs on this processor and that its system saves the
// registers that it needs.
var wide = cpuid.CPU.Supports(cpuid.AVX512F)

// hash16 compresses 16 inputs of whole blocks of 64 bytes, of which input i
// begins at in + i×stride and has the counter counter + i×step, whose upper half
// does not change. The flags of a block are flags, and first for the first and
// last for the last block as well.
//
//go:noescape
func hash16(out *[wideLanes]cv, in *byte, stride, blocks int, counter uint64, step, flags, first, last uint32)

// leaves16 writes the values of all leaves of a group, of which the first is
// number leaf of the blob. It needs wide.
func leaves16(out *[wideLanes]cv, p *[GroupSize]byte, leaf int64) {
	hash16(out, &p[0], LeafSize, LeafSize/64, uint64(leaf), 1, 0, flagStart, flagEnd)
}

// parents16 writes the values of the parents of the 16 pairs in p. It needs
// wide; out may be the start of in.
func parents16(out *[wideLanes]cv, p *[2 * wideLanes]cv) {
	hash16(out, (*byte)(unsafe.Pointer(p)), parentSize, 1, 0, 0, flagParent, 0, 0)
}
