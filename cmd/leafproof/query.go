package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"leafproof"
)

func queryCommand() *cobra.Command {
	var q leafproof.Query
	cmd := &cobra.Command{
		Use:   "query ID --where EXPR",
		Short: "Filter an artifact's records, and say what was examined",
		Long: "Print the records that satisfy a condition, a newline after each, and to stderr what the answer rests on.\n" +
			"EXPR is {\"field\": POINTER, \"equals\" | \"contains\": VALUE}, or a comparison like @.status == \"open\".",
		Args: args(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&q.Where, "where", "", "the condition")
	f.Int64Var(&q.Limit, "limit", 0, "return at most this many records (default: no limit)")
	f.StringVar(&q.Cursor, "cursor", "", "go on where an earlier answer stopped")
	f.BoolVar(&q.Count, "count", false, "print the number of matching records alone")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.Where == "" {
			return usage("query: --where is missing; usage: %s", cmd.UseLine())
		}
		if q.Limit < 0 || (cmd.Flags().Changed("limit") && q.Limit == 0) {
			return usage("--limit: %d is not a number of records: it is at least 1", q.Limit)
		}
		if q.Count && (cmd.Flags().Changed("limit") || cmd.Flags().Changed("cursor")) {
			return usage("--count goes without --limit and --cursor: it counts all records")
		}
		return withStore(cmd, func(s *leafproof.Store) error {
			bar := outputProgress(cmd, args[0], -1)
			defer bar.stop()
			q.Progress = bar.add
			switch {
			case *asJSON:
				return queryJSON(cmd, s, args[0], q)
			case q.Count:
				return queryCount(cmd, s, args[0], q)
			}
			return queryText(cmd, s, args[0], q)
		})
	}
	return cmd
}

func queryText(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	a, err := s.Query(cmd.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
		w.Write(r.Bytes)
		return w.WriteByte('\n') // a failed write makes every later one fail
	})
	err = errors.Join(err, w.Flush())
	if a != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", a.Conclusion)
		if a.Cursor != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %d returned, more: %s; go on with --cursor %s\n", a.Returned, a.More, a.Cursor)
		}
	}
	return err
}

func queryCount(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	a, err := s.Query(cmd.Context(), leafproof.Owner, id, q, nil)
	if err != nil {
		return err
	}
	if a.Matched == nil {
		return fmt.Errorf("the scan of %s did not reach its end", id)
	}
	if a.Undecidable > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leafproof: %s\n", a.Conclusion)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), *a.Matched)
	return err
}

// queryJSON prints one object: the rows, which are written as they come, and the
// answer's fields. A JSON record stands in its row exactly as it stands in the
// artifact, another one as a string.
func queryJSON(cmd *cobra.Command, s *leafproof.Store, id string, q leafproof.Query) error {
	w := bufio.NewWriter(cmd.OutOrStdout())
	next := `{"rows":[`
	a, err := s.Query(cmd.Context(), leafproof.Owner, id, q, func(r leafproof.Row) error {
		value := r.Bytes
		if !r.JSON {
			var err error
			if value, err = json.Marshal(string(r.Bytes)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, `%s{"record":%d,"span":[%d,%d],"value":%s}`, next, r.Record, r.Span.Start, r.Span.End, value)
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
	return errors.Join(err, w.Flush())
}
