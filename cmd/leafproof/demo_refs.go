package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/internal/refdemo"
	"leafproof/ref/harness"
)

func demoRefsCommand() *cobra.Command {
	o := refdemo.Options{Tool: "generate_report", Report: textReport}
	cmd := &cobra.Command{
		Use:   "refs",
		Short: "Show how a model passes on rows that it never held",
		Long: "Play a status report through, with a scripted model and no network: an export is kept out of the model's view and\n" +
			"filtered there, and the rows reach another tool by a reference. Every byte that the model would be given is counted.\n" +
			"Everything happens in a temporary folder; -o keeps the export, so that other programs can count in it.",
		Args: args(0, 0),
	}
	cmd.Flags().IntVar(&o.Rows, "rows", refdemo.Rows, "how many items the export has (at most 1000000)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "which items they are")
	export := cmd.Flags().StringP("out", "o", "", "write the export to this file")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Rows < 1 || o.Rows > 1_000_000 {
			return usage("--rows: %d is not a number from 1 to 1000000", o.Rows)
		}
		if *asJSON && *export == "-" {
			return usage("--json goes with -o FILE: the export itself goes to standard output")
		}
		dir, err := os.MkdirTemp("", "leafproof-demo-*")
		if err != nil {
			return err
		}
		told, err := tellRefs(cmd.Context(), filepath.Join(dir, "store"), o)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return err
		}
		if *export != "" {
			err := outfile.Write(*export, cmd.OutOrStdout(), func(w io.Writer) error {
				_, err := w.Write(told.Document)
				return err
			})
			if err != nil || *export == "-" {
				return err
			}
		}
		sums := sumUp(told)
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), sums)
		}
		sums.print(cmd, told)
		return nil
	}
	return cmd
}

func tellRefs(ctx context.Context, dir string, o refdemo.Options) (*refdemo.Told, error) {
	if err := leafproof.Init(ctx, dir); err != nil {
		return nil, err
	}
	s, err := leafproof.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	told, err := refdemo.Tell(ctx, s, o)
	return told, errors.Join(err, s.Close())
}

// textReport is a report as lines of text: what a PDF tool would be given is the same.
func textReport(_ context.Context, title string, rows []json.RawMessage) (harness.Blob, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n", title)
	for _, r := range rows {
		var item struct {
			ID    int64
			Title string
			Owner string
		}
		if err := json.Unmarshal(r, &item); err != nil {
			return harness.Blob{}, err
		}
		fmt.Fprintf(&b, "%6d  %-40s %s\n", item.ID, item.Title, item.Owner)
	}
	return harness.Blob{Reader: &b, MediaType: "text/plain"}, nil
}

// refsSums are the figures of the story.
type refsSums struct {
	DocumentBytes int      `json:"document_bytes"`
	Matched       int      `json:"rows_to_the_tool"`
	RowBytes      int      `json:"row_bytes"`
	Exact         bool     `json:"rows_stand_as_in_the_document"`
	ViewBytes     int      `json:"view_bytes"` // protocol, tools, prompt and results
	ResultBytes   int      `json:"result_bytes"`
	Wrote         int      `json:"written_by_the_model_bytes"`
	Previewed     int      `json:"rows_in_the_view"`
	References    []string `json:"references"`
}

func sumUp(t *refdemo.Told) refsSums {
	s := refsSums{DocumentBytes: len(t.Document), Matched: len(t.Rows), Exact: true, ViewBytes: len(t.View), Previewed: t.Shown()}
	for _, r := range t.Rows {
		s.RowBytes += len(r)
		s.Exact = s.Exact && bytes.Contains(t.Document, r)
	}
	for _, v := range t.Results {
		s.ResultBytes += len(v.Content)
	}
	for i, w := range t.Wrote {
		s.Wrote += len(w)
		if at := strings.Index(w, `{"$ref"`); i > 0 && at >= 0 {
			s.References = append(s.References, w[at:at+strings.Index(w[at:], "}}")+2])
		}
	}
	return s
}

func (s refsSums) print(cmd *cobra.Command, t *refdemo.Told) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "1. A tool returns an export of %d bytes. The model reads, in its place:\n\n   %s\n\n", s.DocumentBytes, t.Results[0].Content)
	fmt.Fprintf(out, "2. The model asks for the open items (%d bytes), and reads a preview and a reference:\n\n   %s\n   %s\n\n",
		len(t.Wrote[1]), t.Wrote[1], clip(string(t.Results[1].Content), 320))
	fmt.Fprintf(out, "3. It passes them on (%d bytes). The tool receives %d rows, %d bytes", len(t.Wrote[2]), s.Matched, s.RowBytes)
	if s.Exact {
		fmt.Fprint(out, ", each as it stands in the document")
	}
	fmt.Fprintf(out, ":\n\n   %s\n\n", t.Wrote[2])
	fmt.Fprintf(out, "4. What it made is stored too, and the model reads:\n\n   %s\n\n", t.Results[2].Content)
	fmt.Fprintf(out, "Into the model's view went %d bytes: %d of results, the rest the prompt, the protocol and the tools. The model wrote %d.\n"+
		"Of the document's items %d are in its view, which the preview shows; the document is not. Written out, it is about %d tokens.\n",
		s.ViewBytes, s.ResultBytes, s.Wrote, s.Previewed, s.DocumentBytes/4)
}
