package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func copyCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "copy --to STORE [ID…]",
		Short: "Bring artifacts to another store, with their manifests",
		Long: "Bring artifacts (all, if none is named) to another store: the same bytes, verified, the same manifest and the\n" +
			"same id. An index that is damaged here is built again. What is there already is passed over. The other store's trust.policy must admit this store's key.",
		Args: args(0, -1),
	}
	cmd.Flags().StringVar(&to, "to", "", "the other store's folder")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if to == "" {
			return usage("copy: --to STORE says where to")
		}
		return withStore(cmd, func(s *leafproof.Store) (err error) {
			other, err := leafproof.Open(cmd.Context(), to)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, other.Close()) }()
			type without struct {
				ArtifactID string `json:"artifact_id"`
				Index      string `json:"index"`
				Reason     string `json:"reason"`
			}
			type result struct {
				Copied   []string  `json:"copied"`
				Resident []string  `json:"resident"`
				Without  []without `json:"without"`
			}
			r := result{[]string{}, []string{}, []without{}}
			bar := newProgress(cmd, "copy", -1)
			err = s.CopyTo(cmd.Context(), leafproof.Owner, other, leafproof.CopyOptions{
				Progress: bar.add,
				Done: func(id string, copied bool) {
					if copied {
						r.Copied = append(r.Copied, id)
					} else {
						r.Resident = append(r.Resident, id)
					}
				},
				Without: func(id, path string, err error) { r.Without = append(r.Without, without{id, path, err.Error()}) },
			}, ids...)
			bar.stop()
			if errors.Is(err, leafproof.ErrNotAdmitted) {
				return &exitError{exitRefused, err}
			}
			if err != nil {
				return err
			}
			if *asJSON {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d artifacts copied, %d there already\n", len(r.Copied), len(r.Resident))
			}
			if n := len(r.Without); err == nil && n > 0 {
				first := r.Without[0]
				return &exitError{exitMismatch, fmt.Errorf("copied without %d of the indexes: %s: %s: %s", n, first.ArtifactID, manifest.Printable(first.Index), first.Reason)}
			}
			return err
		})
	}
	return cmd
}
