package httpapi

import (
	"context"
	"crypto/rand"
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

	"leafproof"
	"leafproof/ref/harness"
)

// What is kept of the calls of a run whose tools run elsewhere.
const (
	maxPending = 1024      // calls
	maxKept    = 256 << 20 // bytes of them
)

// keptPattern is the name of the file of a call: how many came before it, and its name.
var keptPattern = regexp.MustCompile(`^([0-9]{10})-([a-z2-7]{20})\.json$`)

// keptCall is such a call, as it is kept.
type keptCall struct {
	ID     string                     `json:"id,omitempty"`
	Tool   string                     `json:"tool"`
	Input  []byte                     `json:"input"` // byte for byte as the model wrote it
	Inputs []string                   `json:"inputs,omitempty"`
	Lazy   map[string]json.RawMessage `json:"lazy,omitempty"`
}

func (k keptCall) recalled() harness.Recalled {
	return harness.Recalled{Call: harness.Call{ID: k.ID, Tool: k.Tool, Input: k.Input}, Inputs: k.Inputs, Lazy: k.Lazy}
}

// keptCalls are the calls of a run, the oldest first: those that are too many, or too
// large together, are forgotten.
type keptCalls struct {
	dir string // "": they are kept in memory

	mu   sync.Mutex
	next int64
	all  []keptFile
	size int64
}

type keptFile struct {
	name string
	file string
	text []byte // in memory
	size int64
}

// openCalls opens the calls that were kept in a folder, which is made. What a crash
// left of others is removed.
func openCalls(dir string) (*keptCalls, error) {
	k := &keptCalls{dir: dir}
	if dir == "" {
		return k, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir) // by name
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		m := keptPattern.FindStringSubmatch(e.Name())
		if m == nil {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Sscanf(m[1], "%d", &k.next); err != nil {
			return nil, err
		}
		k.next++
		k.all = append(k.all, keptFile{name: m[2], file: e.Name(), size: info.Size()})
		k.size += info.Size()
	}
	return k, nil
}

// keep keeps a call, so that it is there after a crash, and names it.
func (k *keptCalls) keep(in *harness.Input) (name string, err error) {
	r := in.Recalled()
	text, err := json.Marshal(keptCall{ID: r.Call.ID, Tool: r.Call.Tool, Input: r.Call.Input, Inputs: r.Inputs, Lazy: r.Lazy})
	if err != nil {
		return "", err
	}
	name = strings.ToLower(rand.Text()[:20])
	k.mu.Lock()
	defer k.mu.Unlock()
	f := keptFile{name: name, file: fmt.Sprintf("%010d-%s.json", k.next, name), size: int64(len(text))}
	if k.dir == "" {
		f.text = text
	} else if err := writeDurably(k.dir, f.file, text); err != nil {
		return "", err
	}
	k.next++
	k.all = append(k.all, f)
	k.size += f.size
	for len(k.all) > maxPending || len(k.all) > 1 && k.size > maxKept {
		old := k.all[0]
		if k.dir != "" {
			if err := os.Remove(filepath.Join(k.dir, old.file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
		k.all, k.size = k.all[1:], k.size-old.size
	}
	return name, nil
}

// find returns a call by name; not ok where it is none of the run's, or forgotten.
func (k *keptCalls) find(name string) (c keptCall, ok bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.all {
		if f.name != name {
			continue
		}
		text := f.text
		if k.dir != "" {
			if text, err = os.ReadFile(filepath.Join(k.dir, f.file)); err != nil {
				return c, false, err
			}
		}
		err = json.Unmarshal(text, &c)
		return c, err == nil, err
	}
	return c, false, nil
}

// writeDurably writes a file that is there as a whole, or not at all, also after a
// crash.
func writeDurably(dir, name string, text []byte) error {
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// recall is a call of the run that /calls named.
func (r *openRun) recall(ctx context.Context, name string) (*harness.Input, error) {
	k, ok, err := r.calls.find(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, refuse(http.StatusNotFound, leafproof.CodeRefNotFound, leafproof.FixCall, "call", "the run has no such call: a result without one states no lineage")
	}
	return r.current().Recall(ctx, k.recalled())
}
