package leafproof_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageComments: every package says in one place what it is.
func TestPackageComments(t *testing.T) {
	for dir, files := range sources(t) {
		onlyTests := true
		for _, src := range files {
			onlyTests = onlyTests && src.test
		}
		var docs []string
		for _, src := range files {
			if (src.test && !onlyTests) || src.file.Doc == nil {
				continue
			}
			docs = append(docs, src.path)
			text := src.file.Doc.Text()
			want := "Package " + strings.TrimSuffix(src.file.Name.Name, "_test") + " "
			if src.file.Name.Name == "main" {
				want = "Command " + path.Base(dir) + " "
			}
			if !strings.HasPrefix(text, want) {
				t.Errorf("%s: the package comment begins %.40q, not %q", src.path, text, want)
			}
		}
		if len(docs) != 1 {
			t.Errorf("package %s has a package comment in %d files %v, want one", dir, len(docs), docs)
		}
	}
}

// TestModuleFiles: what is built here is what the module proxy has. A replace
// would not reach who imports the module.
func TestModuleFiles(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^\s*(replace|exclude)\b.*`)
	for _, name := range []string{"go.mod", "tools/go.mod"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range directive.FindAllString(string(text), -1) {
			t.Errorf("%s: %q", name, line)
		}
	}
}

// TestNoMachinePaths: the tree builds and reads the same in any folder of any
// machine.
func TestNoMachinePaths(t *testing.T) {
	// A path from the root of somebody's machine, and not the tail of another
	// path or address.
	paths := regexp.MustCompile(`(?:^|[\s"'=(:\x60])(/(?:work|root|home|Users)/[A-Za-z0-9._-]+)`)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if path.Base(name) == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		const sniff = 8000 // as git does to tell text from the rest
		if bytes.IndexByte(text[:min(len(text), sniff)], 0) >= 0 {
			return nil
		}
		for n, line := range strings.Split(string(text), "\n") {
			if m := paths.FindStringSubmatch(line); m != nil {
				t.Errorf("%s:%d names %s", name, n+1, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
