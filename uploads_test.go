package leafproof_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"leafproof"
	"leafproof/merkle"
)

// An upload that is cut goes on in another process, ends as what a put would have
// made, and then tells of its artifact.
func TestUpload(t *testing.T) {
	var records bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&records, "{\"i\":%d,\"text\":\"some text\"}\n", i)
	}
	noise := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 255, 254, 9, 8}, 50_000)
	for name, data := range map[string][]byte{"records": records.Bytes(), "opaque": noise, "small": []byte("abc"), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t)
			u, err := s.BeginUpload(t.Context(), leafproof.Owner, "", []byte("mine"))
			if err != nil {
				t.Fatal(err)
			}
			id, cut := u.ID, errors.New("cut")
			half := len(data) / 2
			if err := u.Append(t.Context(), 0, io.MultiReader(bytes.NewReader(data[:half]), iotest.ErrReader(cut))); !errors.Is(err, cut) {
				t.Fatalf("an append that was cut: %v", err)
			}
			if err := u.Append(t.Context(), int64(half)+1, bytes.NewReader(data)); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
				t.Errorf("an append elsewhere: %v", err)
			}
			u.Close()
			s.Close()
			s = openStore(t, dir)
			if _, err := s.Upload(t.Context(), leafproof.Caller{Principal: "alice"}, id); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
				t.Errorf("somebody else's upload: %v", err)
			}
			if u, err = s.Upload(t.Context(), leafproof.Owner, id); err != nil {
				t.Fatal(err)
			}
			if u.Size() != int64(half) || string(u.Note) != "mine" || u.Tenant() != leafproof.DefaultTenant {
				t.Fatalf("%d bytes of %d, note %q, tenant %q", u.Size(), half, u.Note, u.Tenant())
			}
			if err := u.Append(t.Context(), u.Size(), bytes.NewReader(data[half:])); err != nil {
				t.Fatal(err)
			}
			_, ref, err := u.Publish(t.Context(), leafproof.PutOptions{SHA256: true}, leafproof.Facts{})
			if err != nil {
				t.Fatal(err)
			}
			if want := "blake3:" + merkle.Sum(data).String(); ref.ContentHash != want {
				t.Errorf("its hash is %s, not %s", ref.ContentHash, want)
			}
			if got := read(t, s, ref.ArtifactID, leafproof.Selector{}); !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d read", len(got), len(data))
			}
			if err := u.Append(t.Context(), 0, bytes.NewReader(data)); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
				t.Errorf("an append behind the end: %v", err)
			}
			again, err := s.Upload(t.Context(), leafproof.Owner, id)
			if err != nil || again.ArtifactID != ref.ArtifactID {
				t.Fatalf("it tells of %q, %v", again.ArtifactID, err)
			}
			if err := again.Abort(t.Context()); err != nil {
				t.Error(err)
			}
			for _, pattern := range []string{"uploads/*", "objects/*/tmp/*"} {
				if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
					t.Errorf("%q is left", left)
				}
			}
		})
	}
}

// What nobody touches is forgotten by a sweep, and one principal has so many.
func TestUploadsEnd(t *testing.T) {
	s, dir := newStore(t)
	ids := []string{}
	for i := range 2 {
		u, err := s.BeginUpload(t.Context(), leafproof.Owner, "", nil)
		if err != nil {
			t.Fatal(i, err)
		}
		ids = append(ids, u.ID)
		u.Close()
	}
	old, _ := filepath.Glob(filepath.Join(dir, "uploads", "*"+ids[0]+"*"))
	if len(old) != 1 {
		t.Fatalf("%q is kept", old)
	}
	long := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(old[0], long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GC(t.Context(), leafproof.GCOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Upload(t.Context(), leafproof.Owner, ids[0]); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("after a week: %v", err)
	}
	u, err := s.Upload(t.Context(), leafproof.Owner, ids[1])
	if err != nil {
		t.Fatal(err)
	}
	u.Close()
	for i := 1; i < leafproof.MaxUploads; i++ { // as if they had been begun
		name := filepath.Join(dir, "uploads", fmt.Sprintf("%s%d", filepath.Base(old[0])[:33], i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.BeginUpload(t.Context(), leafproof.Owner, "", nil); leafproof.CodeOf(err) != leafproof.CodeBudgetExhausted {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.BeginUpload(t.Context(), leafproof.Caller{Principal: "alice"}, "", nil); err != nil {
		t.Errorf("somebody else's first: %v", err)
	}
	report, err := s.Check(t.Context(), leafproof.CheckOptions{})
	if err != nil || report.Damaged() {
		t.Errorf("%+v, %v", report, err)
	}
}
