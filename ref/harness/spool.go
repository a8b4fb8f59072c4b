package harness

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"leafproof/internal/flock"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/ref"
)

// ErrSpoolFull is content that the spool has no room for.
var ErrSpoolFull = errors.New("the spool is full")

// ErrRetried is a result that waits in the spool, and is being retried already.
var ErrRetried = errors.New("the result is being retried")

// A Spool keeps the results of tools that could not be stored, until they can be:
// files of mode 0600 in one folder of mode 0700. Names come from outside and are
// data: no name of a file is made of them but through an escape. It is safe for
// concurrent use. One Spool at a time has a folder open, in this process or another.
type Spool struct {
	root *os.Root
	lock *os.File
	most int64

	mu   sync.Mutex
	used int64
	busy map[string]bool // entries that are being retried
}

// OpenSpool opens the spool in a folder, and makes it. It holds at most so many bytes.
// What a process left that ended before its result was entered is removed: nobody was
// told of it. It fails with [flock.ErrHeld] while another has the folder open.
func OpenSpool(dir string, most int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Spool{root: root, most: most, busy: map[string]bool{}}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open locks the folder, removes scraps and counts what is there.
func (s *Spool) open() (err error) {
	if s.lock, err = s.root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := flock.Open(s.lock); err != nil {
		return err
	}
	list, err := s.files()
	if err != nil {
		return err
	}
	entered := map[string]bool{}
	for _, f := range list {
		if name, ok := strings.CutSuffix(f.Name(), entrySuffix); ok {
			entered[name] = true
		}
	}
	for _, f := range list {
		owner, _, isBlob := strings.Cut(f.Name(), blobSuffix+"-")
		if strings.HasSuffix(f.Name(), partSuffix) || isBlob && !entered[owner] {
			if err := s.root.Remove(f.Name()); err != nil {
				return err
			}
			continue
		}
		info, err := f.Info()
		if err != nil {
			return err
		}
		s.used += info.Size()
	}
	return nil
}

// Close releases the folder. What is in it stays.
func (s *Spool) Close() error {
	err := s.root.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

const (
	partSuffix  = ".part"
	blobSuffix  = ".blob"
	entrySuffix = ".json"
	lockName    = "lock"
)

// files are those of results: each has a ~ in its name, which nothing else has.
func (s *Spool) files() ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(s.root.FS(), ".")
	return slices.DeleteFunc(list, func(f fs.DirEntry) bool { return !strings.Contains(f.Name(), "~") }), err
}

// claim takes an entry for a retry; what it returns gives it back.
func (s *Spool) claim(run, key string) (func(), error) {
	name := spoolName(run, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[name] {
		return nil, ErrRetried
	}
	s.busy[name] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, name)
	}, nil
}

// syncFolder makes the names in the folder survive a crash.
func (s *Spool) syncFolder() error {
	d, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// escape makes a file name of any string: one string, one name. A long one is cut
// and told apart by its digest.
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	const most = 80
	if b.Len() <= most {
		return b.String()
	}
	sum := merkle.Sum([]byte(name))
	return b.String()[:most] + "%%" + hex.EncodeToString(sum[:16])
}

// spoolName is the name of an entry's files, without their ends.
func spoolName(run, key string) string { return escape(run) + "~" + escape(key) }

// take reserves room.
func (s *Spool) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.most-s.used {
		return fmt.Errorf("%w: %d bytes of %d are taken", ErrSpoolFull, s.used, s.most)
	}
	s.used += n
	return nil
}

func (s *Spool) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// spoolFile is a file that is being written.
type spoolFile struct {
	s    *Spool
	f    *os.File
	name string
	size int64
	err  error
	done bool // it was kept, or dropped
}

