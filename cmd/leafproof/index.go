package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/manifest"
)

func indexCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Build a field index of a file, or add one to an artifact",
		Args:  args(0, 0),
	}
	cmd.AddCommand(indexBuildCommand(), indexAddCommand())
	return cmd
}

// memoryFlag adds the flag that bounds the memory of a build, and returns how to read it.
func memoryFlag(cmd *cobra.Command) func() (int64, error) {
	const flag = "index-memory"
	s := cmd.Flags().String(flag, "256M", "about how many bytes the build of indexes may take; what does not fit goes to a temporary file")
	return func() (int64, error) {
		n, err := parseSize("--"+flag, *s)
		if err == nil && n == 0 {
			err = usage("--%s is given without a value", flag)
		}
		return n, err
	}
}

func indexBuildCommand() *cobra.Command {
	var o leafproof.IndexFile
	var spec, out string
	cmd := &cobra.Command{
		Use:   "build FILE (--path P | --spec FILE)",
		Short: "Print the bytes of the index over a field of a file's records",
		Long: "Print the bytes of the index over the values at P of a file's records, without a store. They are those of the index\n" +
			"that an artifact with the same bytes has: `leafproof index build FILE --path P | b3sum` prints the root that its\n" +
			"manifest states. P is a JSON Pointer into the record, or a JSONPath query such as @.tags[*]. A spec, as `stat --json`\n" +
			"prints it, says all of it at once, redactions too.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&o.Path, "path", "", "the field, a JSON Pointer or a JSONPath query")
	f.StringVar(&spec, "spec", "", "instead of --path and the others: a file (- is standard input) with the spec of an index")
	f.StringVar(&o.Records, "records", "auto", "record format: auto, ndjson, json, csv, text or concat")
	f.StringVar(&o.At, "at", "", "JSON Pointer of the array that has the records")
	f.StringArrayVar(&o.Redactions, "redact", nil, "a value that the producer removed, a JSON Pointer into the record (may be repeated)")
	f.StringVarP(&out, "out", "o", "", "write the index to this file")
	var facts putFacts // for the flags about csv
	facts.addCSV(cmd)
	memory := memoryFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		withPath := []string{"records", "at", "redact"}
		for _, fl := range facts.flags {
			withPath = append(withPath, fl.name)
			if cmd.Flags().Changed(fl.name) {
				if err := fl.set(); err != nil {
					return err
				}
			}
		}
		o.CSV = facts.o.CSV
		path, given := cmd.Flags().Changed("path"), cmd.Flags().Changed("spec")
		switch {
		case path == given:
			return usage("index build: one of --path and --spec says what to build")
		case given && slices.ContainsFunc(withPath, cmd.Flags().Changed):
			return usage("index build: the spec says it all; --records, --at, --redact and the csv flags go with --path")
		case *asJSON && (out == "" || out == "-"):
			return usage("--json goes with -o FILE: the index itself goes to standard output")
		}
		if o.Memory, err = memory(); err != nil {
			return err
		}
		if given {
			if o.Spec, err = readInput(cmd, spec, 1<<20); err != nil {
				return err
			}
			o.Spec = trimLine(o.Spec)
		}
		src, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer src.Close()
		info, err := src.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = usage("index build: %s is no regular file: it is read more than once", args[0])
		}
		if err != nil {
			return err
		}
		o.Name = filepath.Base(args[0])
		bar := outputProgress(cmd, args[0], 3*info.Size())
		o.Progress = bar.add
		var x manifest.Index
		write := func(w io.Writer) (err error) {
			x, err = leafproof.BuildIndex(cmd.Context(), src, info.Size(), o, w)
			bar.stop()
			return err
		}
		if out == "" {
			err = write(cmd.OutOrStdout())
		} else {
			err = outfile.Write(out, cmd.OutOrStdout(), write)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), x)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", indexText(x))
		return nil
	}
	return cmd
}

// trimLine cuts off a line end.
func trimLine(p []byte) []byte {
	if n := len(p); n > 0 && p[n-1] == '\n' {
		return p[:n-1]
	}
	return p
}

func indexAddCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "add ID --path P",
		Short: "Build an index over a field of an artifact's records, and sign that it is there",
		Long: "Build an index over the values at P of an artifact's records, and say in a signed statement that it is there. The\n" +
			"artifact, its id and its manifest stay what they are. It takes leave to derive from all of the artifact. What is\n" +
			"printed is what the statement says. P is as with index build.",
		Args: args(1, 1),
	}
	cmd.Flags().StringVar(&path, "path", "", "the field, a JSON Pointer or a JSONPath query")
	memory := memoryFlag(cmd)
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("path") {
			return usage("index add: --path is missing; usage: %s", cmd.UseLine())
		}
		bytes, err := memory()
		if err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			bar := outputProgress(cmd, args[0], -1)
			x, err := s.AddIndex(cmd.Context(), caller(cmd), args[0], path, leafproof.IndexOptions{Memory: bytes, Progress: bar.add})
			bar.stop()
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), indexFactsOf(x))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), manifest.Printable(indexText(x.Index)))
			return err
		})
	}
	return cmd
}

// indexFacts is what is printed of an index.
type indexFacts struct {
	manifest.Index
	Statement *string `json:"statement"` // the id of the one that names it; null: the manifest does
}

func indexFactsOf(x leafproof.Index) indexFacts {
	out := indexFacts{Index: x.Index}
	if x.Statement != nil {
		out.Statement = &x.Statement.ID
	}
	return out
}

// indexText says in a line what an index is.
func indexText(x manifest.Index) string {
	return fmt.Sprintf("%s, %s, %d bytes: %d entries, %d keys, %d undetermined", manifest.IndexOver(x.Path), x.Root, x.Size, x.Entries, x.Distinct, x.Undetermined)
}
