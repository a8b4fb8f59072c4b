package castest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"leafproof/cas"
)

var uploadKey = cas.UploadKey{1, 2, 3}

// uploader skips where a backend cannot keep unfinished objects.
func uploader(t *testing.T, b cas.Backend) cas.Uploader {
	t.Helper()
	u, ok := b.(cas.Uploader)
	if !ok {
		t.Skip("not an Uploader")
	}
	return u
}

// part makes a part with these bytes.
func part(t *testing.T, u cas.Uploader, tenant cas.Tenant, key cas.UploadKey, p cas.UploadPart, data string) cas.PartStage {
	t.Helper()
	s, err := u.CreatePart(t.Context(), tenant, key, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte(data), 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// wantPart opens a part, whose bytes must be these, and closes it.
func wantPart(t *testing.T, u cas.Uploader, tenant cas.Tenant, key cas.UploadKey, p cas.UploadPart, want string) {
	t.Helper()
	s, err := u.OpenPart(t.Context(), tenant, key, p)
	if err != nil {
		t.Errorf("%+v: %v", p, err)
		return
	}
	n, err := s.Length()
	got := make([]byte, n)
	if n > 0 && err == nil {
		_, err = s.ReadAt(got, 0)
	}
	if err != nil || string(got) != want {
		t.Errorf("%+v has %q, %v; want %q", p, got, err, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func wantNoPart(t *testing.T, u cas.Uploader, p cas.UploadPart) {
	t.Helper()
	if s, err := u.OpenPart(t.Context(), tenant, uploadKey, p); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("%+v: %v, want ErrNotFound", p, err)
		if err == nil {
			s.Close()
		}
	}
}

// uploadParts: what was written to a part is there when it is opened again, and
// parts of other tries, kinds, keys and tenants are others. No object shows.
func uploadParts(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	p, log, next := cas.UploadPart{Nonce: 7}, cas.UploadPart{Nonce: 7, Log: true}, cas.UploadPart{Nonce: 8}
	for i, s := range []cas.PartStage{
		part(t, u, tenant, uploadKey, p, "the bytes"), part(t, u, tenant, uploadKey, log, "the log"),
		part(t, u, tenant, uploadKey, next, "another try"), part(t, u, tenant, cas.UploadKey{9}, p, "another key"),
		part(t, u, other, uploadKey, p, "another tenant"),
	} {
		if err := errors.Join(s.Sync(), s.Close(), s.Close()); err != nil {
			t.Errorf("part %d: %v", i, err)
		}
		if _, err := s.WriteAt([]byte("x"), 0); err == nil {
			t.Error("WriteAt after Close succeeded")
		}
	}
	wantPart(t, u, tenant, uploadKey, p, "the bytes")
	wantPart(t, u, tenant, uploadKey, log, "the log")
	wantPart(t, u, tenant, uploadKey, next, "another try")
	wantPart(t, u, tenant, cas.UploadKey{9}, p, "another key")
	wantPart(t, u, other, uploadKey, p, "another tenant")
	if s, err := u.CreatePart(t.Context(), tenant, uploadKey, p); err == nil {
		t.Error("CreatePart of one that is there succeeded")
		s.Close()
	}
	s, err := u.OpenPart(t.Context(), tenant, uploadKey, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt([]byte(" go on"), 9); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Truncate(12), s.Sync(), s.Close()); err != nil {
		t.Error(err)
	}
	wantPart(t, u, tenant, uploadKey, p, "the bytes go")
	wantNoPart(t, u, cas.UploadPart{Nonce: 9})
	for _, kind := range cas.Kinds() {
		if got := list(t, b, tenant, kind, nil); len(got) > 0 {
			t.Errorf("an upload shows: %v", got)
		}
	}
}

// uploadBusy: a part that is open is ErrBusy to everybody else.
func uploadBusy(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	p := cas.UploadPart{Nonce: 7}
	s := part(t, u, tenant, uploadKey, p, "mine")
	if other, err := u.OpenPart(t.Context(), tenant, uploadKey, p); !errors.Is(err, cas.ErrBusy) {
		t.Errorf("a second OpenPart: %v, want ErrBusy", err)
		if err == nil {
			other.Close()
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantPart(t, u, tenant, uploadKey, p, "mine")
}

// uploadEnds: a part that is committed is an object and no part any more; of one
// that is discarded nothing is left.
func uploadEnds(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	data := random(5, 20_000)
	first, second := cas.UploadPart{Nonce: 7}, cas.UploadPart{Nonce: 8}
	s := part(t, u, tenant, uploadKey, first, string(data))
	if err := s.Commit(t.Context(), blob(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, b, blob(data), data)
	wantNoPart(t, u, first)
	if err := errors.Join(s.Discard(), s.Close()); err != nil {
		t.Errorf("after Commit: %v", err)
	}
	wantBytes(t, b, blob(data), data)

	s = part(t, u, tenant, uploadKey, second, "dropped")
	if err := errors.Join(s.Discard(), s.Close()); err != nil {
		t.Error(err)
	}
	wantNoPart(t, u, second)

	s = part(t, u, tenant, uploadKey, second, "of another size")
	if err := s.Commit(t.Context(), blob([]byte("of another size")), 3); !errors.Is(err, cas.ErrSize) {
		t.Errorf("Commit with a wrong size: %v, want ErrSize", err)
	}
	wantAbsent(t, b, blob([]byte("of another size")))
}

// uploadMarks: a mark is the last one that was set.
func uploadMarks(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	// A mark is set beside the parts.
	s := part(t, u, tenant, uploadKey, cas.UploadPart{Nonce: 7}, "")
	defer s.Close()
	if _, err := u.Mark(t.Context(), tenant, uploadKey); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("no mark: %v, want ErrNotFound", err)
	}
	for _, mark := range [][]byte{[]byte("one"), random(6, 1<<10), []byte("two"), {}} {
		if err := u.SetMark(t.Context(), tenant, uploadKey, bytes.Clone(mark)); err != nil {
			t.Fatal(err)
		}
		if got, err := u.Mark(t.Context(), tenant, uploadKey); err != nil || !bytes.Equal(got, mark) {
			t.Errorf("Mark = %d bytes, %v; want %d", len(got), err, len(mark))
		}
	}
	if _, err := u.Mark(t.Context(), tenant, cas.UploadKey{9}); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the mark of another key: %v", err)
	}
}

// uploadRemove: all goes but one try and the mark, and then these.
func uploadRemove(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	kept, dropped := cas.UploadPart{Nonce: 7}, cas.UploadPart{Nonce: 8}
	for _, s := range []cas.PartStage{
		part(t, u, tenant, uploadKey, kept, "kept"), part(t, u, tenant, uploadKey, dropped, "dropped"),
		part(t, u, tenant, cas.UploadKey{9}, kept, "another key"),
	} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.SetMark(t.Context(), tenant, uploadKey, []byte("m")); err != nil {
		t.Fatal(err)
	}
	if err := u.RemoveUpload(t.Context(), tenant, uploadKey, kept.Nonce); err != nil {
		t.Fatal(err)
	}
	wantPart(t, u, tenant, uploadKey, kept, "kept")
	wantNoPart(t, u, dropped)
	if got, err := u.Mark(t.Context(), tenant, uploadKey); err != nil || string(got) != "m" {
		t.Errorf("the mark: %q, %v", got, err)
	}
	for range 2 { // what is missing is no error
		if err := u.RemoveUpload(t.Context(), tenant, uploadKey, 0); err != nil {
			t.Fatal(err)
		}
	}
	wantNoPart(t, u, kept)
	if _, err := u.Mark(t.Context(), tenant, uploadKey); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("the mark: %v, want ErrNotFound", err)
	}
	wantPart(t, u, tenant, cas.UploadKey{9}, kept, "another key")
}

func uploadCancelled(t *testing.T, b cas.Backend) {
	u := uploader(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, create := u.CreatePart(ctx, tenant, uploadKey, cas.UploadPart{Nonce: 7})
	_, open := u.OpenPart(ctx, tenant, uploadKey, cas.UploadPart{Nonce: 7})
	_, mark := u.Mark(ctx, tenant, uploadKey)
	for name, err := range map[string]error{
		"CreatePart": create, "OpenPart": open, "Mark": mark,
		"SetMark":      u.SetMark(ctx, tenant, uploadKey, nil),
		"RemoveUpload": u.RemoveUpload(ctx, tenant, uploadKey, 0),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", name, err)
		}
	}
	wantNoPart(t, u, cas.UploadPart{Nonce: 7})
}
