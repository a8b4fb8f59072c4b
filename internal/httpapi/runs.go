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
	maxResult = 64 << 20 // bytes of a result, or of a call's input, that is JSON
	maxOpen   = 256      // runs that are held open
	maxTools  = 1024     // of a run
	maxAgent  = 256      // bytes of an agent's id
	runSpool  = 1 << 30  // bytes of results that wait for a store that takes none
)

// runPattern is the name of a run, which is the name of its folder.
var runPattern = regexp.MustCompile(`^rn_[a-z2-7]{26}$`)

// runNote is what a run is, in the file run.json of its folder.
type runNote struct {
	Principal leafproof.Principal `json:"principal"`
	// Since is when the principal was entered: who was given the name of one that was
	// removed is somebody else. Zero: the owner.
	Since   time.Time  `json:"since,omitzero"`
	Purpose string     `json:"purpose,omitempty"`
	Tenant  string     `json:"tenant"`
	Agent   string     `json:"agent"`
	RunID   string     `json:"run_id"`
	Profile string     `json:"profile"`
	AsOf    *time.Time `json:"as_of,omitempty"`
	Tools   []runTool  `json:"tools"`
}

// belongs reports whether a run is that of who asks, who is still who he was when he
// began it.
func (n *runNote) belongs(info leafproof.PrincipalInfo) bool {
	if n.Principal != info.Name {
		return false
	}
	if info.Name == leafproof.Owner.Principal {
		return true
	}
	return n.Tenant == info.Tenant && n.Since.Equal(info.CreatedAt) && (info.Run == nil || *info.Run == n.RunID)
}

// openRun is a run that is held open, or about to be.
type openRun struct {
	id    string
	ready chan struct{} // closed once it is open, or is not to be
	used  time.Time
	busy  int // requests that are about it

	transcript refs.Transcript
	file       *refs.File // nil: in memory
	spool      *harness.Spool

	calls *keptCalls

	equipping sync.Mutex // held while the tools change
	mu        sync.Mutex // guards what follows
	note      runNote    // but for Tools, it stays as it is
	run       *harness.Run
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
	ready := make(chan struct{})
	close(ready)
	r := &openRun{ready: ready, id: "rn_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])), note: note}
	if s.dir != "" {
		if err := os.MkdirAll(filepath.Join(s.dir, r.id), 0o700); err != nil {
			return nil, err
		}
	}
	err := s.begun(ctx, r)
	if err == nil {
		if err = s.save(r.id, note); err != nil {
			err = errors.Join(err, r.close())
		}
	}
	if err != nil {
		if s.dir != "" { // nobody knows its name
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, r.id)))
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.busy++ // the caller gives it back
	s.keep(r)
	return r, nil
}

