package leafproof

import (
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/flock"
)

// older makes the catalogue of the store in dir one of version 1.
func older(t *testing.T, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, catalogueFile))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT IN ('meta', 'artifacts')`)
	if err != nil {
		t.Fatal(err)
	}
	text := `PRAGMA user_version = 1`
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		text = "DROP TABLE " + name + "; " + text
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

// TestUpgrade opens a store with an older catalogue from many sides at once.
func TestUpgrade(t *testing.T) {
	dir := t.TempDir()
	if err := Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	older(t, dir)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := Open(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := flock.Exclusive(filepath.Join(dir, lockFile)); !errors.Is(err, flock.ErrHeld) {
				t.Errorf("an open store is not locked: %v", err)
			}
		})
	}
	all.Wait()
}

// TestUpgradeWaits: a store that an older program has open is not upgraded.
func TestUpgradeWaits(t *testing.T) {
	dir := t.TempDir()
	if err := Init(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	older(t, dir)
	old := upgradePatience
	upgradePatience = 100 * time.Millisecond
	defer func() { upgradePatience = old }()
	lock, err := flock.Shared(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("error = %v, want ErrHeld", err)
	}
	if _, err := catalogue.OpenSQLite(filepath.Join(dir, catalogueFile)); !errors.Is(err, catalogue.ErrOlder) {
		t.Errorf("the catalogue: error = %v, want ErrOlder", err)
	}
	lock.Close()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
