package leafproof_test

import (
	"io"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// TestRememberedManifest: what a store remembers of a manifest is data. Who asks,
// whether the artifact is still there, and what the policy in force says are looked
// at each time.
func TestRememberedManifest(t *testing.T) {
	s, _ := newStore(t)
	id := put(t, s, []byte("{\"a\":1}\n"), leafproof.PutOptions{}, leafproof.Facts{Coverage: map[string]any{"region": "eu"}})
	resolve := func() (*leafproof.Stat, error) { return s.Resolve(t.Context(), leafproof.Owner, id) }
	first, err := resolve()
	if err != nil {
		t.Fatal(err)
	}

	// What a caller does to its copy is nobody else's affair.
	first.Manifest.Predicate.ArtifactRef.Completeness.Coverage["region"] = "us"
	first.Manifest.Predicate.Lineage.Kind = "import"
	second, err := resolve()
	if err != nil || second.Ref.Completeness.Coverage["region"] != "eu" || second.Manifest.Predicate.Lineage.Kind != "capture" {
		t.Errorf("the second is %+v, %v", second, err)
	}
	second.Ref.Completeness.Coverage["region"] = "us"
	if third, err := resolve(); err != nil || third.Ref.Completeness.Coverage["region"] != "eu" {
		t.Errorf("the third is %+v, %v", third, err)
	}

	// Another caller is asked about.
	stranger := leafproof.Caller{Principal: "stranger"}
	if _, err := s.Resolve(t.Context(), stranger, id); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("to a stranger: %v", err)
	}

	// A policy in which the key no longer stands is heard.
	key := second.Manifest.Predicate.Issuer.KeyID
	if _, err := s.ChangePolicy(t.Context(), manifest.Compromise(key, time.Now().Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	if _, err := resolve(); leafproof.CodeOf(err) != leafproof.CodeIntegrityFailed {
		t.Errorf("after its key was stolen: %v", err)
	}

	// Nor is one found that was deleted.
	t.Run("deleted", func(t *testing.T) {
		s, _ := newStore(t)
		id := put(t, s, []byte("x"), leafproof.PutOptions{}, leafproof.Facts{})
		read(t, s, id, leafproof.Selector{})
		if err := s.Delete(t.Context(), leafproof.Owner, id, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), leafproof.Owner, id, leafproof.Selector{}, io.Discard); leafproof.CodeOf(err) != leafproof.CodeArtifactDeleted {
			t.Errorf("deleted: %v", err)
		}
	})
}

// BenchmarkReadDoor reads 64 KiB of an artifact through the door.
func BenchmarkReadDoor(b *testing.B) {
	s, _ := newStore(b)
	id := put(b, s, random(16<<20, 1), leafproof.PutOptions{Records: "none"}, leafproof.Facts{})
	sel := leafproof.Selector{Bytes: &merkle.Range{Start: 1 << 20, End: 1<<20 + 64<<10}}
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Read(b.Context(), leafproof.Owner, id, sel, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
