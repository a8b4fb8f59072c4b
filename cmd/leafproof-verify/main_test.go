package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	d, err := s.Put(ctx, strings.NewReader(`["some","bytes"]`+"\n"), leafproof.PutOptions{MediaType: "application/json"})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Publish(ctx, d, leafproof.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	prove := func(name string, sel leafproof.Selector) string {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := s.Prove(ctx, leafproof.Owner, ref.ArtifactID, sel, f); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	proof := prove("e.proof", leafproof.Selector{Bytes: &merkle.Range{Start: 0, End: 4}})
	second := "/1"
	value := prove("v.proof", leafproof.Selector{Pointer: &second, Whole: true})
	policy := leafproof.PolicyPath(dir)
	key := leafproof.PublicKeyPath(dir)
	for name, test := range map[string]struct {
		store string // LEAFPROOF_STORE
		args  []string
		code  int
		says  string // in the error; "" is no error
	}{
		"policy":             {"", []string{"-policy", policy, proof}, verifycmd.ExitOK, ""},
		"key":                {"", []string{"-key", key, "-expect-bytes", "0:4", proof}, verifycmd.ExitOK, ""},
		"flags behind":       {"", []string{proof, "--policy", policy, "--expect-bytes", "0:4"}, verifycmd.ExitOK, ""},
		"flags around":       {"", []string{"-json", proof, "-policy", policy}, verifycmd.ExitOK, ""},
		"bad flag behind":    {"", []string{proof, "-nonsense"}, verifycmd.ExitUsage, "nonsense"},
		"a file like a flag": {"", []string{"-policy", policy, "--", "-howto"}, verifycmd.ExitIO, "no such file"},
		"behind two dashes":  {"", []string{"--", proof, "-json"}, verifycmd.ExitUsage, "2 files"},
		"the store's":        {dir, []string{proof}, verifycmd.ExitOK, ""},
		"none":               {"", []string{proof}, verifycmd.ExitUnverifiable, ""},
		"another claim":      {"", []string{"-policy", policy, "-expect-bytes", "0:5", proof}, verifycmd.ExitMismatch, ""},
		"a pointer":          {"", []string{"-policy", policy, "-expect-pointer", "/1", "-require-proven", "selector", value}, verifycmd.ExitOK, ""},
		"another pointer":    {"", []string{"-policy", policy, "-expect-pointer", "/0", value}, verifycmd.ExitMismatch, ""},
		"the root pointer":   {"", []string{"-policy", policy, "-expect-pointer", "", value}, verifycmd.ExitMismatch, ""},
		"two expectations":   {"", []string{"-policy", policy, "-expect-pointer", "/1", "-expect-bytes", "0:4", value}, verifycmd.ExitUsage, "exclude"},
		"later, none":        {"", []string{"-policy", policy, "-later", policy, proof}, verifycmd.ExitUsage, "--later"},
		"json":               {"", []string{"-json", "-policy", policy, proof}, verifycmd.ExitOK, ""},
		"howto":              {"", []string{"-howto"}, verifycmd.ExitOK, ""},
		"help":               {"", []string{"-h"}, verifycmd.ExitOK, ""},
		"no bundle":          {"", []string{policy}, verifycmd.ExitMismatch, "line 1"},
		"no file":            {"", []string{proof + "x"}, verifycmd.ExitIO, "no such file"},
		"no argument":        {"", nil, verifycmd.ExitUsage, "usage"},
		"two files":          {"", []string{proof, proof}, verifycmd.ExitUsage, "usage"},
		"unknown flag":       {"", []string{"-nonsense", proof}, verifycmd.ExitUsage, "nonsense"},
		"two policies":       {"", []string{"-policy", policy, "-policy", policy, proof}, verifycmd.ExitUsage, "twice"},
		"empty expectation":  {"", []string{"-expect-bytes", "", proof}, verifycmd.ExitUsage, "without a value"},
		"policy and key":     {"", []string{"-policy", policy, "-key", key, proof}, verifycmd.ExitUsage, "exclude"},
		"bad time":           {"", []string{"-at", "noon", proof}, verifycmd.ExitUsage, "noon"},
		"bad range":          {"", []string{"-expect-bytes", "9:3", proof}, verifycmd.ExitUsage, "ends before"},
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

// TestPackages lists what the verifier links: nothing that could ask anybody, or
// keep anything, and few modules to read for who relies on it.
func TestPackages(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command")
	}
	for _, name := range []string{"../../go.mod", "../../go.sum"} { // read, so that a change of a version counts
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", ".")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	banned := []string{"net", "crypto/tls", "crypto/x509", "database", "os/exec", "plugin"}
	modules := map[string]int{}
	for line := range strings.Lines(string(out)) {
		name, module, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		for _, b := range banned {
			if name == b || strings.HasPrefix(name, b+"/") {
				t.Errorf("it links %s", name)
			}
		}
		modules[module]++
	}
	want := []string{
		"", "filippo.io/edwards25519", "github.com/go-json-experiment/json", "github.com/klauspost/cpuid/v2",
		"github.com/zeebo/blake3", "golang.org/x/mod", "golang.org/x/sys", "leafproof", "lukechampine.com/blake3",
	}
	if got := slices.Sorted(maps.Keys(modules)); !slices.Equal(got, want) {
		t.Errorf("it links packages of %q, want %q", got, want)
	}
	t.Logf("packages of each module, the standard library first: %v", modules)
}
