// Package verifycmd is the body of `leafproof verify` and of leafproof-verify:
// it reads a bundle and a policy from files, prints the verdict and chooses the
// exit code. It links no network and no database.
package verifycmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// The exit codes of a verification.
const (
	ExitOK           = 0  // no MISMATCH, nothing unverifiable
	ExitIO           = 1  // a file could not be read or written
	ExitUnverifiable = 2  // something could not be judged
	ExitMismatch     = 3  // a MISMATCH, or not a well-formed bundle
	ExitUsage        = 64 // the call's words are off
)

// Options are the command's words.
type Options struct {
	File           string   // the bundle
	Policy         string   // a trust.policy file
	Keys           []string // public keys that make an ad-hoc policy
	DefaultPolicy  string   // the policy file used when neither is given; "" for none
	Out            string   // where the verified bytes go
	At             string   // RFC 3339; "" is now
	RequireProven  []string // facts that must be proven
	RequireCurrent bool
	ExpectBytes    string // "A:B"
	ExpectRecords  string // "A:B"
	Howto, JSON    bool
}

// A UsageError is a mistake in the command's words.
type UsageError struct{ Reason string }

func (e *UsageError) Error() string { return e.Reason }

func usage(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Run verifies a bundle and prints the verdict to stdout. It returns the exit
// code, and where no verdict was reached, the one-line reason.
func Run(o Options, stdout io.Writer) (int, error) {
	w := bufio.NewWriter(stdout)
	code, err := run(o, w)
	if ferr := w.Flush(); err == nil && ferr != nil {
		return ExitIO, ferr
	}
	return code, err
}

func run(o Options, stdout io.Writer) (int, error) {
	if o.Howto {
		return ExitOK, writeHowto(stdout, o.File)
	}
	opts, err := options(o)
	if err != nil {
		return codeOf(err), err
	}
	f, err := os.Open(o.File)
	if err != nil {
		return ExitIO, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return ExitIO, err
	}
	if !fi.Mode().IsRegular() {
		return ExitIO, fmt.Errorf("%s is not a regular file", o.File)
	}
	out, err := newOutput(o.Out)
	if err != nil {
		return ExitIO, err
	}
	defer out.discard()
	opts.Out = out.writer()
	res, err := bundle.Verify(f, fi.Size(), opts)
	if err != nil {
		return codeOf(err), fmt.Errorf("%s: %w", o.File, err)
	}
	for _, name := range o.RequireProven {
		if err := res.Verdict.RequireProven(name); err != nil {
			return ExitUsage, usage("--require-proven: %v", err)
		}
	}
	if o.RequireCurrent {
		res.Verdict.RequireCurrent()
	}
	code := res.Verdict.Exit()
	note := ""
	if o.Out != "" {
		note = o.Out + " was not written: only bytes that pass every check are"
		if code == ExitOK {
			if err := out.publish(); err != nil {
				return ExitIO, err
			}
			note = "the bytes are in " + o.Out
		}
	}
	if o.JSON {
		return code, writeJSON(stdout, res, code)
	}
	return code, writeText(stdout, res, note)
}

// options reads what Verify needs from the files and words of the call.
func options(o Options) (bundle.Options, error) {
	b := bundle.Options{At: time.Now()}
	if o.At != "" {
		at, err := time.Parse(time.RFC3339Nano, o.At)
		if err != nil {
			return b, usage("--at: %q is not a time like 2026-11-30T12:00:00Z", o.At)
		}
		b.At = at
	}
	var err error
	if b.Policy, err = policy(o); err != nil {
		return b, err
	}
	b.Expect, err = expectation(o)
	return b, err
}

func policy(o Options) (*manifest.Policy, error) {
	if o.Policy != "" && len(o.Keys) > 0 {
		return nil, usage("--policy and --key exclude each other: a key is a policy of its own")
	}
	if len(o.Keys) > 0 {
		var keys []manifest.PublicKey
		for _, name := range o.Keys {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			k, err := manifest.ParsePublicKey(text)
			if err != nil {
				return nil, usage("--key: %s: %v", name, err)
			}
			keys = append(keys, k)
		}
		return manifest.AdHoc(keys...), nil
	}
	name := o.Policy
	if name == "" {
		if name = o.DefaultPolicy; name == "" {
			return nil, nil
		}
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, err := manifest.ParsePolicy(text)
	if err != nil {
		return nil, usage("%s: %v", name, err)
	}
	return p, nil
}

func expectation(o Options) (*bundle.Claim, error) {
	if o.ExpectBytes != "" && o.ExpectRecords != "" {
		return nil, usage("--expect-bytes and --expect-records exclude each other: a bundle has one claim")
	}
	switch {
	case o.ExpectBytes != "":
		a, b, err := ParseRange(o.ExpectBytes)
		if err != nil {
			return nil, usage("--expect-bytes: %v", err)
		}
		c := bundle.BytesClaim(merkle.Range{Start: a, End: b})
		return &c, nil
	case o.ExpectRecords != "":
		a, b, err := ParseRange(o.ExpectRecords)
		if err != nil {
			return nil, usage("--expect-records: %v", err)
		}
		c := bundle.RecordsClaim(a, b)
		return &c, nil
	}
	return nil, nil
}

// ParseRange reads "A:B", a half-open range with 0 ≤ A ≤ B.
func ParseRange(s string) (a, b int64, err error) {
	from, to, ok := strings.Cut(s, ":")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not a range A:B", s)
	}
	if a, err = parseBound(from); err == nil {
		b, err = parseBound(to)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q is not a range A:B: %w", s, err)
	}
	if b < a {
		return 0, 0, fmt.Errorf("%q ends before it begins", s)
	}
	return a, b, nil
}

func parseBound(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large", s)
	case err != nil || strings.HasPrefix(s, "+"):
		return 0, fmt.Errorf("%q is not a number of zero or more", s)
	}
	return int64(n), nil
}

