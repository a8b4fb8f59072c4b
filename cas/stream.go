package cas

import (
	"context"
	"errors"
	"io"
	"slices"
)

// packStream is an unfinished pack in the backend. Its runs are written as they
// come, so that they need no memory until it is full.
type packStream struct {
	stage Stage
	runs  []packRun
	keys  []packKey
	size  int // as that of a packWriter
}

func newPackStream(ctx context.Context, b Backend, tenant Tenant) (*packStream, error) {
	stage, err := NewStage(ctx, b, tenant)
	if err != nil {
		return nil, err
	}
	if _, err := stage.WriteAt(packHeader(), 0); err != nil {
		return nil, errors.Join(err, stage.Discard())
	}
	return &packStream{stage: stage}, nil
}

// runCost is what a run adds to the size of a pack.
func runCost(r newRun, keys []packKey) int {
	return len(r.stored) + runHeaderSize + runEntrySize + len(keys)*keyEntrySize
}

// add writes a run, whose sum is there, with keys that the pack does not have.
func (s *packStream) add(r newRun, keys []packKey) error {
	run := packRun{runsEnd(s.runs) + runHeaderSize, r.codec, r.raw, uint32(len(r.stored)), r.sum}
	var room [runHeaderSize]byte
	if _, err := s.stage.WriteAt(appendRunHeader(room[:0], run), run.offset-runHeaderSize); err != nil {
		return err
	}
	if _, err := s.stage.WriteAt(r.stored, run.offset); err != nil {
		return err
	}
	for _, k := range keys {
		k.run = uint32(len(s.runs))
		s.keys = append(s.keys, k)
	}
	s.runs = append(s.runs, run)
	s.size += runCost(r, keys)
	return nil
}

// writeStream makes the stream's pack durable, pinned by h, and enters it. The
// stream is used up.
func (x *packs) writeStream(ctx context.Context, h *hold, s *packStream) error {
	defer s.stage.Discard()
	slices.SortFunc(s.keys, packKey.compare)
	id, end := sealPack(s.runs, s.keys)
	if _, err := s.stage.WriteAt(end, runsEnd(s.runs)); err != nil {
		return err
	}
	size := runsEnd(s.runs) + int64(len(end))
	name, err := x.choose(ctx, []*hold{h}, id, size, func() io.Reader { return io.NewSectionReader(s.stage, 0, size) })
	if err != nil {
		return err
	}
	if err := s.stage.Commit(ctx, name, size); err != nil {
		return err
	}
	x.add(name, size, locate(s.runs, s.keys), true)
	x.tidy(ctx)
	return nil
}
