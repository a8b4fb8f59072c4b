package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/manifest"
	"leafproof/selector"
)

// receiptFile is where the signed receipt of an answer goes, if one is asked for.
type receiptFile struct {
	path string
	st   leafproof.Statement
}

// receiptFlag gives a command the flag --receipt.
func receiptFlag(cmd *cobra.Command) *receiptFile {
	r := &receiptFile{}
	cmd.Flags().StringVar(&r.path, "receipt", "", "write the signed receipt of the answer, a DSSE envelope, to this file")
	return r
}

// ask returns what the store fills; nil where no receipt is asked for.
func (r *receiptFile) ask(cmd *cobra.Command) (*leafproof.Statement, error) {
	switch {
	case !cmd.Flags().Changed("receipt"):
		return nil, nil
	case r.path == "" || r.path == "-":
		return nil, usage("--receipt takes the name of a file: standard output has the answer")
	}
	return &r.st, nil
}

// write writes the receipt, if there is one: an answer that failed may have none.
func (r *receiptFile) write(cmd *cobra.Command) error {
	if r.st.ID == "" || r.path == "" {
		return nil
	}
	err := outfile.Write(r.path, cmd.OutOrStdout(), func(w io.Writer) error {
		_, err := w.Write(r.st.Bytes)
		return err
	})
	if err == nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s is the receipt %s\n", r.path, r.st.ID)
	}
	return err
}

// said is what log prints of a statement.
type said struct {
	leafproof.Statement
	Digest   string `json:"digest"` // BLAKE3 of the payload
	IssuedAt string `json:"issued_at"`
	KeyID    string `json:"key_id"`
}

func logCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log ID",
		Short: "List an artifact's lineage, what takes its place, what was signed about it, and its copies",
		Long: "List what an artifact was made from and supersedes, what takes its place, receipts of reads and queries, the tombstone\n" +
			"and the deletions, and the copies that there are, oldest first. All but the lineage outlives the artifact.\n" +
			"With --envelope, print one of them as it was signed, a DSSE envelope.",
		Args: args(1, 1),
	}
	asFlags(cmd)
	envelope := cmd.Flags().String("envelope", "", "print the envelope of the statement with this id")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withStore(cmd, func(s *leafproof.Store) error {
			list, err := statements(cmd, s, args[0])
			switch {
			case err != nil:
				return err
			case cmd.Flags().Changed("envelope"):
				return printEnvelope(cmd, list, *envelope)
			}
			h, err := historyOf(cmd, s, args[0], list)
			switch {
			case err != nil:
				return err
			case *asJSON:
				return printJSON(cmd.OutOrStdout(), h)
			}
			return h.print(cmd, list)
		})
	}
	return cmd
}

// history is what log prints of an artifact.
type history struct {
	ArtifactID    string               `json:"artifact_id"`
	Lineage       *manifest.Lineage    `json:"lineage"` // null where the artifact cannot be had any more
	Supersedes    []manifest.Supersede `json:"supersedes"`
	SupersededBy  []selector.Successor `json:"superseded_by"`
	InputsDeleted []string             `json:"inputs_deleted"`
	Statements    []said               `json:"statements"`
	Copies        []leafproof.Copy     `json:"copies"`
}

func historyOf(cmd *cobra.Command, s *leafproof.Store, id string, list []*leafproof.Statement) (*history, error) {
	h := &history{ArtifactID: id, Statements: make([]said, len(list))}
	for i, st := range list {
		head := st.Statement.Body.About()
		h.Statements[i] = said{*st, st.Digest.String(), head.IssuedAt, head.Issuer.KeyID}
	}
	switch st, err := s.Resolve(cmd.Context(), caller(cmd), id); leafproof.CodeOf(err) {
	case leafproof.CodeArtifactDeleted, leafproof.CodeArtifactExpired, leafproof.CodeIntegrityFailed:
	default:
		if err != nil {
			return nil, err
		}
		p := st.Manifest.Predicate
		h.Lineage, h.Supersedes, h.SupersededBy, h.InputsDeleted = &p.Lineage, p.Supersedes, st.SupersededBy, st.InputsDeleted
	}
	var err error
	h.Copies, err = copies(cmd, s, id)
	return h, err
}

func (h *history) print(cmd *cobra.Command, list []*leafproof.Statement) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(id, at, kind, text string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", id, at, kind, manifest.Printable(text))
	}
	if h.Lineage != nil {
		for _, in := range h.Lineage.Inputs {
			text := in.Role
			if slices.Contains(h.InputsDeleted, in.ArtifactID) {
				text += ", deleted"
			}
			row(in.ArtifactID, "-", "input", text)
		}
	}
	for _, old := range h.Supersedes {
		row(old.ArtifactID, "-", "supersedes", old.Kind)
	}
	for _, l := range h.SupersededBy {
		row(l.ArtifactID, l.At, "superseded-by", l.Kind)
	}
	for _, st := range list {
		kind := strings.TrimPrefix(st.Kind, "urn:x-leafproof:")
		row(st.ID, st.Statement.Body.About().IssuedAt, kind, summary(st.Statement.Body))
	}
	for _, c := range h.Copies {
		row(c.ID, manifest.FormatTime(c.MadeAt), "copy", copyText(c))
	}
	return w.Flush()
}

func statements(cmd *cobra.Command, s *leafproof.Store, id string) (all []*leafproof.Statement, err error) {
	for after := int64(0); ; {
		list, next, err := s.Statements(cmd.Context(), caller(cmd), id, after, listPage)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); next == 0 {
			return all, nil
		}
		after = next
	}
}

func printEnvelope(cmd *cobra.Command, list []*leafproof.Statement, id string) error {
	for _, st := range list {
		if st.ID == id {
			_, err := cmd.OutOrStdout().Write(st.Bytes)
			return err
		}
	}
	return &exitError{exitNotFound, fmt.Errorf("%s: no such statement about this artifact", id)}
}

// summary says in a line what a statement says.
func summary(b manifest.Body) string {
	switch b := b.(type) {
	case *manifest.Receipt:
		return b.String()
	case *manifest.Tombstone:
		if b.Reason != nil {
			return "by " + b.RequestedBy + ": " + *b.Reason
		}
		return "by " + b.RequestedBy
	case *manifest.Deletion:
		parts := make([]string, len(b.Locations))
		for i, l := range b.Locations {
			parts[i] = l.Part + " " + l.State
		}
		if b.Complete {
			return "complete: " + strings.Join(parts, ", ")
		}
		return "not complete: " + strings.Join(parts, ", ")
	case *manifest.Superseded:
		return b.Kind + " by " + b.By.ArtifactID
	case *manifest.IndexAdded:
		return "over " + manifest.IndexOver(b.Index.Path)
	}
	return ""
}
