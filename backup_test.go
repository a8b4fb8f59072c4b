package leafproof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leafproof"
	"leafproof/manifest"
)

func backup(t testing.TB, dir, to string, o leafproof.BackupOptions) *leafproof.BackupReport {
	t.Helper()
	r, err := leafproof.Backup(t.Context(), dir, to, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A backup holds all, is made again for the price of what is new, and is a
// store when its keys are there.
func TestBackup(t *testing.T) {
	dir, want := checked(t)
	to := filepath.Join(t.TempDir(), "sub", "backup")
	first := backup(t, dir, to, leafproof.BackupOptions{})
	if first.Artifacts != 5 || first.Copied == 0 || first.Resident != 0 || len(first.Damaged) != 0 || first.Keys {
		t.Errorf("first: %+v", first)
	}
	if r := mustCheck(t, to, leafproof.CheckOptions{Deep: true}); r.Damaged() || r.Artifacts != 5 {
		t.Errorf("the backup: %+v", r)
	}
	if _, err := os.Stat(filepath.Join(to, "keys", "manifest")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private key is in it: %v", err)
	}
	again := backup(t, dir, to, leafproof.BackupOptions{WithKeys: true})
	if again.Copied != 0 || again.Resident != first.Copied || !again.Keys {
		t.Errorf("again: %+v", again)
	}
	if got := readable(t, to, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
	s := openStore(t, dir)
	fresh := random(3000, 77)
	want[put(t, s, fresh, leafproof.PutOptions{Records: "none"}, leafproof.Facts{})] = fresh
	if r := backup(t, dir, to, leafproof.BackupOptions{WithKeys: true}); r.Copied == 0 || r.Copied > 3 || r.Artifacts != 6 {
		t.Errorf("with one more, beside an open store: %+v", r)
	}
	if got := readable(t, to, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
}

// A backup that is cut off anywhere leaves the one before, and goes on.
func TestBackupInterrupted(t *testing.T) {
	dir, want := checked(t)
	to := filepath.Join(t.TempDir(), "backup")
	for step := 1; ; step++ {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := leafproof.Backup(ctx, dir, to, leafproof.BackupOptions{WithKeys: true, Progress: func(int64) {
			if n++; n == step {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			if step < 4 {
				t.Fatalf("it was never interrupted: %d steps", n)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := leafproof.Open(t.Context(), to); !errors.Is(err, leafproof.ErrNoStore) {
			t.Fatalf("after %d steps the folder passes for a store: %v", step, err)
		}
	}
	if got := readable(t, to, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
	if r := mustCheck(t, to, leafproof.CheckOptions{Deep: true}); len(r.Findings) != 0 {
		t.Errorf("the backup: %+v", r.Findings)
	}
}

func TestBackupRefuses(t *testing.T) {
	dir, _ := checked(t)
	_, other := newStore(t)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backup")
	backup(t, dir, to, leafproof.BackupOptions{})
	for name, c := range map[string][2]string{
		"another store's backup": {other, to}, "a store": {dir, other}, "a full folder": {dir, full},
		"itself": {dir, dir}, "its inside": {dir, filepath.Join(dir, "backup")},
	} {
		if _, err := leafproof.Backup(t.Context(), c[0], c[1], leafproof.BackupOptions{}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// What is damaged is left out, and what the backup has from before stays. An
// object of the backup that was cut is written again.
func TestBackupOfDamage(t *testing.T) {
	base, want := checked(t)
	for kind, files := range objectFiles(t, base) {
		for i := range files {
			t.Run(fmt.Sprint(kind, i), func(t *testing.T) {
				if kind == "index" {
					t.Skip("it is made anew")
				}
				t.Parallel() // it waits for the disk
				dir := copyDir(t, base)
				old := filepath.Join(t.TempDir(), "old")
				backup(t, dir, old, leafproof.BackupOptions{WithKeys: true})
				damage(t, objectFiles(t, dir)[kind][i], func(p []byte) []byte { p[len(p)/2] ^= 8; return p })
				fresh := filepath.Join(t.TempDir(), "fresh")
				r := backup(t, dir, fresh, leafproof.BackupOptions{WithKeys: true})
				if len(r.Damaged) != 1 {
					t.Errorf("report %+v", r)
				}
				if rep := mustCheck(t, fresh, leafproof.CheckOptions{Deep: true}); kind != "obao" && len(touched(rep)) == 0 {
					t.Errorf("the check of the backup: %+v", rep.Findings)
				}
				backup(t, dir, old, leafproof.BackupOptions{WithKeys: true})
				if got := readable(t, old, want); len(got) != len(want) {
					t.Errorf("from the older backup %d of %d artifacts read", len(got), len(want))
				}
			})
		}
	}
	dir := copyDir(t, base)
	to := filepath.Join(t.TempDir(), "backup")
	backup(t, dir, to, leafproof.BackupOptions{WithKeys: true})
	for _, files := range objectFiles(t, to) {
		damage(t, files[0], func(p []byte) []byte { return p[:len(p)-1] })
	}
	backup(t, dir, to, leafproof.BackupOptions{WithKeys: true})
	if got := readable(t, to, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
}

// admitting adds the key of one store to the policy of another.
func admitting(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(leafproof.PublicKeyPath(from))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := manifest.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, to)
	add := manifest.AddKey(manifest.Key{Name: "theirs", Public: theirs, Roles: []string{manifest.RoleManifest}})
	if c, err := s.ChangePolicy(t.Context(), add); err != nil || !c.InForce {
		t.Fatalf("ChangePolicy = %+v, %v", c, err)
	}
}

func TestCopyTo(t *testing.T) {
	dir, want := checked(t)
	_, other := newStore(t)
	from := openStore(t, dir)
	ids := slices.Sorted(maps.Keys(want))
	if err := from.CopyTo(t.Context(), leafproof.Owner, openStore(t, other), leafproof.CopyOptions{}, ids[0]); !errors.Is(err, leafproof.ErrNotAdmitted) {
		t.Fatalf("without the key: %v", err)
	}
	admitting(t, dir, other)
	to := openStore(t, other)
	if err := from.CopyTo(t.Context(), leafproof.Owner, to, leafproof.CopyOptions{}, ids[0]); err != nil {
		t.Fatal(err)
	}
	// All, interrupted at each step.
	copied, there := map[string]int{}, 0
	for step := 1; ; step++ {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := from.CopyTo(ctx, leafproof.Owner, to, leafproof.CopyOptions{
			Progress: func(int64) {
				if n++; n == step {
					cancel()
				}
			},
			Done: func(id string, fresh bool) {
				if fresh {
					copied[id]++
				} else {
					there++
				}
			},
		})
		cancel()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) && leafproof.CodeOf(err) != leafproof.CodeScanIncomplete {
			t.Fatal(err)
		}
	}
	if len(copied) != len(want)-1 || there == 0 {
		t.Errorf("copied %v, %d there already", copied, there)
	}
	for id, n := range copied {
		if n != 1 {
			t.Errorf("%s was copied %d times", id, n)
		}
	}
	for id, data := range want {
		if got := read(t, to, id, leafproof.Selector{}); !bytes.Equal(got, data) {
			t.Errorf("%s reads otherwise", id)
		}
		a, errA := from.Resolve(t.Context(), leafproof.Owner, id)
		b, errB := to.Resolve(t.Context(), leafproof.Owner, id)
		if errA != nil || errB != nil || a.ManifestID != b.ManifestID {
			t.Errorf("%s: %v, %v", id, errA, errB)
		}
	}
	if r, err := to.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || r.Damaged() {
		t.Errorf("the other store: %+v, %v", r, err)
	}
	if err := to.Delete(t.Context(), leafproof.Owner, ids[1], ""); err != nil {
		t.Fatal(err)
	}
	if err := from.CopyTo(t.Context(), leafproof.Owner, to, leafproof.CopyOptions{}, ids[1]); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
		t.Errorf("one that was deleted there: %v", err)
	}
}

// A backup that is put back over its store revives nothing that was deleted since.
func TestRestoreKeepsDeleted(t *testing.T) {
	dir, want := checked(t)
	to := filepath.Join(t.TempDir(), "backup")
	backup(t, dir, to, leafproof.BackupOptions{WithKeys: true})
	s := openStore(t, dir)
	id := slices.Sorted(maps.Keys(want))[0]
	if err := s.Delete(t.Context(), leafproof.Owner, id, "asked for"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := copyOver(to, dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the catalogue knows it
		s = openStore(t, dir)
		for other := range want {
			_, err := s.Read(t.Context(), leafproof.Owner, other, leafproof.Selector{}, io.Discard)
			if deleted := leafproof.CodeOf(err) == leafproof.CodeArtifactDeleted; deleted != (other == id) || !deleted && err != nil {
				t.Errorf("%s: %v, deleted was %s", other, err, id)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "catalogue.copied")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the catalogue has heard, and still says that it is a copy: %v", err)
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Damaged() {
		t.Errorf("%+v", r)
	}
	// Where the store is not, nothing is known of it.
	if got := readable(t, to, want); len(got) != len(want) {
		t.Errorf("%d of %d artifacts read", len(got), len(want))
	}
}

// copyOver copies the files of a folder over those of another.
func copyOver(from, to string) error {
	return filepath.WalkDir(from, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}