func codeOf(err error) int {
	var u *UsageError
	switch {
	case errors.As(err, &u):
		return ExitUsage
	case errors.Is(err, bundle.ErrMalformed):
		return ExitMismatch
	}
	return ExitIO
}

func writeText(w io.Writer, res *bundle.Result, note string) error {
	of := ""
	if res.Manifest != nil {
		of = " of " + res.Manifest.ArtifactID
	}
	for _, c := range res.Claims {
		fmt.Fprintf(w, "claim      %s%s\n", c, of)
	}
	for _, r := range res.Shown {
		fmt.Fprintf(w, "discloses  bytes %d:%d\n", r.Start, r.End)
	}
	fmt.Fprintln(w)
	if err := res.Verdict.WriteTable(w); err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(w, note)
	}
	return nil
}

func writeJSON(w io.Writer, res *bundle.Result, code int) error {
	type shown [2]int64
	claims := make([]string, len(res.Claims))
	for i, c := range res.Claims {
		claims[i] = c.String()
	}
	discloses := make([]shown, len(res.Shown))
	for i, r := range res.Shown {
		discloses[i] = shown{r.Start, r.End}
	}
	out := map[string]any{"claims": claims, "discloses": discloses, "verdict": res.Verdict, "exit": code}
	if m := res.Manifest; m != nil {
		out["artifact_id"], out["manifest_id"], out["ref"] = m.ArtifactID, m.ManifestID, m.Predicate.ArtifactRef
	}
	return json.NewEncoder(w).Encode(out)
}

// output keeps verified bytes beside their destination until all are verified.
type output struct {
	name string
	tmp  *os.File
}

func newOutput(name string) (*output, error) {
	if name == "" {
		return &output{}, nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, err
	}
	return &output{name: name, tmp: tmp}, nil
}

func (o *output) writer() io.Writer {
	if o.tmp == nil {
		return nil
	}
	return o.tmp
}

func (o *output) publish() error {
	if err := o.tmp.Close(); err != nil {
		return err
	}
	if err := os.Chmod(o.tmp.Name(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(o.tmp.Name(), o.name); err != nil {
		return err
	}
	o.tmp = nil
	return nil
}

func (o *output) discard() {
	if o.tmp != nil {
		o.tmp.Close()
		os.Remove(o.tmp.Name())
	}
}
