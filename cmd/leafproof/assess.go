package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func assessCommand() *cobra.Command {
	var need leafproof.Need
	var require, optional, actions []string
	cmd := &cobra.Command{
		Use:   "assess ID",
		Short: "Say whether an artifact serves as evidence: its identity, applicability and authority",
		Long: "Hold an artifact against what a task needs, and print three verdicts, which never make up for each other, the points\n" +
			"that are unmet, and a decision: admit or qualify (exit 0), defer (2), refuse (4; 3 where the identity fails).\n\n" +
			"K=V is a key of the coverage, as in region=eu-west, or one of capture, omissions, redactions, source, snapshot,\n" +
			"schema, tool, outcome, media_type, run, current, scan and admission; coverage.K=V is the coverage's in any case.\n" +
			"The age is the time since the source was observed, never since the artifact was made.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringArrayVar(&require, "require", nil, "K=V that must hold (may be repeated)")
	f.StringArrayVar(&optional, "optional", nil, "K=V whose lack is to be said (may be repeated)")
	maxAge := f.String("max-age", "", "how old the observation may be: 90m, 36h, 7d, 2w, 1d12h")
	asOf := f.String("as-of", "", "the state at this RFC 3339 time is wanted: nothing newer may stand in")
	f.StringArrayVar(&actions, "action", nil, "what is to be done with it, as in grant (default read; may be repeated)")
	f.BoolVar(&need.Deep, "deep", false, "read and verify every byte")
	refFile := f.String("ref", "", "a file (- is standard input) with the ArtifactRef that is presented: it must be what was signed")
	attempts := f.Int("attempts", 0, "how often to try again what may pass, within 30 seconds")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if need.Require, err = parseFacts("--require", require); err != nil {
			return err
		}
		if need.Optional, err = parseFacts("--optional", optional); err != nil {
			return err
		}
		if cmd.Flags().Changed("max-age") {
			if need.MaxAge, err = parseDuration(*maxAge); err != nil {
				return usage("--max-age: %v", err)
			}
		}
		if cmd.Flags().Changed("as-of") {
			if need.AsOf, err = time.Parse(time.RFC3339Nano, *asOf); err != nil {
				return usage("--as-of: %q is not a time like 2026-11-30T12:00:00Z", *asOf)
			}
		}
		for _, a := range actions {
			need.Actions = append(need.Actions, leafproof.Action(a))
		}
		if *attempts < 0 {
			return usage("--attempts: %d is not a number of attempts", *attempts)
		}
		if *attempts > 0 {
			need.Budget = leafproof.NewBudget(leafproof.BudgetLimits{Attempts: *attempts, Time: 30 * time.Second, Bytes: 1 << 40})
		}
		if cmd.Flags().Changed("ref") {
			ref, err := readRef(cmd, *refFile)
			if err != nil {
				return err
			}
			need.Ref = &ref
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			a, err := s.Assess(cmd.Context(), caller(cmd), args[0], need)
			if err != nil {
				return err
			}
			if *asJSON {
				err = printJSON(cmd.OutOrStdout(), a)
			} else {
				err = printAssessment(cmd, a)
			}
			if code := assessmentCode(a); err == nil && code != exitOK {
				return &exitError{code: code}
			}
			return err
		})
	}
	return cmd
}

func parseFacts(flag string, list []string) (out []leafproof.Fact, err error) {
	for _, s := range list {
		f, err := leafproof.ParseFact(s)
		if err != nil {
			return nil, usage("%s: %v", flag, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// assessmentCode is the exit code of a decision.
func assessmentCode(a *leafproof.Assessment) int {
	switch {
	case a.Identity.State == leafproof.Fails:
		return exitMismatch
	case a.Decision == leafproof.Refuse:
		return exitRefused
	case a.Decision == leafproof.Deferred:
		return exitUnproven
	}
	return exitOK
}

func printAssessment(cmd *cobra.Command, a *leafproof.Assessment) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, what, text string) { fmt.Fprintf(w, "%s\t%s\t%s\n", name, what, manifest.Printable(text)) }
	for _, v := range []struct {
		name string
		v    leafproof.Verdict
	}{{"identity", a.Identity}, {"applicability", a.Applicability}, {"authority", a.Authority}} {
		text := v.v.Reason
		if v.v.Code != "" {
			text = string(v.v.Code) + ": " + text
		}
		row(v.name, v.v.State, text)
	}
	for _, p := range a.Unmet {
		kind := "optional"
		if p.Required {
			kind = "required"
		}
		row("unmet", kind, p.What+": "+p.Found)
	}
	if a.AgeSeconds != nil {
		row("age", (time.Duration(*a.AgeSeconds) * time.Second).String(), "since it was observed")
	}
	for _, l := range a.SupersededBy {
		row("superseded", l.Kind, "by "+l.ArtifactID+" at "+l.At)
	}
	if r := a.Refetch; r != nil {
		row("refetch", map[bool]string{true: "allowed", false: "not allowed"}[r.Allowed], r.Reason)
	}
	row("decision", a.Decision, "")
	return w.Flush()
}