func (s *Spool) create(name string) (*spoolFile, error) {
	f, err := s.root.OpenFile(name+partSuffix, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &spoolFile{s: s, f: f, name: name}, nil
}

// Write keeps bytes. Once it has failed the file is of no use, and Write takes all
// that comes without keeping it: whoever reads from a tee reads on.
func (w *spoolFile) Write(p []byte) (int, error) {
	if w.err != nil {
		return len(p), nil
	}
	if w.err = w.s.take(int64(len(p))); w.err != nil {
		return len(p), nil
	}
	n, err := w.f.Write(p)
	w.size += int64(n)
	w.s.give(int64(len(p) - n))
	w.err = err
	return len(p), nil
}

// strictly is a spoolFile whose Write says that it failed: who writes alone need not go on.
type strictly struct{ *spoolFile }

func (w strictly) Write(p []byte) (int, error) {
	n, _ := w.spoolFile.Write(p)
	return n, w.err
}

// keep makes the file one of the spool's, which survives a crash.
func (w *spoolFile) keep() error {
	err := w.err
	if err == nil {
		err = w.f.Sync()
	}
	w.done = true
	if err = errors.Join(err, w.f.Close()); err == nil {
		err = w.s.root.Rename(w.name+partSuffix, w.name)
	}
	if err != nil {
		w.s.give(w.size)
		return errors.Join(err, w.s.root.Remove(w.name+partSuffix))
	}
	if err := w.s.syncFolder(); err != nil {
		return errors.Join(err, w.s.remove(w.name))
	}
	return nil
}

// drop removes the file.
func (w *spoolFile) drop() error {
	w.s.give(w.size)
	w.done = true
	return errors.Join(w.f.Close(), w.s.root.Remove(w.name+partSuffix))
}

// spooled is a result in the spool.
type spooled struct {
	Run    string          `json:"run"`
	Key    string          `json:"key"`
	CallID string          `json:"call_id"`
	Tool   string          `json:"tool"`
	JSON   json.RawMessage `json:"result"`
	Blobs  []spooledBlob   `json:"blobs"`
	Slots  []spooledSlot   `json:"stored"` // what the store has of it already

	// What its blobs were made from, and with: a retry asks for the same leave, and
	// states the same lineage.
	Inputs     []string            `json:"inputs,omitempty"`
	Arguments  json.RawMessage     `json:"arguments,omitempty"`
	Supersedes *manifest.Supersede `json:"supersedes,omitempty"`
}

// spooledSlot is a slot of the result.
type spooledSlot struct {
	Field  string      `json:"field"`
	Marker *ref.Marker `json:"marker"`
}

// spooledBlob is content of a result in the spool: it stands in place of the value
// at a JSON Pointer.
type spooledBlob struct {
	At   string `json:"at"`
	File string `json:"file"`

	MediaType string          `json:"media_type"`
	Name      string          `json:"name"`
	Records   string          `json:"records"`
	Facts     json.RawMessage `json:"facts,omitempty"`
}

// enter keeps a result whose content is in the spool. Content first: an entry
// without its content would be found, and content without an entry is only room.
func (s *Spool) enter(e spooled) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := s.create(spoolName(e.Run, e.Key) + entrySuffix)
	if err != nil {
		return err
	}
	_, _ = f.Write(text)
	return f.keep()
}

// Pending lists the keys of a run's results that wait to be stored, in order. One that
// cannot be read is in the error, and does not hide the others.
func (s *Spool) Pending(run string) ([]string, error) {
	list, err := s.files()
	if err != nil {
		return nil, err
	}
	var keys []string
	var bad error
	for _, f := range list {
		if !strings.HasPrefix(f.Name(), escape(run)+"~") || !strings.HasSuffix(f.Name(), entrySuffix) {
			continue
		}
		e, err := s.entry(f.Name())
		switch {
		case err != nil:
			bad = errors.Join(bad, fmt.Errorf("%s: %w", f.Name(), err))
		case e.Run == run:
			keys = append(keys, e.Key)
		}
	}
	slices.Sort(keys)
	return keys, bad
}

func (s *Spool) entry(file string) (e spooled, err error) {
	text, err := fs.ReadFile(s.root.FS(), file)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	return e, err
}

// load opens a result that waits. The caller closes what it opened.
func (s *Spool) load(run, key string) (spooled, Raw, func() error, error) {
	var open []io.Closer
	closeAll := func() (err error) {
		for _, c := range open {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	e, err := s.entry(spoolName(run, key) + entrySuffix)
	if err != nil {
		return e, Raw{}, closeAll, err
	}
	raw := Raw{JSON: e.JSON, Blobs: map[string]Blob{}}
	for _, b := range e.Blobs {
		f, err := s.root.Open(b.File)
		if err != nil {
			return e, Raw{}, closeAll, errors.Join(err, closeAll())
		}
		open = append(open, f)
		raw.Blobs[b.At] = Blob{Reader: f, MediaType: b.MediaType, Name: b.Name, Records: b.Records, Facts: b.Facts}
	}
	return e, raw, closeAll, nil
}

// Drop gives up a result that waits.
func (s *Spool) Drop(run, key string) error {
	name := spoolName(run, key)
	e, err := s.entry(name + entrySuffix)
	if err != nil {
		return err
	}
	files := []string{name + entrySuffix} // the entry first: it names the others
	for _, b := range e.Blobs {
		files = append(files, b.File)
	}
	for _, f := range files {
		if err := s.remove(f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) remove(file string) error {
	info, err := s.root.Stat(file)
	if err == nil {
		err = s.root.Remove(file)
	}
	if err != nil {
		return err
	}
	s.give(info.Size())
	return nil
}

// spooledSlots are the slots of a tool's result that can wait: what is in the store.
func spooledSlots(slots []ref.Slot) (out []spooledSlot) {
	for _, s := range slots {
		if s.Marker != nil {
			out = append(out, spooledSlot{s.Field, s.Marker})
		}
	}
	return out
}

func (e *spooled) slots() (out []ref.Slot) {
	for _, s := range e.Slots {
		out = append(out, ref.Slot{Field: s.Field, Marker: s.Marker})
	}
	return out
}

func randomKey() string { return strings.ToLower(rand.Text()) }
