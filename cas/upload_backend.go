package cas

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/blake3"

	"leafproof/merkle"
)

// UploadKey names an [Upload] in a Backend: a digest of what its caller chose.
type UploadKey [16]byte

const uploadContext = "leafproof 2026 cas upload v1"

func uploadKey(id string) UploadKey {
	key := merkle.DeriveKey(uploadContext, []byte(id))
	return UploadKey(key[:16])
}

// UploadPart is one of the two unfinished objects of an upload. Another try under
// the same key has another nonce: what one try may have published is never
// written again.
type UploadPart struct {
	Nonce uint64 // not 0
	Log   bool   // the nodes, not the bytes
}

// Uploader is a [Backend] that keeps unfinished objects when their process ends.
type Uploader interface {
	// CreatePart makes a part, empty, which must not be there.
	CreatePart(ctx context.Context, t Tenant, key UploadKey, part UploadPart) (PartStage, error)
	// OpenPart opens a part as it stands: what was not synced may be there or
	// not, or be other bytes. A missing one is ErrNotFound, and one that is open
	// elsewhere, also in another process, ErrBusy.
	OpenPart(ctx context.Context, t Tenant, key UploadKey, part UploadPart) (PartStage, error)
	// Mark returns what the last SetMark under the key gave, of at most 1 KiB,
	// or ErrNotFound.
	Mark(ctx context.Context, t Tenant, key UploadKey) ([]byte, error)
	// SetMark replaces the mark in one step. It survives a crash.
	SetMark(ctx context.Context, t Tenant, key UploadKey, mark []byte) error
	// RemoveUpload removes what is kept under a key but the parts with the nonce
	// keep and, if keep is not 0, the mark. What is missing is no error. It need
	// not survive a crash.
	RemoveUpload(ctx context.Context, t Tenant, key UploadKey, keep uint64) error
}

// PartStage is a [Stage] that can be closed and opened again.
type PartStage interface {
	Stage
	// Length is the number of its bytes.
	Length() (int64, error)
	// Truncate cuts it off.
	Truncate(size int64) error
	// Sync makes its bytes survive a crash. After an error it must not be used
	// any more.
	Sync() error
	// Close ends its use and keeps it. After Commit or Discard it does nothing.
	Close() error
}

// uploadMark says how much of an upload survives a crash.
//
//	mark  "lfupld1\n", nonce u64, size u64, 1 u64 if it may have been published or 0,
//	      root of the first size bytes (32), BLAKE3 of all that precedes (32)
type uploadMark struct {
	nonce uint64
	size  int64
	done  bool // a part of this try may have an object's name by now
	root  merkle.Root
}

const (
	uploadMagic    = "lfupld1\n"
	uploadMarkSize = 8 + 8 + 8 + 8 + 32 + 32
)

func (m uploadMark) bytes() []byte {
	p := make([]byte, 0, uploadMarkSize)
	p = append(p, uploadMagic...)
	p = binary.LittleEndian.AppendUint64(p, m.nonce)
	p = binary.LittleEndian.AppendUint64(p, uint64(m.size))
	done := uint64(0)
	if m.done {
		done = 1
	}
	p = binary.LittleEndian.AppendUint64(p, done)
	p = append(p, m.root[:]...)
	sum := blake3.Sum256(p)
	return append(p, sum[:]...)
}

// parseUploadMark reads a mark. One that is damaged is ErrCorrupt.
func parseUploadMark(p []byte) (m uploadMark, err error) {
	bad := func() (uploadMark, error) {
		return uploadMark{}, fmt.Errorf("%w: not the mark of an upload", ErrCorrupt)
	}
	if len(p) != uploadMarkSize || string(p[:8]) != uploadMagic {
		return bad()
	}
	if sum := blake3.Sum256(p[:uploadMarkSize-32]); string(sum[:]) != string(p[uploadMarkSize-32:]) {
		return bad()
	}
	m.nonce = binary.LittleEndian.Uint64(p[8:])
	m.size = int64(binary.LittleEndian.Uint64(p[16:]))
	done := binary.LittleEndian.Uint64(p[24:])
	m.root = merkle.Root(p[32:])
	if m.nonce == 0 || m.size < 0 || done > 1 {
		return bad()
	}
	m.done = done == 1
	return m, nil
}
