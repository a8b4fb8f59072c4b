package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func putCommand() *cobra.Command {
	var (
		p     putFacts
		quiet bool
	)
	cmd := &cobra.Command{
		Use:   "put FILE|-",
		Short: "Keep a file's bytes as an artifact, and print its reference",
		Long: "Keep a file's bytes (- is standard input) as an immutable artifact, and print its ArtifactRef as JSON.\n" +
			"The flags state facts about it, which are signed: what was captured from where, how completely, and by which tool.",
		Args: args(1, 1),
	}
	fl := cmd.Flags()
	p.add(cmd)
	fl.StringVar((*string)(&p.o.Place), "place", "auto", "how to store it: whole, chunked (deduplicated and compressed), packed (up to 16 KiB), or auto: chunked for records")
	fl.StringVar((*string)(&p.o.Durability), "durability", "durable", "from when on it survives a crash: durable (when this returns), batch (the same, with fewer waits) or cache (perhaps never: for bytes that can be had again)")
	fl.StringArrayVar(&p.o.Indexes, "index", nil, "build an index over the values at this `PATH` of the records, a JSON Pointer or JSONPath (may be repeated)")
	memory := memoryFlag(cmd)
	fl.StringVar(&p.o.Resume, "resume", "", "`NAME` under which to keep what has arrived when this is interrupted; run again with the same name, it goes on there")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print only the artifact id")
	asJSON := jsonFlag(cmd) // the reference is JSON already; with -q, the id becomes a JSON string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch p.o.Place {
		case "auto", "whole", "chunked", "packed":
		default:
			return usage("--place: %q is not auto, whole, chunked or packed", p.o.Place)
		}
		switch p.o.Durability {
		case "durable", "batch", "cache":
		default:
			return usage("--durability: %q is not durable, batch or cache", p.o.Durability)
		}
		if err := p.read(cmd, args[0]); err != nil {
			return err
		}
		var err error
		if p.o.IndexMemory, err = memory(); err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error { return put(cmd, s, args[0], p.o, p.f, printRef(cmd, quiet, *asJSON)) })
	}
	return cmd
}

func put(cmd *cobra.Command, s *leafproof.Store, name string, o leafproof.PutOptions, f leafproof.Facts,
	print func(*leafproof.Draft, manifest.ArtifactRef) error,
) error {
	src, err := openSource(cmd, name)
	if err != nil {
		return err
	}
	defer src.close()
	if name != "-" {
		o.Name = filepath.Base(name)
	}
	draft, err := s.Put(cmd.Context(), src, o)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := src.unchanged(draft.Size()); err != nil {
		return errors.Join(err, draft.Discard())
	}
	ref, err := s.Publish(cmd.Context(), draft, f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	src.done()
	warn(cmd, name, draft, ref)
	return print(draft, ref)
}

// warn says on standard error what a producer would want to look at again.
func warn(cmd *cobra.Command, name string, d *leafproof.Draft, ref manifest.ArtifactRef) {
	say := func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s: %s\n", name, manifest.Printable(fmt.Sprintf(format, args...)))
	}
	if name == "-" && d.Size() == 0 {
		say("warning: nothing came on standard input, and the artifact is empty")
	}
	if n := d.Undecidable(); n > 0 {
		say("undecidable records: %d; no query will match or rule them out", n)
	}
	for _, h := range d.StillHeld() {
		where := "the document"
		if h.Record >= 0 {
			where = fmt.Sprintf("record %d", h.Record)
		}
		say("warning: %s is declared redacted, and %s still has a value there", h.Path, where)
	}
	if err := d.Unsaid(); err != nil {
		say("warning: no signed statement says what it supersedes, beside its own manifest: %v", err)
	}
	if c := d.Schema(); c != nil && c.Failed > 0 {
		say("warning: %d of %d do not satisfy the schema %s, the first at bytes %d:%d", c.Failed, c.Checked, *ref.SchemaVersion, c.Spans[0][0], c.Spans[0][1])
	}
}

// printRef says how put prints what it made.
func printRef(cmd *cobra.Command, quiet, asJSON bool) func(*leafproof.Draft, manifest.ArtifactRef) error {
	return func(d *leafproof.Draft, ref manifest.ArtifactRef) error {
		switch {
		case quiet && asJSON:
			return printJSON(cmd.OutOrStdout(), ref.ArtifactID)
		case quiet:
			_, err := fmt.Fprintln(cmd.OutOrStdout(), ref.ArtifactID)
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: records: %s\n", d.Chosen())
		return printJSON(cmd.OutOrStdout(), ref)
	}
}

// source is a file or standard input on its way into a store.
type source struct {
	io.Reader
	name   string
	file   *os.File // nil for standard input
	before os.FileInfo
	bar    *progress
}

func openSource(cmd *cobra.Command, name string) (*source, error) {
	if name == "-" {
		s := &source{name: name, bar: newProgress(cmd, "stdin", -1)}
		s.Reader = s.bar.reader(cmd.InOrStdin())
		return s, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.IsDir() {
		err = fmt.Errorf("%s is a directory", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	size := int64(-1)
	if fi.Mode().IsRegular() {
		size = fi.Size()
	}
	s := &source{name: name, file: f, before: fi, bar: newProgress(cmd, filepath.Base(name), size)}
	s.Reader = s.bar.reader(f)
	return s, nil
}

// unchanged refuses a regular file that was written to while it was read: its
// bytes may be of no moment that ever was.
func (s *source) unchanged(read int64) error {
	if s.file == nil || !s.before.Mode().IsRegular() {
		return nil
	}
	return unchanged(s.file, s.before, read)
}

// unchanged is an error where a regular file is not what it was before read bytes
// of it were read.
func unchanged(f *os.File, before os.FileInfo, read int64) error {
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if read != before.Size() || after.Size() != read || !after.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s changed while it was read (%d bytes at first, %d read, %d now)", f.Name(), before.Size(), read, after.Size())
	}
	return nil
}

func (s *source) done() { s.bar.stop() }

func (s *source) close() {
	s.bar.stop()
	if s.file != nil {
		s.file.Close()
	}
}
