// Command leafproof keeps tool results as immutable artifacts, reads and queries
// them, and hands out excerpts that anybody can verify offline.
//
// Run leafproof help for the commands. Answers go to stdout, one-line errors to
// stderr. Exit codes: 0 ok, 1 failed or I/O, 2 unverifiable or incomplete, 3
// verification mismatch or integrity failure, 4 refused by authority, 5 not
// found, 64 usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leafproof"
	"leafproof/internal/verifycmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes beside those of a verification.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUnproven = 2
	exitMismatch = 3
	exitRefused  = 4
	exitNotFound = 5
	exitUsage    = 64
)

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetIn(in)
	spoken := &spokenWriter{w: out}
	cmd.SetOut(out)
	if !isTerminal(out) { // a terminal must still be seen as one
		cmd.SetOut(spoken)
	}
	cmd.SetErr(errOut)
	ran, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := codeFor(err)
	var silent *exitError
	if errors.As(err, &silent) && silent.err == nil {
		return code
	}
	text := oneLine(err.Error())
	if ctx.Err() != nil { // by a signal
		text = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
	}
	fmt.Fprintf(errOut, "leafproof: %s\n", text)
	if hint := hintFor(ran, err); hint != "" {
		fmt.Fprintf(errOut, "leafproof: hint: %s\n", hint)
	}
	if asJSON, _ := ran.Flags().GetBool("json"); asJSON && !spoken.spoken {
		printJSON(out, failure{wire(err), code})
	}
	return code
}

// spokenWriter notes whether something was printed: a query that was interrupted
// prints an answer and fails.
type spokenWriter struct {
	w      io.Writer
	spoken bool
}

func (w *spokenWriter) Write(p []byte) (int, error) {
	w.spoken = w.spoken || len(p) > 0
	return w.w.Write(p)
}

// failure is what --json prints of an error.
type failure struct {
	Error *leafproof.Error `json:"error"`
	Exit  int              `json:"exit"`
}

// wire is an error in the form it has on every face.
func wire(err error) *leafproof.Error {
	if e, ok := errors.AsType[*leafproof.Error](err); ok {
		return e
	}
	e := &leafproof.Error{Code: leafproof.CodeInternal, Message: err.Error(), Action: leafproof.Stop}
	switch codeFor(err) {
	case exitUsage:
		e.Code, e.Action = leafproof.CodeSelectorInvalid, leafproof.FixCall
	case exitMismatch: // a file that is no proof
		e.Code = leafproof.CodeIntegrityFailed
	}
	return e
}

// oneLine makes one printable line of a message, which may quote what others wrote.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "leafproof",
		Short: "Keep tool results as immutable artifacts, and prove excerpts of them",
		Long: "Leafproof keeps the exact bytes of a tool's result under a BLAKE3 Merkle tree and a signed manifest.\n" +
			"Parts of it are read by range or query, and excerpts verify offline.\n\n" +
			"Exit codes: 0 ok, 1 failed or I/O, 2 unverifiable or incomplete, 3 mismatch or integrity failure,\n" +
			"4 refused by authority, 5 not found, 64 usage.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          rootArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("store", "", "the store's folder (default $LEAFPROOF_STORE, else ~/.local/share/leafproof)")
	root.SetFlagErrorFunc(badFlag)
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		initCommand(), putCommand(), lsCommand(), statCommand(), readCommand(), queryCommand(), rmCommand(), gcCommand(), logCommand(),
		verifyCommand(), tlogCommand(), witnessCommand(), sumCommand(), sliceCommand(), unsliceCommand(), demoCommand(), versionCommand(),
		checkCommand(), backupCommand(), copyCommand(), keyCommand(), policyCommand(),
		deriveCommand(), assessCommand(), nameCommand(), copyRegistryCommand(), auditCommand(), indexCommand(),
		serveCommand(), mcpCommand(), mcpProxyCommand(), hookCommand(), benchCommand(),
		refsCommand(), grantCommand(), revokeCommand(), grantsCommand(), restrictCommand(false), restrictCommand(true), principalCommand(),
	)
	root.InitDefaultCompletionCmd()
	completeGroups(root)
	return root
}

