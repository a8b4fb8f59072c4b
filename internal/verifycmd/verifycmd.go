// Package verifycmd is the body of `leafproof verify` and of leafproof-verify:
// it reads a bundle and a policy from files, prints the verdict and chooses the
// exit code. It links no network and no database.
package verifycmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"leafproof/internal/outfile"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
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
	ExpectArtifact string   // the artifact's id; "" for any
	ExpectBytes    string   // "A:B"
	ExpectRecords  string   // "A:B"
	ExpectPointer  *string  // RFC 6901; nil: not asked
	ExpectWhere    string   // a condition; "" for any
	ExpectLimit    int64    // rows; goes with ExpectWhere or ExpectOrder
	ExpectOrder    []string // P or P:desc
	ExpectCount    bool     // only how many records match
	RebuildIndex   string   // a file with the artifact's bytes
	Later          []string // files with statements that may have ended the artifact's currency
	// Checkpoints is the file of the checkpoints that the reader has seen: see
	// [tlog.Memory]. Log is the folder of an exported log, to show consistency by.
	Checkpoints, Log string
	Howto, JSON      bool

	// Watch, where set, wraps the bundle's reader, to show how far it was read,
	// and returns what to call at the end.
	Watch func(r io.ReaderAt, size int64) (io.ReaderAt, func())
}

// Given refuses the options among those given that have no value: an empty
// variable in a script must not drop a requirement.
func (o Options) Given(names ...string) error {
	values := map[string]string{
		"policy": o.Policy, "o": o.Out, "out": o.Out, "at": o.At, "expect-artifact": o.ExpectArtifact, "expect-bytes": o.ExpectBytes, "expect-records": o.ExpectRecords,
		"checkpoints": o.Checkpoints, "log": o.Log, "expect-where": o.ExpectWhere, "rebuild-index": o.RebuildIndex,
	}
	for _, name := range names {
		if v, known := values[name]; known && v == "" {
			return usage("--%s is given without a value", name)
		}
	}
	if slices.Contains(names, "expect-limit") && o.ExpectLimit < 1 {
		return usage("--expect-limit: %d is not a number of records: it is at least 1", o.ExpectLimit)
	}
	for _, list := range [][]string{o.Keys, o.RequireProven, o.Later} {
		if slices.Contains(list, "") {
			return usage("--key, --require-proven or --later is given without a value")
		}
	}
	return nil
}

// A UsageError is a mistake in the command's words.
type UsageError struct{ Reason string }

func (e *UsageError) Error() string { return e.Reason }

func usage(format string, args ...any) error {
	return &UsageError{fmt.Sprintf(format, args...)}
}

// Run verifies a bundle and prints the verdict to stdout. It returns the exit
// code, and where no verdict was reached, the one-line reason.
//
// With -o naming standard output, the verdict goes to stderr.
func Run(o Options, stdout, stderr io.Writer) (int, error) {
	w := bufio.NewWriter(stdout)
	code, err := run(o, w, stderr)
	if err == nil {
		err = w.Flush()
	}
	if err != nil && code == ExitOK {
		code = ExitIO
	}
	return code, err
}

