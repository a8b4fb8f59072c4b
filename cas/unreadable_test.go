package cas_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"leafproof/cas"
	"leafproof/cas/disk"
)

// An object that cannot be read now is not damaged: putting its bytes again
// reports why and writes nothing, and when it can be read again it is as before.
func TestUnreadableIsNotDamage(t *testing.T) {
	for title, reason := range map[string]error{
		"no handles": syscall.EMFILE, "no permission": fs.ErrPermission, "disk error": syscall.EIO,
	} {
		for _, kind := range []cas.Kind{cas.KindBlob, cas.KindOutboard, cas.KindPack} {
			for _, when := range []string{"open", "read"} {
				t.Run(fmt.Sprintf("%s/%v/%s", title, kind, when), func(t *testing.T) {
					dir := t.TempDir()
					b, err := disk.Open(dir)
					if err != nil {
						t.Fatal(err)
					}
					defer b.Close()
					u := &unreadable{Backend: b, kind: kind, when: when}
					s := cas.New(u, cas.Options{})
					data := random(1, 100_000)
					if kind == cas.KindPack {
						data = data[:1000]
					}
					put(t, s, data, cas.Auto)
					before := objects(t, dir)
					u.reason = reason
					if info, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto); !errors.Is(err, reason) {
						t.Errorf("Put = %+v, %v; want the reason %v", info, err, reason)
					}
					if err := read(t, s, data); !errors.Is(err, reason) || errors.Is(err, cas.ErrCorrupt) {
						t.Errorf("Open or ReadAt: error = %v, want the reason %v", err, reason)
					}
					if err := read(t, cas.New(u, cas.Options{}), data); !errors.Is(err, reason) || errors.Is(err, cas.ErrCorrupt) {
						t.Errorf("of another Store: error = %v, want the reason %v", err, reason)
					}
					u.reason = nil
					put(t, s, data, cas.Auto)
					if err := read(t, s, data); err != nil {
						t.Error(err)
					}
					if after := objects(t, dir); count(after) != count(before) {
						t.Errorf("the store had %s and has %s", count(before), count(after))
					}
				})
			}
		}
	}
}

// One copy of a packed blob is damaged and the other cannot be read now,
// whichever is looked at first: that is no reason to write a third.
func TestUnreadableBesideDamage(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 1000)
	put(t, onDisk(t, dir), data, cas.Auto)
	first := objects(t, dir)["pack"][0]
	flip := func(p []byte) []byte { p[100] ^= 1; return p }
	rewrite(t, first, flip)
	putAll(t, onDisk(t, dir), [][]byte{data, random(2, 1000)}) // the second copy
	rewrite(t, first, flip)
	packs := objects(t, dir)["pack"]
	for i := range packs {
		rewrite(t, packs[i], flip)
		b, err := disk.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		u := &unreadable{Backend: b, kind: cas.KindPack, when: "open", only: filepath.Base(packs[1-i])}
		s := cas.New(u, cas.Options{})
		if err := s.Scan(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
		u.reason = syscall.EIO
		if _, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto); !errors.Is(err, syscall.EIO) {
			t.Errorf("Put error = %v, want the other copy's", err)
		}
		rewrite(t, packs[i], flip)
	}
	if got := objects(t, dir)["pack"]; len(got) != 2 {
		t.Errorf("%d packs, want 2", len(got))
	}
}

// unreadable fails to open, or to read from, all objects of a kind.
type unreadable struct {
	*disk.Backend
	kind   cas.Kind
	only   string // the base of the one name that fails; empty: all
	when   string
	reason error // nil: everything works
}

func (u *unreadable) fails(name cas.Name) bool {
	return u.reason != nil && name.Kind == u.kind && strings.HasSuffix(name.String(), u.only)
}

func (u *unreadable) Get(ctx ctx, name cas.Name, off, n int64) (io.ReadCloser, error) {
	if u.fails(name) {
		if u.when == "open" {
			return nil, u.reason
		}
		return io.NopCloser(iotest.ErrReader(u.reason)), nil
	}
	return u.Backend.Get(ctx, name, off, n)
}

func (u *unreadable) OpenAt(ctx ctx, name cas.Name) (cas.Object, error) {
	if u.fails(name) && u.when == "open" {
		return nil, u.reason
	}
	o, err := u.Backend.OpenAt(ctx, name)
	if err != nil || !u.fails(name) {
		return o, err
	}
	return failingObject{o, u.reason}, nil
}

type failingObject struct {
	cas.Object
	reason error
}

func (o failingObject) ReadAt([]byte, int64) (int, error) { return 0, o.reason }
