package verifycmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"leafproof/internal/flock"
	"leafproof/internal/outfile"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/manifest/tlog"
)

// remember holds the checkpoint of a bundle to those that the reader has seen
// before, and keeps it if it is higher. The log's files (o.Log), which anybody may
// have exported, are the means to show that two checkpoints are of one history;
// nothing of them is believed. It changes the fact commit where that is not shown.
func remember(o Options, res *bundle.Result, policy *manifest.Policy) error {
	if o.Checkpoints == "" {
		return nil
	}
	if _, err := Remembered(o.Checkpoints); err != nil {
		return err
	}
	fact, _ := res.Verdict.Fact(manifest.FactCommit)
	if fact.State != manifest.Attested || res.Commit == nil {
		return nil // nobody vouches for this checkpoint
	}
	var err error
	if bad := Remember(o.Checkpoints, func(m *tlog.Memory) {
		err = compare(m, o.Log, res.Commit.Checkpoint, policy)
	}); bad != nil {
		return bad
	}
	if io, ok := errors.AsType[*os.PathError](err); ok {
		return io
	}
	fact.Detail, fact.By, fact.Role = "", "", ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tlog.ErrFork):
		fact.State, fact.Reason = manifest.Mismatch, fmt.Sprintf("%v; both checkpoints are in %s", plain(err), o.Checkpoints)
	case errors.Is(err, tlog.ErrRollback):
		fact.State, fact.Reason = manifest.Unverifiable, fmt.Sprintf("%v; both checkpoints are in %s", plain(err), o.Checkpoints)
	case errors.Is(err, tlog.ErrConsistency) && o.Log == "":
		fact.State, fact.Reason = manifest.Unverifiable, fmt.Sprintf("%v; --log DIR, an export of the log, could", plain(err))
	default:
		fact.State, fact.Reason = manifest.Unverifiable, plain(err).Error()
	}
	res.Verdict.Set(fact)
	return nil
}

// plain is an error without the operation before it.
func plain(err error) error {
	if e, ok := errors.AsType[*tlog.Error](err); ok {
		return e.Err
	}
	return err
}

// compare remembers the newest checkpoint of the log's files, and that of a bundle.
func compare(m *tlog.Memory, dir string, c tlog.Checkpoint, policy *manifest.Policy) error {
	if dir == "" {
		return m.See(c, nil)
	}
	tiles, err := OpenTiles(dir)
	if err != nil {
		return err
	}
	if tiles.Head.Origin != c.Origin {
		return fmt.Errorf("%w: %s has that of %s", tlog.ErrOrigin, dir, manifest.Printable(tiles.Head.Origin))
	}
	if err := tlog.Admit(tiles.Head, policy); err != nil {
		return fmt.Errorf("the checkpoint in %s: %w", dir, err)
	}
	if err := m.SeeHead(tiles.Head, tiles.Prove); err != nil {
		return err
	}
	return m.See(c, tiles.Prove)
}

// Remembered reads a file of checkpoints; one that is not there remembers nothing.
func Remembered(file string) (*tlog.Memory, error) {
	if file == "-" {
		return nil, usage("--checkpoints wants a file: a stream remembers nothing")
	}
	text, err := readAtMost(file, tlog.MaxMemory)
	if errors.Is(err, os.ErrNotExist) {
		return &tlog.Memory{}, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := tlog.ParseMemory(text)
	if err != nil {
		return nil, usage("%s: %v", file, err)
	}
	return m, nil
}

// patience is how long a process waits for others to have written the file.
const patience = 5 * time.Second

// Remember lets see compare checkpoints with those of a file, and writes the file if
// it has changed them. Where another process has written it meanwhile, see is called
// again with what stands there now: nothing that was remembered is forgotten.
func Remember(file string, see func(*tlog.Memory)) error {
	for {
		m, err := Remembered(file)
		if err != nil {
			return err
		}
		before := m.String()
		see(m)
		if m.String() == before {
			return nil
		}
		if kept, err := exchange(file, before, m); kept || err != nil {
			return err
		}
	}
}

// exchange writes the file unless it holds something else than before.
func exchange(file, before string, m *tlog.Memory) (bool, error) {
	if fi, err := os.Stat(file); err == nil && !fi.Mode().IsRegular() {
		return true, keep(file, m) // as /dev/null, which remembers nothing
	}
	lock, err := flock.Exclusive(file + ".lock")
	for begin := time.Now(); errors.Is(err, flock.ErrHeld) && time.Since(begin) < patience; {
		time.Sleep(5 * time.Millisecond)
		lock, err = flock.Exclusive(file + ".lock")
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	now, err := Remembered(file)
	if err != nil || now.String() != before {
		return false, err
	}
	return true, keep(file, m)
}

// keep writes a file of checkpoints, whole or not at all.
func keep(file string, m *tlog.Memory) error {
	return outfile.Write(file, io.Discard, func(w io.Writer) error {
		_, err := io.WriteString(w, m.String())
		return err
	})
}

// OpenTiles reads an exported log. Nobody has checked its checkpoint yet.
func OpenTiles(dir string) (*tlog.Tiles, error) {
	text, err := readAtMost(filepath.Join(dir, tlog.CheckpointPath), tlog.MaxCheckpoint)
	if err != nil {
		return nil, err
	}
	head, err := tlog.ParseCheckpoint(text)
	if err != nil {
		return nil, err
	}
	return tlog.NewTiles(head, func(path string, most int64) ([]byte, error) {
		return readAtMost(filepath.Join(dir, filepath.FromSlash(path)), most)
	}), nil
}
