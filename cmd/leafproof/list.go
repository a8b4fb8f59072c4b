package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/cidtext"
	"leafproof/manifest"
	"leafproof/selector"
)

// listPage is how many rows ls asks for at a time.
const listPage = 1000

func lsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the artifacts, oldest first", Args: args(0, 0)}
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			all, err := list(cmd, s)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), all)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, e := range all {
				source := "-"
				if e.SourceID != nil {
					source = *e.SourceID
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", e.ArtifactID, e.Size, e.CreatedAt.UTC().Format(time.RFC3339), e.Tenant, source)
			}
			return w.Flush()
		})
	}
	return cmd
}

// list returns every artifact of every tenant, oldest first.
func list(cmd *cobra.Command, s *leafproof.Store) ([]leafproof.Entry, error) {
	tenants, err := s.Tenants(cmd.Context(), caller(cmd))
	if err != nil {
		return nil, err
	}
	all := []leafproof.Entry{}
	for _, tenant := range tenants {
		for after := int64(0); ; {
			page, next, err := s.List(cmd.Context(), caller(cmd), tenant, after, listPage)
			if err != nil {
				return nil, err
			}
			if all = append(all, page...); next == 0 {
				break
			}
			after = next
		}
	}
	if len(tenants) == 1 {
		return all, nil // in order
	}
	slices.SortFunc(all, func(a, b leafproof.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, nil
}

// statFacts is what stat prints of an artifact.
type statFacts struct {
	Ref        manifest.ArtifactRef `json:"ref"`
	CID        string               `json:"cid"`
	ManifestID string               `json:"manifest_id"`
	Size       int64                `json:"size"`
	MediaType  string               `json:"media_type"`
	Records    *manifest.Records    `json:"records"`
	Indexes    []indexFacts         `json:"indexes"`
	IssuedAt   string               `json:"issued_at"`
	KeyID      string               `json:"key_id"`

	Also       map[string]string     `json:"also"`
	Schema     *manifest.SchemaCheck `json:"schema"`
	Lineage    manifest.Lineage      `json:"lineage"`
	Supersedes []manifest.Supersede  `json:"supersedes"`
	Issuer     *string               `json:"issuer"`

	SupersededBy  []selector.Successor `json:"superseded_by"`
	InputsDeleted []string             `json:"inputs_deleted"`
}

func statCommand() *cobra.Command {
	var refFile string
	cmd := &cobra.Command{
		Use:   "stat ID",
		Short: "Print an artifact's reference, CID and manifest facts",
		Long: "Print an artifact's reference, CID and manifest facts. With --ref, a reference that somebody holds is\n" +
			"compared with the signed one first: if anything was edited in it, the error is ref_altered and names the places.",
		Args: func(cmd *cobra.Command, a []string) error {
			if refFile != "" {
				return args(0, 0)(cmd, a)
			}
			return args(1, 1)(cmd, a)
		},
	}
	cmd.Flags().StringVar(&refFile, "ref", "", "instead of ID: a file (- is standard input) with an ArtifactRef as JSON")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		resolve := func(s *leafproof.Store) (*leafproof.Stat, error) {
			return s.Resolve(cmd.Context(), caller(cmd), args[0])
		}
		if refFile != "" {
			ref, err := readRef(cmd, refFile)
			if err != nil {
				return err
			}
			resolve = func(s *leafproof.Store) (*leafproof.Stat, error) {
				return s.ResolveRef(cmd.Context(), caller(cmd), ref)
			}
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			st, err := resolve(s)
			if err != nil {
				return err
			}
			p := st.Manifest.Predicate
			f := statFacts{
				Ref: st.Ref, CID: cidtext.Format(st.Manifest.Root), ManifestID: st.ManifestID, Size: p.Bytes.Size,
				MediaType: p.Bytes.MediaType, Records: p.Records, IssuedAt: p.IssuedAt, KeyID: p.Issuer.KeyID,
				Also: p.Bytes.Also, Schema: p.Schema, Lineage: p.Lineage, Supersedes: p.Supersedes, Issuer: p.Issuer.ID,
				SupersededBy: st.SupersededBy, InputsDeleted: st.InputsDeleted,
			}
			f.Indexes = []indexFacts{}
			for _, x := range st.Indexes {
				f.Indexes = append(f.Indexes, indexFactsOf(x))
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), f)
			}
			return printStat(cmd, f)
		})
	}
	return cmd
}

// readRef reads a reference that somebody holds.
func readRef(cmd *cobra.Command, name string) (manifest.ArtifactRef, error) {
	doc, err := readInput(cmd, name, manifest.MaxSize)
	if err != nil {
		return manifest.ArtifactRef{}, err
	}
	ref, err := manifest.ParseRef(doc)
	if err != nil {
		return ref, usage("%s is no ArtifactRef: %v", name, err)
	}
	return ref, nil
}

