package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make, list and export the keys that a store signs with",
		Args:  args(0, 0),
	}
	cmd.AddCommand(keyNewCommand(), keyListCommand(), keyExportCommand())
	return cmd
}

// scopeFlags are those of a key's line in a policy.
type scopeFlags struct {
	roles, tenants, sources []string
	notBefore, notAfter     string
}

func (f *scopeFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.roles, "role", nil, "what it speaks as: manifest (default), index, receipt, supersede, tombstone, deletion, audit, admission, policy")
	flags.StringSliceVar(&f.tenants, "tenant", nil, "for these tenants only (patterns; default *)")
	flags.StringSliceVar(&f.sources, "source", nil, "for these source ids only (patterns; default *)")
	flags.StringVar(&f.notBefore, "not-before", "", "from this RFC 3339 time")
	flags.StringVar(&f.notAfter, "not-after", "", "until this RFC 3339 time")
}

// times reads the window.
func (f *scopeFlags) times() (from, to time.Time, err error) {
	if from, err = timeFlag("not-before", f.notBefore, time.Time{}); err == nil {
		to, err = timeFlag("not-after", f.notAfter, time.Time{})
	}
	return from, to, err
}

// timeFlag reads an RFC 3339 time; "" is the default.
func timeFlag(name, s string, otherwise time.Time) (time.Time, error) {
	if s == "" {
		return otherwise, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, usage("--%s: %q is not a time like 2026-11-30T12:00:00Z", name, s)
	}
	return t.UTC(), nil
}

func keyNewCommand() *cobra.Command {
	var f scopeFlags
	var name string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a key and admit it in the next version of the policy",
		Long: "Make a key in the store's folder and admit it: the next version of the policy is written and signed.\n" +
			"The store then signs with it, as with the newest key of a role. With --role log it is a log's.\n\n" +
			"Exit 2: the version waits for more signatures.",
		Args: args(0, 0),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&name, "name", "", "its name in the policy and of its file in keys/; of a log, the origin")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, to, err := f.times()
		if err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			k, err := s.NewKey(cmd.Context(), leafproof.NewKeyOptions{
				Roles: f.roles, Name: name, Tenants: f.tenants, Sources: f.sources, NotBefore: from, NotAfter: to,
			})
			if err != nil {
				return policyUsage(err)
			}
			if *asJSON {
				return waits(printJSON(cmd.OutOrStdout(), k), k.Policy)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "%s  %s  %s\n", strings.Join(k.Roles, ","), k.Fingerprint, k.File)
			if k.PolicyKey != "" {
				fmt.Fprintf(w, "made %s too: from now on it signs the versions of the policy\n", k.PolicyKey)
			}
			return waits(writeChange(w, k.Policy), k.Policy)
		})
	}
	return cmd
}

func keyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys of the policy: role, fingerprint, state, name, where the private half is",
		Args:  args(0, 0),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			list, err := s.Keys()
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, k := range list {
				held := k.Held
				if held == "" {
					held = "-"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.Role, k.Fingerprint, strings.ReplaceAll(k.State, " ", "-"), k.Name, held)
			}
			return w.Flush()
		})
	}
	return cmd
}

func keyExportCommand() *cobra.Command {
	var role, format string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the public half of the key that speaks in a role",
		Args:  args(0, 0),
	}
	cmd.Flags().StringVar(&role, "role", manifest.RoleManifest, "the role")
	cmd.Flags().StringVar(&format, "format", "ssh", "ssh (an OpenSSH line) or pem (SubjectPublicKeyInfo)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format != "ssh" && format != "pem" {
			return usage("key export: --format %q is neither ssh nor pem", format)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			k, err := s.PublicKey(role)
			if errors.Is(err, leafproof.ErrNoKey) && !manifest.IsRole(role) && role != manifest.RoleLog {
				return usage("--role: %q is not a role; `leafproof key list` lists those with a key", role)
			}
			if err != nil {
				return err
			}
			text := k.OpenSSHLine() + "\n"
			if format == "pem" {
				text = k.PEM()
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"role": role, "fingerprint": k.Fingerprint(), "format": format, "key": text})
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		})
	}
	return cmd
}
