package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"leafproof"
)

func checkCommand() *cobra.Command {
	var (
		o      leafproof.CheckOptions
		repair bool
		rate   string
	)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for damage in the store, and say which artifacts it reaches",
		Long: "Look for damage in the store, one line a finding, and say which bytes of which artifacts it reaches.\n" +
			"Exit 0: sound; 3: something that should be readable is not; 1: something could not be looked at.\n" +
			"Nothing is ever deleted, and nothing is taken for deleted because it is missing.",
		Args: args(0, 0),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Deep, "deep", false, "read and verify every byte")
	f.BoolVar(&repair, "repair", false, "mend what can be mended: outboards, packs, the catalogue (implies --deep; no other process may use the store)")
	f.BoolVar(&o.RebuildIndex, "rebuild-index", false, "first write the index over the packs anew")
	f.StringVar(&rate, "rate", "", "read at most this many bytes a second: a number, with K, M or G for powers of 1024")
	f.StringVar(&o.From, "from", "", "go on where an interrupted check said")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := storeDir(cmd)
		if err != nil {
			return err
		}
		if o.BytesPerSecond, err = parseRate(rate); err != nil {
			return err
		}
		bar := newProgress(cmd, "check", -1)
		o.Progress = bar.add
		run := leafproof.Check
		if repair {
			run = leafproof.Repair
		}
		report, err := run(cmd.Context(), dir, o)
		bar.stop()
		if report != nil {
			if printErr := printReport(cmd, report, *asJSON, err == nil); printErr != nil {
				return errors.Join(err, printErr)
			}
		}
		if err != nil {
			if report != nil && report.Position != "" && cmd.Context().Err() != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: hint: go on with --from %s\n", report.Position)
			}
			return err
		}
		return verdict(cmd, report, repair)
	}
	return cmd
}

// verdict turns a report into an exit code and a hint.
func verdict(cmd *cobra.Command, r *leafproof.CheckReport, repair bool) error {
	hint := func(s string) { fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: hint: %s\n", s) }
	switch {
	case r.Damaged():
		switch {
		case repair:
			hint("what is left cannot be mended from this store: put the same bytes again, or copy the artifact from a backup with `leafproof copy`")
		case !r.Deep:
			hint("`leafproof check --deep` finds all damage, `leafproof check --repair` mends what can be mended")
		default:
			hint("`leafproof check --repair` mends what can be mended; putting the same bytes again heals the rest")
		}
		return &exitError{exitMismatch, nil}
	case r.Unread():
		hint("what could not be read may be sound: see to the disk and the permissions, and check again")
		return &exitError{exitFailed, nil}
	}
	return nil
}

// parseRate reads bytes a second; 0 for "".
func parseRate(s string) (int64, error) { return parseSize("--rate", s) }

// parseSize reads a number of bytes; 0 for "".
func parseSize(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "KMGkmg")
	shift, ok := map[string]uint{"": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(s[len(digits):])]
	var n int64
	if _, err := fmt.Sscanf(digits, "%d", &n); err != nil || !ok || n <= 0 || n > 1<<33 || fmt.Sprint(n) != digits {
		return 0, usage("%s: %q is not a number of bytes like 500K, 20M or 1G", flag, s)
	}
	return n << shift, nil
}

func printReport(cmd *cobra.Command, r *leafproof.CheckReport, asJSON, ended bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	w := cmd.OutOrStdout()
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(w, findingLine(f)); err != nil {
			return err
		}
	}
	if r.Restored != nil {
		printRestored(w, r.Restored)
	}
	if !ended {
		return nil
	}
	depth := "not every byte was read"
	if r.Deep {
		depth = "every byte was read"
	}
	state := "sound"
	if r.Damaged() {
		state = "damaged"
	} else if r.Unread() {
		state = "not all of it could be read"
	}
	_, err := fmt.Fprintf(w, "%d artifacts, %d objects, %d unreferenced blobs; %s: %s\n", r.Artifacts, r.Objects, r.Unreferenced, depth, state)
	return err
}

// maxTouched is how many artifacts a line names; --json names all.
const maxTouched = 16

func findingLine(f leafproof.CheckFinding) string {
	var b strings.Builder
	kind := "note   "
	switch {
	case f.Damage && f.Repaired != "":
		kind = "mended "
	case f.Damage:
		kind = "damaged"
	}
	file := f.File
	if file == "" {
		file = "no file"
	}
	fmt.Fprintf(&b, "%s  %s  %s: %s", kind, file, f.Fault, f.Detail)
	if f.Repaired != "" {
		fmt.Fprintf(&b, "; repaired: %s", f.Repaired)
	}
	for i, t := range f.Touches {
		if i == maxTouched {
			fmt.Fprintf(&b, "; and %d more", len(f.Touches)-i)
			break
		}
		fmt.Fprintf(&b, "; touches %s %s", t.ArtifactID, t.Part)
		for j, r := range t.Ranges {
			if j == maxTouched {
				fmt.Fprintf(&b, ",…")
				break
			}
			sep := " "
			if j > 0 {
				sep = ","
			}
			fmt.Fprintf(&b, "%s%d:%d", sep, r[0], r[1])
		}
	}
	return oneLine(b.String()) // names of files are anybody's
}

func printRestored(w io.Writer, r *leafproof.RestoreReport) {
	fmt.Fprintf(w, "restored  %d artifacts, of which %d deleted; policy epoch %d\n", r.Artifacts, r.Deleted, r.Epoch)
	if r.Old != "" {
		fmt.Fprintf(w, "kept      the damaged catalogue as %s\n", r.Old)
	}
	for _, s := range r.Refused {
		fmt.Fprintf(w, "refused   %s\n", oneLine(s))
	}
	for _, id := range r.Unproven {
		fmt.Fprintf(w, "unproven  %s is listed on the word of the damaged catalogue: no manifest of it was found\n", id)
	}
	for _, s := range r.Unknown {
		fmt.Fprintf(w, "unknown   %s\n", s)
	}
}
