package tlog_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"leafproof/manifest/tlog"

	"golang.org/x/mod/sumdb/note"
	xtlog "golang.org/x/mod/sumdb/tlog"
)

// acceptedByXMod checks a proof as a stranger would who has x/mod and the text of
// C2SP tlog-proof: nothing of this package is called.
func acceptedByXMod(vkey, proof, leaf string) error {
	head, msg, ok := strings.Cut(proof, "\n\n")
	lines := strings.Split(head, "\n")
	if !ok || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return fmt.Errorf("no proof")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	var path xtlog.RecordProof
	for _, line := range lines[2:] {
		h, err := xtlog.ParseHash(line)
		if err != nil {
			return err
		}
		path = append(path, h)
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	n, err := note.Open([]byte(msg), note.VerifierList(verifier))
	if err != nil {
		return err
	}
	text := strings.Split(n.Text, "\n")
	size, err := strconv.ParseInt(text[1], 10, 64)
	if err != nil || text[0] != verifier.Name() {
		return fmt.Errorf("size %v of %s", err, text[0])
	}
	root, err := base64.StdEncoding.DecodeString(text[2])
	if err != nil {
		return err
	}
	return xtlog.CheckRecord(path, size, xtlog.Hash(root), index, xtlog.RecordHash([]byte(leaf)))
}

// TestStrangers: proofs and an exported log are accepted, and wrong ones refused,
// by code that nobody here wrote, and by 60 lines of Python.
func TestStrangers(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is absent")
	}
	script := filepath.Join("..", "..", "tools", "tlog.py")
	python := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "python3", append([]string{"-B", script}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return string(out)
	}
	l, dir := newLog(600), t.TempDir()
	vkey := logKey("log", origin).String()
	for i, c := range []struct{ index, size int64 }{{0, 1}, {6, 11}, {599, 600}} {
		p := l.prove(c.index, c.size)
		leaf := l.leaves[c.index]
		if err := acceptedByXMod(vkey, p.String(), string(leaf.Data())); err != nil {
			t.Errorf("x/mod refuses leaf %d of %d: %v", c.index, c.size, err)
		}
		other := l.leaves[(c.index+1)%600]
		if err := acceptedByXMod(vkey, p.String(), string(other.Data())); err == nil {
			t.Errorf("x/mod takes another leaf as %d of %d", c.index, c.size)
		}
		file := filepath.Join(dir, strconv.Itoa(i)+".tlog-proof")
		write(t, file, []byte(p.String()))
		if got, want := python(file, leaf.Kind, leaf.Digest.String()), fmt.Sprintf("leaf %d of %d in %s\n", c.index, c.size, origin); got != want {
			t.Errorf("tlog.py says %q, want %q", got, want)
		}
		if got := python(file, "tombstone", leaf.Digest.String()); !strings.Contains(got, "exit status 3: NOT leaf") {
			t.Errorf("tlog.py says %q of another kind", got)
		}
	}
	for path, data := range export(t, l, 600) {
		write(t, filepath.Join(dir, "log", path), data)
	}
	write(t, filepath.Join(dir, "log", tlog.CheckpointPath), []byte(l.checkpoint(600, noon).String()))
	if got, want := python(filepath.Join(dir, "log")), "600 leaves of "+origin+"\n"; got != want {
		t.Errorf("tlog.py says %q, want %q", got, want)
	}
	l.leaves[3], l.leaves[4] = l.leaves[4], l.leaves[3]
	write(t, filepath.Join(dir, "log", "tile/entries/000"), export(t, l, 256)["tile/entries/000"])
	if got := python(filepath.Join(dir, "log")); !strings.Contains(got, "exit status 3: NOT the 600") {
		t.Errorf("tlog.py says %q of leaves in another order", got)
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
