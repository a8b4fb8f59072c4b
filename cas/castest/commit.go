package castest

import (
	"context"
	"errors"
	"testing"

	"leafproof/cas"
)

// stageLoose: what is committed loosely is there at once, a taken name stays, and
// the Stage is used up also when it is refused.
func stageLoose(t *testing.T, b cas.Backend) {
	data := random(31, 40_000)
	if err := cas.CommitLoose(t.Context(), newStage(t, b, data), blob(data), 40_000); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, b, blob(data), data)
	if err := cas.CommitLoose(t.Context(), newStage(t, b, []byte("other")), blob(data), 5); err != nil {
		t.Errorf("CommitLoose to a taken name: %v", err)
	}
	wantBytes(t, b, blob(data), data)
	other := random(32, 100)
	for _, size := range []int64{99, 101} {
		if err := cas.CommitLoose(t.Context(), newStage(t, b, other), blob(other), size); !errors.Is(err, cas.ErrSize) {
			t.Errorf("CommitLoose of 100 bytes as %d: %v", size, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newStage(t, b, other)
	if err := cas.CommitLoose(ctx, s, blob(other), 100); !errors.Is(err, context.Canceled) {
		t.Errorf("CommitLoose error = %v, want context.Canceled", err)
	}
	if _, err := s.WriteAt([]byte("x"), 0); err == nil {
		t.Error("WriteAt after a CommitLoose that failed succeeded")
	}
	wantAbsent(t, b, blob(other))
}

// stageMany: each stage gets its name, taken ones stay, and nothing is left
// unfinished when one is refused.
func stageMany(t *testing.T, b cas.Backend) {
	taken := numbered(cas.KindBlob, 1, 0)
	put(t, b, taken, []byte("first"))
	list := []cas.Staged{{Stage: newStage(t, b, []byte("second")), Name: taken, Size: 6}}
	var contents [][]byte
	for i := range 20 {
		data := random(uint64(40+i), 1000*i)
		contents = append(contents, data)
		list = append(list, cas.Staged{Stage: newStage(t, b, data), Name: blob(data), Size: int64(len(data))})
	}
	if err := cas.CommitStages(t.Context(), b, list); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, b, taken, []byte("first"))
	for i, data := range contents {
		wantBytes(t, b, blob(data), data)
		if _, err := list[i].Stage.WriteAt([]byte("x"), 0); err == nil {
			t.Error("WriteAt after CommitStages succeeded")
		}
	}
	if err := cas.CommitStages(t.Context(), b, nil); err != nil {
		t.Errorf("CommitStages of nothing: %v", err)
	}
	bad := []cas.Staged{
		{Stage: newStage(t, b, random(70, 10)), Name: blob(random(70, 10)), Size: 11},
		{Stage: newStage(t, b, random(71, 10)), Name: blob(random(71, 10)), Size: 10},
	}
	if err := cas.CommitStages(t.Context(), b, bad); !errors.Is(err, cas.ErrSize) {
		t.Errorf("CommitStages with a wrong size: %v", err)
	}
	for _, item := range bad {
		if _, err := item.Stage.WriteAt([]byte("x"), 0); err == nil {
			t.Error("WriteAt after a CommitStages that failed succeeded")
		}
	}
	wantAbsent(t, b, bad[0].Name)
}

func wantAbsent(t *testing.T, b cas.Backend, name cas.Name) {
	t.Helper()
	if _, err := b.Get(t.Context(), name, 0, -1); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("Get(%v) error = %v, want ErrNotFound", name, err)
	}
}
