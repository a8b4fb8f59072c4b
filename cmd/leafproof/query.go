package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/outfile"
	"leafproof/manifest"
	"leafproof/selector"
)

func queryCommand() *cobra.Command {
	var q leafproof.Query
	cmd := &cobra.Command{
		Use:   "query ID --where EXPR",
		Short: "Filter an artifact's records, and say what was examined",
		Long: "Print the records that satisfy a condition, a newline after each, and to stderr what the answer rests on.\n" +
			"EXPR is an RFC 9535 expression in which @ is the record, as in @.status == \"open\" && @.sev >= 3, or\n" +
			"{\"field\": POINTER, \"equals\" | \"contains\": VALUE}.\n\n" +
			"With --prove and -o, write a bundle that proves the answer to a stranger: an index shows that no other record\n" +
			"matches. With --count it proves the number alone and shows no record.\n\n" +
			"P is a JSON Pointer into the record, or a JSONPath query. With --select a line has a field for each P, tabs\n" +
			"between them: the value as it stands; nothing where there is none; [V,V…] where P may select several.",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&q.Where, "where", "", "the condition")
	f.StringArrayVar(&q.Order, "order-by", nil, "P, or P:desc: order by the value there, then by the next --order-by, then as in the document")
	f.StringArrayVar(&q.Select, "select", nil, "P: print the value there in place of the record; may be repeated")
	f.Int64Var(&q.Limit, "limit", 0, "return at most this many records (default: no limit)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where an earlier answer stopped")
	f.BoolVar(&q.Count, "count", false, "print the number of matching records alone")
	prove := f.Bool("prove", false, "with -o: prove that nothing was left out, by an index")
	out := f.StringP("out", "o", "", "with --prove: write the bundle to this file")
	asFlags(cmd)
	receipt := receiptFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.Where == "" {
			return usage("query: --where is missing; usage: %s", cmd.UseLine())
		}
		if q.Limit < 0 || (cmd.Flags().Changed("limit") && q.Limit == 0) {
			return usage("--limit: %d is not a number of records: it is at least 1", q.Limit)
		}
		for _, name := range []string{"limit", "cursor", "order-by", "select"} {
			if q.Count && cmd.Flags().Changed(name) {
				return usage("--count goes without --%s: it counts all records", name)
			}
		}
		if *prove != cmd.Flags().Changed("out") || *prove && *out == "" {
			return usage("--prove goes with -o FILE: the bundle that proves the answer")
		}
		if *prove && (q.Cursor != "" || len(q.Select) > 0) {
			return usage("--prove goes without --cursor and --select: a proof is of whole records, from the first")
		}
		var err error
		if q.Receipt, err = receipt.ask(cmd); err != nil {
			return err
		}
		if *prove {
			return withStore(cmd, func(s *leafproof.Store) error {
				return errors.Join(queryProof(cmd, s, args[0], q, *out, *asJSON), receipt.write(cmd))
			})
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			bar := outputProgress(cmd, args[0], -1)
			defer bar.stop()
			q.Progress = bar.add
			var err error
			switch {
			case *asJSON:
				err = queryJSON(cmd, s, args[0], q)
			case q.Count:
				err = queryCount(cmd, s, args[0], q)
			default:
				err = queryText(cmd, s, args[0], q)
			}
			return errors.Join(err, receipt.write(cmd)) // of an answer that was cut short too
		})
	}
	return cmd
}

// queryProof writes a bundle that proves the answer.
func queryProof(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query, out string, asJSON bool) error {
	if asJSON && out == "-" {
		return usage("--json goes with -o FILE: the bundle itself goes to standard output")
	}
	var a *leafproof.ProvenAnswer
	bar := outputProgress(cmd, out, -1)
	err := outfile.Write(out, cmd.OutOrStdout(), func(w io.Writer) (err error) {
		a, err = s.ProveQuery(cmd.Context(), caller(cmd), id, q, progressWriter{w, bar})
		return err
	})
	bar.stop()
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), struct {
			selector.Answer
			Claim string `json:"claim"`
			File  string `json:"file"`
			Index string `json:"index"`
			Shown int64  `json:"shown"`
			Cut   bool   `json:"cut"`
		}{a.Answer, a.Claim.String(), out, a.Index, a.Found.Shown, a.Found.Cut})
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s proves the answer to %s of %s, by the index over %s\nleafproof: %s\n", out, a.Claim, id, manifest.IndexOver(a.Index), a.Conclusion)
	return err
}

func queryText(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	var line []byte
	a, err := s.Query(cmd.Context(), caller(cmd), id, q, func(r leafproof.Row) error {
		line = append(r.AppendText(line[:0]), '\n')
		_, err := w.Write(line)
		return err
	})
	if flushErr := w.Flush(); err == nil { // a write that failed says so once
		err = flushErr
	}
	if a != nil {
		advise(cmd, id, a.SupersededBy)
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", a.Conclusion)
		if a.Cursor != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %d returned, more: %s; go on with --cursor %s\n", a.Returned, a.More, a.Cursor)
		}
	}
	return err
}

func queryCount(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	a, err := s.Query(cmd.Context(), caller(cmd), id, q, nil)
	if err != nil {
		return err
	}
	if a.Matched == nil {
		return fmt.Errorf("the scan of %s did not reach its end", id)
	}
	advise(cmd, id, a.SupersededBy)
	if a.Undecidable > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", a.Conclusion)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), *a.Matched)
	return err
}

// queryJSON prints one object: the rows, which are written as they come, and the
// answer's fields.
func queryJSON(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	next := `{"rows":[`
	var line []byte
	a, err := s.Query(cmd.Context(), caller(cmd), id, q, func(r leafproof.Row) error {
		line = appendRow(append(line[:0], next...), r)
		_, err := w.Write(line)
		next = ","
		return err
	})
	if a == nil {
		return err
	}
	tail, merr := json.Marshal(a)
	if merr != nil {
		return merr
	}
	if next != "," {
		w.WriteString(next)
	}
	fmt.Fprintf(w, "],%s\n", tail[1:])
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// appendRow appends a row as JSON. A value stands in it exactly as it stands in
// the artifact; one that is not JSON, as a string.
func appendRow(dst []byte, r leafproof.Row) []byte {
	value := func(v []byte) {
		if !r.JSON {
			v, _ = json.Marshal(string(v)) // a string always has a form
		}
		dst = append(dst, v...)
	}
	dst = fmt.Appendf(dst, `{"record":%d,"span":[%d,%d],`, r.Record, r.Span.Start, r.Span.End)
	if r.Selected == nil {
		dst = append(dst, `"value":`...)
		value(r.Bytes)
		return append(dst, '}')
	}
	dst = append(dst, `"selected":[`...)
	for i, values := range r.Selected {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for j, v := range values {
			if j > 0 {
				dst = append(dst, ',')
			}
			path, _ := json.Marshal(v.Path)
			dst = fmt.Appendf(dst, `{"path":%s,"span":[%d,%d],"value":`, path, v.Span.Start, v.Span.End)
			value(v.Bytes)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, "]}"...)
}
