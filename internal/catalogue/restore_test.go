package catalogue_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// kept is a catalogue of n artifacts, the third of which is deleted.
func kept(t *testing.T, n int) (path string, rows []catalogue.Artifact) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "catalogue.db")
	s, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range n {
		a := catalogue.Artifact{
			ArtifactID: fmt.Sprintf("art_%03d", i), ManifestID: fmt.Sprintf("mf_%03d", i), Tenant: "local",
			Root: merkle.Sum([]byte{byte(i)}), Size: int64(i), EnvelopeRoot: merkle.Sum([]byte{1, byte(i)}), EnvelopeSize: 10,
			CreatedAt: time.UnixMicro(int64(1e15) + int64(i)).UTC(),
		}
		if err := s.Publish(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "art_002", "old", time.UnixMicro(2e15)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		a, err := s.Artifact(t.Context(), fmt.Sprintf("art_%03d", i))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, a)
	}
	return path, rows
}

func wantRows(t *testing.T, path string, rows []catalogue.Artifact) *catalogue.SQLite {
	t.Helper()
	s, err := catalogue.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if problems, err := s.Integrity(t.Context()); err != nil || problems != nil {
		t.Errorf("Integrity = %q, %v", problems, err)
	}
	for _, want := range rows {
		got, err := s.Artifact(t.Context(), want.ArtifactID)
		if err != nil || fmt.Sprint(got.DeletedAt, got.DeleteReason, got.Root, got.CreatedAt) != fmt.Sprint(want.DeletedAt, want.DeleteReason, want.Root, want.CreatedAt) {
			t.Errorf("%s = %+v, %v, want %+v", want.ArtifactID, got, err, want)
		}
	}
	return s
}

// A snapshot of a catalogue that is open and in use is a whole catalogue, and
// takes the place of an older one.
func TestSnapshot(t *testing.T) {
	path, rows := kept(t, 5)
	s := wantRows(t, path, rows)
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(to, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	snap := wantRows(t, to, rows)
	a, _ := s.StoreID(t.Context())
	if b, err := snap.StoreID(t.Context()); err != nil || a != b {
		t.Errorf("the snapshot is of store %s, not %s: %v", b, a, err)
	}
	row := rows[0]
	row.ArtifactID, row.ManifestID = "art_new", "mf_new"
	if err := snap.Publish(t.Context(), row); err != nil {
		t.Errorf("the snapshot does not take a row: %v", err)
	}
	if left, _ := filepath.Glob(to + ".tmp-*"); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}

// Salvage reads both ends of a list of artifacts with a damaged page in its
// middle, and Restore makes a sound catalogue of that.
func TestSalvageAndRestore(t *testing.T) {
	path, rows := kept(t, 200)
	if got := catalogue.Salvage(t.Context(), path); !got.Whole || len(got.Rows) != 200 || got.StoreID == "" || got.Epoch != 1 {
		t.Fatalf("of a sound one: %d rows, %+v", len(got.Rows), got.Epoch)
	}
	page := leafPage(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(text[(page-1)*4096 : page*4096])
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got := catalogue.Salvage(t.Context(), path)
	if got.Whole || len(got.Rows) < 100 || len(got.Rows) >= 200 {
		t.Fatalf("of a damaged one: %d rows, whole %v", len(got.Rows), got.Whole)
	}
	to := filepath.Join(t.TempDir(), "catalogue.db")
	twice := append(slices.Clone(got.Rows), got.Rows[0])
	clashes, err := catalogue.Restore(t.Context(), to, catalogue.Restored{StoreID: "st_x", Epoch: 7, Clock: 5, Rows: slices.Values(twice)})
	if err != nil || !slices.Equal(clashes, []string{got.Rows[0].ArtifactID}) {
		t.Fatalf("Restore = %v, %v", clashes, err)
	}
	s := wantRows(t, to, got.Rows)
	id, _ := s.StoreID(t.Context())
	if epoch, err := s.Epoch(t.Context()); id != "st_x" || epoch != 7 || err != nil {
		t.Errorf("store %s, epoch %d, %v", id, epoch, err)
	}
	if _, err := catalogue.Restore(t.Context(), to, catalogue.Restored{Rows: slices.Values(rows)}); !errors.Is(err, catalogue.ErrExists) {
		t.Errorf("over an existing one: %v", err)
	}
	for _, p := range []string{filepath.Join(t.TempDir(), "none"), to + "-none"} {
		if got := catalogue.Salvage(t.Context(), p); len(got.Rows) != 0 || got.Epoch != -1 {
			t.Errorf("of none: %+v", got)
		}
	}
}

// SQLite believes an index: where a damaged one leads to another row, that row
// does not get into a list that it does not belong to.
func TestIndexLeadsAstray(t *testing.T) {
	for name, test := range map[string]struct {
		entry, astray string
		ask           func(s *catalogue.SQLite) error
	}{
		"by tenant, a deleted one": {"local\x04\x04", "local\x04\x03", func(s *catalogue.SQLite) error {
			_, err := s.List(t.Context(), "local", 0, 10)
			return err
		}},
		"by tenant, another's": {"local\x04\x04", "lokal\x04\x04", func(s *catalogue.SQLite) error {
			_, err := s.List(t.Context(), "lokal", 0, 10)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := kept(t, 5)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte(test.entry)); n != 1 {
				t.Fatalf("the entry stands %d times in the file", n)
			}
			text = bytes.Replace(text, []byte(test.entry), []byte(test.astray), 1)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := catalogue.OpenSQLite(path)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := test.ask(s); !errors.Is(err, catalogue.ErrDamaged) {
				t.Errorf("error = %v, want ErrDamaged", err)
			}
			if problems, err := s.Integrity(t.Context()); err != nil || len(problems) == 0 {
				t.Errorf("Integrity = %q, %v", problems, err)
			}
		})
	}
}

// leafPage returns a page in the middle of the table of artifacts.
func leafPage(t *testing.T, path string) int64 {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var root int64
	if err := db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = 'artifacts'`).Scan(&root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := text[(root-1)*4096 : root*4096] // an interior page: cells {left child u32, key}
	if p[0] != 5 {
		t.Fatalf("the table is one page of type %d", p[0])
	}
	cells := int(p[3])<<8 | int(p[4])
	at := int(p[12+2*(cells/2)])<<8 | int(p[13+2*(cells/2)])
	return int64(p[at])<<24 | int64(p[at+1])<<16 | int64(p[at+2])<<8 | int64(p[at+3])
}
