package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/manifest"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show and change whose word counts",
		Long: "Show and change the store's trust policy. Each change is a version of its own, signed by keys of the role\n" +
			"policy; every process that uses the store works under it from its next call on.\n\n" +
			"Exit 2: the version waits for more signatures.",
		Args: args(0, 0),
	}
	cmd.AddCommand(
		policyShowCommand(), policyAddCommand(), policyEndCommand("retire"), policyEndCommand("compromise"),
		policySignCommand(), policySignersCommand(),
	)
	return cmd
}

// policyUsage makes usage errors of what the call says wrong.
func policyUsage(err error) error {
	for _, is := range []error{
		manifest.ErrPolicy, manifest.ErrName, manifest.ErrKey, manifest.ErrTime, manifest.ErrMalformed, manifest.ErrTooLarge, manifest.ErrUnsupported,
	} {
		if errors.Is(err, is) && !errors.Is(err, leafproof.ErrPolicyFile) {
			return &exitError{exitUsage, err}
		}
	}
	switch {
	case errors.Is(err, manifest.ErrUnknownKey):
		return &exitError{exitNotFound, err}
	case errors.Is(err, manifest.ErrSignature):
		return &exitError{exitMismatch, err}
	case errors.Is(err, manifest.ErrRole):
		return &exitError{exitRefused, err}
	}
	return err
}

// waits is the exit code of a version that is not in force yet.
func waits(err error, c leafproof.PolicyChange) error {
	if err != nil || c.InForce {
		return err
	}
	return &exitError{exitUnproven, nil}
}

// change prints what became of a version.
func change(cmd *cobra.Command, asJSON bool, c leafproof.PolicyChange, err error) error {
	if err != nil {
		return policyUsage(err)
	}
	if asJSON {
		return waits(printJSON(cmd.OutOrStdout(), c), c)
	}
	return waits(writeChange(cmd.OutOrStdout(), c), c)
}

func writeChange(w io.Writer, c leafproof.PolicyChange) (err error) {
	if c.InForce {
		_, err = fmt.Fprintf(w, "version %d is in force, signed by %s\n", c.Version, signedBy(c.SignedBy))
		return err
	}
	_, err = fmt.Fprintf(w, "version %d waits in policy/next: %d of %d signatures\n", c.Version, len(c.SignedBy), c.Needed)
	for _, fp := range c.May {
		if err == nil && !slices.Contains(c.SignedBy, fp) {
			_, err = fmt.Fprintf(w, "may sign: %s\n", fp)
		}
	}
	return err
}

func signedBy(prints []string) string {
	if len(prints) == 0 {
		return "nobody"
	}
	return strings.Join(prints, ", ")
}

// policyShown is what policy show --json prints.
type policyShown struct {
	Name     string                    `json:"name"`
	Version  int64                     `json:"version"`
	Expires  *string                   `json:"expires"`
	Expired  bool                      `json:"expired"`
	Text     string                    `json:"text"`
	Versions []leafproof.PolicyVersion `json:"versions"`
	Waiting  *leafproof.PolicyChange   `json:"waiting"`
}

func policyShowCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the policy in force",
		Long:  "Print the policy in force, as it stands in trust.policy. With --check, say instead who signed which version.",
		Args:  args(0, 0),
	}
	cmd.Flags().BoolVar(&check, "check", false, "check every version's signatures, and say who signed it")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			st, err := s.PolicyStatus()
			if err != nil {
				return err
			}
			p := s.Policy()
			expired := p.Expired(time.Now())
			if *asJSON {
				shown := policyShown{
					Name: p.Name(), Version: p.Version(), Expired: expired != nil, Text: string(st.Text),
					Versions: append([]leafproof.PolicyVersion{}, st.Versions...), Waiting: st.Waiting,
				}
				if !p.Expires().IsZero() {
					shown.Expires = new(manifest.FormatTime(p.Expires()))
				}
				return printJSON(cmd.OutOrStdout(), shown)
			}
			w := cmd.OutOrStdout()
			if expired != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: warning: %v\n", expired)
			}
			if !check {
				_, err := w.Write(st.Text)
				return err
			}
			return writeVersions(w, p, st)
		})
	}
	return cmd
}

func writeVersions(w io.Writer, p *manifest.Policy, st *leafproof.PolicyStatus) error {
	for _, v := range st.Versions {
		if !p.HasSigners() && v.Version == p.Version() {
			continue // see below
		}
		note := ""
		if v.Root && len(v.SignedBy) > 0 {
			note = "; the signatures begin with it"
		}
		fmt.Fprintf(w, "version %d  signed by %s%s\n", v.Version, signedBy(v.SignedBy), note)
	}
	if !p.HasSigners() {
		fmt.Fprintf(w, "version %d  signed by nobody: the policy names no key of the role policy, and is edited by hand\n", p.Version())
	}
	if st.Waiting != nil {
		return writeChange(w, *st.Waiting)
	}
	return nil
}

