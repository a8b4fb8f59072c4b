package catalogue_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

var then = time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC)

func name(n string, artifact int) catalogue.Name {
	return catalogue.Name{Tenant: "local", Name: n, ArtifactID: fmt.Sprintf("art_%06d", artifact), By: "owner", At: then}
}

// A name is at most what the last SetName said, one version more each time, and
// only for somebody who knew the version before.
func namesVersions(t *testing.T, c catalogue.Catalogue) {
	other := artifact(3)
	other.Tenant = "other"
	publish(t, c, artifact(1), artifact(2), other)
	if err := c.Delete(t.Context(), "art_000002", "", then); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		n     catalogue.Name
		ifSeq int64
		err   error
		seq   int64
	}{
		{name("latest", 1), 1, catalogue.ErrConflict, 0},
		{name("latest", 1), 0, nil, 1},
		{name("latest", 1), 0, catalogue.ErrConflict, 0},
		{name("latest", 1), catalogue.AnySeq, nil, 2},
		{name("latest", 1), 2, nil, 3},
		{name("latest", 1), 2, catalogue.ErrConflict, 0},
		{name("latest", 2), 3, catalogue.ErrNotFound, 0}, // deleted
		{name("latest", 3), 3, catalogue.ErrNotFound, 0}, // of another tenant
		{name("latest", 9), 3, catalogue.ErrNotFound, 0},
		{name("", 1), 3, catalogue.ErrInvalid, 0},
		{name("a", 1), 0, nil, 1},
	} {
		n, err := c.SetName(t.Context(), step.n, step.ifSeq)
		if !errors.Is(err, step.err) || n.Seq != step.seq {
			t.Errorf("step %d: version %d, %v; want %d, %v", i, n.Seq, err, step.seq, step.err)
		}
	}
	want := name("latest", 1)
	for asked, seq := range map[int64]int64{0: 3, 1: 1, 3: 3} {
		want.Seq = seq
		if n, err := c.Name(t.Context(), "local", "latest", asked); err != nil || n != want {
			t.Errorf("version %d: %v, %v; want %v", asked, n, err, want)
		}
	}
	for _, none := range []struct {
		tenant, name string
		seq          int64
	}{{"other", "latest", 0}, {"local", "Latest", 0}, {"local", "latest", 4}, {"local", "latest", -1}} {
		if n, err := c.Name(t.Context(), none.tenant, none.name, none.seq); !errors.Is(err, catalogue.ErrNotFound) {
			t.Errorf("%v: %v, %v", none, n, err)
		}
	}
	list, err := c.Names(t.Context(), "local", "", 10)
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1] != name3(want) {
		t.Errorf("the names are %v, %v", list, err)
	}
	if list, err = c.Names(t.Context(), "local", "a", 1); err != nil || len(list) != 1 || list[0].Name != "latest" {
		t.Errorf("the names behind a are %v, %v", list, err)
	}
}

func name3(n catalogue.Name) catalogue.Name {
	n.Seq = 3
	return n
}

// Of many who expect one version, one sets the next.
func namesCompareAndSwap(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	var wg sync.WaitGroup
	won := make(chan int64, 8)
	for range 8 {
		wg.Go(func() {
			for seq := int64(0); seq < 5; {
				n, err := c.SetName(t.Context(), name("n", 1), seq)
				switch {
				case err == nil:
					won <- n.Seq
				case !errors.Is(err, catalogue.ErrConflict):
					t.Error(err)
					return
				}
				last, err := c.Name(t.Context(), "local", "n", 0)
				if err != nil {
					t.Error(err)
					return
				}
				seq = last.Seq
			}
		})
	}
	done := make(chan map[int64]int)
	go func() {
		times := map[int64]int{}
		for seq := range won {
			times[seq]++
		}
		done <- times
	}()
	wg.Wait()
	close(won)
	times := <-done
	for seq := int64(1); seq <= 5; seq++ {
		if times[seq] != 1 {
			t.Errorf("version %d was set %d times", seq, times[seq])
		}
	}
	if len(times) != 5 {
		t.Errorf("versions %v", times)
	}
}

