package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

func deriveCommand() *cobra.Command {
	var d leafproof.Derivation
	var picks []string
	cmd := &cobra.Command{
		Use:   "derive ID --where EXPR [--select P]…",
		Short: "Make a new artifact of the records that satisfy a condition, and print its reference",
		Long: "Make a new artifact of the records that satisfy a condition, with the old one as its input, and print its ArtifactRef\n" +
			"as JSON. It has its own id, hash and coverage; the old one stays what it is. EXPR is as with query.\n\n" +
			"P is a JSON Pointer into the record, or a JSONPath query; NAME=P names the member or column that it becomes, which is\n" +
			"else the last part of the pointer. JSON becomes NDJSON, CSV stays CSV, and lines stay lines.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&d.Where, "where", "", "the condition")
	f.StringArrayVar(&picks, "select", nil, "P or NAME=P: have the value there in place of the record; may be repeated")
	f.StringVar(&d.RunID, "run", "", "the run that makes it (default: that of the old one)")
	f.StringVar(&d.ToolCallID, "tool-call", "", "the id of the tool call that makes it")
	expires := f.String("expires", "", "how long it shall be available, at most as long as the old one: 90m, 36h, 7d, 2w, 1d12h")
	quiet := f.BoolP("quiet", "q", false, "print only the artifact id")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if d.Where == "" && len(picks) == 0 {
			return usage("derive: --where is missing; usage: %s", cmd.UseLine())
		}
		for _, p := range picks {
			d.Select = append(d.Select, parseColumn(p))
		}
		if cmd.Flags().Changed("expires") {
			if d.ExpiresIn, err = parseDuration(*expires); err != nil {
				return usage("--expires: %v", err)
			}
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			bar := outputProgress(cmd, args[0], -1)
			d.Progress = bar.add
			out, err := s.Derive(cmd.Context(), caller(cmd), args[0], d)
			bar.stop()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", out.Answer.Conclusion)
			return printDerived(cmd, out, *quiet, *asJSON)
		})
	}
	return cmd
}

// columnName is the NAME of NAME=P. No pointer and no query begins like that.
var columnName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*=`)

// parseColumn reads P or NAME=P.
func parseColumn(s string) leafproof.Column {
	if name := columnName.FindString(s); name != "" {
		return leafproof.Column{Name: strings.TrimSuffix(name, "="), Path: s[len(name):]}
	}
	return leafproof.Column{Path: s}
}

func printDerived(cmd *cobra.Command, d *leafproof.Derived, quiet, asJSON bool) error {
	switch {
	case quiet && asJSON:
		return printJSON(cmd.OutOrStdout(), d.Ref.ArtifactID)
	case quiet:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), d.Ref.ArtifactID)
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), struct {
			Ref    manifest.ArtifactRef `json:"ref"`
			Spec   json.RawMessage      `json:"spec"`
			Answer *selector.Answer     `json:"answer"`
		}{d.Ref, d.Spec, d.Answer})
	}
	return printJSON(cmd.OutOrStdout(), d.Ref)
}

// advise says on standard error what takes the place of what was asked for.
func advise(cmd *cobra.Command, id string, later []selector.Successor) {
	for i, l := range later {
		if i == 3 {
			fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: and by %d more\n", len(later)-i)
			return
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s was superseded by %s (%s) at %s; this is still %s\n", id, l.ArtifactID, l.Kind, l.At, id)
	}
}

// copies lists the inventory of an artifact.
func copies(cmd *cobra.Command, s *leafproof.Store, id string) ([]leafproof.Copy, error) {
	all := []leafproof.Copy{}
	for after := int64(0); ; {
		list, next, err := s.Copies(cmd.Context(), caller(cmd), id, after, listPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); next == 0 {
			return all, nil
		}
		after = next
	}
}

func copyText(c leafproof.Copy) string {
	text := c.Kind + " " + c.Propagation + ": " + c.Where + ", with " + c.Controller
	if c.Note != "" {
		text += " (" + c.Note + ")"
	}
	return text
}

func copyRegistryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copies add|mark",
		Short: "Say what copies were made of an artifact, and what became of them",
		Long: "Enter a copy that was made outside of the store into an artifact's inventory, which `leafproof log ID` lists, or say\n" +
			"what became of one. Deleting the artifact, and taking away the leave to have it, makes copies wait for whoever\n" +
			"controls them (pending); what was printed, exported or shown is out_of_control.",
		Args: args(0, 0),
	}
	cmd.AddCommand(copiesAddCommand(), copiesMarkCommand())
	return cmd
}

func copiesAddCommand() *cobra.Command {
	var c leafproof.Copy
	cmd := &cobra.Command{
		Use:   "add ID --kind KIND --where PLACE",
		Short: "Enter a copy, and print its id",
		Args:  args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&c.Kind, "kind", "", "what it is: "+strings.Join(leafproof.CopyKinds(), ", "))
	f.StringVar(&c.Where, "where", "", "where it is, in words")
	f.StringVar(&c.Controller, "controller", "", "who can end it (default: who asks)")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.Kind == "" || c.Where == "" {
			return usage("copies add: --kind and --where are needed; usage: %s", cmd.UseLine())
		}
		c.ArtifactID = args[0]
		return withStore(cmd, func(s *leafproof.Store) error {
			entered, err := s.RegisterCopy(cmd.Context(), caller(cmd), c)
			switch {
			case err != nil:
				return err
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), entered)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), entered.ID)
			return err
		})
	}
	return cmd
}

func copiesMarkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mark COPY pending|done|failed|out_of_control",
		Short: "Say what became of a copy",
		Args:  args(2, 2),
	}
	note := cmd.Flags().String("note", "", "what else is to be said")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			c, err := s.UpdateCopy(cmd.Context(), caller(cmd), args[0], args[1], *note)
			if err != nil || !*asJSON {
				return err
			}
			return printJSON(cmd.OutOrStdout(), c)
		})
	}
	return cmd
}

// cascade deletes what was derived from a deleted artifact.
func cascade(cmd *cobra.Command, s *leafproof.Store, id string) error {
	deleted, err := s.DeleteDerived(cmd.Context(), caller(cmd), id)
	for _, d := range deleted {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s was made from it, and is deleted too\n", d)
	}
	return err
}

// remaining says on standard error which copies of a deleted artifact are left.
func remaining(cmd *cobra.Command, s *leafproof.Store, id string) {
	list, err := copies(cmd, s, id)
	if err != nil {
		return // who may end it may not see what there is
	}
	count := map[string]int{}
	for _, c := range list {
		count[c.Propagation]++
	}
	if n := count[leafproof.PropagationPending] + count[leafproof.PropagationBeyond]; n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: copies that are left: %d pending, %d out of control; `leafproof log %s` lists them\n",
			count[leafproof.PropagationPending], count[leafproof.PropagationBeyond], id)
	}
}
