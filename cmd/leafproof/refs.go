package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

func refsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refs",
		Short: "Look at the references of a harness's transcripts",
		Args:  args(0, 0),
	}
	cmd.AddCommand(refsCheckCommand())
	return cmd
}

// refsWorst are the exit codes of the states of a reference, the worst first.
var refsWorst = []struct {
	state string
	code  int
}{
	{harness.Corrupt, exitMismatch},
	{harness.Revoked, exitRefused},
	{harness.Missing, exitNotFound},
	{harness.Deleted, exitNotFound},
	{harness.Expired, exitNotFound},
	{harness.Stale, exitFailed},
	{harness.Unreachable, exitFailed},
}

func refsCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check TRANSCRIPT",
		Short: "Say which references of a transcript are alive",
		Long: "Read a transcript (- is standard input), and print a line for each reference in it: where it stands, its state, and the\n" +
			"artifact behind it, all of whose bytes are verified. The states: alive, expired, deleted, revoked, missing, corrupt,\n" +
			"stale, unreachable. The exit code is that of the worst: 0 all are alive, 3 one is corrupt, 4 revoked, 5 missing, deleted or\n" +
			"expired, 1 stale or unreachable.",
		Args: args(1, 1),
	}
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		transcript, err := readTranscript(cmd, args[0])
		if err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			list, err := harness.CheckTranscript(cmd.Context(), s, caller(cmd), transcript)
			if err != nil {
				return err
			}
			if *asJSON {
				err = printJSON(cmd.OutOrStdout(), append([]harness.Checked{}, list...))
			} else {
				err = printChecked(cmd.OutOrStdout(), list)
			}
			if err != nil {
				return err
			}
			for _, w := range refsWorst {
				for _, c := range list {
					if c.State == w.state {
						return &exitError{code: w.code}
					}
				}
			}
			return nil
		})
	}
	return cmd
}

func readTranscript(cmd *cobra.Command, name string) (ref.Transcript, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	t, err := ref.ReadTranscript(bufio.NewReader(in))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, leafproof.Wire(err))
	}
	return t, nil
}

func printChecked(out io.Writer, list []harness.Checked) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range list {
		field := c.Field
		if field == "" {
			field = "."
		}
		fmt.Fprintf(w, "%d/%d\t%s\t%s\t%s\t%s", c.Seq, c.Part, oneLine(field), c.Kind, c.State, c.ArtifactID)
		if c.Reason != "" {
			fmt.Fprintf(w, "\t%s", oneLine(c.Reason))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
