package leafproof_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"leafproof"
	"leafproof/cas"
	"leafproof/cas/disk"
	"leafproof/internal/crashfs"
)

// TestCached: of an artifact whose bytes are in the class cache a crash may take
// the bytes and nothing else. It is then listed, and to read it is integrity_failed;
// the same bytes, put again, make it whole.
func TestCached(t *testing.T) {
	for name, data := range map[string][]byte{
		"small": random(500, 1), "large": random(100_000, 2), "records": sampleRecords("cached", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			h := newCrashHistory(t)
			h.quiet = true
			cached := leafproof.PutOptions{Durability: cas.Cached}
			id := h.publish(data, cached)
			if got := read(t, h.s, id, leafproof.Selector{}); !bytes.Equal(got, data) {
				t.Fatal("it reads otherwise")
			}
			gone, whole := 0, 0
			for seed := range uint64(12) {
				kept := []crashfs.Kept{crashfs.Nothing, crashfs.Everything, crashfs.Some}[min(seed, 2)]
				state := readCatalogue(t, h.name).write(t)
				defer os.RemoveAll(state)
				s, err := leafproof.OpenOn(context.Background(), h.dir, state, disk.New(h.objects.Crash(kept, seed)))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if _, err := s.Resolve(t.Context(), leafproof.Owner, id); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				var out bytes.Buffer
				_, err = s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, &out)
				if err == nil {
					whole++
					if !bytes.Equal(out.Bytes(), data) {
						t.Errorf("seed %d: it reads otherwise", seed)
					}
					continue
				}
				gone++
				if leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed || out.Len() > 0 {
					t.Errorf("seed %d: %d bytes and %v", seed, out.Len(), err)
				}
				// No sweep and no check takes the artifact for deleted.
				if r, err := s.GC(t.Context(), leafproof.GCOptions{}); err != nil || len(r.Kept) > 0 {
					t.Errorf("seed %d: gc: %v, %+v", seed, err, r)
				}
				r, err := s.Check(t.Context(), leafproof.CheckOptions{})
				if err != nil || len(r.Findings) != 1 || r.Findings[0].Touches[0].ArtifactID != id || r.Findings[0].Touches[0].Part != "bytes" {
					t.Errorf("seed %d: check: %v, %+v", seed, err, r)
				}
				again := []leafproof.PutOptions{cached, {}}[seed%2]
				if _, err := publishOn(s, data, again); err != nil {
					t.Fatal(err)
				}
				if got := read(t, s, id, leafproof.Selector{}); !bytes.Equal(got, data) {
					t.Errorf("seed %d: put again, it reads otherwise", seed)
				}
			}
			if gone == 0 || whole == 0 {
				t.Errorf("%d times gone, %d times whole: this shows nothing", gone, whole)
			}
		})
	}
}

// TestCachedElsewhere: a backup brings what is cached, gc keeps what an artifact
// needs of it and takes the rest: here bytes, and the pack of a manifest.
func TestCachedElsewhere(t *testing.T) {
	s, dir := newStore(t)
	data := random(100_000, 3)
	id := put(t, s, data, leafproof.PutOptions{Durability: cas.Cached}, leafproof.Facts{})
	drop := put(t, s, random(90_000, 4), leafproof.PutOptions{Durability: cas.Cached}, leafproof.Facts{})
	if err := s.Delete(t.Context(), leafproof.Owner, drop, ""); err != nil {
		t.Fatal(err)
	}
	if r := gc(t, s); r.Deleted != 2 || r.Unfinished != 0 {
		t.Errorf("%+v", r)
	}
	if got := read(t, openStore(t, dir), id, leafproof.Selector{}); !bytes.Equal(got, data) {
		t.Error("after a gc it reads otherwise")
	}
	to := filepath.Join(t.TempDir(), "backup")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := leafproof.Backup(t.Context(), dir, to, leafproof.BackupOptions{WithKeys: true}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, openStore(t, to), id, leafproof.Selector{}); !bytes.Equal(got, data) {
		t.Error("the backup reads otherwise")
	}
	if found, err := filepath.Glob(filepath.Join(to, "objects", "*", "cach", "*", "*")); err != nil || len(found) != 1 {
		t.Errorf("cached in the backup: %q, %v", found, err)
	}
}

func TestDurabilityRefused(t *testing.T) {
	s, _ := newStore(t)
	for name, o := range map[string]leafproof.PutOptions{
		"unknown":        {Durability: "forever"},
		"cached chunks":  {Durability: cas.Cached, Place: cas.Chunked},
		"cached packed":  {Durability: cas.Cached, Place: cas.Packed},
		"cached, resume": {Durability: cas.Cached, Resume: "x"},
	} {
		if _, err := s.Put(t.Context(), bytes.NewReader([]byte("a")), o); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
