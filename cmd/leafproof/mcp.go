package main

import (
	"errors"
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/httpapi"
	"leafproof/internal/mcpserver"
)

// tokenVariable holds the bearer token of the principal for whom mcp acts. It is not
// a flag: what is on a command line, every process of the machine can read.
const tokenVariable = "LEAFPROOF_TOKEN"

func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Show the store to a model: a server of the Model Context Protocol on standard input and output",
		Long: "Answer requests of the Model Context Protocol, one a line on standard input, until it ends. The tools artifact_put,\n" +
			"artifact_stat, artifact_read, artifact_query, artifact_verify and artifact_list show ids, formats, sizes, pages and what\n" +
			"an answer rests on, and no tenant, digest or path. `leafproof serve` has the same server at /mcp.\n\n" +
			"It acts for the store's owner; with --as for a principal, and with " + tokenVariable + " in the environment for whose\n" +
			"token that is: what they put belongs to their tenant, and what they see is what was granted to them.",
		Args: args(0, 0),
	}
	asFlags(cmd)
	tenant := cmd.Flags().String("tenant", "", "the tenant of what is put and listed (the owner may name one; default "+leafproof.DefaultTenant+")")
	run := cmd.Flags().String("run", "", "the run of what is put")
	timeout := cmd.Flags().Duration("timeout", mcpserver.DefaultTimeout, "how long one call may take; a query that takes longer is cut short, with what it found")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *timeout <= 0 {
			return usage("--timeout: %v is not a time that a call may take", *timeout)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			who, err := mcpIdentity(cmd, s, *tenant, *run)
			if err != nil {
				return err
			}
			o := mcpserver.Options{Log: slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil)), Timeout: *timeout}
			return mcpserver.Serve(cmd.Context(), s, who, o, cmd.InOrStdin(), cmd.OutOrStdout())
		})
	}
	return cmd
}

// mcpIdentity is for whom a command with [asFlags] acts, and what is put belongs to.
func mcpIdentity(cmd *cobra.Command, s *leafproof.Store, tenant, run string) (mcpserver.Identity, error) {
	who := mcpserver.Identity{Caller: caller(cmd), Tenant: tenant, Run: run}
	token := os.Getenv(tokenVariable)
	var info leafproof.PrincipalInfo
	var err error
	switch {
	case cmd.Flags().Changed("as"):
		if info, err = s.PrincipalNamed(cmd.Context(), who.Caller.Principal); errors.Is(err, leafproof.ErrToken) {
			return who, usage("--as: %q is no principal of this store; `leafproof principal list` lists them", who.Caller.Principal)
		}
	case token != "":
		if info, err = s.Authenticate(cmd.Context(), token); errors.Is(err, leafproof.ErrToken) {
			return who, &exitError{exitRefused, errors.New(tokenVariable + ": the token is nobody's")}
		}
		who.Caller.Principal = info.Name
	default:
		return who, nil
	}
	if err != nil {
		return who, err
	}
	if tenant != "" && tenant != info.Tenant {
		return who, usage("--tenant: the tenant of %s is another, and need not be said", info.Name)
	}
	if info.Run != nil && run != "" && run != *info.Run {
		return who, usage("--run: %s is bound to another run, which need not be said", info.Name)
	}
	who.Tenant = info.Tenant
	if info.Run != nil {
		who.Run = *info.Run
	}
	return who, nil
}

// mcpHandler is the server that serve has at /mcp. It acts for whoever asks.
func mcpHandler(s *leafproof.Store, log *slog.Logger) http.Handler {
	return mcpserver.Handler(s, func(r *http.Request) (mcpserver.Identity, error) {
		caller, ok := httpapi.CallerOf(r.Context())
		info, known := httpapi.PrincipalOf(r.Context())
		if !ok || !known {
			return mcpserver.Identity{}, leafproof.ErrToken
		}
		who := mcpserver.Identity{Caller: caller, Tenant: info.Tenant}
		if info.Run != nil {
			who.Run = *info.Run
		}
		return who, nil
	}, mcpserver.Options{Log: log})
}
