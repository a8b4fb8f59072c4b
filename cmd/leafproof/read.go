package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/internal/verifycmd"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

func readCommand() *cobra.Command {
	var pick, out string
	var records, pointer string
	cmd := &cobra.Command{
		Use:   "read ID",
		Short: "Read a part of an artifact, verified; with -o, as a bundle that proves it",
		Long: "Read bytes, records or the value at a JSON Pointer; without a selector, all bytes.\n" +
			"Records are followed by a newline each. With -o, write a bundle that proves the part to a stranger.\n" +
			"That of a --pointer shows the value alone, and a receipt says on the store's word where it stands;\n" +
			"with --whole it shows the whole document, and whoever verifies it can follow the pointer.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&pick, "bytes", "", "byte range A:B, half open")
	f.StringVar(&records, "records", "", "record range A:B, from 0, half open")
	f.StringVar(&pointer, "pointer", "", "a JSON Pointer (RFC 6901) into a JSON document")
	f.StringVarP(&out, "out", "o", "", "write a bundle that proves the part to this file")
	whole := f.Bool("whole", false, "with --pointer and -o: show the whole document, which proves the place")
	asFlags(cmd)
	receipt := receiptFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var sel leafproof.Selector
		var err error
		if sel.Receipt, err = receipt.ask(cmd); err != nil {
			return err
		}
		if cmd.Flags().Changed("bytes") {
			if sel.Bytes, err = parseRange("--bytes", pick); err != nil {
				return err
			}
		}
		if cmd.Flags().Changed("records") {
			if sel.Records, err = parseRange("--records", records); err != nil {
				return err
			}
		}
		if cmd.Flags().Changed("out") && out == "" {
			return usage("--out is given without a value")
		}
		if cmd.Flags().Changed("pointer") {
			sel.Pointer = &pointer
		}
		if sel.Whole = *whole; sel.Whole && !(cmd.Flags().Changed("pointer") && cmd.Flags().Changed("out")) {
			return usage("--whole goes with --pointer and -o")
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			var err error
			switch {
			case cmd.Flags().Changed("out"):
				err = prove(cmd, s, args[0], sel, out, *asJSON)
			case *asJSON:
				err = readJSON(cmd, s, args[0], sel)
			default:
				bar := outputProgress(cmd, args[0], -1)
				var a *selector.Answer
				a, err = s.Read(cmd.Context(), caller(cmd), args[0], sel, progressWriter{cmd.OutOrStdout(), bar})
				bar.stop()
				if a != nil {
					advise(cmd, args[0], a.SupersededBy)
				}
			}
			return errors.Join(err, receipt.write(cmd))
		})
	}
	return cmd
}

func parseRange(flag, s string) (*merkle.Range, error) {
	a, b, err := verifycmd.ParseRange(s)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	return &merkle.Range{Start: a, End: b}, nil
}

func prove(cmd *cobra.Command, s *leafproof.Store, id string, sel leafproof.Selector, out string, asJSON bool) error {
	if asJSON && out == "-" {
		return usage("--json goes with -o FILE: the bundle itself goes to standard output")
	}
	var claim bundle.Claim
	bar := outputProgress(cmd, out, -1)
	err := outfile.Write(out, cmd.OutOrStdout(), func(w io.Writer) (err error) {
		claim, err = s.Prove(cmd.Context(), caller(cmd), id, sel, progressWriter{w, bar})
		return err
	})
	bar.stop()
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), map[string]string{"artifact_id": id, "claim": claim.String(), "file": out})
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s proves %s of %s\n", out, claim, id)
	return err
}

// maxJSONRead bounds what read --json holds in memory.
const maxJSONRead = 16 << 20

// readJSON prints the answer to a read, with the bytes in it: as text where they
// are UTF-8, in base64 otherwise.
func readJSON(cmd *cobra.Command, s *leafproof.Store, id string, sel leafproof.Selector) error {
	var buf bytes.Buffer
	a, err := s.Read(cmd.Context(), caller(cmd), id, sel, &limitedBuffer{&buf, maxJSONRead})
	if err != nil {
		return err
	}
	out := struct {
		*selector.Answer
		Encoding string `json:"encoding"`
		Content  any    `json:"content"`
	}{a, "utf-8", buf.String()}
	if !utf8.Valid(buf.Bytes()) {
		out.Encoding, out.Content = "base64", buf.Bytes()
	}
	return printJSON(cmd.OutOrStdout(), out)
}

type limitedBuffer struct {
	b    *bytes.Buffer
	left int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, usage("more than %d bytes for one JSON value: read a smaller part, or without --json", maxJSONRead)
	}
	l.left -= len(p)
	return l.b.Write(p)
}
