package leafproof_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/cas"
	"leafproof/internal/flock"
)

// checked is a closed store with five artifacts of two tenants, and their bytes.
func checked(t testing.TB) (dir string, want map[string][]byte) {
	t.Helper()
	s, dir := newStore(t)
	want = make(map[string][]byte)
	add := func(data []byte, o leafproof.PutOptions) {
		want[put(t, s, data, o, leafproof.Facts{SourceID: "src", RunID: "r1"})] = data
	}
	var rows bytes.Buffer
	for i := range 400 {
		fmt.Fprintf(&rows, "{\"n\":%d,\"text\":\"row %x\"}\n", i, random(20, uint64(i)))
	}
	add(random(40_000, 1), leafproof.PutOptions{Records: "none"})
	add(rows.Bytes(), leafproof.PutOptions{})
	add(random(700, 2), leafproof.PutOptions{Records: "none"})
	add(random(70_000, 4), leafproof.PutOptions{Records: "none", Place: cas.Chunked})
	add(random(20_000, 3), leafproof.PutOptions{Records: "none", Tenant: "other"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// readable returns the artifacts that read as they should; a wrong byte fails.
func readable(t testing.TB, dir string, want map[string][]byte) []string {
	t.Helper()
	s, err := leafproof.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var good []string
	for id, data := range want {
		var out bytes.Buffer
		_, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
		if !bytes.HasPrefix(data, out.Bytes()) || err == nil && out.Len() != len(data) {
			t.Errorf("%s gave %d wrong bytes", id, out.Len())
		}
		if err == nil {
			good = append(good, id)
		}
	}
	slices.Sort(good)
	return good
}

func damage(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(bytes.Clone(old)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// objectFiles are the objects of a store, by kind.
func objectFiles(t testing.TB, dir string) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	root := filepath.Join(dir, "objects")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, p); err == nil && !d.IsDir() {
			kind := strings.Split(filepath.ToSlash(rel), "/")[1]
			out[kind] = append(out[kind], p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func touched(r *leafproof.CheckReport) []string {
	ids := make(map[string]bool)
	for _, f := range r.Findings {
		for _, to := range f.Touches {
			ids[to.ArtifactID] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

func mustCheck(t testing.TB, dir string, o leafproof.CheckOptions) *leafproof.CheckReport {
	t.Helper()
	r, err := leafproof.Check(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCheckSound(t *testing.T) {
	dir, _ := checked(t)
	for _, deep := range []bool{false, true} {
		r := mustCheck(t, dir, leafproof.CheckOptions{Deep: deep})
		if len(r.Findings) != 0 || r.Damaged() || r.Artifacts != 5 || r.Unreferenced != 0 {
			t.Errorf("deep %v: %+v", deep, r)
		}
	}
	s := openStore(t, dir)
	draft, err := s.Put(t.Context(), bytes.NewReader(random(30_000, 9)), leafproof.PutOptions{Records: "none"})
	if err != nil {
		t.Fatal(err)
	}
	_ = draft // never published
	if r, err := s.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || r.Damaged() || r.Unreferenced == 0 {
		t.Errorf("with an unpublished put: %+v, %v", r, err)
	}
}

// One damaged object harms the artifacts that use it and no others, and the
// check names them; a repair brings back what it says it does.
func TestCheckNamesArtifacts(t *testing.T) {
	changes := map[string]func([]byte) []byte{
		"flipped":     func(p []byte) []byte { p[len(p)/2] ^= 4; return p },
		"empty":       func([]byte) []byte { return nil },
		"zero-filled": func(p []byte) []byte { clear(p); return p },
		"cut":         func(p []byte) []byte { return p[:len(p)-10] },
	}
	base, want := checked(t)
	for kind, files := range objectFiles(t, base) {
		for i := range files {
			for name, change := range changes {
				if testing.Short() && name != "flipped" { // under the race detector
					continue
				}
				t.Run(fmt.Sprint(kind, i, name), func(t *testing.T) {
					t.Parallel() // it waits for the disk
					dir := copyDir(t, base)
					path := objectFiles(t, dir)[kind][i]
					damage(t, path, change)
					good := readable(t, dir, want)
					r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
					if !r.Damaged() {
						t.Fatal("nothing found")
					}
					named := touched(r)
					for id := range want {
						switch reads, blamed := slices.Contains(good, id), slices.Contains(named, id); {
						case !reads && !blamed:
							t.Errorf("%s does not read and is not named", id)
						case reads && blamed && kind != "obao" && !onlyMap(r, id):
							t.Errorf("%s reads, and is named: %+v", id, r.Findings)
						}
					}
					if _, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{}); err != nil {
						t.Fatal(err)
					}
					after := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
					if got := readable(t, dir, want); len(got)+len(lost(after)) != len(want) || len(got) < len(good) {
						t.Errorf("after the repair %d read and %d are named", len(got), len(lost(after)))
					}
					if (kind == "obao" || kind == "index" || kind == "pack" && name == "cut") && after.Damaged() {
						t.Errorf("it was not mended: %+v", after.Findings)
					}
				})
			}
		}
	}
}

// onlyMap reports whether all that is said of an artifact is that its record map
// is damaged: it reads by bytes.
func onlyMap(r *leafproof.CheckReport, id string) bool {
	for _, f := range r.Findings {
		for _, to := range f.Touches {
			if to.ArtifactID == id && to.Part != "record map" {
				return false
			}
		}
	}
	return true
}

// lost are the artifacts whose bytes or manifest are damaged.
func lost(r *leafproof.CheckReport) []string {
	return slices.DeleteFunc(touched(r), func(id string) bool { return onlyMap(r, id) })
}

func TestCheckRanges(t *testing.T) {
	dir, want := checked(t)
	id, blob := "", ""
	for _, p := range objectFiles(t, dir)["blob"] {
		if info, _ := os.Stat(p); info.Size() == 40_000 {
			blob = p
		}
	}
	for k, data := range want {
		if len(data) == 40_000 {
			id = k
		}
	}
	damage(t, blob, func(p []byte) []byte { p[20_000] ^= 1; return p })
	r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
	if len(r.Findings) != 1 || fmt.Sprint(r.Findings[0].Touches) != fmt.Sprintf("[{%s local bytes [[16384 32768]]}]", id) {
		t.Errorf("findings = %+v", r.Findings)
	}
	if r := mustCheck(t, dir, leafproof.CheckOptions{}); r.Damaged() {
		t.Errorf("a shallow check read the bytes: %+v", r.Findings)
	}
	// Cut: the bytes before the cut are still proven.
	damage(t, blob, func(p []byte) []byte { p[20_000] ^= 1; return p[:39_000] })
	r = mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
	if len(r.Findings) != 1 || fmt.Sprint(r.Findings[0].Touches) != fmt.Sprintf("[{%s local bytes [[32768 40000]]}]", id) {
		t.Errorf("findings = %+v", r.Findings)
	}
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	r = mustCheck(t, dir, leafproof.CheckOptions{})
	if !r.Damaged() || fmt.Sprint(touched(r)) != fmt.Sprint([]string{id}) || r.Findings[0].Touches[0].Ranges[0] != [2]int64{0, 40_000} {
		t.Errorf("findings = %+v", r.Findings)
	}
	for _, p := range objectFiles(t, dir)["obao"] { // and without a trace
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	r = mustCheck(t, dir, leafproof.CheckOptions{})
	if !slices.ContainsFunc(r.Findings, func(f leafproof.CheckFinding) bool { return f.Fault == "lost" && f.File == "" }) {
		t.Errorf("findings = %+v", r.Findings)
	}
}

// A damaged file of the folder is reported, never fatal, and repaired where
// another file says what stood there.
func TestCheckFolderFiles(t *testing.T) {
	base, want := checked(t)
	for file, mendable := range map[string]bool{
		"leafproof.json": true, "trust.policy": true, "policy/1": true, "policy/1.sig": false, "keys/policy": false, "keys/policy.pub": true, "keys/manifest": false, "keys/manifest.pub": true, "keys/cursor": true, "catalogue.db": true,
	} {
		for name, change := range map[string]func([]byte) []byte{
			"empty": func([]byte) []byte { return nil }, "zero-filled": func(p []byte) []byte { clear(p); return p },
			"cut": func(p []byte) []byte { return p[:len(p)/2] }, "missing": nil,
		} {
			if testing.Short() && name != "cut" { // under the race detector
				continue
			}
			t.Run(strings.ReplaceAll(file, "/", "-")+" "+name, func(t *testing.T) {
				dir := copyDir(t, base)
				path := filepath.Join(dir, file)
				if change == nil {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				} else {
					damage(t, path, change)
				}
				r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
				if !r.Damaged() || !slices.ContainsFunc(r.Findings, func(f leafproof.CheckFinding) bool { return f.File == file && f.Damage }) {
					t.Fatalf("findings = %+v", r.Findings)
				}
				r, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if r.Damaged() == mendable {
					t.Errorf("after the repair: %+v", r.Findings)
				}
				if mendable {
					if got := readable(t, dir, want); len(got) != len(want) {
						t.Errorf("%d of %d artifacts read", len(got), len(want))
					}
				}
			})
		}
	}
}

// A lost catalogue comes back from the manifests among the objects.
func TestRepairCatalogue(t *testing.T) {
	ctx := context.Background()
	dir, want := checked(t)
	s, err := leafproof.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	gone := slices.Sorted(maps.Keys(want))[0]
	if err := s.Delete(ctx, leafproof.Owner, gone, "too much"); err != nil {
		t.Fatal(err)
	}
	id, before := s.ID(), entries(t, s)
	if _, err := leafproof.Repair(ctx, dir, leafproof.CheckOptions{}); !errors.Is(err, flock.ErrHeld) {
		t.Fatalf("a repair beside an open store: %v", err)
	} else if !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("the refusal does not name the process: %v", err)
	}
	s.Close()

	t.Run("damaged", func(t *testing.T) {
		dir := copyDir(t, dir)
		// An index page goes bad: the rows can still be read.
		path := filepath.Join(dir, "catalogue.db")
		breakIndex(t, path)
		if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); !r.Damaged() {
			t.Fatal("the damage was not found")
		}
		r, err := leafproof.Repair(ctx, dir, leafproof.CheckOptions{})
		if err != nil || r.Restored == nil || r.Restored.Artifacts != 5 || r.Restored.Deleted != 1 || len(r.Restored.Unproven) != 0 {
			t.Fatalf("report = %+v, %v", r.Restored, err)
		}
		s := openStore(t, dir)
		if fmt.Sprint(entries(t, s)) != fmt.Sprint(before) {
			t.Errorf("listed %v, want %v", entries(t, s), before)
		}
		if _, err := s.Resolve(ctx, leafproof.Owner, gone); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
			t.Errorf("the deleted artifact: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, r.Restored.Old)); err != nil {
			t.Error(err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		dir := copyDir(t, dir)
		if err := os.Remove(filepath.Join(dir, "catalogue.db")); err != nil {
			t.Fatal(err)
		}
		r, err := leafproof.Repair(ctx, dir, leafproof.CheckOptions{})
		if err != nil || r.Restored == nil || r.Restored.Artifacts != 5 || r.Restored.Deleted != 1 || r.Restored.Statements != 1 || r.Restored.Epoch < 1e9 {
			t.Fatalf("report = %+v, %v", r.Restored, err)
		}
		if !strings.Contains(fmt.Sprint(r.Restored.Unknown), "deleted") {
			t.Errorf("what is unknown: %q", r.Restored.Unknown)
		}
		// Its tombstone stands among the objects: what was deleted stays deleted.
		if got := readable(t, dir, want); len(got) != len(want)-1 || slices.Contains(got, gone) {
			t.Errorf("%d of %d artifacts read", len(got), len(want))
		}
		if s := openStore(t, dir); s.ID() != id {
			t.Errorf("the store is %s now, not %s", s.ID(), id)
		}
		if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Damaged() {
			t.Errorf("afterwards: %+v", r.Findings)
		}
	})
	t.Run("stranger's manifests stay out", func(t *testing.T) {
		dir := copyDir(t, dir)
		_, other := newStore(t)
		for _, name := range []string{"trust.policy", "policy/1", "policy/1.sig"} {
			text, err := os.ReadFile(filepath.Join(other, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(filepath.Join(dir, "catalogue.db")); err != nil {
			t.Fatal(err)
		}
		r, err := leafproof.Repair(ctx, dir, leafproof.CheckOptions{})
		if err != nil || r.Restored == nil || r.Restored.Artifacts != 0 || len(r.Restored.Refused) != 6 { // and the tombstone
			t.Errorf("report = %+v, %v", r.Restored, err)
		}
	})
}

// entries are what a store lists, but for the numbers of the rows.
func entries(t testing.TB, s *leafproof.Store) []string {
	t.Helper()
	var out []string
	for _, tenant := range []string{"local", "other"} {
		list, _, err := s.List(t.Context(), leafproof.Owner, tenant, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out = append(out, fmt.Sprint(e.ArtifactID, e.Tenant, *e.RunID, *e.SourceID, e.Size, e.CreatedAt))
		}
	}
	return out
}

func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	private, err := filepath.Glob(filepath.Join(to, "keys", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range private { // os.CopyFS widens modes
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// breakIndex damages the page of an index of the catalogue.
func breakIndex(t testing.TB, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var page int64
	err = db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = 'artifacts_of_tenant'`).Scan(&page)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	damage(t, path, func(p []byte) []byte {
		clear(p[(page-1)*4096+8 : page*4096])
		return p
	})
}

// What has expired and was swept is no damage, and is not named beside what is.
func TestCheckSwept(t *testing.T) {
	s, dir := newStore(t)
	keep := put(t, s, random(300_000, 1), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	soon := leafproof.Facts{ExpiresIn: time.Millisecond}
	put(t, s, random(200_000, 2), leafproof.PutOptions{Records: "none"}, soon)
	put(t, s, random(100, 3), leafproof.PutOptions{Records: "none"}, soon)
	put(t, s, lines(300_000, 4), leafproof.PutOptions{Indexes: []string{"/n"}}, soon)
	time.Sleep(5 * time.Millisecond)
	if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Damaged() || len(r.Findings) != 0 {
		t.Errorf("before the sweep: %+v", r.Findings)
	}
	if r := gc(t, s); r.Deleted == 0 {
		t.Fatalf("nothing was swept: %+v", r)
	}
	for _, deep := range []bool{false, true} {
		if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: deep}); r.Damaged() || len(r.Findings) != 0 || r.Artifacts != 4 {
			t.Errorf("deep %v: %d artifacts, %+v", deep, r.Artifacts, r.Findings)
		}
	}
	s.Close()
	if r, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{}); err != nil || r.Damaged() {
		t.Errorf("a repair: %+v, %v", r, err)
	}
	damage(t, objectFiles(t, dir)["blob"][0], func(p []byte) []byte { p[len(p)/2] ^= 4; return p })
	r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
	if named := touched(r); !r.Damaged() || !slices.Equal(named, []string{keep}) {
		t.Errorf("damage of %s touches %v: %+v", keep, named, r.Findings)
	}
}