// What takes the place of an artifact is known from its publication on, and the
// latest comes first.
func successors(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	for i, old := range []int{1, 1, 2} {
		a := artifact(i + 2)
		a.Supersedes = []catalogue.Supersession{{ArtifactID: fmt.Sprintf("art_%06d", old), Kind: "correct"}}
		publish(t, c, a)
	}
	for id, want := range map[string][]string{"art_000001": {"art_000003", "art_000002"}, "art_000002": {"art_000004"}, "art_000004": nil} {
		list, err := c.Successors(t.Context(), id, 10)
		if err != nil || len(list) != len(want) {
			t.Fatalf("%s: %v, %v", id, list, err)
		}
		for i, l := range list {
			if l.ArtifactID != id || l.By != want[i] || l.Kind != "correct" || l.At.IsZero() {
				t.Errorf("%s: %v, want %v", id, list, want)
			}
		}
		if a, err := c.Artifact(t.Context(), id); err != nil || a.Superseded != (want != nil) || a.Supersedes != nil {
			t.Errorf("%s: superseded %t, %v", id, a.Superseded, err)
		}
	}
	bad := artifact(9)
	bad.Supersedes = []catalogue.Supersession{{ArtifactID: bad.ArtifactID, Kind: "correct"}}
	if err := c.Publish(t.Context(), bad); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("one that supersedes itself: %v", err)
	}
	bad.Supersedes, bad.Inputs = nil, []string{""}
	if err := c.Publish(t.Context(), bad); !errors.Is(err, catalogue.ErrInvalid) {
		t.Errorf("one made from nothing: %v", err)
	}
}

func copyOf(n int, id, kind, state string) catalogue.Copy {
	return catalogue.Copy{
		CopyID: id, ArtifactID: fmt.Sprintf("art_%06d", n), Kind: kind, Place: "notebook 7", Controller: "kernel", Holder: "harness",
		State: state, MadeAt: then, ChangedAt: then,
	}
}

