package disk

import (
	"context"
	"errors"
	"io/fs"

	"leafproof/cas"
	"leafproof/internal/rootfs"
)

var (
	_ cas.LooseStage   = (*stage)(nil)
	_ cas.StageGrouper = (*Backend)(nil)
)

// CommitLoose implements [cas.LooseStage].
func (s *stage) CommitLoose(ctx context.Context, name cas.Name, size int64) error {
	defer s.temp.Discard()
	err := s.ready(ctx, size)
	if err == nil {
		err = s.temp.CommitLoose(name.String())
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return s.b.fail("commit", name, err)
}

// CommitStages implements [cas.StageGrouper].
func (b *Backend) CommitStages(ctx context.Context, list []cas.Staged) error {
	temps, names := make([]*rootfs.Temp, len(list)), make([]string, len(list))
	for i, item := range list {
		temps[i], names[i] = item.Stage.(*stage).temp, item.Name.String()
		defer temps[i].Discard()
	}
	for _, item := range list {
		if err := item.Stage.(*stage).ready(ctx, item.Size); err != nil {
			return b.fail("commit", item.Name, err)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return b.fail("commit", list[0].Name, rootfs.CommitAll(temps, names))
}