func run(o Options, stdout, stderr io.Writer) (int, error) {
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
	var out *outfile.File
	if o.Out != "" {
		if there, err := os.Stat(o.Out); err == nil && os.SameFile(there, fi) {
			return ExitUsage, usage("-o %s would replace the bundle by what it proves", o.Out)
		}
		if out, err = outfile.Create(o.Out, stdout); err != nil {
			return ExitIO, err
		}
		defer out.Discard()
		opts.Out = out
	}
	var r io.ReaderAt = f
	if o.Watch != nil {
		var done func()
		r, done = o.Watch(f, fi.Size())
		defer done()
	}
	if o.RebuildIndex != "" {
		rebuild, done, err := rebuildFrom(o.RebuildIndex)
		if err != nil {
			return ExitIO, err
		}
		defer done()
		opts.Rebuild = rebuild
	}
	res, err := bundle.Verify(r, fi.Size(), opts)
	if err != nil {
		return codeOf(err), fmt.Errorf("%s: %w", o.File, err)
	}
	if err := remember(o, res, opts.Policy); err != nil {
		return codeOf(err), err
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
	if out != nil {
		note = o.Out + " was not written: only bytes that pass every check are"
		if code == ExitOK {
			if err := out.Publish(); err != nil {
				return ExitIO, err
			}
			if note = "the bytes are in " + o.Out; o.Out == "-" {
				note = ""
			}
		}
	}
	to := stdout
	if o.Out == "-" {
		to = stderr
	}
	if o.JSON {
		return code, writeJSON(to, res, code)
	}
	return code, writeText(to, res, note)
}

// options reads what Verify needs from the files and words of the call.
func options(o Options) (bundle.Options, error) {
	b := bundle.Options{At: time.Now()}
	if o.At != "" {
		at, err := time.Parse(time.RFC3339Nano, o.At)
		if err != nil {
			return b, usage("--at: %q is not a time like 2026-11-30T12:00:00Z", o.At)
		}
		if at.IsZero() {
			return b, usage("--at: no key and no policy is as old as %s", o.At)
		}
		b.At = at
	}
	if b.ExpectArtifact = o.ExpectArtifact; b.ExpectArtifact != "" && !strings.HasPrefix(b.ExpectArtifact, "art_") {
		return b, usage("--expect-artifact: %q is no artifact_id, which begins with art_", o.ExpectArtifact)
	}
	if o.Log != "" && o.Checkpoints == "" {
		return b, usage("--log goes with --checkpoints: it shows consistency with what was seen before")
	}
	var err error
	if b.Policy, err = policy(o); err != nil {
		return b, err
	}
	if b.Later, err = later(o.Later); err != nil {
		return b, err
	}
	if b.Expect, err = expectation(o); err != nil {
		return b, err
	}
	b.ExpectQuery, err = question(o)
	if b.Expect != nil && b.ExpectQuery != nil {
		err = usage("--expect-where goes without the other parts: a bundle has one claim")
	}
	return b, err
}

// question is the query that the claim must answer; nil for any claim.
func question(o Options) (*bundle.Question, error) {
	if o.ExpectWhere == "" {
		if o.ExpectLimit != 0 || len(o.ExpectOrder) > 0 || o.ExpectCount {
			return nil, usage("--expect-limit, --expect-order and --expect-count go with --expect-where")
		}
		return nil, nil
	}
	if _, err := selector.ParseWhere(o.ExpectWhere); err != nil {
		return nil, usage("--expect-where: %v", err)
	}
	for _, text := range o.ExpectOrder {
		if _, err := selector.ParseOrder(text); err != nil {
			return nil, usage("--expect-order: %v", err)
		}
	}
	return &bundle.Question{Where: o.ExpectWhere, Order: o.ExpectOrder, Limit: o.ExpectLimit, Count: o.ExpectCount}, nil
}

// later reads statements: each file is one DSSE envelope in canonical JSON, with or
// without a newline behind it.
func later(files []string) ([]manifest.Envelope, error) {
	var list []manifest.Envelope
	for _, name := range files {
		text, err := readAtMost(name, manifest.MaxEnvelope+1)
		if err != nil {
			return nil, err
		}
		env, err := manifest.ParseEnvelope(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			return nil, usage("--later: %s: %v", name, err)
		}
		list = append(list, env)
	}
	return list, nil
}

// readAtMost reads a file that is no larger than it may be.
func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = usage("%s has more than %d bytes", name, limit)
	}
	return text, err
}

