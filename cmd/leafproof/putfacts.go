package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

// The most that put reads of the files that its flags name, in bytes.
const (
	maxFacts     = manifest.MaxSize
	maxArguments = 16 << 20
)

// putFacts are put's flags about facts, and what they amount to.
type putFacts struct {
	o leafproof.PutOptions
	f leafproof.Facts

	file  string
	flags []factFlag
}

// factFlag is a flag that states one fact.
type factFlag struct {
	name  string
	at    string // the place of the fact in a predicate
	given func() bool
	set   func() error
}

// add declares the flags.
func (p *putFacts) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	text := func(target *string, name, at, what string) {
		value := fl.String(name, "", what)
		p.flags = append(p.flags, factFlag{name, at, func() bool { return *target != "" }, func() error {
			if *value == "" {
				return errors.New("it is given without a value")
			}
			*target = *value
			return nil
		}})
	}
	list := func(name, at, what string, given func() bool, each func(string) error) {
		values := fl.StringArray(name, nil, what)
		p.flags = append(p.flags, factFlag{name, at, given, func() error {
			for _, v := range *values {
				if err := each(v); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	when := func(target *time.Time, name, at, what string) {
		value := fl.String(name, "", what)
		p.flags = append(p.flags, factFlag{name, at, func() bool { return !target.IsZero() }, func() (err error) {
			if *target, err = time.Parse(time.RFC3339Nano, *value); err != nil {
				return fmt.Errorf("%q is not a time like 2026-11-30T12:00:00Z", *value)
			}
			return nil
		}})
	}
	const ref = "/artifact_ref"
	text(&p.o.Records, "records", "/records/format", "record format: auto, ndjson, json, csv, text, concat (JSON values one after another) or none (default auto)")
	text(&p.o.At, "at", "/records/pointer", "with --records json: the JSON Pointer of the array")
	text(&p.o.MediaType, "media-type", "/bytes/media_type", "the media type (default: that of the record format)")
	text(&p.o.Tenant, "tenant", ref+"/scope/tenant_id", "the tenant that owns the artifact (default local)")
	text(&p.f.RunID, "run", ref+"/scope/run_id", "the run that made it")
	text(&p.f.ToolCallID, "tool-call", ref+"/tool_call_id", "the id of the tool call that made it")
	text(&p.f.SchemaVersion, "schema", ref+"/schema_version", "its schema: any name, which is declared, or the id of a JSON Schema artifact, which every record is checked against")
	text(&p.f.SourceID, "source", ref+"/source_version/source_id", "the id of the source it was captured from")
	text(&p.f.SnapshotID, "snapshot", ref+"/source_version/snapshot_id", "the source's own name of the version captured")
	when(&p.f.ObservedAt, "observed", ref+"/source_version/observed_at", "when the source was observed, RFC 3339")
	list("coverage", ref+"/completeness/coverage", "what the capture covers, K=V (may be repeated); it is then complete, unless something says that it is partial",
		func() bool { return p.f.Coverage != nil }, p.coverage)
	list("omit", ref+"/completeness/omissions", "what the capture lacks, WHAT=REASON (may be repeated); it is then partial",
		func() bool { return p.f.Omissions != nil }, p.omit)
	list("redact", ref+"/completeness/redactions", "what was removed from the records, PATH=REASON (may be repeated); it changes no byte",
		func() bool { return p.f.Redactions != nil }, p.redact)
	partial := fl.Bool("partial", false, "the capture lacks some of its coverage")
	p.flags = append(p.flags, factFlag{"partial", ref + "/completeness/status", func() bool { return p.f.Status != "" }, func() error {
		p.f.Partial = *partial
		return nil
	}})
	expires := fl.String("expires", "", "how long it shall be available: 90m, 36h, 7d, 2w, 1d12h, or never (default: what init said, else never)")
	p.flags = append(p.flags, factFlag{"expires", ref + "/expires_at", func() bool { return !p.f.ExpiresAt.IsZero() }, func() (err error) {
		if *expires == "never" {
			p.f.NeverExpires = true
			return nil
		}
		p.f.ExpiresIn, err = parseDuration(*expires)
		return err
	}})
	p.addCSV(cmd)
	fl.BoolVar(&p.o.SHA256, "sha256", false, "compute the SHA-256 too, for tools that do not know BLAKE3")
	list("supersedes", "/supersedes", "the id of an older artifact that it takes the place of, ID or ID=KIND (may be repeated): reacquire (the default), correct, redact or transform",
		func() bool { return p.f.Supersedes != nil }, p.supersedes)
	p.addProducer(cmd, text)
	fl.StringVar(&p.file, "manifest", "", "a JSON file that states facts as a manifest does; no fact is stated twice")
}

// addCSV declares the flags about a CSV file's dialect.
func (p *putFacts) addCSV(cmd *cobra.Command) {
	fl := cmd.Flags()
	one := func(name, what string, target **string) {
		value := fl.String(name, "", what)
		p.flags = append(p.flags, factFlag{name, "/records/dialect", func() bool { return false }, func() error {
			*target = value
			return nil
		}})
	}
	one("csv-delimiter", "csv: the delimiter, one ASCII character (default: the one that fits the beginning)", &p.o.CSV.Delimiter)
	one("csv-quote", "csv: the quote, one ASCII character; empty: there is no quoting (default \")", &p.o.CSV.Quote)
	header := fl.Bool("csv-header", true, "csv: the first row names the columns and is no record")
	p.flags = append(p.flags, factFlag{"csv-header", "/records/dialect", func() bool { return false }, func() error {
		p.o.CSV.Header = header
		return nil
	}})
}

// addProducer declares the flags about the tool call.
func (p *putFacts) addProducer(cmd *cobra.Command, text func(*string, string, string, string)) {
	const at = "/lineage/producer"
	q := &leafproof.Producer{}
	text(&q.Tool, "tool", at+"/tool", "the tool that made it")
	text(&q.ToolVersion, "tool-version", at+"/tool_version", "the tool's version")
	text(&q.Outcome, "outcome", at+"/outcome", "how the tool's call ended: ok, partial or error (default ok)")
	file := cmd.Flags().String("args", "", "the file of the call's arguments, of which a digest is kept")
	p.flags = append(p.flags, factFlag{"args", at + "/arguments_digest", func() bool { return false }, func() (err error) {
		q.Arguments, err = readInput(cmd, *file, maxArguments)
		return err
	}})
	p.f.Producer = q
}

// read puts together what the file and the flags say.
func (p *putFacts) read(cmd *cobra.Command, source string) error {
	if cmd.Flags().Changed("manifest") {
		if err := p.readFile(cmd, source); err != nil {
			return err
		}
	}
	for _, flag := range p.flags {
		if !cmd.Flags().Changed(flag.name) {
			continue
		}
		if flag.given() {
			return usage("--%s: %s states %s too", flag.name, p.file, flag.at)
		}
		if flag.name == "args" && source == "-" && cmd.Flag("args").Value.String() == "-" {
			return usage("--args: standard input is the artifact itself")
		}
		err := flag.set()
		if _, unread := errors.AsType[*fs.PathError](err); unread { // the command line is right
			return fmt.Errorf("--%s: %w", flag.name, err)
		}
		if err != nil {
			return usage("--%s: %v", flag.name, err)
		}
	}
	q := p.f.Producer
	if q.Tool == "" && q.ToolVersion == "" && q.Outcome == "" && q.Arguments == nil && q.StartedAt.IsZero() && q.FinishedAt.IsZero() {
		p.f.Producer = nil
	} else if q.Tool == "" {
		return usage("--tool is missing: its version, outcome or arguments are given without it")
	}
	p.f.Caller = leafproof.Owner
	return p.check(cmd)
}

// readFile takes what the file of --manifest states.
func (p *putFacts) readFile(cmd *cobra.Command, source string) error {
	if p.file == "-" && source == "-" {
		return usage("--manifest: standard input is the artifact itself")
	}
	doc, err := readInput(cmd, p.file, maxFacts)
	if err != nil {
		return fmt.Errorf("--manifest: %w", err)
	}
	f, o, err := leafproof.ParseFacts(doc)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("%s: %w", p.file, err)}
	}
	q := p.f.Producer // the flags' targets stay where they are
	if f.Producer != nil {
		*q = *f.Producer
	}
	f.Producer = q
	flags := p.o // what no file can say
	p.f, p.o = f, o
	p.o.SHA256, p.o.Place, p.o.Resume, p.o.Durability = flags.SHA256, flags.Place, flags.Resume, flags.Durability
	return nil
}

// check finds what is malformed before anything is put.
func (p *putFacts) check(cmd *cobra.Command) error {
	err := p.f.Check(p.o)
	e, ok := errors.AsType[*leafproof.Error](err)
	if !ok {
		return err
	}
	for _, flag := range p.flags {
		if cmd.Flags().Changed(flag.name) && (e.At == flag.at || strings.HasPrefix(e.At, flag.at+"/")) {
			return &exitError{exitUsage, flagError{"--" + flag.name + ": " + strings.TrimPrefix(strings.TrimPrefix(e.Message, e.At), ": "), e}}
		}
	}
	if p.file != "" && e.At != "" {
		return &exitError{exitUsage, fmt.Errorf("%s: %w", p.file, err)}
	}
	return &exitError{exitUsage, err}
}

// flagError is an error of a fact in the words of the flag that stated it.
type flagError struct {
	text string
	err  error
}

func (e flagError) Error() string { return e.text }
func (e flagError) Unwrap() error { return e.err }

func (p *putFacts) coverage(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not K=V", s)
	}
	if _, twice := p.f.Coverage[k]; twice {
		return fmt.Errorf("%q is given twice", k)
	}
	if p.f.Coverage == nil {
		p.f.Coverage = make(map[string]any)
	}
	p.f.Coverage[k] = v
	return nil
}

func (p *putFacts) omit(s string) error {
	what, reason, ok := strings.Cut(s, "=")
	if !ok || what == "" || reason == "" {
		return fmt.Errorf("%q is not WHAT=REASON", s)
	}
	for _, o := range p.f.Omissions {
		if o.What == what {
			return fmt.Errorf("%q is given twice", what)
		}
	}
	p.f.Omissions = append(p.f.Omissions, manifest.Omission{What: what, Reason: reason})
	return nil
}

func (p *putFacts) redact(s string) error {
	path, reason, ok := strings.Cut(s, "=")
	if !ok || reason == "" {
		return fmt.Errorf("%q is not PATH=REASON", s)
	}
	for _, r := range p.f.Redactions {
		if r.Path == path {
			return fmt.Errorf("%q is given twice", path)
		}
	}
	p.f.Redactions = append(p.f.Redactions, manifest.Redaction{Path: path, Reason: reason})
	return nil
}

func (p *putFacts) supersedes(s string) error {
	id, kind, ok := strings.Cut(s, "=")
	if ok && kind == "" {
		return fmt.Errorf("%q is neither ID nor ID=KIND", s)
	}
	if err := leafproof.CheckID(id); err != nil {
		return err
	}
	p.f.Supersedes = append(p.f.Supersedes, manifest.Supersede{ArtifactID: id, Kind: kind})
	return nil
}

// readInput reads a file, or standard input for "-", of at most so many bytes.
func readInput(cmd *cobra.Command, name string, most int64) ([]byte, error) {
	r := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, usage("%s has more than %d bytes", name, most)
	}
	return b, nil
}

// parseDuration reads what Go writes as a duration, with days (d) and weeks (w) as
// well, whole ones in front: 90m, 7d, 1w3d, 1d12h. It must be more than nothing.
func parseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration like 90m, 36h, 7d or 2w", s)
	total, rest := time.Duration(0), s
	for _, unit := range []struct {
		letter string
		is     time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, ok := strings.Cut(rest, unit.letter)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || time.Duration(n) > (math.MaxInt64-total)/unit.is {
			return 0, bad
		}
		total, rest = total+time.Duration(n)*unit.is, after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || strings.HasPrefix(rest, "+") || d > math.MaxInt64-total {
			return 0, bad
		}
		total += d
	}
	if total <= 0 || s == "" {
		return 0, bad
	}
	return total, nil
}
