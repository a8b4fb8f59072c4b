package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"leafproof/internal/flock"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
	"leafproof/manifest/tlog"
)

// A log that was lost with its catalogue cannot go on: the store would sign a second
// history under one name. So a catalogue that is made anew begins another log, under
// another origin and key, whose first leaf names the last checkpoint that is known
// of the one before.
const (
	// logBegins stands while that has not happened yet: a line with the new origin,
	// then the last checkpoint that is known, if any is.
	logBegins = "log.begins"
	// logEnded keeps the checkpoint, which is the payload of the first leaf.
	logEnded = "log.ended"
	logLock  = "log.lock"
)

// endLog notes that the log of a store's folder is lost, and returns the origin of
// the next one; "" where the policy names no log.
func endLog(dir string, policy *manifest.Policy, storeID string, last []byte) (string, error) {
	if policy == nil || len(policy.Logs()) == 0 {
		return "", nil
	}
	origin := fmt.Sprintf("%s/%d", logOrigin(storeID), len(policy.Logs())+1)
	return origin, replaceFile(dir, logBegins, append([]byte(origin+"\n"), last...))
}

// restartLog begins the next log where the one before is lost. Until it has, nothing
// is sealed. It reports whether the log may be sealed.
func (s *Store) restartLog(ctx context.Context) (bool, error) {
	if s.dir == "" {
		return true, nil
	}
	if _, err := readPolicyFile(filepath.Join(s.dir, logBegins), tlog.MaxCheckpoint+1024); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	lock, err := flock.Exclusive(filepath.Join(s.dir, logLock))
	for begin := time.Now(); errors.Is(err, flock.ErrHeld) && time.Since(begin) < policyPatience; {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return false, err
		}
		lock, err = flock.Exclusive(filepath.Join(s.dir, logLock))
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	text, err := readPolicyFile(filepath.Join(s.dir, logBegins), tlog.MaxCheckpoint+1024)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // another process has done it meanwhile
	}
	if err != nil {
		return false, err
	}
	origin, last, _ := strings.Cut(string(text), "\n")
	if err := s.catalogue.Append(ctx, logLeaf(tlog.KindPrevious, []byte(last))); err != nil {
		return false, err
	}
	t, err := s.trusted()
	if err != nil {
		return false, err
	}
	if logs := t.policy.Logs(); len(logs) == 0 || logs[len(logs)-1].Name != origin {
		k, err := s.NewKey(ctx, NewKeyOptions{Roles: []string{manifest.RoleLog}, Name: origin})
		if err != nil || !k.Policy.InForce {
			return false, err
		}
	}
	if err := replaceFile(s.dir, logEnded, []byte(last)); err != nil {
		return false, err
	}
	root, err := rootfs.Open(s.dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	return true, errors.Join(root.Remove(logBegins), rootfs.SyncDir(root, "."))
}

// openLog makes the log ready to be sealed, and begins it.
func (s *Store) openLog(ctx context.Context) error {
	ready, err := s.restartLog(ctx)
	if !ready {
		return err
	}
	s.catalogue.Seal(s.seal)
	return errors.Join(err, s.beginLog(ctx))
}
