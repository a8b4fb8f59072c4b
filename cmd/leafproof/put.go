package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func putCommand() *cobra.Command {
	var (
		o        leafproof.PutOptions
		f        leafproof.Facts
		observed string
		coverage []string
		quiet    bool
	)
	cmd := &cobra.Command{
		Use:   "put FILE|-",
		Short: "Keep a file's bytes as an artifact, and print its reference",
		Long:  "Keep a file's bytes (- is standard input) as an immutable artifact, and print its ArtifactRef as JSON.",
		Args:  args(1, 1),
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Records, "records", "auto", "record format: auto, ndjson, json, csv, text or none")
	fl.StringVar(&o.At, "at", "", "with --records json: the JSON Pointer of the array")
	fl.StringVar(&o.MediaType, "media-type", "", "the media type (default: that of the record format)")
	fl.StringVar((*string)(&o.Place), "place", "auto", "how to store it: whole, chunked (deduplicated and compressed), packed (up to 16 KiB), or auto: chunked for records")
	fl.StringVar(&o.Tenant, "tenant", "", "the tenant that owns the artifact (default local)")
	fl.StringVar(&f.RunID, "run", "", "the run that made it")
	fl.StringVar(&f.SourceID, "source", "", "the id of the source it was captured from")
	fl.StringVar(&f.SnapshotID, "snapshot", "", "the source's own name of the version captured")
	fl.StringVar(&observed, "observed", "", "when the source was observed, RFC 3339")
	fl.StringArrayVar(&coverage, "coverage", nil, "what the capture covers, K=V (may be repeated); the capture is then complete, unless --partial")
	fl.BoolVar(&f.Partial, "partial", false, "the capture lacks some of its coverage")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print only the artifact id")
	asJSON := jsonFlag(cmd) // the reference is JSON already; with -q, the id becomes a JSON string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		for name, value := range map[string]string{"tenant": o.Tenant, "run": f.RunID, "source": f.SourceID, "snapshot": f.SnapshotID, "observed": observed, "media-type": o.MediaType} {
			if value == "" && cmd.Flags().Changed(name) {
				return usage("--%s is given without a value", name)
			}
		}
		if observed != "" {
			if f.ObservedAt, err = time.Parse(time.RFC3339Nano, observed); err != nil {
				return usage("--observed: %q is not a time like 2026-11-30T12:00:00Z", observed)
			}
		}
		if f.Coverage, err = parseCoverage(coverage); err != nil {
			return err
		}
		switch o.Place {
		case "auto", "whole", "chunked", "packed":
		default:
			return usage("--place: %q is not auto, whole, chunked or packed", o.Place)
		}
		return withStore(cmd, func(s *leafproof.Store) error { return put(cmd, s, args[0], o, f, printRef(cmd, quiet, *asJSON)) })
	}
	return cmd
}

func parseCoverage(pairs []string) (map[string]any, error) {
	var out map[string]any
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usage("--coverage: %q is not K=V", p)
		}
		if _, twice := out[k]; twice {
			return nil, usage("--coverage: %q is given twice", k)
		}
		if out == nil {
			out = make(map[string]any)
		}
		out[k] = v
	}
	return out, nil
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
	if n := draft.Undecidable(); n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s: undecidable records: %d; no query will match or rule them out\n", name, n)
	}
	return print(draft, ref)
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
