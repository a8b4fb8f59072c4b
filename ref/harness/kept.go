package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"

	"leafproof/ref"
	"leafproof/selector"
)

// kept are the first rows of a query, in memory: at least one, however long.
type kept struct {
	bytes []byte
	spans []selector.Span
	lens  []int64 // of the rows as they stand
	all   int64   // rows
	size  int64   // of all rows, with a newline after each
	cut   bool    // the last one is a beginning
}

const (
	keptRows  = 200
	keptBytes = 1 << 20
)

func (k *kept) row(r ref.Row) {
	k.all++
	k.size += int64(len(r.Bytes)) + 1
	if int64(len(k.spans)) < k.all-1 { // one was left out
		return
	}
	text := r.Bytes
	if !r.JSON {
		text = quote(string(r.Bytes))
	}
	if len(k.spans) > 0 && (len(k.spans) == keptRows || len(k.bytes)+len(text) > keptBytes) {
		return
	}
	at := int64(len(k.bytes))
	k.bytes = append(k.bytes, text...)
	k.spans = append(k.spans, selector.Span{Start: at, End: int64(len(k.bytes))})
	k.lens = append(k.lens, int64(len(r.Bytes)))
}

func (k *kept) each(n int) iter.Seq2[selector.Span, error] {
	return func(yield func(selector.Span, error) bool) {
		for _, s := range k.spans[:n] {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// preview shows as many of the kept rows as fit, of total.
func (k *kept) preview(ctx context.Context, total int64, chars int) (preview []byte, rows []json.RawMessage, err error) {
	preview, err = selector.PreviewRows(ctx, bytes.NewReader(k.bytes), k.each(len(k.spans)), total, chars)
	if err != nil {
		return nil, nil, err
	}
	return preview, rows, json.Unmarshal(previewMember(preview), &rows)
}

// says is what of the answer the rows shown are: a row of which something is left out
// was not given.
func (k *kept) says(a *selector.Answer, rows []json.RawMessage) *admitted {
	s := said(a, k.size)
	if s == nil {
		return nil
	}
	for i, row := range rows {
		span := k.spans[i]
		if bytes.Equal(compact(k.bytes[span.Start:span.End]), compact(row)) {
			s.admit(k.lens[i] + 1)
		} else {
			s.omit(k.lens[i]+1, ReasonElided)
		}
	}
	s.omit(k.size-s.end(), ReasonBudget)
	return s
}

// given is what of the records read the first n are, of which the first intact
// ones were given as they stand; nil where no artifact has them.
func (k *kept) given(a *selector.Answer, n, intact int) *admitted {
	s := said(a, k.size)
	if s == nil {
		return nil
	}
	for i := range n {
		if i < intact {
			s.admit(k.lens[i] + 1)
		} else {
			s.omit(k.lens[i]+1, ReasonElided)
		}
	}
	s.omit(k.size-s.end(), ReasonBudget)
	return s
}
