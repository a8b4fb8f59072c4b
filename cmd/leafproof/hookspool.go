package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// What a hook could not store is kept in files, in a folder of the session: NAME.bytes
// is the output as it was, and NAME.json, which is written last, says what it is.
const (
	spoolBytesSuffix = ".bytes"
	spoolEntrySuffix = ".json"
	// maxRetries is how many are stored, and told of, with one call.
	maxRetries = 8
)

// spoolEntry says what an output is that waits.
type spoolEntry struct {
	Tool      string          `json:"tool"`
	CallID    string          `json:"tool_use_id"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	MediaType string          `json:"media_type"`
}

// spoolDir is the folder of what waits of the session.
func (h *hook) spoolDir() (all, own string, err error) {
	state, err := stateDir()
	if err != nil {
		return "", "", err
	}
	all = filepath.Join(state, "hook")
	sum := sha256.Sum256([]byte(h.in.Session))
	return all, filepath.Join(all, hex.EncodeToString(sum[:12])), nil
}

// spool keeps an output, and reports whether it is kept.
func (h *hook) spool(b []byte, e spoolEntry) bool {
	all, dir, err := h.spoolDir()
	if err != nil || os.MkdirAll(dir, 0o700) != nil {
		return false
	}
	total := int64(len(b))
	filepath.WalkDir(all, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	entry, err := json.Marshal(e)
	if err != nil || total > spoolBytes {
		return false
	}
	name := filepath.Join(dir, strings.ToLower(rand.Text()))
	if writeSynced(name+spoolBytesSuffix, b) != nil {
		os.Remove(name + spoolBytesSuffix)
		return false
	}
	return writeSynced(name+spoolEntrySuffix, entry) == nil
}

// writeSynced writes a file that has its name once it is whole.
func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		os.Remove(name + ".new")
	}
	return err
}

// retry stores what waits of the session, and is what the model is told of it; "" for
// nothing.
func (h *hook) retry() string {
	_, dir, err := h.spoolDir()
	if err != nil {
		return ""
	}
	list, err := filepath.Glob(filepath.Join(dir, "*"+spoolEntrySuffix))
	if err != nil || len(list) == 0 {
		return ""
	}
	type told struct {
		Tool   string          `json:"tool"`
		CallID string          `json:"tool_use_id"`
		Output json.RawMessage `json:"output"`
	}
	var stored []told
	for _, file := range list[:min(len(list), maxRetries)] {
		name := strings.TrimSuffix(file, spoolEntrySuffix)
		var e spoolEntry
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &e) != nil {
			continue
		}
		b, err := os.ReadFile(name + spoolBytesSuffix)
		if err != nil {
			continue
		}
		id, err := h.put(b, e)
		if err != nil {
			break // the rest waits on
		}
		if os.Remove(file) != nil {
			continue // somebody else tells of it
		}
		os.Remove(name + spoolBytesSuffix)
		var v hookView
		if strings.HasPrefix(e.MediaType, "text/") || e.MediaType == "application/json" {
			v.Preview, v.Complete = hookPreview(h.ctx, string(b))
		}
		stored = append(stored, told{e.Tool, e.CallID, v.of(id, len(b), e.MediaType)})
	}
	if stored == nil {
		return ""
	}
	text, err := json.Marshal(map[string]any{"data_only": true, "stored_now": stored})
	if err != nil {
		return ""
	}
	return "Outputs of earlier tool calls that could not be stored then are stored now: " + string(text)
}
