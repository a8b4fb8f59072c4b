package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"leafproof"
)

func backupCommand() *cobra.Command {
	var (
		o    leafproof.BackupOptions
		rate string
	)
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Bring everything in the store to another folder, verified",
		Long: "Bring everything in the store to another folder: what is missing there, each object verified as it stands there.\n" +
			"Interrupt it and run it again as you like. DIR becomes a store's folder, without the private keys\n" +
			"unless --with-keys is given. Exit 3: objects of the store are damaged and were left out.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.BoolVar(&o.WithKeys, "with-keys", false, "copy the private keys too: whoever has the backup can then sign as the store")
	f.StringVar(&rate, "rate", "", "read at most this many bytes a second: a number, with K, M or G for powers of 1024")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := storeDir(cmd)
		if err != nil {
			return err
		}
		if o.BytesPerSecond, err = parseRate(rate); err != nil {
			return err
		}
		bar := newProgress(cmd, "backup", -1)
		o.Progress = bar.add
		r, err := leafproof.Backup(cmd.Context(), dir, args[0], o)
		bar.stop()
		if err != nil {
			return err
		}
		if *asJSON {
			if err := printJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		} else {
			for _, d := range r.Damaged {
				fmt.Fprintln(cmd.OutOrStdout(), findingLine(d))
			}
			keys := "without the private keys"
			if r.Keys {
				keys = "with the private keys"
			}
			if r.Runs > 0 {
				keys += fmt.Sprintf(", %d runs", r.Runs)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%d artifacts, %s; %d objects copied (%d bytes), %d there already\n",
				r.Artifacts, keys, r.Copied, r.Bytes, r.Resident); err != nil {
				return err
			}
		}
		if len(r.Damaged) > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "leafproof: hint: `leafproof check --deep` says which artifacts the damage reaches")
			return &exitError{exitMismatch, nil}
		}
		return nil
	}
	return cmd
}
