package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/internal/verifycmd"
	"leafproof/manifest"
	"leafproof/manifest/tlog"
)

func tlogCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tlog",
		Short: "Show, check and export the commit log",
		Long: "The commit log has a leaf for everything that the store published; it only grows. Its checkpoints are signed by the\n" +
			"key of the role log, and show when a statement was there, and that it was never taken back.",
		Args: args(0, 0),
	}
	cmd.AddCommand(tlogShowCommand(), tlogCheckCommand(), tlogProveCommand(), tlogExportCommand(), tlogRequestCommand(), tlogCosignedCommand())
	return cmd
}

// logError chooses the exit code of what went wrong with a log.
func logError(err error) error {
	for _, e := range []struct {
		is   error
		code int
	}{
		{leafproof.ErrNoLog, exitNotFound},
		{tlog.ErrFork, exitMismatch},
		{tlog.ErrSignature, exitMismatch},
		{tlog.ErrInclusion, exitMismatch},
		{tlog.ErrRollback, exitUnproven},
		{tlog.ErrConsistency, exitUnproven},
		{tlog.ErrUnsigned, exitUnproven},
		{tlog.ErrUnknownLog, exitUnproven},
		{tlog.ErrStale, exitUnproven},
		{tlog.ErrQuorum, exitUnproven},
		{tlog.ErrMalformed, exitUsage},
		{tlog.ErrTooLarge, exitUsage},
		{tlog.ErrOrigin, exitUsage},
		{manifest.ErrKey, exitUsage},
		{manifest.ErrName, exitUsage},
	} {
		if errors.Is(err, e.is) {
			return &exitError{e.code, err}
		}
	}
	return err
}

// logShown is what tlog show --json prints.
type logShown struct {
	Origin     string      `json:"origin"`
	Size       int64       `json:"size"`
	Root       string      `json:"root"`
	Checkpoint string      `json:"checkpoint"`
	Leaves     []leafShown `json:"leaves,omitempty"`
}

type leafShown struct {
	Index  int64  `json:"index"`
	Kind   string `json:"kind"`
	Digest string `json:"digest"`
}

func tlogShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the newest checkpoint",
		Long:  "Print the newest checkpoint, in the form of C2SP tlog-checkpoint. With --leaves, the leaves instead: number, kind and digest.",
		Args:  args(0, 0),
	}
	leaves := cmd.Flags().Bool("leaves", false, "print the leaves, one a line")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			head, err := s.LogHead(cmd.Context())
			if err != nil && (!*leaves || !errors.Is(err, leafproof.ErrNoLog)) {
				return logError(err)
			}
			w := cmd.OutOrStdout()
			shown := logShown{Origin: head.Origin, Size: head.Size, Root: head.Root.String(), Checkpoint: head.String()}
			if !*leaves && !*asJSON {
				_, err := io.WriteString(w, head.String())
				return err
			}
			for from := int64(0); *leaves; {
				list, err := s.LogLeaves(cmd.Context(), from, 10_000)
				if err != nil {
					return err
				}
				for _, l := range list {
					if from = l.Index + 1; *asJSON {
						shown.Leaves = append(shown.Leaves, leafShown{l.Index, l.Kind, l.Digest.String()})
					} else if _, err := fmt.Fprintf(w, "%d\t%s\t%s\n", l.Index, l.Kind, l.Digest); err != nil {
						return err
					}
				}
				if len(list) < 10_000 {
					break
				}
			}
			if *asJSON {
				return printJSON(w, shown)
			}
			return nil
		})
	}
	return cmd
}

func tlogCheckCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the log, and that it has grown from what you saw before",
		Long: "Check that every checkpoint has the root of the leaves before it and that nothing committed is gone. With\n" +
			"--checkpoints, compare its newest checkpoint with the highest that the file has, demand consistency, and remember it.\n\n" +
			"Exit 2: the log is shorter than it was, or consistency is not shown; 3: it is damaged, or has two histories.",
		Args: args(0, 0),
	}
	cmd.Flags().StringVar(&file, "checkpoints", "", "the file that remembers the highest checkpoint of each log")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			report, err := s.CheckLog(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if len(report.Findings) > 0 {
				return errors.Join(showFindings(w, report.Findings, *asJSON), &exitError{exitMismatch, nil})
			}
			head, err := s.LogHead(cmd.Context())
			if err != nil {
				return logError(err)
			}
			if err := tlog.Admit(head, s.Policy()); err != nil {
				return logError(err)
			}
			if file != "" {
				if err := seen(file, head, s.LogProver(cmd.Context())); err != nil {
					return logError(err)
				}
			}
			if *asJSON {
				return printJSON(w, logChecked{head.Origin, head.Size, head.Root.String(), []leafproof.CheckFinding{}})
			}
			_, err = fmt.Fprintf(w, "%s: %d leaves, nothing is amiss\n", head.Origin, head.Size)
			return err
		})
	}
	return cmd
}

