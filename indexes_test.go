package leafproof_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leafproof"
	"leafproof/manifest"
)

// tagged is NDJSON of n records: n, a kind of five, tags of which some are twice, and
// one that does not parse.
func tagged(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"n":%d,"kind":"k%d","secret":"s%d","tags":["t%d","t%d"],"pad":"%x"}`+"\n", i, i%5, i, i%3, i%30, random(20, uint64(i)))
	}
	b.WriteString("not json\n")
	return b.Bytes()
}

// indexedStore is a store with an artifact that has indexes over /kind and the tags,
// and one over /n that was added.
func indexedStore(t testing.TB) (s *leafproof.Store, dir, id string, src []byte) {
	t.Helper()
	s, dir = newStore(t)
	src = tagged(18_000) // so that each index is an object of its own
	id = put(t, s, src, leafproof.PutOptions{Indexes: []string{"/kind", "@.tags[*]", "@.kind"}}, leafproof.Facts{
		SourceID: "src", Status: manifest.StatusComplete, Redactions: []manifest.Redaction{{Path: "/secret", Reason: "private"}},
	})
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, id, "/n", leafproof.IndexOptions{Memory: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	return s, dir, id, src
}

// indexesOf names the indexes and says which were added later.
func indexesOf(t testing.TB, s *leafproof.Store, id string) string {
	t.Helper()
	list, err := s.Indexes(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, x := range list {
		text := x.Path
		if x.Statement != nil {
			text += " later"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

const allIndexes = "/kind, @.tags[*], /n later"

// used is the index that tells the answer to a condition, and how many match.
func used(t testing.TB, s *leafproof.Store, id, where string) string {
	t.Helper()
	n := 0
	a, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: where}, func(leafproof.Row) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v%d %d", a.Indexes, n, a.Undecidable)
}

func TestIndexes(t *testing.T) {
	s, dir, id, src := indexedStore(t)
	if got := indexesOf(t, s, id); got != allIndexes {
		t.Fatalf("indexes: %s", got)
	}
	list, err := s.Indexes(t.Context(), leafproof.Owner, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		// Whoever has the bytes gets the same, from the path and from the spec.
		spec, err := manifest.Canonical(x.Spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []leafproof.IndexFile{{Path: x.Path, Redactions: []string{"/secret", "/other"}}, {Spec: spec, Memory: 1 << 20}} {
			var out bytes.Buffer
			got, err := leafproof.BuildIndex(t.Context(), bytes.NewReader(src), int64(len(src)), o, &out)
			if err != nil || got.Root != x.Root || int64(out.Len()) != x.Size || got.Entries != x.Entries || got.SpecDigest != x.SpecDigest {
				t.Errorf("%s: built %+v, %v; signed %+v", x.Path, got, err, x.Index)
			}
		}
		want := map[string][3]int64{"/kind": {18001, 6, 1}, "@.tags[*]": {34201, 31, 1}, "/n": {18001, 18001, 1}}[x.Path]
		if got := [3]int64{x.Entries, x.Distinct, x.Undetermined}; got != want {
			t.Errorf("%s has %d, want %d", x.Path, got, want)
		}
	}
	again, err := s.AddIndex(t.Context(), leafproof.Owner, id, "@.n", leafproof.IndexOptions{})
	if err != nil || again.Statement == nil || again.Statement.ID != list[2].Statement.ID {
		t.Errorf("added twice: %+v, %v", again, err)
	}
	// A sweep leaves them alone, twice; the end of the artifact ends them.
	for range 2 {
		gc(t, s)
	}
	want := map[string]string{`@.n == 7`: "[/n]1 1", `@.tags[?@ == "t6"] && @.n < 50`: "[/n]2 1", `@.n == 7 && @.secret == "s7"`: "[/n]0 2"}
	for where, w := range want {
		if got := used(t, s, id, where); got != w {
			t.Errorf("%s: %s, want %s", where, got, w)
		}
	}
	if a, err := s.Audit(t.Context(), leafproof.Owner, id, leafproof.AuditOptions{Tool: "test"}); err != nil || a.Differs || len(a.Checked) != 5 {
		t.Errorf("Audit = %+v, %v", a, err)
	}
	if r, err := s.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || len(r.Findings) > 0 || r.Unreferenced > 0 {
		t.Errorf("Check = %+v, %v", r, err)
	}
	if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
		t.Fatal(err)
	}
	gc(t, s)
	gc(t, s)
	nothingLeft(t, dir)
	all, _, err := s.Statements(t.Context(), leafproof.Owner, id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	last, ok := all[len(all)-1].Statement.Body.(*manifest.Deletion)
	if !ok || !last.Complete {
		t.Fatalf("the last statement is %+v", all[len(all)-1])
	}
	parts := 0
	for _, l := range last.Locations {
		if l.Part == "index" && l.State == manifest.LocationDeleted {
			parts++
		}
	}
	if parts != 3 {
		t.Errorf("%d indexes are gone: %+v", parts, last.Locations)
	}
}

// TestIndexShared: an index that two artifacts of a tenant have stays with the other.
func TestIndexShared(t *testing.T) {
	s, _, id, src := indexedStore(t)
	other := put(t, s, src, leafproof.PutOptions{Indexes: []string{"/n"}}, leafproof.Facts{})
	if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
		t.Fatal(err)
	}
	gc(t, s)
	gc(t, s)
	if got := used(t, s, other, `@.n == 7`); got != "[/n]1 1" {
		t.Error(got)
	}
}

func TestAddIndexLeave(t *testing.T) {
	s, _, id, _ := indexedStore(t)
	if _, err := s.AddPrincipal(t.Context(), leafproof.Owner, "bob", "local", nil); err != nil {
		t.Fatal(err)
	}
	bob := leafproof.Caller{Principal: "bob"}
	if _, err := s.AddIndex(t.Context(), bob, id, "/pad", leafproof.IndexOptions{}); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("with no leave: %v", err)
	}
	for _, action := range []leafproof.Action{leafproof.ActionStat, leafproof.ActionRead, leafproof.ActionQuery, leafproof.ActionProve} {
		if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "bob", Action: action, Pattern: "local"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.AddIndex(t.Context(), bob, id, "/pad", leafproof.IndexOptions{}); err == nil {
		t.Error("with leave to read and to query, an index was added")
	}
	if got, err := s.Indexes(t.Context(), bob, id); err != nil || len(got) != 3 {
		t.Errorf("Indexes = %v, %v", got, err)
	}
	if _, err := s.Grant(t.Context(), leafproof.Owner, leafproof.GrantSpec{Principal: "bob", Action: leafproof.ActionDerive, Pattern: "local"}); err != nil {
		t.Fatal(err)
	}
	if x, err := s.AddIndex(t.Context(), bob, id, "/pad", leafproof.IndexOptions{}); err != nil || x.Entries != 18001 {
		t.Errorf("with leave to derive: %+v, %v", x, err)
	}
}

func TestAddIndexRefuses(t *testing.T) {
	s, _, id, _ := indexedStore(t)
	plain := put(t, s, []byte("no records"), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	for name, c := range map[string]struct{ id, path string }{
		"no path":       {id, "kind"},
		"a filter":      {id, "@.tags[?@ == 1]"},
		"bytes":         {plain, "/kind"},
		"no such thing": {"art_" + strings.Repeat("a", 32), "/kind"},
	} {
		if _, err := s.AddIndex(t.Context(), leafproof.Owner, c.id, c.path, leafproof.IndexOptions{}); err == nil || leafproof.CodeOf(err) == leafproof.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.AddIndex(t.Context(), leafproof.Owner, id, "/pad", leafproof.IndexOptions{Memory: 1}); err == nil {
		t.Error("an index was built in one byte")
	}
	if got := indexesOf(t, s, id); got != allIndexes {
		t.Errorf("indexes: %s", got)
	}
}

// spoil takes the objects that hold indexes away, or alters a byte in each.
func spoil(t testing.TB, dir string, remove bool) (n int) {
	t.Helper()
	for _, files := range objectFiles(t, dir) {
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(text, []byte("LFPINDX1"))
			switch {
			case at < 0:
				continue
			case remove:
				err = os.Remove(name)
			default:
				text[at+5000] ^= 1
				err = os.WriteFile(name, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	return n
}

// TestIndexRepair: what is wrong with an index is told, answers do without it, and a
// repair builds it again.
func TestIndexRepair(t *testing.T) {
	for name, remove := range map[string]bool{"removed": true, "altered": false} {
		t.Run(name, func(t *testing.T) {
			s, dir, id, _ := indexedStore(t)
			s.Close()
			if n := spoil(t, dir, remove); n != 3 {
				t.Fatalf("%d objects hold indexes", n)
			}
			r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true})
			var parts []string
			for _, f := range r.Findings {
				for _, p := range f.Touches {
					parts = append(parts, p.Part)
				}
			}
			slices.Sort(parts)
			if got := strings.Join(slices.Compact(parts), ", "); got != "index /kind, index /n, index @.tags[*]" || !r.Damaged() {
				t.Errorf("the check says %s: %+v", got, r.Findings)
			}
			s = openStore(t, dir)
			if got := used(t, s, id, `@.n == 7`); !strings.HasSuffix(got, "1 1") {
				t.Errorf("without the index: %s", got)
			}
			s.Close()
			if r, err := leafproof.Repair(t.Context(), dir, leafproof.CheckOptions{}); err != nil || r.Damaged() {
				t.Errorf("Repair: %v: %+v", err, r.Findings)
			}
			if r := mustCheck(t, dir, leafproof.CheckOptions{Deep: true}); r.Damaged() {
				t.Errorf("after the repair: %+v", r.Findings)
			}
			s = openStore(t, dir)
			if got := used(t, s, id, `@.n == 7`); got != "[/n]1 1" {
				t.Errorf("with the index: %s", got)
			}
		})
	}
}

// TestCopyDamagedIndex: an index that is damaged or lost is built again on the way to
// another store.
func TestCopyDamagedIndex(t *testing.T) {
	for name, remove := range map[string]bool{"removed": true, "altered": false} {
		t.Run(name, func(t *testing.T) {
			s, dir, id, _ := indexedStore(t)
			_, other := newStore(t)
			admitting(t, dir, other)
			s.Close()
			if spoil(t, dir, remove) == 0 {
				t.Fatal("nothing was spoilt")
			}
			s, to := openStore(t, dir), openStore(t, other)
			o := leafproof.CopyOptions{Without: func(id, path string, err error) { t.Errorf("%s: without %s: %v", id, path, err) }}
			if err := s.CopyTo(t.Context(), leafproof.Owner, to, o, id); err != nil {
				t.Fatal(err)
			}
			if got := used(t, to, id, `@.tags[?@ == "t6"]`); got != "[@.tags[*]]600 1" {
				t.Errorf("in the copy: %s", got)
			}
			if r, err := to.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || len(r.Findings) > 0 {
				t.Errorf("the copy: %+v, %v", r, err)
			}
		})
	}
}

// TestIndexesTravel: copies, backups and a catalogue made anew have them too.
func TestIndexesTravel(t *testing.T) {
	s, dir, id, _ := indexedStore(t)
	_, other := newStore(t)
	admitting(t, dir, other)
	to := openStore(t, other)
	if err := s.CopyTo(t.Context(), leafproof.Owner, to, leafproof.CopyOptions{}, id); err != nil {
		t.Fatal(err)
	}
	// The other store admits the key for manifests, and not for what is added.
	if got := indexesOf(t, to, id); got != "/kind, @.tags[*]" {
		t.Errorf("copied: %s", got)
	}
	if got := used(t, to, id, `@.tags[?@ == "t6"]`); got != "[@.tags[*]]600 1" {
		t.Errorf("in the copy: %s", got)
	}
	_, third := newStore(t)
	text, err := os.ReadFile(leafproof.PublicKeyPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	key, err := manifest.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	to = openStore(t, third)
	if _, err := to.ChangePolicy(t.Context(), manifest.AddKey(manifest.Key{Name: "theirs", Public: key, Roles: []string{manifest.RoleManifest, manifest.RoleIndex}})); err != nil {
		t.Fatal(err)
	}
	if err := s.CopyTo(t.Context(), leafproof.Owner, to, leafproof.CopyOptions{}, id); err != nil {
		t.Fatal(err)
	}
	if got := indexesOf(t, to, id); got != allIndexes {
		t.Errorf("copied: %s", got)
	}
	if r, err := to.Check(t.Context(), leafproof.CheckOptions{Deep: true}); err != nil || len(r.Findings) > 0 {
		t.Errorf("the copy: %+v, %v", r, err)
	}
	s.Close()
	saved := t.TempDir()
	backup(t, dir, saved, leafproof.BackupOptions{WithKeys: true})
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(saved, "catalogue.db"+suffix)); err != nil && suffix == "" {
			t.Fatal(err)
		}
	}
	if _, err := leafproof.Repair(t.Context(), saved, leafproof.CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	restored := openStore(t, saved)
	if got := indexesOf(t, restored, id); got != allIndexes {
		t.Errorf("restored: %s", got)
	}
	gc(t, restored)
	if got := used(t, restored, id, `@.n == 7`); got != "[/n]1 1" {
		t.Errorf("restored and swept: %s", got)
	}
}
