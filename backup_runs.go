package leafproof

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/afero"

	"leafproof/internal/rootfs"
)

// The folders in a backup of runs that are not in their place yet, and not any more.
const (
	nextRuns = runsDir + ".next"
	oldRuns  = runsDir + ".old"
)

// runName is the name of a run's folder.
var runName = regexp.MustCompile(`^rn_[a-z2-7]{26}$`)

// copyRuns copies the runs of harnesses that the store's folder has into a folder of
// the backup, where they wait for the catalogue. It goes before the snapshot of that: a
// run names what was published before, so all that it names is in the snapshot. A
// transcript that grows meanwhile is copied as far as it had come, and its last line,
// where it is not whole, is cut off when it is opened, as after a crash.
func copyRuns(ctx context.Context, dir, to string) (n int64, err error) {
	next := filepath.Join(to, nextRuns)
	if err := os.RemoveAll(next); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, runsDir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, err
	}
	for _, e := range entries {
		if !e.IsDir() || !runName.MatchString(e.Name()) {
			continue
		}
		from := filepath.Join(dir, runsDir, e.Name())
		if _, err := os.Stat(filepath.Join(from, "run.json")); err != nil {
			continue // it is about to be begun
		}
		if err := copyFiles(ctx, from, filepath.Join(next, e.Name())); err != nil {
			return n, err
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	d, err := os.Open(next)
	if err != nil {
		return n, err
	}
	return n, errors.Join(d.Sync(), d.Close())
}

// copyFiles copies the files below a folder, each as a whole and durably. One that is
// removed meanwhile is passed over.
func copyFiles(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	root, err := rootfs.Open(to)
	if err != nil {
		return err
	}
	defer root.Close()
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !e.Type().IsRegular():
			return nil
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		return rootfs.Publish(root, filepath.ToSlash(name), true, func(w afero.File) error {
			_, err := io.Copy(w, f)
			return err
		})
	})
}

// installRuns puts the copied runs in the place of those of the backup before. Between
// its steps a crash may leave the backup without them, until it is made again.
func installRuns(to string) error {
	place, next, old := filepath.Join(to, runsDir), filepath.Join(to, nextRuns), filepath.Join(to, oldRuns)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	for _, step := range [][2]string{{place, old}, {next, place}} {
		if err := os.Rename(step[0], step[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(os.RemoveAll(old), syncParent(place))
}