// The inventory lists what was made of an artifact, and its end reaches all of it
// that can be reached.
func copiesWait(t *testing.T, c catalogue.Catalogue) {
	derived := artifact(2)
	derived.Inputs = []string{"art_000001", "art_999999"} // one that is not here
	gone := artifact(3)
	gone.Inputs = []string{"art_000001"}
	publish(t, c, artifact(1), derived, gone)
	for _, entered := range []catalogue.Copy{
		copyOf(1, "cp_frame", "dataframe", catalogue.CopyLive), copyOf(1, "cp_done", "cache", catalogue.CopyDone),
		copyOf(1, "cp_failed", "summary", catalogue.CopyFailed), copyOf(1, "cp_export", "export", catalogue.CopyBeyond),
		copyOf(1, "cp_frame", "summary", catalogue.CopyLive), // the same id again
		copyOf(2, "cp_other", "preview", catalogue.CopyLive),
	} {
		if err := c.AddCopy(t.Context(), entered, entered.Kind == "export"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), "art_000003", "", then); err != nil {
		t.Fatal(err)
	}
	checkCopies(t, c, "art_000001", "derived live, derived done, dataframe live, cache done, summary failed, export out_of_control")
	if err := c.Delete(t.Context(), "art_000001", "", then.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	checkCopies(t, c, "art_000001", "derived pending, derived done, dataframe pending, cache done, summary pending, export out_of_control")
	checkCopies(t, c, "art_000002", "preview live")
	frame, err := c.Copy(t.Context(), "cp_frame")
	want := copyOf(1, "cp_frame", "dataframe", catalogue.CopyPending)
	want.Seq, want.ChangedAt = frame.Seq, then.Add(time.Hour)
	if err != nil || frame != want {
		t.Errorf("%+v, %v; want %+v", frame, err, want)
	}
	// What comes later than the end has to end at once.
	if err := c.AddCopy(t.Context(), copyOf(1, "cp_late", "printed", catalogue.CopyLive), false); err != nil {
		t.Fatal(err)
	}
	if late, err := c.Copy(t.Context(), "cp_late"); err != nil || late.State != catalogue.CopyPending {
		t.Errorf("%+v, %v", late, err)
	}
	held, err := c.CopiesHeldBy(t.Context(), "harness", frame.Seq, 10)
	if err != nil || len(held) != 5 || held[0].CopyID != "cp_done" {
		t.Errorf("held %v, %v", held, err)
	}
	if all, err := c.CopiesHeldBy(t.Context(), "", 0, 10); err != nil || len(all) != 8 {
		t.Errorf("all %d, %v", len(all), err)
	}
}

func checkCopies(t *testing.T, c catalogue.Catalogue, id, want string) {
	t.Helper()
	list, err := c.CopiesOf(t.Context(), id, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for i, l := range list {
		if i > 0 {
			got += ", "
		}
		got += l.Kind + " " + l.State
		if l.Kind == catalogue.KindDerived && (l.Controller != "store" || l.CopyID == "") {
			t.Errorf("%+v", l)
		}
	}
	if got != want {
		t.Errorf("the copies of %s:\n%s\nwant\n%s", id, got, want)
	}
}

// Whoever controls a copy says what became of it, but cannot recall what nobody can.
func copiesMarked(t *testing.T, c catalogue.Catalogue) {
	publish(t, c, artifact(1))
	for id, state := range map[string]string{"cp_a": catalogue.CopyLive, "cp_b": catalogue.CopyBeyond, "cp_c": catalogue.CopyDone} {
		if err := c.AddCopy(t.Context(), copyOf(1, id, "cache", state), false); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.PendCopies(t.Context(), []string{"cp_a", "cp_b", "cp_c", "cp_none"}, "revoked", then); err != nil || n != 1 {
		t.Errorf("%d pending, %v", n, err)
	}
	for _, mark := range []struct {
		id, state string
		err       error
	}{
		{"cp_a", catalogue.CopyFailed, nil},
		{"cp_a", catalogue.CopyDone, nil},
		{"cp_a", "gone", catalogue.ErrInvalid},
		{"cp_b", catalogue.CopyDone, catalogue.ErrConflictCopy},
		{"cp_b", catalogue.CopyBeyond, nil},
		{"cp_none", catalogue.CopyDone, catalogue.ErrNotFound},
	} {
		if err := c.MarkCopy(t.Context(), mark.id, mark.state, "said so", then.Add(time.Minute)); !errors.Is(err, mark.err) {
			t.Errorf("%s %s: %v, want %v", mark.id, mark.state, err, mark.err)
		}
	}
	if a, err := c.Copy(t.Context(), "cp_a"); err != nil || a.State != catalogue.CopyDone || a.Note != "said so" || !a.ChangedAt.Equal(then.Add(time.Minute)) {
		t.Errorf("%+v, %v", a, err)
	}
	for what, bad := range map[string]catalogue.Copy{
		"no state": copyOf(1, "cp_x", "cache", "gone"), "no id": copyOf(1, "", "cache", catalogue.CopyLive),
		"no kind": copyOf(1, "cp_x", "", catalogue.CopyLive),
	} {
		if err := c.AddCopy(t.Context(), bad, false); !errors.Is(err, catalogue.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.AddCopy(t.Context(), copyOf(2, "cp_x", "cache", catalogue.CopyLive), false); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("of an unknown artifact: %v", err)
	}
}

// A restored catalogue has the names and copies that the damaged one told, and
// what the manifests say of each other.
func TestRestoreLifecycle(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(damaged)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, c, artifact(1), artifact(2))
	if _, err := c.SetName(t.Context(), name("latest", 1), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetName(t.Context(), name("latest", 2), 1); err != nil {
		t.Fatal(err)
	}
	if err := c.AddCopy(t.Context(), copyOf(1, "cp_a", "cache", catalogue.CopyLive), false); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	told := catalogue.Salvage(t.Context(), damaged)
	if !told.WholeLifecycle || len(told.Names) != 2 || len(told.Copies) != 1 {
		t.Fatalf("salvaged %v, %v, whole %t", told.Names, told.Copies, told.WholeLifecycle)
	}
	one, two := artifact(1), artifact(2)
	one.Supersedes, one.Inputs = []catalogue.Supersession{{ArtifactID: two.ArtifactID, Kind: "correct"}}, []string{two.ArtifactID}
	one.DeletedAt = &then
	path := filepath.Join(t.TempDir(), "restored")
	if _, err := catalogue.Restore(t.Context(), path, catalogue.Restored{
		Rows:  func(yield func(catalogue.Artifact) bool) { _ = yield(one) && yield(two) },
		Names: told.Names, Copies: told.Copies,
	}); err != nil {
		t.Fatal(err)
	}
	r, err := catalogue.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.Name(t.Context(), "local", "latest", 0); err != nil || n.Seq != 2 || n.ArtifactID != two.ArtifactID {
		t.Errorf("the name is %v, %v", n, err)
	}
	checkCopies(t, r, one.ArtifactID, "cache pending")
	checkCopies(t, r, two.ArtifactID, "derived done")
	if list, err := r.Successors(t.Context(), two.ArtifactID, 1); err != nil || len(list) != 1 || list[0].By != one.ArtifactID {
		t.Errorf("successors %v, %v", list, err)
	}
}