func policyAddCommand() *cobra.Command {
	var f scopeFlags
	var key, name, log, witness, expires string
	var thresholds, groups []string
	var quorum string
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Admit a key, a log or a witness; set a threshold or the policy's end",
		Long: "Write and sign the next version of the policy, which in addition admits somebody else's public key, or a\n" +
			"log, or a witness, or demands a number of signatures, or ends at another time. (`key new` makes a key here.)",
		Args: args(0, 0),
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&key, "key", "", "the file of a public key, an OpenSSH line or a PEM block")
	flags.StringVar(&name, "name", "", "the key's name in the policy")
	flags.StringVar(&log, "log", "", "a log's key, ORIGIN+HASH+BASE64")
	flags.StringVar(&witness, "witness", "", "NAME=KEY of a witness")
	flags.StringArrayVar(&groups, "group", nil, "NAME=N:MEMBER,…: a group of which N witnesses must have cosigned a checkpoint (may be repeated)")
	flags.StringVar(&quorum, "quorum", "", "the witness or group that must have cosigned a checkpoint before it counts, or none")
	flags.StringArrayVar(&thresholds, "threshold", nil, "ROLE=N: so many distinct keys must sign in the role (may be repeated)")
	flags.StringVar(&expires, "expires", "", "until when the policy holds: an RFC 3339 time, a duration from now (36h, 90d), or never")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		witnessed, err := quorumChanges(groups, quorum)
		if err != nil {
			return err
		}
		changes, err := addChanges(&f, key, name, log, witness, expires, thresholds, witnessed)
		if err != nil {
			return policyUsage(err)
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			c, err := s.ChangePolicy(cmd.Context(), changes...)
			return change(cmd, *asJSON, c, err)
		})
	}
	return cmd
}

// quorumChanges reads which witnesses policy add is to demand.
func quorumChanges(groups []string, quorum string) (changes []manifest.Change, err error) {
	for _, g := range groups {
		name, rest, _ := strings.Cut(g, "=")
		count, members, ok := strings.Cut(rest, ":")
		n, err := strconv.Atoi(count)
		if err != nil || !ok {
			return nil, usage("--group %q is not NAME=N:MEMBER,…", g)
		}
		changes = append(changes, manifest.AddGroup(manifest.Group{Name: name, Least: n, Members: strings.Split(members, ",")}))
	}
	if quorum != "" {
		changes = append(changes, manifest.DemandQuorum(quorum))
	}
	return changes, nil
}

// addChanges reads what policy add is to change.
func addChanges(f *scopeFlags, key, name, log, witness, expires string, thresholds []string, witnessed []manifest.Change) ([]manifest.Change, error) {
	var changes []manifest.Change
	if key != "" {
		k, err := f.key(key, name)
		if err != nil {
			return nil, err
		}
		changes = append(changes, manifest.AddKey(k))
	} else if name != "" || len(f.roles)+len(f.tenants)+len(f.sources) > 0 || f.notBefore != "" || f.notAfter != "" {
		return nil, usage("policy add: --name, --role, --tenant, --source, --not-before and --not-after go with --key")
	}
	if log != "" {
		v, err := manifest.ParseVerifierKey(log)
		if err != nil {
			return nil, err
		}
		changes = append(changes, manifest.AddLog(v))
	}
	if witness != "" {
		name, text, _ := strings.Cut(witness, "=")
		v, err := manifest.ParseVerifierKey(text)
		if err != nil {
			return nil, err
		}
		changes = append(changes, manifest.AddWitness(manifest.Witness{Name: name, Key: v}))
	}
	changes = append(changes, witnessed...)
	for _, t := range thresholds {
		role, text, _ := strings.Cut(t, "=")
		n, err := strconv.Atoi(text)
		if err != nil || !manifest.IsRole(role) {
			return nil, usage("--threshold %q is not ROLE=N", t)
		}
		changes = append(changes, manifest.Demand(role, n))
	}
	if expires != "" {
		t, err := expiry(expires)
		if err != nil {
			return nil, err
		}
		changes = append(changes, manifest.ExpireAt(t))
	}
	if len(changes) == 0 {
		return nil, usage("policy add: nothing to add; give --key FILE, --log, --witness, --threshold or --expires")
	}
	return changes, nil
}

