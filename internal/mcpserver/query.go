package mcpserver

import (
	"bytes"
	"context"

	"leafproof"
	"leafproof/selector"
)

type queryArgs struct {
	Artifact target   `json:"artifact_id"`
	Where    *string  `json:"where"`
	Select   []string `json:"select"`
	OrderBy  []string `json:"order_by"`
	Limit    *int64   `json:"limit"`
	Cursor   *string  `json:"cursor"`
	Count    *bool    `json:"count"`
}

// rowsPage is a page of an answer to a query.
type rowsPage struct {
	answerView
	Rows []rowView `json:"rows"`
}

// query filters an artifact's records.
func (f *face) query(ctx context.Context, a queryArgs) (any, error) {
	switch {
	case a.Artifact == "":
		return nil, invalid("/artifact_id", "/artifact_id is missing")
	case a.Limit != nil && *a.Limit < 1:
		return nil, invalid("/limit", "/limit: %d is less than 1", *a.Limit)
	case len(a.Select) > 64 || len(a.OrderBy) > 16:
		return nil, invalid("", "at most 64 selections and 16 keys of order")
	}
	q := leafproof.Query{Select: a.Select, Order: a.OrderBy, ReturnBytes: PageBytes}
	if a.Where != nil {
		q.Where = *a.Where
	}
	if a.Cursor != nil {
		q.Cursor = *a.Cursor
	}
	if q.Count = a.Count != nil && *a.Count; q.Count {
		q.ReturnBytes, q.Limit = 0, or(a.Limit, 0)
	} else {
		q.Limit = min(or(a.Limit, defaultRows), int64(max(1, maxRows/max(1, len(a.Select)))))
	}
	rows, room := []rowView{}, MaxPage
	answer, err := f.store.Query(ctx, f.who.Caller, string(a.Artifact), q, func(r leafproof.Row) error {
		row, err := showRow(ctx, r, &room)
		rows = append(rows, row)
		return err
	})
	if answer == nil {
		return nil, err
	}
	v := &rowsPage{answerView: answered(ctx, answer), Rows: rows}
	return v, err
}

// showRow gives a row the form that a model reads. Values that are selected in it take
// of the room that the page has for those, in bytes of the answer; what has no room is
// counted.
func showRow(ctx context.Context, r leafproof.Row, pageRoom *int) (rowView, error) {
	row := newRow(r.Record, r.Span)
	if r.Selected == nil {
		s, err := showWithin(ctx, bytes.Clone(r.Bytes), r.JSON, PageBytes)
		row.set(s)
		return row, err
	}
	row.Selected = make([][]valueView, len(r.Selected))
	room := PageBytes
	for i, values := range r.Selected {
		row.Selected[i] = []valueView{}
		for _, v := range values {
			if len(v.Path) > *pageRoom { // the least that it would take
				row.NotShown++
				continue
			}
			s, err := showWithin(ctx, bytes.Clone(v.Bytes), r.JSON, min(room, *pageRoom))
			if err != nil {
				return row, err
			}
			view := valueView{v.Path, s}
			text, err := marshal(view)
			if err != nil {
				return row, err
			}
			if *pageRoom -= len(text); *pageRoom < 0 {
				row.NotShown++
				continue
			}
			room = max(0, room-len(v.Bytes))
			row.Selected[i] = append(row.Selected[i], view)
		}
	}
	return row, nil
}

func showWithin(ctx context.Context, b []byte, asJSON bool, room int) (shown, error) {
	if len(b) <= room {
		return show(b, asJSON), nil
	}
	return showLong(ctx, bytes.NewReader(b), selector.Span{End: int64(len(b))}, asJSON)
}
