package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/cidtext"
	"leafproof/internal/outfile"
	"leafproof/merkle"
)

func sliceCommand() *cobra.Command {
	var pick, out string
	var bao bool
	cmd := &cobra.Command{
		Use:   "slice FILE|ID --bytes A:B",
		Short: "Write a bare proof of a byte range: no manifest, only bytes and root",
		Long: "Write a detached lps1 proof of a byte range of a file or an artifact, or with --bao a Bao slice,\n" +
			"to standard output or to -o. The root that it verifies against goes to standard error.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&pick, "bytes", "", "byte range A:B, half open; what lies past the end is clamped")
	f.StringVarP(&out, "out", "o", "", "write the proof to this file")
	f.BoolVar(&bao, "bao", false, "write a Bao slice (1 KiB chunks), for other people's decoders")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if pick == "" {
			return usage("slice: --bytes is missing; usage: %s", cmd.UseLine())
		}
		r, err := parseRange("--bytes", pick)
		if err != nil {
			return err
		}
		if *asJSON && (out == "" || out == "-") {
			return usage("--json goes with -o FILE: the proof itself goes to standard output")
		}
		var root merkle.Root
		write := func(w io.Writer) (err error) {
			root, err = slice(cmd, args[0], *r, bao, w)
			return err
		}
		if out == "" {
			err = write(cmd.OutOrStdout())
		} else {
			err = outfile.Write(out, cmd.OutOrStdout(), write)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]string{"root": root.String(), "cid": cidtext.Format(root), "file": out})
		}
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: root %s\n", root)
		return err
	}
	return cmd
}

// slice writes a proof of a range of the named file, or, where there is no such
// file, of the artifact with that id.
func slice(cmd *cobra.Command, name string, r merkle.Range, bao bool, w io.Writer) (merkle.Root, error) {
	_, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) && leafproof.CheckID(name) == nil {
		var root merkle.Root
		err := withStore(cmd, func(s *leafproof.Store) (err error) {
			root, err = s.Slice(cmd.Context(), caller(cmd), name, r, bao, w)
			return err
		})
		return root, err
	}
	f, err := os.Open(name)
	if err != nil {
		return merkle.Root{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return merkle.Root{}, err
	}
	if !fi.Mode().IsRegular() {
		return merkle.Root{}, fmt.Errorf("%s is not a regular file", name)
	}
	nodes, err := os.CreateTemp("", "leafproof-outboard-*")
	if err != nil {
		return merkle.Root{}, err
	}
	defer func() {
		nodes.Close()
		os.Remove(nodes.Name())
	}()
	bar := newProgress(cmd, name, fi.Size())
	root, err := merkle.BuildAt(cmd.Context(), progressReaderAt{cmd.Context(), f, bar}, fi.Size(), nodes)
	bar.stop()
	if err != nil {
		return root, fmt.Errorf("%s: %w", name, err)
	}
	tree := merkle.NewTree(root, fi.Size(), nodes)
	if bao {
		err = merkle.WriteBao(w, tree, f, r.Start, r.End-r.Start)
	} else {
		err = merkle.WriteSlice(w, tree, f, []merkle.Range{r}, true)
	}
	if err != nil {
		return root, fmt.Errorf("%s: %w", name, err)
	}
	return root, unchanged(f, fi, fi.Size())
}

func unsliceCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "unslice ROOT FILE",
		Short: "Verify a detached proof against a root, given as hex or as a CID",
		Long:  "Verify a detached lps1 proof against a root, given as hex or as a CID. What -o writes are the whole leaves of 1 KiB that it shows.",
		Args:  args(2, 2),
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write the verified bytes to this file (- is standard output)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *asJSON && out == "-" {
			return usage("--json goes without -o -: the bytes go to standard output")
		}
		root, err := cidtext.Parse(args[0])
		if err != nil {
			return usage("%v", err)
		}
		f, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer f.Close()
		var got unsliced
		if what := notSlice(f); what != "" {
			return &exitError{exitMismatch, fmt.Errorf("%s is %s", args[1], what)}
		}
		bar := newProgress(cmd, args[1], -1)
		write := func(w io.Writer) (err error) {
			got, err = unslice(bar.reader(f), root, w)
			return err
		}
		if out == "" {
			err = write(io.Discard)
		} else {
			err = outfile.Write(out, cmd.OutOrStdout(), write)
		}
		bar.stop()
		if errors.Is(err, merkle.ErrMismatch) || errors.Is(err, merkle.ErrMalformed) || errors.Is(err, io.ErrUnexpectedEOF) {
			return &exitError{exitMismatch, fmt.Errorf("%s: %w", args[1], err)}
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), got)
		}
		w := cmd.OutOrStdout()
		if out == "-" {
			w = cmd.ErrOrStderr()
		}
		proven := "claimed, not proven"
		if got.SizeProven {
			proven = "proven"
		}
		fmt.Fprintf(w, "ok    %s\n", root)
		fmt.Fprintf(w, "size  %d bytes (%s)\n", got.Size, proven)
		for _, r := range got.Bytes {
			fmt.Fprintf(w, "bytes %d:%d\n", r[0], r[1])
		}
		return nil
	}
	return cmd
}

// notSlice says what a file is that only looks like a detached proof; "" where it
// may be one.
func notSlice(f io.ReaderAt) string {
	head := make([]byte, 16)
	n, _ := f.ReadAt(head, 0)
	switch head := string(head[:n]); {
	case strings.HasPrefix(head, "leafproof bundle"):
		return "a bundle: leafproof verify checks it"
	case !strings.HasPrefix(head, "lps1"):
		return "no lps1 slice (a Bao slice does not say which bytes it holds: tools/verify.py ROOT FILE A:B checks it)"
	}
	return ""
}

// unsliced is what a detached proof showed.
type unsliced struct {
	Root       string     `json:"root"`
	Size       int64      `json:"size"`
	SizeProven bool       `json:"size_proven"`
	Bytes      [][2]int64 `json:"bytes"` // the ranges that were asked for, in whole leaves
}

// unslice verifies a detached proof and writes the bytes of its ranges to w.
func unslice(r io.Reader, root merkle.Root, w io.Writer) (unsliced, error) {
	got := unsliced{Root: root.String(), Bytes: [][2]int64{}}
	sr, err := merkle.NewSliceReader(r, root)
	if err != nil {
		return got, err
	}
	for _, leaves := range sr.Ranges() {
		got.Bytes = append(got.Bytes, [2]int64{leaves.Start * merkle.LeafSize, min(leaves.End*merkle.LeafSize, sr.Size())})
	}
	asked := got.Bytes
	for {
		off, p, err := sr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return got, err
		}
		end := off + int64(len(p))
		for len(asked) > 0 && asked[0][1] <= off {
			asked = asked[1:]
		}
		for _, r := range asked {
			if r[0] >= end {
				break
			}
			if _, err := w.Write(p[max(r[0], off)-off : min(r[1], end)-off]); err != nil {
				return got, err
			}
		}
	}
	got.Size, got.SizeProven = sr.Size(), sr.SizeProven()
	return got, nil
}