// logChecked is what tlog check --json prints: with findings nothing but these.
type logChecked struct {
	Origin   string                   `json:"origin,omitempty"`
	Size     int64                    `json:"size,omitempty"`
	Root     string                   `json:"root,omitempty"`
	Findings []leafproof.CheckFinding `json:"findings"`
}

func showFindings(w io.Writer, list []leafproof.CheckFinding, asJSON bool) error {
	if asJSON {
		return printJSON(w, logChecked{Findings: list})
	}
	for _, f := range list {
		fmt.Fprintf(w, "%s: %s\n", f.Fault, manifest.Printable(f.Detail))
	}
	return nil
}

// seen holds the newest checkpoint of a log to what a file remembers.
func seen(file string, head tlog.Checkpoint, prove tlog.Prover) error {
	var err error
	bad := verifycmd.Remember(file, func(m *tlog.Memory) { err = m.SeeHead(head, prove) })
	if errors.Is(err, tlog.ErrFork) || errors.Is(err, tlog.ErrRollback) {
		err = fmt.Errorf("%w; both checkpoints are in %s", err, file)
	}
	return errors.Join(err, bad)
}

func tlogProveCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "prove ID",
		Short: "Print the proof that an artifact's manifest was committed",
		Long:  "Print the proof that the manifest of an artifact is in the log, in the form of C2SP tlog-proof.",
		Args:  args(1, 1),
	}
	cmd.Flags().StringVarP(&out, "out", "o", "-", "write it to this file")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			p, err := s.LogProof(cmd.Context(), leafproof.Owner, a[0])
			if err != nil {
				return logError(err)
			}
			if *asJSON {
				return outfile.Write(out, cmd.OutOrStdout(), func(w io.Writer) error {
					return printJSON(w, struct {
						ArtifactID string `json:"artifact_id"`
						Proof      string `json:"proof"`
					}{a[0], p.String()})
				})
			}
			return outfile.Write(out, cmd.OutOrStdout(), func(w io.Writer) error {
				_, err := io.WriteString(w, p.String())
				return err
			})
		})
	}
	return cmd
}

func tlogExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the log as static files",
		Long: "Write the log as the files of C2SP tlog-tiles, for readers and monitors. A folder with an earlier export is brought\n" +
			"up to date. It tells kinds and digests, and nothing of what was published.",
		Args: args(1, 1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			old, err := exported(s, cmd, a[0])
			if err != nil {
				return logError(err)
			}
			head, err := s.ExportLog(cmd.Context(), old, func(path string, data []byte) error {
				name := filepath.Join(a[0], filepath.FromSlash(path))
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					return err
				}
				return outfile.Write(name, io.Discard, func(w io.Writer) error {
					_, err := w.Write(data)
					return err
				})
			})
			if err != nil {
				return logError(err)
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), struct {
					Origin string `json:"origin"`
					Size   int64  `json:"size"`
					Root   string `json:"root"`
					New    int64  `json:"new"`
				}{head.Origin, head.Size, head.Root.String(), head.Size - old})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d leaves, %d new\n", head.Origin, head.Size, head.Size-old)
			return err
		})
	}
	return cmd
}

