package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func auditCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "audit ID",
		Short: "Build an artifact's record map and indexes again, and compare them with what was signed",
		Long: "Read all of an artifact, build its record map and its indexes again, and compare the roots with those that were\n" +
			"signed. The result is a signed statement, which the store keeps and `log` lists. Exit 0: all are the same; 3: one\n" +
			"differs. With -o the evidence of that is written: a bundle of all bytes. Whoever has it can check by himself:\n\n" +
			"  leafproof verify EVIDENCE.proof --policy trust.policy -o bytes\n" +
			"  leafproof verify EVIDENCE.proof --policy trust.policy --rebuild-index bytes",
		Args: args(1, 1),
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "where an index differs, write the evidence to this new file")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("out") && out == "" {
			return usage("--out is given without a value")
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			o := leafproof.AuditOptions{Tool: "leafproof " + leafproof.Version}
			if out != "" {
				o.Evidence = func() (io.WriteCloser, error) { return os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) }
			}
			a, err := s.Audit(cmd.Context(), caller(cmd), args[0], o)
			if err != nil {
				return err
			}
			if err := printAudit(cmd, a, *asJSON); err != nil {
				return err
			}
			if a.Differs {
				return &exitError{exitMismatch, fmt.Errorf("what was signed of %s is not what its bytes give", args[0])}
			}
			return nil
		})
	}
	return cmd
}

func printAudit(cmd *cobra.Command, a *leafproof.Audited, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"checked": a.Checked, "differs": a.Differs, "statement": a.Statement.ID})
	}
	for _, r := range a.Checked {
		what := r.Part
		if r.Path != nil {
			what += " " + manifest.Printable(*r.Path)
		}
		line := fmt.Sprintf("%-8s %s %s", r.Outcome, r.Claimed, what)
		if r.Claimed != r.Found {
			line += ", built again " + r.Found
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s says so, signed\n", a.Statement.ID)
	return err
}
