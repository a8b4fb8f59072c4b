package cas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
	"leafproof/merkle"
)

// upload sends a blob in three parts, the second through another Store and the
// last by a sender that begins from the start, and puts it.
func (w *writer) upload(size int, place cas.Placement) error {
	ctx, data := context.Background(), blobOf(size).data
	w.told.doubt(size)
	other := cas.New(disk.New(w.fsys), cas.Options{})
	for i, s := range []*cas.Store{w.s, other, w.s} {
		u, err := s.Upload(ctx, tenant, fmt.Sprint(size))
		if err != nil {
			return err
		}
		if at := u.Size(); i < 2 && at < int64(size)*int64(i+1)/3 {
			err = u.Append(ctx, at, io.LimitReader(bytes.NewReader(data[at:]), int64(size)*int64(i+1)/3-at))
		} else if i == 2 {
			err = u.Fill(ctx, bytes.NewReader(data))
		}
		if err == nil && u.Root() != merkle.Sum(data[:u.Size()]) {
			err = fmt.Errorf("%w in an upload", errOther)
		}
		if err == nil {
			w.told.sync(size, u.Synced())
		}
		if err == nil && i == 2 {
			w.told.sync(size, 0) // what is put is no upload any more
			if _, err = s.PutUpload(ctx, u, place); err == nil {
				w.told.set(held, size)
			}
		}
		if err := errors.Join(err, u.Close()); err != nil {
			return err
		}
	}
	return nil
}

// sync notes how much of an upload its sender was told to be safe.
func (o *told) sync(size int, synced int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.synced == nil {
		o.synced = make(map[int]int64)
	}
	o.synced[size] = synced
}

// checkUploads goes on with each upload in another process.
func (o *told) checkUploads(fsys *crashfs.FS) (problems []string) {
	for size, synced := range o.synced {
		u, err := cas.New(disk.New(fsys), cas.Options{}).Upload(context.Background(), tenant, fmt.Sprint(size))
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("upload of %d bytes: %v", size, err))
			continue
		case u.Size() < synced:
			problems = append(problems, fmt.Sprintf("%d bytes of %d synced ones are left of an upload", u.Size(), synced))
		case u.Root() != merkle.Sum(blobOf(size).data[:u.Size()]):
			problems = append(problems, errOther.Error()+" in an upload")
		}
		if err := u.Close(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}
