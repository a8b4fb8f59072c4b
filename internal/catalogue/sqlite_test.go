package catalogue_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leafproof/internal/catalogue"
)

// closed returns the bytes of a catalogue of n artifacts that was closed, as
// the one file that remains.
func closed(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := c.Publish(t.Context(), artifact(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if _, err := os.Stat(path + suffix); err == nil {
			t.Errorf("%s is still there", suffix)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenRefuses(t *testing.T) {
	good := closed(t, 1000)
	if len(good) < 50*4096 {
		t.Fatalf("the catalogue has only %d bytes", len(good))
	}
	patch := func(at int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[at:], b)
		return p
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	raw(t, foreign, `CREATE TABLE meta (one INTEGER, store_id TEXT)`)
	foreignBytes, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data []byte // nil: no file
		err  error
		says string
	}{
		"whole":                  {good, nil, ""},
		"missing":                {nil, catalogue.ErrMissing, "there is no catalogue"},
		"empty":                  {[]byte{}, catalogue.ErrDamaged, "empty"},
		"one zero":               {[]byte{0}, catalogue.ErrDamaged, "whole pages"},
		"zeros":                  {make([]byte, len(good)), catalogue.ErrDamaged, "not a database"},
		"text":                   {[]byte("hello\n"), catalogue.ErrDamaged, "whole pages"},
		"one page of zeros":      {append(make([]byte, 4096), good[4096:]...), catalogue.ErrDamaged, "not a database"},
		"cut in the header":      {good[:60], catalogue.ErrDamaged, "whole pages"},
		"cut after the header":   {good[:100], catalogue.ErrDamaged, "whole pages"},
		"cut in the first page":  {good[:1000], catalogue.ErrDamaged, "whole pages"},
		"cut to the first page":  {good[:4096], catalogue.ErrDamaged, "malformed"},
		"cut to half":            {good[:len(good)/2/4096*4096], catalogue.ErrDamaged, "malformed"},
		"cut by a page":          {good[:len(good)-4096], catalogue.ErrDamaged, "malformed"},
		"cut by a byte":          {good[:len(good)-1], catalogue.ErrDamaged, "whole pages"},
		"another program's":      {foreignBytes, catalogue.ErrDamaged, "another program"},
		"a newer schema":         {patch(60, 0, 0, 0, 6), catalogue.ErrNewer, "version 6"},
		"an older schema":        {patch(60, 0, 0, 0, 1), catalogue.ErrOlder, "version 1"},
		"a schema of version 0":  {patch(60, 0, 0, 0, 0), catalogue.ErrDamaged, "version 0"},
		"no schema table":        {append(bytes.Clone(good[:100]), append(make([]byte, 4096-100), good[4096:]...)...), catalogue.ErrDamaged, ""},
		"a page size of nothing": {patch(16, 0, 3), catalogue.ErrDamaged, "not a database"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "the catalogue?%20#1")
			if test.data != nil {
				if err := os.WriteFile(path, test.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := catalogue.OpenSQLite(path)
			if !errors.Is(err, test.err) {
				t.Fatalf("error = %v, want %v", err, test.err)
			}
			if err == nil {
				if list, err := c.List(t.Context(), "local", 0, 10_000); err != nil || len(list) != 1000 {
					t.Errorf("List = %d rows, %v", len(list), err)
				}
				c.Close()
				return
			}
			e, ok := errors.AsType[*catalogue.Error](err)
			if !ok || e.Hint == "" || e.Subject != path || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %q, hint %q, want one line that says %q", err, e.Hint, test.says)
			}
			// Nothing is made, nothing is changed.
			got, readErr := os.ReadFile(path)
			if test.data == nil != os.IsNotExist(readErr) || !bytes.Equal(got, test.data) {
				t.Errorf("the file was changed: %v", readErr)
			}
			if names, _ := os.ReadDir(dir); len(names) > 1 {
				t.Errorf("it left %v", names)
			}
		})
	}
}

func TestOpenRefusesFolder(t *testing.T) {
	if _, err := catalogue.OpenSQLite(t.TempDir()); !errors.Is(err, catalogue.ErrDamaged) {
		t.Errorf("error = %v, want ErrDamaged", err)
	}
}

// TestInnerDamage: a page inside that was zeroed or overwritten is an error of
// whoever reads it, and never an answer.
func TestInnerDamage(t *testing.T) {
	const rows = 300
	good := closed(t, rows)
	damaged := 0
	for page := 1; page < len(good)/4096; page++ {
		for fill, b := range map[string]byte{"zeros": 0, "ones": 0xff} {
			data := bytes.Clone(good)
			for i := range 4096 {
				data[page*4096+i] = b
			}
			path := filepath.Join(t.TempDir(), "catalogue")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			err := readAll(t, path, rows)
			switch {
			case errors.Is(err, catalogue.ErrDamaged):
				damaged++
			case err != nil:
				t.Errorf("page %d of %s: %v", page, fill, err)
			}
		}
	}
	// Nobody reads the pages of the other tables and indexes: each has one.
	if most := len(good)/4096 - otherTables(t, good); damaged < most {
		t.Errorf("of %d pages that are read, two ways, damage was found %d times", most, damaged)
	}
}

// otherTables counts the tables and indexes that are not of artifacts.
func otherTables(t *testing.T, data []byte) (n int) {
	path := filepath.Join(t.TempDir(), "catalogue")
	noErr(t, os.WriteFile(path, data, 0o600))
	db, err := sql.Open("sqlite", path)
	noErr(t, err)
	defer db.Close()
	noErr(t, db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE tbl_name NOT IN ('artifacts', 'meta')`).Scan(&n))
	return n
}

// readAll reads every row by id and in a list, and fails the test for a wrong
// one.
func readAll(t *testing.T, path string, rows int) error {
	c, err := catalogue.OpenSQLite(path)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := range rows {
		want := artifact(n)
		got, err := c.Artifact(t.Context(), want.ArtifactID)
		if err != nil {
			return err
		}
		want.Seq = got.Seq
		if text(got) != text(want) {
			t.Fatalf("a wrong row: %s", text(got))
		}
	}
	list, err := c.List(t.Context(), "local", 0, rows)
	if err == nil && len(list) != rows {
		t.Errorf("a list of %d", len(list))
	}
	return err
}

// raw runs statements on an SQLite file as another program would.
func raw(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, left := range []string{"", "-wal", "-shm", "-journal"} {
		path := filepath.Join(t.TempDir(), "catalogue")
		if err := os.WriteFile(path+left, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := catalogue.CreateSQLite(path)
		if !errors.Is(err, catalogue.ErrExists) || !strings.Contains(err.Error(), path+left) {
			t.Errorf("with catalogue%s: error = %v, want ErrExists", left, err)
		}
		if data, err := os.ReadFile(path + left); err != nil || string(data) != "mine" {
			t.Errorf("catalogue%s was changed: %q, %v", left, data, err)
		}
		if names, _ := os.ReadDir(filepath.Dir(path)); len(names) != 1 {
			t.Errorf("it left %v", names)
		}
	}
	_, err := catalogue.CreateSQLite(filepath.Join(t.TempDir(), "no", "catalogue"))
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, catalogue.ErrExists) {
		t.Errorf("in a folder that is missing: error = %v", err)
	}
}

// TestCreateRace: of many that create one catalogue, one does, and the others
// hear so.
func TestCreateRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			c, err := catalogue.CreateSQLite(path)
			if err == nil {
				err = errors.Join(c.Publish(t.Context(), artifact(1)), c.Close())
			} else if errors.Is(err, catalogue.ErrExists) {
				return
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	c, err := catalogue.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Artifact(t.Context(), artifact(1).ArtifactID); err != nil {
		t.Error(err)
	}
	for _, name := range must(filepath.Glob(path + ".tmp*")) {
		t.Errorf("%s is still there", name)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestTwoHandles: what one handle committed the other one sees at once.
func TestTwoHandles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	a, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := catalogue.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if x, y := must(a.StoreID(t.Context())), must(b.StoreID(t.Context())); x != y {
		t.Errorf("two names of one store: %s and %s", x, y)
	}
	for n := range 20 {
		w, r := a, b
		if n%2 == 1 {
			w, r = b, a
		}
		publish(t, w, artifact(n))
		if _, err := r.Artifact(t.Context(), artifact(n).ArtifactID); err != nil {
			t.Errorf("the other handle: %v", err)
		}
	}
	raw(t, path, `UPDATE meta SET policy_epoch = 7`)
	if epoch, err := a.Epoch(t.Context()); err != nil || epoch != 7 {
		t.Errorf("Epoch = %d, %v, want 7", epoch, err)
	}
}

// TestClockSetBack: the machine's clock stood in the future at a commit; Now
// stays there.
func TestClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	future := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
	raw(t, path, fmt.Sprintf(`UPDATE meta SET clock = %d`, future.UnixMicro()))
	for n := range 3 {
		publish(t, c, artifact(n))
		if now, err := c.Now(t.Context()); err != nil || now.Before(future) {
			t.Errorf("Now = %v, %v, want %v or later", now, err, future)
		}
	}
}

// TestCommitRecordsClock: a later process starts at the time of the last
// commit, also when its own clock stands before it.
func TestCommitRecordsClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := time.Now().UnixMicro()
	publish(t, c, artifact(1))
	db := must(sql.Open("sqlite", path))
	defer db.Close()
	var clock int64
	if err := db.QueryRow(`SELECT clock FROM meta`).Scan(&clock); err != nil || clock < before {
		t.Errorf("the clock at the commit = %d, %v, want %d or later", clock, err, before)
	}
}

// TestLockedOut: a catalogue that another process holds is a typed error for
// who writes; who reads does not wait.
func TestLockedOut(t *testing.T) {
	t.Cleanup(catalogue.SetBusyTimeout(100 * time.Millisecond))
	path := filepath.Join(t.TempDir(), "catalogue")
	c, err := catalogue.CreateSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	db := must(sql.Open("sqlite", path))
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context(), artifact(1)); !errors.Is(err, catalogue.ErrBusy) {
		t.Errorf("error = %v, want ErrBusy", err)
	}
	// Reads do not wait for a writer.
	if _, err := c.Artifact(t.Context(), artifact(1).ArtifactID); !errors.Is(err, catalogue.ErrNotFound) {
		t.Errorf("a read beside it: %v", err)
	}
	if _, err := db.Exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	publish(t, c, artifact(1))
}
