package leafproof

import (
	"context"
	"io"
	"time"
)

// standingLook is how long a stream goes on without a look whether its artifact still
// stands.
const standingLook = time.Second

// whileThere passes bytes on while the artifact is neither deleted nor expired, as far
// as was seen in the last second: the leave to have it says nothing about that.
type whileThere struct {
	ctx   context.Context
	a     *artifact
	w     io.Writer
	until time.Time
}

// whileStanding returns w for the bytes of an artifact that was just found.
func (a *artifact) whileStanding(ctx context.Context, w io.Writer) io.Writer {
	return &whileThere{ctx, a, w, time.Now().Add(standingLook)}
}

// Write implements [io.Writer].
func (s *whileThere) Write(b []byte) (int, error) {
	if now := time.Now(); now.After(s.until) {
		row, err := s.a.store.catalogue.Artifact(s.ctx, s.a.row.ArtifactID)
		if err == nil {
			err = s.a.store.available(s.ctx, row)
		}
		if err != nil {
			return 0, wireError(s.a.row.ArtifactID, err)
		}
		s.until = now.Add(standingLook)
	}
	return s.w.Write(b)
}