// key reads somebody's public key and what it may say.
func (f *scopeFlags) key(file, name string) (k manifest.Key, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return k, err
	}
	k = manifest.Key{Name: name, Roles: f.roles, Tenants: f.tenants, Sources: f.sources}
	if k.Public, err = manifest.ParsePublicKey(text); err != nil {
		return k, fmt.Errorf("--key: %s: %w", file, err)
	}
	if name == "" {
		return k, usage("policy add: --key needs --name")
	}
	if len(k.Roles) == 0 {
		k.Roles = []string{manifest.RoleManifest}
	}
	k.NotBefore, k.NotAfter, err = f.times()
	return k, err
}

// expiry reads a time, a duration from now, or never.
func expiry(s string) (time.Time, error) {
	if s == "never" {
		return time.Time{}, nil
	}
	if d, err := parseDuration(s); err == nil {
		return time.Now().Add(d).UTC().Truncate(time.Second), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, usage("--expires: %q is neither a time like 2026-11-30T12:00:00Z, nor a duration like 36h or 90d, nor never", s)
	}
	return t.UTC(), nil
}

func policyEndCommand(verb string) *cobra.Command {
	var when string
	cmd := &cobra.Command{
		Use:   "retire FINGERPRINT",
		Short: "End the trust in a key: what is known to be older stays good",
		Long: "Write and sign a version of the policy that ends the trust in a key. What it signed stays good where a log, or\n" +
			"this store's catalogue, shows that it is older; elsewhere it is unverifiable.",
		Args: args(1, 1),
	}
	flag := "at"
	if verb == "compromise" {
		flag = "since"
		cmd.Use, cmd.Short = "compromise FINGERPRINT", "End the trust in a key that others may have: only what a witness saw before stays good"
		cmd.Long = "Write and sign a version of the policy that ends the trust in a key which others may have had since a time.\n" +
			"Of what it signed, only that stays good which a witness saw before then."
		cmd.Flags().StringVar(&when, flag, "", "the RFC 3339 time since which others may have had it (default: ever)")
	} else {
		cmd.Flags().StringVar(&when, flag, "", "the RFC 3339 time of its end (default: now)")
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		otherwise, end := time.Now().UTC().Truncate(time.Microsecond), manifest.Retire
		if verb == "compromise" {
			otherwise, end = time.Unix(0, 0).UTC(), manifest.Compromise
		}
		at, err := timeFlag(flag, when, otherwise)
		if err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			c, err := s.ChangePolicy(cmd.Context(), end(args[0], at))
			return change(cmd, *asJSON, c, err)
		})
	}
	return cmd
}

func policySignCommand() *cobra.Command {
	var signature string
	var drop bool
	cmd := &cobra.Command{
		Use:   "sign [FILE]",
		Short: "Sign the version that waits, or an edited policy as the next version",
		Long: "Add the signatures of the keys at hand to the version of the policy that waits, or with --signature one that\n" +
			"was made elsewhere, over a copy of the store's policy/next: ssh-keygen -Y sign -n policy@leafproof -f KEY COPY\n" +
			"FILE is a policy that was edited by hand; its version must be the next one.",
		Args: args(0, 1),
	}
	cmd.Flags().StringVar(&signature, "signature", "", "a file of SSH signatures over policy/next")
	cmd.Flags().BoolVar(&drop, "drop", false, "give up the version that waits")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var o leafproof.SignOptions
		var err error
		if drop && (signature != "" || len(args) > 0) {
			return usage("policy sign: --drop goes with nothing else")
		}
		if signature != "" {
			if o.Signature, err = readSmall(signature, manifest.MaxPolicySignatures); err != nil {
				return err
			}
		}
		if len(args) > 0 {
			if o.Text, err = readSmall(args[0], manifest.MaxPolicy); err != nil {
				return err
			}
		}
		o.Drop = drop
		return withStore(cmd, func(s *leafproof.Store) error {
			c, err := s.SignPolicy(cmd.Context(), o)
			if err == nil && drop {
				c.InForce = false
				if *asJSON {
					return printJSON(cmd.OutOrStdout(), c)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "version %d was given up\n", c.Version)
				return err
			}
			return change(cmd, *asJSON, c, err)
		})
	}
	return cmd
}

// readSmall reads a file of at most so many bytes; one byte more is passed on, for
// the parser to refuse.
func readSmall(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

func policySignersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export-allowed-signers",
		Short: "Print the policy as an allowed_signers file for ssh-keygen -Y verify",
		Args:  args(0, 0),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			text := s.Policy().AllowedSigners()
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"allowed_signers": text})
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		})
	}
	return cmd
}