func policy(o Options) (*manifest.Policy, error) {
	if o.Policy != "" && len(o.Keys) > 0 {
		return nil, usage("--policy and --key exclude each other: a key is a policy of its own")
	}
	if len(o.Keys) > 0 {
		var keys []manifest.PublicKey
		for _, name := range o.Keys {
			text, err := readAtMost(name, manifest.MaxPolicy)
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
	text, err := readAtMost(name, manifest.MaxPolicy)
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
	var claims []bundle.Claim
	for _, e := range []struct {
		flag, value string
		claim       func(a, b int64) bundle.Claim
	}{
		{"--expect-bytes", o.ExpectBytes, func(a, b int64) bundle.Claim { return bundle.BytesClaim(merkle.Range{Start: a, End: b}) }},
		{"--expect-records", o.ExpectRecords, bundle.RecordsClaim},
	} {
		if e.value == "" {
			continue
		}
		a, b, err := ParseRange(e.value)
		if err != nil {
			return nil, usage("%s: %v", e.flag, err)
		}
		claims = append(claims, e.claim(a, b))
	}
	if o.ExpectPointer != nil {
		claims = append(claims, bundle.PointerClaim(*o.ExpectPointer))
	}
	switch len(claims) {
	case 0:
		return nil, nil
	case 1:
		return &claims[0], nil
	}
	return nil, usage("--expect-bytes, --expect-records and --expect-pointer exclude each other: a bundle has one claim")
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
	case errors.As(err, &u), errors.Is(err, bundle.ErrLater), errors.Is(err, selector.ErrSelector) && !errors.Is(err, bundle.ErrMalformed):
		return ExitUsage
	case errors.Is(err, bundle.ErrMalformed):
		return ExitMismatch
	}
	return ExitIO
}

func writeText(w io.Writer, res *bundle.Result, note string) error {
	if m := res.Manifest; m != nil {
		fmt.Fprintf(w, "claim      %s of %s\n", res.Claim, m.ArtifactID)
		writeDisclosed(w, res)
		fmt.Fprintln(w)
	}
	if err := res.Verdict.WriteTable(w); err != nil {
		return err
	}
	if f, _ := res.Verdict.Fact(manifest.FactKey); f.Reason == manifest.NoPolicy {
		fmt.Fprintln(w, "Give --policy FILE (a copy of the store's trust.policy), or --key FILE (its keys/manifest.pub), that reached you by another way.")
	}
	if a := res.Answer; a != nil && res.Verdict.Exit() != ExitMismatch {
		fmt.Fprintln(w, a.Conclusion)
	}
	if note != "" {
		fmt.Fprintln(w, note)
	}
	return nil
}

// maxDisclosed is how many ranges of bytes are printed one by one.
const maxDisclosed = 16

// writeDisclosed says what the bundle shows, which is more than what it claims.
func writeDisclosed(w io.Writer, res *bundle.Result) {
	rest := int64(0)
	for i, r := range res.Shown {
		if i < maxDisclosed {
			fmt.Fprintf(w, "discloses  bytes %d:%d\n", r.Start, r.End)
		} else {
			rest += r.End - r.Start
		}
	}
	if rest > 0 {
		fmt.Fprintf(w, "discloses  %d bytes in %d more ranges\n", rest, len(res.Shown)-maxDisclosed)
	}
	if r := res.Placed; r.End > r.Start {
		fmt.Fprintf(w, "discloses  where records %d:%d stand\n", r.Start, r.End)
	}
	if a := res.Answer; a != nil {
		pages := int64(0)
		for _, r := range a.Pages {
			pages += r.End - r.Start
		}
		fmt.Fprintf(w, "discloses  how many keys and entries the index over %s has, and the keys and record numbers on %d of its pages\n", manifest.Printable(manifest.IndexOver(a.Index.Path)), pages)
	}
}

// report is the JSON form of a verification.
type report struct {
	ArtifactID string                `json:"artifact_id,omitempty"`
	ManifestID string                `json:"manifest_id,omitempty"`
	Ref        *manifest.ArtifactRef `json:"ref,omitempty"` // the signed one
	Receipt    *manifest.Receipt     `json:"receipt,omitempty"`
	Claim      *claim                `json:"claim,omitempty"`
	Answer     *answer               `json:"answer,omitempty"`
	Discloses  *disclosed            `json:"discloses,omitempty"`
	Verdict    *manifest.Verdict     `json:"verdict"`
	Exit       int                   `json:"exit"`
}

// claim is what was verified: byte ranges, a range of records, or the value at a
// pointer and its bytes.
type claim struct {
	Kind    string     `json:"kind"`
	Pointer *string    `json:"pointer,omitempty"`
	Ranges  [][2]int64 `json:"ranges,omitempty"`
	Range   *[2]int64  `json:"range,omitempty"`
	Query   any        `json:"query,omitempty"`
	Limit   *int64     `json:"limit,omitempty"`
	Count   *bool      `json:"count,omitempty"`
}

// answer is what a query claim proves.
type answer struct {
	selector.Proven
	Index      string `json:"index"`
	Conclusion string `json:"conclusion"`
}

// disclosed is what the bundle shows: whole leaves, and where records stand.
type disclosed struct {
	Bytes  [][2]int64 `json:"bytes"`
	Placed *[2]int64  `json:"placed_records,omitempty"`
	Index  string     `json:"index,omitempty"`
	Pages  [][2]int64 `json:"index_pages,omitempty"`
}

func writeJSON(w io.Writer, res *bundle.Result, code int) error {
	out := report{Verdict: res.Verdict, Exit: code}
	if m := res.Manifest; m != nil {
		out.ArtifactID, out.ManifestID, out.Ref = m.ArtifactID, m.ManifestID, &m.Predicate.ArtifactRef
		out.Receipt = res.Receipt
		c := res.Claim
		out.Claim = &claim{c.Kind, c.Pointer, c.Ranges, c.Range, c.Query, c.Limit, c.Count}
		out.Discloses = &disclosed{Bytes: [][2]int64{}}
		for _, r := range res.Shown {
			out.Discloses.Bytes = append(out.Discloses.Bytes, [2]int64{r.Start, r.End})
		}
		if r := res.Placed; r.End > r.Start {
			out.Discloses.Placed = &[2]int64{r.Start, r.End}
		}
		if a := res.Answer; a != nil {
			out.Answer = &answer{a.Proven, a.Index.Path, a.Conclusion}
			out.Discloses.Index = a.Index.Path
			for _, r := range a.Pages {
				out.Discloses.Pages = append(out.Discloses.Pages, [2]int64{r.Start, r.End})
			}
		}
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(out); err != nil {
		return err
	}
	// The reference is a stranger's text, too: what does not show is escaped in it
	// as the verdict escapes its own.
	_, err := w.Write(append(manifest.EscapeJSON(bytes.TrimSuffix(text.Bytes(), []byte("\n"))), '\n'))
	return err
}
