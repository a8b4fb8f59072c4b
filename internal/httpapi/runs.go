package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"leafproof"
	"leafproof/internal/flock"
	refs "leafproof/ref"
	"leafproof/ref/harness"
)

// The reference layer for harnesses in other languages: a run is a conversation of
// one agent with its model, kept in a folder of its own, so that a reference means
// the same after a restart.

// What runs may cost.
const (
	maxResult  = 64 << 20 // bytes of a result, or of a call's input, that is JSON
	maxOpen    = 256      // runs that are held open
	maxPending = 1024     // calls of a run whose result has not come
	maxTools   = 1024     // of a run
	maxAgent   = 256      // bytes of an agent's id
	runSpool   = 1 << 30  // bytes of results that wait for a store that takes none
)

// runPattern is the name of a run, which is the name of its folder.
var runPattern = regexp.MustCompile(`^rn_[a-z2-7]{26}$`)

// runNote is what a run is, in the file run.json of its folder.
type runNote struct {
	Principal leafproof.Principal `json:"principal"`
	Purpose   string              `json:"purpose,omitempty"`
	Tenant    string              `json:"tenant"`
	Agent     string              `json:"agent"`
	RunID     string              `json:"run_id"`
	Profile   string              `json:"profile"`
	AsOf      *time.Time          `json:"as_of,omitempty"`
	Tools     []runTool           `json:"tools"`
}

// openRun is a run that is held open.
type openRun struct {
	id   string
	note runNote
	used time.Time
	busy int // requests that are about it

	transcript refs.Transcript
	file       *refs.File // nil: in memory
	spool      *harness.Spool

	mu      sync.Mutex // guards run, note.Tools and pending
	run     *harness.Run
	pending map[string]*harness.Input
	order   []string // of pending
}

// runs are the runs of a server.
type runs struct {
	store *leafproof.Store
	dir   string // "": they are kept in memory

	mu   sync.Mutex
	open map[string]*openRun
}

// errNoRun is the answer to who asks for a run that is not his, or was never begun.
func errNoRun() error {
	return refuse(http.StatusNotFound, leafproof.CodeRefNotFound, leafproof.FixCall, "run", "no such run")
}