func codeFor(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	switch code := leafproof.CodeOf(err); code {
	case leafproof.CodeRefNotFound, leafproof.CodeArtifactExpired, leafproof.CodeArtifactDeleted:
		return exitNotFound
	case leafproof.CodeAccessRevoked, leafproof.CodeAuthorityUnavailable:
		return exitRefused
	case leafproof.CodeIntegrityFailed, leafproof.CodeRefAltered:
		return exitMismatch
	case leafproof.CodeScanIncomplete, leafproof.CodeBudgetExhausted, leafproof.CodeEvidence:
		return exitUnproven
	case leafproof.CodeRefMalformed, leafproof.CodeSelectorInvalid, leafproof.CodeNotRecords:
		return exitUsage
	default:
		if strings.HasPrefix(string(code), "cursor_") {
			return exitUsage
		}
	}
	return exitFailed
}

// storeDir is the folder of the store that a command works on.
func storeDir(cmd *cobra.Command) (string, error) {
	if dir, _ := cmd.Flags().GetString("store"); dir != "" {
		return dir, nil
	} else if cmd.Flags().Changed("store") {
		return "", usage("--store is given without a value")
	}
	if dir := os.Getenv("LEAFPROOF_STORE"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no --store, no LEAFPROOF_STORE, and %w", err)
	}
	return filepath.Join(home, ".local", "share", "leafproof"), nil
}

// withStore opens the store for f.
func withStore(cmd *cobra.Command, f func(s *leafproof.Store) error) error {
	dir, err := storeDir(cmd)
	if err != nil {
		return err
	}
	s, err := leafproof.Open(cmd.Context(), dir)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// printJSON prints one JSON value.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print one JSON value")
}

func initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a store, its keys and its trust policy",
		Args:  args(0, 0),
	}
	expires := cmd.Flags().StringArray("expires", nil, "after how long an artifact expires whose put says nothing of it, D or TENANT=D (may be repeated): 90m, 7d, 2w")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := storeDir(cmd)
		if err != nil {
			return err
		}
		opts, err := retention(*expires)
		if err != nil {
			return err
		}
		if err := leafproof.Init(cmd.Context(), dir, opts...); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]string{
				"store": dir, "policy": leafproof.PolicyPath(dir), "key": leafproof.PublicKeyPath(dir),
			})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "store   %s\npolicy  %s\nkey     %s\n",
			dir, leafproof.PolicyPath(dir), leafproof.PublicKeyPath(dir))
		return err
	}
	return cmd
}

// retention reads the values of --expires.
func retention(list []string) (opts []leafproof.InitOption, err error) {
	seen := map[string]bool{}
	for _, s := range list {
		tenant, text, ok := strings.Cut(s, "=")
		if !ok {
			tenant, text = "", s
		}
		d, err := parseDuration(text)
		switch {
		case err != nil:
			return nil, usage("--expires: %v", err)
		case ok && tenant == "", d < time.Second:
			return nil, usage("--expires: %q is not D or TENANT=D, with D at least a second", s)
		case seen[tenant]:
			return nil, usage("--expires: %q is given twice", tenant)
		}
		seen[tenant] = true
		opts = append(opts, leafproof.WithRetention(tenant, d))
	}
	return opts, nil
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version of the program and of its store format", Args: args(0, 0)}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]any{"version": leafproof.Version, "format": leafproof.FormatVersion})
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "leafproof %s, store format %d\n", leafproof.Version, leafproof.FormatVersion)
		return err
	}
	return cmd
}

