package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

// asFlags lets a command ask as somebody else than the owner.
func asFlags(cmd *cobra.Command) {
	cmd.Flags().String("as", "", "ask as this principal: only what its grants let it see is shown")
	cmd.Flags().String("purpose", "", "why it is asked for: a grant may be for one purpose, and the audit log has it")
}

// caller is who asks by a command with [asFlags].
func caller(cmd *cobra.Command) leafproof.Caller {
	who := leafproof.Owner
	if cmd.Flags().Changed("as") {
		as, _ := cmd.Flags().GetString("as")
		who.Principal = leafproof.Principal(as) // "" is nobody, who is refused everything
	}
	who.Purpose, _ = cmd.Flags().GetString("purpose")
	return who
}

func grantCommand() *cobra.Command {
	var expires, records string
	cmd := &cobra.Command{
		Use:   "grant PRINCIPAL ACTION PATTERN",
		Short: "Give a principal leave, and print the grant's id",
		Long: "Give a principal leave for one action (stat, read, query, count, prove, derive, grant or delete) on the artifacts of\n" +
			"PATTERN: tenant[/run[/artifact]], each part a name, the beginning of names with a * behind it, or *, which stands\n" +
			"for what is left out too. A principal that is not there is made, without a token: see principal.\n" +
			"With --as, somebody passes on what he holds himself; --purpose is then the purpose of the new grant all the same.",
		Args: args(3, 3),
	}
	f := cmd.Flags()
	f.String("as", "", "pass on what this principal holds and may grant")
	purpose := f.String("purpose", "", "the only purpose for which it may be used")
	f.StringVar(&expires, "expires", "", "how long it stands: 90m, 36h, 7d, 2w, 1d12h")
	f.StringVar(&records, "records", "", "the only records A:B that may be shown, from 0, half open; with read and prove")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		spec := leafproof.GrantSpec{Principal: leafproof.Principal(args[0]), Action: leafproof.Action(args[1]), Pattern: args[2], Purpose: *purpose}
		if cmd.Flags().Changed("expires") {
			d, err := parseDuration(expires)
			if err != nil {
				return usage("--expires: %v", err)
			}
			spec.NotAfter = time.Now().Add(d)
		}
		if cmd.Flags().Changed("records") {
			var err error
			if spec.Records, err = parseRange("--records", records); err != nil {
				return err
			}
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			g, err := s.Grant(cmd.Context(), caller(cmd), spec)
			switch {
			case err != nil:
				return err
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), g)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), g.ID)
			return err
		})
	}
	return cmd
}

func revokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke GRANT",
		Short: "Take leave back, with what rests on it",
		Long: "Take leave back, with the grants that rest on it. When it returns, no process shows anything more under it,\n" +
			"and what was being shown ends within 64 KiB or a second.",
		Args: args(1, 1),
	}
	cmd.Flags().String("as", "", "revoke what this principal gave")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			err := s.Revoke(cmd.Context(), caller(cmd), args[0])
			if err == nil && *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"grant": args[0], "state": "revoked"})
			}
			return err
		})
	}
	return cmd
}

// grantsShown is what grants --json prints.
type grantsShown struct {
	Grants       []leafproof.Grant       `json:"grants"`
	Restrictions []leafproof.Restriction `json:"restrictions"` // null for another than the owner, or with --principal
}

func grantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "List grants and restrictions: id, principal, action, pattern, state a line",
		Long: "List grants, oldest first, also those that ended, and the restrictions.\n" +
			"A line has the grant's id, its principal, action and pattern, its state (live, expired or revoked), and what narrows it.",
		Args: args(0, 0),
	}
	f := cmd.Flags()
	f.String("as", "", "ask as this principal: it sees its own")
	principal := f.String("principal", "", "those of this principal alone")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		who := caller(cmd)
		if cmd.Flags().Changed("as") && !cmd.Flags().Changed("principal") && who != leafproof.Owner {
			*principal = string(who.Principal)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			var out grantsShown
			var err error
			if out.Grants, err = s.Grants(cmd.Context(), who, leafproof.Principal(*principal)); err != nil {
				return err
			}
			if *principal == "" {
				if out.Restrictions, err = s.Restrictions(cmd.Context(), who); err != nil {
					return err
				}
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), out)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, g := range out.Grants {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", g.ID, g.Principal, g.Action, g.Pattern, grantState(g), manifest.Printable(grantBounds(g)))
			}
			for _, r := range out.Restrictions {
				fmt.Fprintf(w, "restricted\t*\t*\t%s\tlive\tby %s\n", r.Pattern, r.By)
			}
			return w.Flush()
		})
	}
	return cmd
}