// begin makes a run.
func (s *runs) begin(ctx context.Context, note runNote) (*openRun, error) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	r := &openRun{id: "rn_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])), note: note}
	if s.dir != "" {
		if err := os.MkdirAll(filepath.Join(s.dir, r.id), 0o700); err != nil {
			return nil, err
		}
	}
	if err := s.save(r); err != nil {
		return nil, err
	}
	if err := s.begun(ctx, r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(r)
	return r, nil
}

// begun opens what a run is kept in, and begins it.
func (s *runs) begun(ctx context.Context, r *openRun) (err error) {
	if s.dir == "" {
		r.transcript = refs.NewMemory(r.note.RunID)
	} else {
		dir := filepath.Join(s.dir, r.id)
		if r.file, err = refs.OpenTranscript(dir, r.note.RunID); err != nil {
			return err
		}
		r.transcript = r.file
		if r.spool, err = harness.OpenSpool(filepath.Join(dir, "spool"), runSpool); err != nil {
			return errors.Join(err, r.file.Close())
		}
	}
	if err := r.equip(ctx, s.store, r.note.Tools); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

// equip gives a run its tools. What the transcript has stays as it is.
func (r *openRun) equip(ctx context.Context, store *leafproof.Store, list []runTool) error {
	var tools []harness.Tool
	for i, t := range list {
		tool, err := t.tool(i)
		if err != nil {
			return err
		}
		tools = append(tools, tool)
	}
	h, err := harness.New(harness.Options{Store: store, Spool: r.spool}, tools...)
	if err != nil {
		return invalid(http.StatusBadRequest, "/tools", "%v", err)
	}
	profile, err := refs.ParseProfile(r.note.Profile)
	if err != nil {
		return invalid(http.StatusBadRequest, "/profile", "%v", err)
	}
	task := harness.Task{}
	if r.note.AsOf != nil {
		task.AsOf = *r.note.AsOf
	}
	run, err := h.Begin(ctx, harness.RunOptions{
		Agent: r.note.Agent, Run: r.note.RunID, Tenant: r.note.Tenant, Profile: profile, Transcript: r.transcript, Task: task,
		Caller: leafproof.Caller{Principal: r.note.Principal, Purpose: r.note.Purpose},
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run, r.note.Tools, r.pending, r.order = run, list, map[string]*harness.Input{}, nil
	return nil
}

// save writes the run's note, so that it is there after a crash.
func (s *runs) save(r *openRun) error {
	if s.dir == "" {
		return nil
	}
	text, err := json.Marshal(r.note)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, r.id)
	f, err := os.CreateTemp(dir, "run.json.*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "run.json")); err != nil {
		return err
	}
	for _, name := range []string{dir, s.dir} {
		d, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// take returns a run that the caller began, for as long as it is not given back.
func (s *runs) take(ctx context.Context, who leafproof.Caller, id string) (*openRun, error) {
	if !runPattern.MatchString(id) {
		return nil, errNoRun()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open[id]
	if r == nil {
		var err error
		if r, err = s.load(ctx, who, id); err != nil {
			return nil, err
		}
		s.keep(r)
	}
	if r.note.Principal != who.Principal {
		return nil, errNoRun()
	}
	if r.note.Purpose != who.Purpose {
		return nil, invalid(http.StatusBadRequest, purposeHeader, "the run was begun for another purpose")
	}
	r.busy++
	r.used = time.Now()
	return r, nil
}

func (s *runs) giveBack(r *openRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.busy--
}

// load opens a run from its folder.
func (s *runs) load(ctx context.Context, who leafproof.Caller, id string) (*openRun, error) {
	if s.dir == "" {
		return nil, errNoRun()
	}
	text, err := os.ReadFile(filepath.Join(s.dir, id, "run.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoRun()
	}
	if err != nil {
		return nil, err
	}
	r := &openRun{id: id}
	if err := json.Unmarshal(text, &r.note); err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	if r.note.Principal != who.Principal {
		return nil, errNoRun()
	}
	err = s.begun(ctx, r)
	if errors.Is(err, flock.ErrHeld) {
		return nil, wait(http.StatusServiceUnavailable, leafproof.CodeInternal, "run", "another process has the run open")
	}
	return r, err
}

// keep holds a run open, and closes the one that was asked for longest ago where
// there are too many. s.mu is held.
func (s *runs) keep(r *openRun) {
	if len(s.open) >= maxOpen {
		var oldest *openRun
		for _, o := range s.open {
			if o.busy == 0 && o.file != nil && (oldest == nil || o.used.Before(oldest.used)) {
				oldest = o
			}
		}
		if oldest != nil {
			delete(s.open, oldest.id)
			_ = oldest.close() // each entry was flushed when it was made
		}
	}
	r.used = time.Now()
	s.open[r.id] = r
}

func (r *openRun) close() error {
	var err error
	if r.spool != nil {
		err = r.spool.Close()
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

// close closes all runs.
func (s *runs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, r := range s.open {
		err = errors.Join(err, r.close())
	}
	clear(s.open)
	return err
}

// current is the run with the tools that it has now.
func (r *openRun) current() *harness.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}

// await keeps a call whose tool runs elsewhere until its result comes, and names it.
func (r *openRun) await(in *harness.Input) string {
	name := strings.ToLower(rand.Text()[:20])
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) >= maxPending {
		delete(r.pending, r.order[0])
		r.order = r.order[1:]
	}
	r.pending[name] = in
	r.order = append(r.order, name)
	return name
}

// awaited is the call with a name; nil where it is not known, as after a restart.
func (r *openRun) awaited(name string) *harness.Input {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[name]
}
