package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof"
	"leafproof/internal/verifycmd"
	"leafproof/merkle"
)

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	ctx := context.Background()
	if err := leafproof.Init(ctx, dir); err != nil {
		t.Fatal(err)
	}
	s, err := leafproof.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, err := s.Put(ctx, strings.NewReader("some bytes\n"), leafproof.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(ctx, d, leafproof.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	proof := filepath.Join(t.TempDir(), "e.proof")
	f, err := os.Create(proof)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := s.Prove(ctx, leafproof.Owner, ref.ArtifactID, leafproof.Selector{Bytes: &merkle.Range{Start: 0, End: 4}}, f); err != nil {
		t.Fatal(err)
	}
	policy := leafproof.PolicyPath(dir)
	key := leafproof.PublicKeyPath(dir)
	for name, test := range map[string]struct {
		store string // LEAFPROOF_STORE
		args  []string
		code  int
		says  string // in the error; "" is no error
	}{
		"policy":            {"", []string{"-policy", policy, proof}, verifycmd.ExitOK, ""},
		"key":               {"", []string{"-key", key, "-expect-bytes", "0:4", proof}, verifycmd.ExitOK, ""},
		"the store's":       {dir, []string{proof}, verifycmd.ExitOK, ""},
		"none":              {"", []string{proof}, verifycmd.ExitUnverifiable, ""},
		"another claim":     {"", []string{"-policy", policy, "-expect-bytes", "0:5", proof}, verifycmd.ExitMismatch, ""},
		"json":              {"", []string{"-json", "-policy", policy, proof}, verifycmd.ExitOK, ""},
		"howto":             {"", []string{"-howto"}, verifycmd.ExitOK, ""},
		"help":              {"", []string{"-h"}, verifycmd.ExitOK, ""},
		"no bundle":         {"", []string{policy}, verifycmd.ExitMismatch, "line 1"},
		"no file":           {"", []string{proof + "x"}, verifycmd.ExitIO, "no such file"},
		"no argument":       {"", nil, verifycmd.ExitUsage, "usage"},
		"two files":         {"", []string{proof, proof}, verifycmd.ExitUsage, "usage"},
		"unknown flag":      {"", []string{"-nonsense", proof}, verifycmd.ExitUsage, "nonsense"},
		"two policies":      {"", []string{"-policy", policy, "-policy", policy, proof}, verifycmd.ExitUsage, "twice"},
		"empty expectation": {"", []string{"-expect-bytes", "", proof}, verifycmd.ExitUsage, "without a value"},
		"policy and key":    {"", []string{"-policy", policy, "-key", key, proof}, verifycmd.ExitUsage, "exclude"},
		"bad time":          {"", []string{"-at", "noon", proof}, verifycmd.ExitUsage, "noon"},
		"bad range":         {"", []string{"-expect-bytes", "9:3", proof}, verifycmd.ExitUsage, "ends before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LEAFPROOF_STORE", test.store)
			code, err := run(test.args)
			if code != test.code {
				t.Errorf("exit %d, want %d (error %v)", code, test.code, err)
			}
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("error = %v, want one that says %q", err, test.says)
			}
		})
	}
}