func grantState(g leafproof.Grant) string {
	switch {
	case g.RevokedAt != nil:
		return "revoked"
	case g.NotAfter != nil && !time.Now().Before(*g.NotAfter):
		return "expired"
	}
	return "live"
}

// grantBounds says what narrows a grant.
func grantBounds(g leafproof.Grant) string {
	var parts []string
	if g.Records != nil {
		parts = append(parts, fmt.Sprintf("records %d:%d", g.Records[0], g.Records[1]))
	}
	if g.Purpose != "" {
		parts = append(parts, "for "+g.Purpose)
	}
	if g.NotAfter != nil {
		parts = append(parts, "until "+g.NotAfter.UTC().Format(time.RFC3339))
	}
	if g.Parent != "" {
		parts = append(parts, fmt.Sprintf("by %s, from %s", g.GrantedBy, g.Parent))
	}
	return strings.Join(parts, ", ")
}

func restrictCommand(lift bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restrict PATTERN",
		Short: "Deny everything about some artifacts, above every grant",
		Long: "Deny everything about the artifacts of PATTERN, to everybody, until unrestrict lifts it: nothing of them is shown, and\n" +
			"none of them is ended. The bytes stay.",
		Args: args(1, 1),
	}
	do := (*leafproof.Store).Restrict
	if lift {
		cmd.Use, cmd.Short, cmd.Long = "unrestrict PATTERN", "Lift a restriction, named by its whole pattern", ""
		do = (*leafproof.Store).Unrestrict
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			pattern, err := do(s, cmd.Context(), leafproof.Owner, args[0])
			if err == nil && *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"pattern": pattern, "restricted": !lift})
			}
			return err
		})
	}
	return cmd
}

func principalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "principal",
		Short: "Add, list and remove those who may be given leave",
		Args:  args(0, 0),
	}
	cmd.AddCommand(principalAdd(), principalList(), principalRemove())
	return cmd
}

func principalAdd() *cobra.Command {
	var tenant, run string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a principal, and print its bearer token",
		Long: "Add a principal of a tenant, and print its bearer token, which the store cannot tell again: it keeps a hash.\n" +
			"A principal never sees another tenant; with --run, no other run.",
		Args: args(1, 1),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "its tenant (default local)")
	cmd.Flags().StringVar(&run, "run", "", "its run")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("tenant") && tenant == "" {
			return usage("--tenant is given without a value")
		}
		var only *string
		if cmd.Flags().Changed("run") {
			only = &run
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			token, err := s.AddPrincipal(cmd.Context(), leafproof.Owner, leafproof.Principal(args[0]), tenant, only)
			switch {
			case err != nil:
				return err
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), map[string]string{"principal": args[0], "token": token})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		})
	}
	return cmd
}

func principalList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the principals: name, tenant, run, whether it has a token, since when", Args: args(0, 0)}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			list, err := s.Principals(cmd.Context(), leafproof.Owner)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, p := range list {
				run, token := "-", "no token"
				if p.Run != nil {
					run = *p.Run
				}
				if p.HasToken {
					token = "token"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Name, p.Tenant, run, token, p.CreatedAt.UTC().Format(time.RFC3339))
			}
			return w.Flush()
		})
	}
	return cmd
}

func principalRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a principal: its token lets nobody in, its grants are revoked",
		Args:  args(1, 1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			err := s.RemovePrincipal(cmd.Context(), leafproof.Owner, leafproof.Principal(args[0]))
			if err == nil && *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"principal": args[0], "state": "removed"})
			}
			return err
		})
	}
	return cmd
}