// begun opens what a run is kept in, and begins it.
func (s *runs) begun(ctx context.Context, r *openRun) (err error) {
	if s.dir == "" {
		r.transcript = refs.NewMemory(r.note.RunID)
		r.calls, _ = openCalls("") // there is no folder to fail on
	} else {
		dir := filepath.Join(s.dir, r.id)
		if r.file, err = refs.OpenTranscript(dir, r.note.RunID); err != nil {
			return err
		}
		r.transcript = r.file
		if r.calls, err = openCalls(filepath.Join(dir, "calls")); err != nil {
			return errors.Join(err, r.file.Close())
		}
		if r.spool, err = harness.OpenSpool(filepath.Join(dir, "spool"), runSpool); err != nil {
			return errors.Join(err, r.file.Close())
		}
	}
	if r.run, err = r.equipped(ctx, s.store, r.note.Tools); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

// equip gives a run other tools. What the transcript has stays as it is.
func (s *runs) equip(ctx context.Context, r *openRun, list []runTool) error {
	r.equipping.Lock()
	defer r.equipping.Unlock()
	run, err := r.equipped(ctx, s.store, list)
	if err != nil {
		return err
	}
	note, _ := r.state()
	note.Tools = list
	if err := s.save(r.id, note); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note, r.run = note, run
	return nil
}

// equipped is the run with some tools.
func (r *openRun) equipped(ctx context.Context, store *leafproof.Store, list []runTool) (*harness.Run, error) {
	note, _ := r.state()
	var tools []harness.Tool
	for i, t := range list {
		tool, err := t.tool(i)
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	h, err := harness.New(harness.Options{Store: store, Spool: r.spool}, tools...)
	if err != nil {
		return nil, invalid(http.StatusBadRequest, "/tools", "%v", err)
	}
	profile, err := refs.ParseProfile(note.Profile)
	if err != nil {
		return nil, invalid(http.StatusBadRequest, "/profile", "%v", err)
	}
	task := harness.Task{}
	if note.AsOf != nil {
		task.AsOf = *note.AsOf
	}
	return h.Begin(ctx, harness.RunOptions{
		Agent: note.Agent, Run: note.RunID, Tenant: note.Tenant, Profile: profile, Transcript: r.transcript, Task: task,
		Caller: leafproof.Caller{Principal: note.Principal, Purpose: note.Purpose},
	})
}

// save writes a run's note, so that it is there after a crash.
func (s *runs) save(id string, note runNote) error {
	if s.dir == "" {
		return nil
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := writeDurably(filepath.Join(s.dir, id), "run.json", text); err != nil {
		return err
	}
	return syncFolder(s.dir)
}

// take returns a run that the caller began, for as long as it is not given back.
func (s *runs) take(ctx context.Context, info leafproof.PrincipalInfo, purpose, id string) (*openRun, error) {
	if !runPattern.MatchString(id) {
		return nil, errNoRun()
	}
	r, err := s.opened(ctx, info, id)
	if err != nil {
		return nil, err
	}
	switch note, _ := r.state(); {
	case !note.belongs(info):
		err = errNoRun()
	case note.Purpose != purpose:
		err = invalid(http.StatusBadRequest, purposeHeader, "the run was begun for another purpose")
	default:
		return r, nil
	}
	s.giveBack(r)
	return nil, err
}

// opened returns a run that is held open, and opens it if it is not. While it does,
// others wait who ask for the same one, and nobody else.
func (s *runs) opened(ctx context.Context, info leafproof.PrincipalInfo, id string) (*openRun, error) {
	for {
		s.mu.Lock()
		r := s.open[id]
		if r == nil {
			r = &openRun{id: id, ready: make(chan struct{}), busy: 1}
			s.keep(r)
			s.mu.Unlock()
			err := s.load(ctx, info, r)
			if err != nil {
				s.mu.Lock()
				delete(s.open, id)
				s.mu.Unlock()
			}
			close(r.ready)
			return r, err
		}
		r.busy++
		r.used = time.Now()
		s.mu.Unlock()
		select {
		case <-r.ready:
		case <-ctx.Done():
			s.giveBack(r)
			return nil, ctx.Err()
		}
		if r.current() != nil {
			return r, nil
		}
		s.giveBack(r) // whoever opened it could not: that need not be this caller's answer
	}
}

func (s *runs) giveBack(r *openRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.busy--
}

// load opens a run from its folder, if it is that of who asks.
func (s *runs) load(ctx context.Context, info leafproof.PrincipalInfo, r *openRun) error {
	if s.dir == "" {
		return errNoRun()
	}
	text, err := os.ReadFile(filepath.Join(s.dir, r.id, "run.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return errNoRun()
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.note); err != nil {
		return fmt.Errorf("run %s: %w", r.id, err)
	}
	if !r.note.belongs(info) {
		return errNoRun()
	}
	err = s.begun(ctx, r)
	if errors.Is(err, flock.ErrHeld) {
		return wait(http.StatusServiceUnavailable, leafproof.CodeInternal, "run", "another process has the run open")
	}
	return err
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

// state is the run as it is now: what it is, and with which tools.
func (r *openRun) state() (runNote, *harness.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note, r.run
}

// current is the run with the tools that it has now; nil where it could not be opened.
func (r *openRun) current() *harness.Run {
	_, run := r.state()
	return run
}