func printStat(cmd *cobra.Command, f statFacts) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	// What a producer wrote must not paint the reader's terminal.
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, manifest.Printable(fmt.Sprintf(format, args...)))
	}
	opt := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	r := f.Ref
	row("artifact", "%s", r.ArtifactID)
	row("content", "%s", r.ContentHash)
	row("cid", "%s", f.CID)
	row("size", "%d", f.Size)
	for _, name := range slices.Sorted(maps.Keys(f.Also)) {
		row(name, "%s", f.Also[name])
	}
	row("media type", "%s", f.MediaType)
	if f.Records != nil {
		at := ""
		if f.Records.Pointer != "" {
			at = " at " + f.Records.Pointer
		}
		row("records", "%d, %s%s", f.Records.Count, f.Records.Format, at)
		if n := f.Records.Flags.Undecidable; n > 0 {
			row("undecidable", "%d", n)
		}
	} else {
		row("records", "none")
	}
	for _, x := range f.Indexes {
		later := ""
		if x.Statement != nil {
			later = ", added by " + *x.Statement
		}
		row("index", "%s%s", indexText(x.Index), later)
	}
	row("schema", "%s", schemaText(r.SchemaVersion, f.Schema))
	row("source", "%s", opt(r.SourceVersion.SourceID))
	row("snapshot", "%s", opt(r.SourceVersion.SnapshotID))
	row("observed", "%s", opt(r.SourceVersion.ObservedAt))
	row("capture", "%s", r.Completeness.Status)
	for _, k := range slices.Sorted(maps.Keys(r.Completeness.Coverage)) {
		row("coverage", "%s = %s", k, coverageText(r.Completeness.Coverage[k]))
	}
	for _, o := range r.Completeness.Omissions {
		row("omitted", "%s", omissionText(o))
	}
	for _, o := range r.Completeness.Redactions {
		row("redacted", "%s", redactionText(o))
	}
	row("tenant", "%s", r.Scope.TenantID)
	row("run", "%s", opt(r.Scope.RunID))
	row("tool call", "%s", opt(r.ToolCallID))
	for _, line := range lineageTexts(f.Lineage) {
		row(line[0], "%s", line[1])
	}
	for _, old := range f.Supersedes {
		row("supersedes", "%s (%s)", old.ArtifactID, old.Kind)
	}
	for _, l := range f.SupersededBy {
		row("superseded by", "%s (%s)", l.ArtifactID, l.Kind)
	}
	for _, id := range f.InputsDeleted {
		row("deleted input", "%s", id)
	}
	row("created", "%s", r.CreatedAt)
	row("expires", "%s", opt(r.ExpiresAt))
	row("manifest", "%s", f.ManifestID)
	if f.Issuer != nil {
		row("issuer", "%s", *f.Issuer)
	}
	row("signed by", "%s", f.KeyID)
	return w.Flush()
}

func rmCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "End an artifact: it is answered with artifact_deleted from now on",
		Long:  "End an artifact. It is answered with artifact_deleted from now on; gc reclaims its bytes.",
		Args:  args(1, 1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever asks for it later")
	derived := cmd.Flags().Bool("cascade", false, "end what was derived from it too, as far as it may be deleted")
	asFlags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		end := func(s *leafproof.Store) error { return s.Delete(cmd.Context(), caller(cmd), args[0], reason) }
		err := withStore(cmd, end)
		if leafproof.CodeOf(err) == leafproof.CodeStoreFull { // it made room, which a store sees that is opened anew
			err = withStore(cmd, end)
		}
		if err != nil {
			return err
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			if *derived {
				if err := cascade(cmd, s, args[0]); err != nil {
					return err
				}
			}
			if !*asJSON {
				remaining(cmd, s, args[0])
			}
			st, err := s.Tombstone(cmd.Context(), caller(cmd), args[0])
			switch {
			case err != nil && (codeFor(err) == exitNotFound || codeFor(err) == exitRefused):
				// He may end it, and not see what is said about it.
			case err != nil:
				return err
			case st == nil:
				fmt.Fprintln(cmd.ErrOrStderr(), "leafproof: no tombstone was signed, since the store has no key for it: should the catalogue be lost, "+
					"the artifact may come back; `leafproof key new --role tombstone` makes a key")
			}
			if *asJSON {
				out := map[string]string{"artifact_id": args[0], "state": "deleted"}
				if st != nil {
					out["tombstone_id"] = st.ID
				}
				return printJSON(cmd.OutOrStdout(), out)
			}
			return nil
		})
	}
	return cmd
}

// coverageText is a string as it stands, and anything else as JSON.
func coverageText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := manifest.Canonical(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
