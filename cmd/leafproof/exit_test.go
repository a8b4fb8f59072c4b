package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"leafproof"
)

// TestEveryCommandHasJSON: each command that ends with an answer gives it as one
// JSON value, too. The others speak a protocol of their own.
func TestEveryCommandHasJSON(t *testing.T) {
	without := []string{"leafproof mcp", "leafproof mcp-proxy", "leafproof hook claude-code"}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub)
			}
		}
		if !c.HasSubCommands() && c.Flags().Lookup("json") == nil != slices.Contains(without, c.CommandPath()) {
			t.Errorf("%s: has --json: %v", c.CommandPath(), c.Flags().Lookup("json") != nil)
		}
	}
	walk(newRoot())
}

// TestExitOfCode holds the exit code of every code that the store answers with.
func TestExitOfCode(t *testing.T) {
	want := map[int][]leafproof.Code{
		exitNotFound: {"ref_not_found", "artifact_expired", "artifact_deleted"},
		exitRefused:  {"access_revoked", "authority_unavailable"},
		exitMismatch: {"integrity_failed", "ref_altered"},
		exitUnproven: {"scan_incomplete", "budget_exhausted", "evidence_insufficient"},
		exitUsage: {
			"ref_malformed", "selector_invalid", "not_records", "cursor_malformed", "cursor_forged", "cursor_expired",
			"cursor_query_mismatch", "cursor_snapshot_mismatch", "cursor_scope_mismatch",
		},
		exitFailed: {
			"ref_unknown_type", "ref_legacy_shape", "ref_stringified", "ref_depth", "ref_derivation_forbidden", "ref_stale_path",
			"ref_ambiguous_turn", "ref_type_mismatch", "kernel_generation_gone", "too_large", "store_full", "name_conflict", "internal",
		},
	}
	for code, names := range want {
		for _, name := range names {
			if got := codeFor(fmt.Errorf("a command: %w", &leafproof.Error{Code: name, Message: "it failed"})); got != code {
				t.Errorf("%s: exit %d, want %d", name, got, code)
			}
		}
	}
}
