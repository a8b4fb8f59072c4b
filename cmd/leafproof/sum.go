package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"leafproof/internal/cidtext"
	"leafproof/merkle"
)

func sumCommand() *cobra.Command {
	var asCID bool
	cmd := &cobra.Command{
		Use:   "sum [FILE…]",
		Short: "Print the root of each file, as b3sum does",
		Long:  "Print the BLAKE3 hash of each file (of standard input without one, or for -), byte for byte as b3sum does.",
		Args:  args(0, -1),
	}
	cmd.Flags().BoolVar(&asCID, "cid", false, "print the root as a CID")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if len(names) == 0 {
			names = []string{"-"}
		}
		type sum struct {
			File string `json:"file"`
			Root string `json:"root"`
			CID  string `json:"cid"`
			Size int64  `json:"size"`
		}
		sums := []sum{}
		var failed error
		for _, name := range names {
			root, size, err := sumFile(cmd, name)
			if err != nil {
				// Like b3sum: say so, and go on with the next one.
				failed = errors.Join(failed, err)
				continue
			}
			text := root.String()
			if asCID {
				text = cidtext.Format(root)
			}
			if *asJSON {
				sums = append(sums, sum{name, root.String(), cidtext.Format(root), size})
				continue
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), sumLine(text, name)); err != nil {
				return err
			}
		}
		if *asJSON && failed == nil {
			return printJSON(cmd.OutOrStdout(), sums)
		}
		return failed
	}
	return cmd
}

// sumLine is a line of b3sum: a name with a backslash or a line break in it is
// escaped, and a backslash before the hash says so.
func sumLine(root, name string) string {
	if !strings.ContainsAny(name, "\\\n\r") {
		return root + "  " + name
	}
	return "\\" + root + "  " + strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
}

func sumFile(cmd *cobra.Command, name string) (merkle.Root, int64, error) {
	var none merkle.Root
	if name == "-" {
		b := merkle.NewBuilder(nil)
		n, err := io.CopyBuffer(b, struct{ io.Reader }{cmd.InOrStdin()}, make([]byte, 1<<20))
		if err != nil {
			return none, n, err
		}
		root, err := b.Seal()
		return root, n, err
	}
	f, err := os.Open(name)
	if err != nil {
		return none, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return none, 0, err
	}
	if fi.IsDir() {
		return none, 0, fmt.Errorf("%s is a directory", name)
	}
	bar := newProgress(cmd, name, fi.Size())
	defer bar.stop()
	if !fi.Mode().IsRegular() {
		b := merkle.NewBuilder(nil)
		n, err := io.CopyBuffer(b, bar.reader(f), make([]byte, 1<<20))
		if err != nil {
			return none, n, fmt.Errorf("%s: %w", name, err)
		}
		root, err := b.Seal()
		return root, n, err
	}
	root, err := merkle.BuildAt(cmd.Context(), progressReaderAt{cmd.Context(), f, bar}, fi.Size(), nil)
	if err != nil {
		return none, 0, fmt.Errorf("%s: %w", name, err)
	}
	return root, fi.Size(), unchanged(f, fi, fi.Size())
}