// exported is how many leaves the export in a folder has already.
func exported(s *leafproof.Store, cmd *cobra.Command, dir string) (int64, error) {
	tiles, err := verifycmd.OpenTiles(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	head, err := s.LogHead(cmd.Context())
	if err != nil {
		return 0, err
	}
	hashes, err := s.LogProver(cmd.Context())(tiles.Head, head)
	if err == nil {
		err = tlog.Consistent(tiles.Head, head, hashes)
	}
	if err != nil {
		return 0, fmt.Errorf("the export in %s: %w", dir, err)
	}
	return tiles.Head.Size, nil
}

func tlogRequestCommand() *cobra.Command {
	var old int64
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Ask a witness to cosign the newest checkpoint",
		Long: "Print a request to a witness, in the form of C2SP tlog-witness: the newest checkpoint, and the proof that it has grown\n" +
			"from the one that the witness cosigned last. Hand it to `leafproof witness cosign`, and what that prints to\n" +
			"`leafproof tlog cosigned`.",
		Args: args(0, 0),
	}
	cmd.Flags().Int64Var(&old, "old", 0, "the size that the witness cosigned last; it says so when this is wrong")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			r, err := s.WitnessRequest(cmd.Context(), old)
			if err != nil {
				return logError(err)
			}
			return printText(cmd, *asJSON, "request", r.String())
		})
	}
	return cmd
}

func tlogCosignedCommand() *cobra.Command {
	var size int64
	cmd := &cobra.Command{
		Use:   "cosigned FILE|-",
		Short: "Add the signatures of witnesses to a checkpoint",
		Long:  "Add what a witness answered to the checkpoint that it was asked for. Only witnesses that trust.policy names are taken.",
		Args:  args(1, 1),
	}
	cmd.Flags().Int64Var(&size, "size", 0, "the checkpoint's size; the newest without it")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		text, err := readInput(cmd, a[0], tlog.MaxCheckpoint)
		if err != nil {
			return err
		}
		sigs, err := tlog.ParseCosignatures(text)
		if err != nil {
			return logError(err)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			if size == 0 {
				head, err := s.LogHead(cmd.Context())
				if err != nil {
					return logError(err)
				}
				size = head.Size
			}
			c, err := s.Cosigned(cmd.Context(), size, sigs)
			if err != nil {
				return logError(err)
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), logShown{Origin: c.Origin, Size: c.Size, Root: c.Root.String(), Checkpoint: c.String()})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), c.String())
			return err
		})
	}
	return cmd
}

func witnessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Cosign the checkpoints of other stores' logs",
		Long: "A witness sees to it that a log shows everybody one history: it signs a checkpoint only when it has grown from the one\n" +
			"that it signed before, with the time. It needs no store; requests and answers are files.",
		Args: args(0, 0),
	}
	cmd.AddCommand(witnessInitCommand(), witnessTrustCommand(), witnessCosignCommand())
	return cmd
}

// printText prints a text as it is, or as the one member of a JSON object.
func printText(cmd *cobra.Command, asJSON bool, name, text string) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]string{name: text})
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

func witnessInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init DIR NAME",
		Short: "Make a witness",
		Long:  "Make the folder of a witness and print its key, as `leafproof policy add --witness NAME=KEY` takes it. NAME is as a URL without its scheme.",
		Args:  args(2, 2),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		key, err := leafproof.InitWitness(a[0], a[1])
		switch {
		case err != nil:
			return logError(err)
		case *asJSON:
			return printText(cmd, true, "key", key.String())
		}
		return printText(cmd, false, "", key.String()+"\n")
	}
	return cmd
}

func witnessTrustCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust DIR KEY",
		Short: "Cosign a log from now on",
		Long:  "Cosign the checkpoints of the log with this key, as the log line of its store's trust.policy has it.",
		Args:  args(2, 2),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		key, err := manifest.ParseVerifierKey(a[1])
		if err == nil {
			err = leafproof.TrustLog(a[0], key)
		}
		if err != nil || !*asJSON {
			return logError(err)
		}
		return printText(cmd, true, "log", key.String())
	}
	return cmd
}

func witnessCosignCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cosign DIR FILE|-",
		Short: "Answer a request",
		Long: "Answer a request that `leafproof tlog request` made: print the signature.\n\n" +
			"Exit 2: the log is not known, did not sign, or has not grown from where the request says; 3: it has two histories.",
		Args: args(2, 2),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, a []string) error {
		text, err := readInput(cmd, a[1], tlog.MaxRequest)
		if err != nil {
			return err
		}
		sig, err := leafproof.Cosign(a[0], text)
		if err != nil {
			return logError(err)
		}
		return printText(cmd, *asJSON, "signature", sig.String())
	}
	return cmd
}
