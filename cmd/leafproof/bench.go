package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/bench"
)

func benchCommand() *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine: put, read, filter and prove, beside who does it without a store",
		Long: "Do what a user does, in a new store in a temporary folder that is gone afterwards, and in turn with it the same without\n" +
			"a store: copy and fsync, plain reads, b3sum and jq where they are installed. A ratio below 1 is faster than that. The\n" +
			"fastest of the rounds counts. A ratio holds for this machine and its load; the disk is that of --dir.",
		Args: args(0, 0),
	}
	size := cmd.Flags().String("size", "64M", "bytes of each of the two files: a number, with K, M or G for powers of 1024")
	dir := cmd.Flags().String("dir", "", "make the folder in this one (default: where temporary files go)")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "how often each thing is done")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Size, err = parseSize("--size", *size); err != nil {
			return err
		}
		if o.Size < 1<<20 || o.Size > 1<<40 {
			return usage("--size: %s is not from 1M to 1024G", *size)
		}
		if o.Rounds < 1 || o.Rounds > 1000 {
			return usage("--rounds: %d is not a number from 1 to 1000", o.Rounds)
		}
		if o.Dir, err = os.MkdirTemp(*dir, "leafproof-bench-*"); err != nil {
			return err
		}
		w, figures := cmd.OutOrStdout(), []bench.Figure{}
		machine := fmt.Sprintf("leafproof %s, %s, %s/%s, %d cores", leafproof.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		if !*asJSON {
			fmt.Fprintf(w, "%s\n%-24s %12s %10s %8s\n", machine, "", "bytes", "s", "ratio")
		}
		err = bench.Run(cmd.Context(), o, func(f bench.Figure) error {
			if *asJSON {
				figures = append(figures, f)
				return nil
			}
			return printFigure(w, f)
		})
		if err := errors.Join(err, os.RemoveAll(o.Dir)); err != nil || !*asJSON {
			return err
		}
		return printJSON(w, struct {
			Machine string         `json:"machine"`
			Figures []bench.Figure `json:"figures"`
		}{machine, figures})
	}
	return cmd
}

func printFigure(w io.Writer, f bench.Figure) error {
	ratio, end := "", f.Note
	if f.Peer != "" {
		ratio = fmt.Sprintf("%.2f", f.Ratio)
		end = "× " + f.Peer
		if f.Note != "" {
			end += "; " + f.Note
		}
	}
	if end != "" {
		end = "  " + end
	}
	_, err := fmt.Fprintf(w, "%-24s %12d %10.4f %8s%s\n", f.Case, f.Bytes, f.Seconds, ratio, end)
	return err
}
