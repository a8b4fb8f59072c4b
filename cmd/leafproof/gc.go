package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
)

func gcCommand() *cobra.Command {
	var o leafproof.GCOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Delete what no artifact needs",
		Long: "Delete the bytes of artifacts that were deleted or have expired, of puts that were never published,\n" +
			"and what programs that died have left. It may run while others use the store, and on a full disk.",
		Args: args(0, 0),
	}
	cmd.Flags().DurationVar(&o.Patience, "patience", 10*time.Second,
		"how long to wait for a program that writes to the store and does not answer; what it has not published then is refused")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Patience <= 0 {
			return usage("gc: --patience must be more than 0")
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			r, err := s.GC(cmd.Context(), o)
			if r == nil {
				return err
			}
			if *asJSON {
				return errors.Join(printJSON(cmd.OutOrStdout(), r), err)
			}
			return errors.Join(writeGC(cmd.OutOrStdout(), r), err)
		})
	}
	return cmd
}

func writeGC(w io.Writer, r *leafproof.GCReport) error {
	_, err := fmt.Fprintf(w, "deleted    %d objects, %d bytes freed\nneeded     %d blobs and chunks\n", r.Deleted, r.Freed, r.Marked)
	for _, line := range []struct {
		n    int64
		what string
	}{
		{r.Rewritten, "packs were written anew without their holes"},
		{r.Leftovers, "of the deleted were unfinished, of programs that died"},
		{r.Ended, "programs had died while they wrote"},
		{r.Lost, "programs did not answer: what they have not published will be refused"},
	} {
		if line.n > 0 && err == nil {
			_, err = fmt.Fprintf(w, "           %d %s\n", line.n, line.what)
		}
	}
	for _, k := range r.Kept {
		if err == nil {
			_, err = fmt.Fprintf(w, "kept       %s\n", oneLine(k))
		}
	}
	return err
}
