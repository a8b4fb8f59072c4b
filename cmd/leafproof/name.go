package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"leafproof"
)

func nameCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "name set|get",
		Short: "Point a name to an artifact, or look up what it points to",
		Long: "A name points to one artifact at a time, in versions 1, 2, 3…; none is ever changed or removed.\n" +
			"No other command takes a name: look it up, and use the id, which never means another artifact.",
		Args: args(0, 0),
	}
	cmd.AddCommand(nameSetCommand(), nameGetCommand())
	return cmd
}

func nameSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME ID",
		Short: "Let a name point to an artifact, and print the id and the version",
		Long: "Let a name point to an artifact from now on, and print the id and the new version.\n" +
			"With --if-seq, only if the name has that version (0: it has none yet); else nothing is changed, and the exit code is 1.",
		Args: args(2, 2),
	}
	tenant := cmd.Flags().String("tenant", "", "the tenant whose name it is (default local)")
	ifSeq := cmd.Flags().Int64("if-seq", 0, "the version that the name must have")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := int64(leafproof.AnySeq)
		if cmd.Flags().Changed("if-seq") {
			if want = *ifSeq; want < 0 {
				return usage("--if-seq: %d is no version: 0 is none, 1 the first", want)
			}
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			n, err := s.SetName(cmd.Context(), caller(cmd), *tenant, args[0], args[1], want)
			if err != nil {
				return err
			}
			return printName(cmd, n, *asJSON)
		})
	}
	return cmd
}

func nameGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print the id of the artifact that a name points to, and the version",
		Args:  args(1, 1),
	}
	tenant := cmd.Flags().String("tenant", "", "the tenant whose name it is (default local)")
	seq := cmd.Flags().Int64("seq", 0, "that version, in place of the last")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("seq") && *seq < 1 {
			return usage("--seq: %d is no version: 1 is the first", *seq)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			n, err := s.Name(cmd.Context(), caller(cmd), *tenant, args[0], *seq)
			if err != nil {
				return err
			}
			return printName(cmd, n, *asJSON)
		})
	}
	return cmd
}

func printName(cmd *cobra.Command, n leafproof.NameVersion, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), n)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %d\n", n.ArtifactID, n.Seq)
	return err
}