func verifyCommand() *cobra.Command {
	var o verifycmd.Options
	var policies []string
	cmd := &cobra.Command{
		Use:   "verify FILE.proof",
		Short: "Verify a bundle, offline",
		Long: "Verify a bundle against a trust policy: the one given, that of a key, or that of the store at hand.\n" +
			"Nothing is fetched. Exit 0: all holds; 2: something cannot be judged; 3: a MISMATCH, or no bundle.",
		Args: func(cmd *cobra.Command, a []string) error {
			if o.Howto {
				return args(0, 1)(cmd, a)
			}
			return args(1, 1)(cmd, a)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&policies, "policy", nil, "the trust.policy that says whose word counts")
	f.StringArrayVar(&o.Keys, "key", nil, "an ad-hoc policy: this public key, an OpenSSH line or a PEM file (may be repeated)")
	f.StringVarP(&o.Out, "out", "o", "", "write the verified bytes to this file")
	f.StringVar(&o.At, "at", "", "judge expiry and keys as of this RFC 3339 time")
	f.StringArrayVar(&o.RequireProven, "require-proven", nil, "a fact that must be proven, not attested (may be repeated)")
	f.BoolVar(&o.RequireCurrent, "require-current", false, "an expired or superseded artifact is unverifiable")
	f.StringVar(&o.ExpectArtifact, "expect-artifact", "", "the bundle must be about the artifact with this id")
	f.StringVar(&o.ExpectBytes, "expect-bytes", "", "the claim must be these bytes A:B")
	f.StringVar(&o.ExpectRecords, "expect-records", "", "the claim must be these records A:B")
	f.StringVar(&o.ExpectWhere, "expect-where", "", "the claim must be the answer to this condition")
	f.Int64Var(&o.ExpectLimit, "expect-limit", 0, "with --expect-where: cut at this many records (default: not cut)")
	f.StringArrayVar(&o.ExpectOrder, "expect-order", nil, "with --expect-where: in the order of the value at P, or P:desc (may be repeated)")
	f.BoolVar(&o.ExpectCount, "expect-count", false, "with --expect-where: only how many records match (default: the records)")
	f.StringVar(&o.RebuildIndex, "rebuild-index", "", "build the index again from this file with the artifact's bytes, and compare")
	expectPointer := f.String("expect-pointer", "", "the claim must be the value at this JSON Pointer")
	f.StringArrayVar(&o.Later, "later", nil, "a signed statement (supersede or tombstone) that came to you later (may be repeated)")
	f.StringVar(&o.Checkpoints, "checkpoints", "", "remember the highest checkpoint of each log in this file, and demand consistency with it")
	f.StringVar(&o.Log, "log", "", "show consistency by the exported log in this folder (leafproof tlog export)")
	f.BoolVar(&o.Howto, "howto", false, "print how to check a bundle with other people's tools")
	f.BoolVar(&o.JSON, "json", false, "print one JSON value")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			o.File = args[0]
		}
		if len(policies) > 1 {
			return usage("--policy is given twice")
		}
		if len(policies) == 1 {
			o.Policy = policies[0]
		}
		var given []string
		cmd.Flags().Visit(func(f *pflag.Flag) { given = append(given, f.Name) })
		if err := o.Given(given...); err != nil {
			return usage("%v", err)
		}
		if cmd.Flags().Changed("expect-pointer") {
			o.ExpectPointer = expectPointer
		}
		if dir, err := storeDir(cmd); err == nil {
			o.DefaultPolicy = leafproof.PolicyPath(dir)
			if len(policies)+len(o.Keys) == 0 && !o.Howto {
				if err := leafproof.CheckPolicy(dir); err != nil {
					return err
				}
			}
		}
		o.Watch = func(r io.ReaderAt, size int64) (io.ReaderAt, func()) {
			bar := newProgress(cmd, o.File, 2*size) // it is read for line 1, and again for the claim
			return progressReaderAt{cmd.Context(), r, bar}, bar.stop
		}
		code, err := verifycmd.Run(o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if code == exitOK && err == nil {
			return nil
		}
		return &exitError{code, err}
	}
	return cmd
}
