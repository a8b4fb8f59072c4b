package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"leafproof"
)

func copyCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "copy --to STORE [ID…]",
		Short: "Bring artifacts to another store, with their manifests",
		Long: "Bring artifacts (all, if none is named) to another store: the same bytes, verified, the same manifest and the\n" +
			"same id. What is there already is passed over. The other store's trust.policy must admit this store's key.",
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
			type result struct {
				Copied   []string `json:"copied"`
				Resident []string `json:"resident"`
			}
			r := result{[]string{}, []string{}}
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
			}, ids...)
			bar.stop()
			if errors.Is(err, leafproof.ErrNotAdmitted) {
				return &exitError{exitRefused, err}
			}
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d artifacts copied, %d there already\n", len(r.Copied), len(r.Resident))
			return err
		})
	}
	return cmd
}
