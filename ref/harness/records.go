package harness

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// records reads records from a number on into rows, as far as they are kept, and
// returns how many there are.
func (v *value) records(ctx context.Context, first, count int64, rows *kept) (int64, *selector.Answer, error) {
	if !v.whole {
		total, err := v.elements(first, count, rows)
		return total, v.answer, err
	}
	total := v.to.Info.Records
	if v.to.Info.Format == selector.FormatBytes {
		return 0, nil, refuse(leafproof.CodeNotRecords, leafproof.FixCall, "source", "The value has no records: read_text reads it.")
	}
	if first > total {
		return 0, nil, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "first", "The value has %d records.", total)
	}
	end := total
	if count > 0 && count < total-first {
		end = first + count
	}
	for step := int64(16); first < end && units(rows.bytes) < ResultChars; step *= 2 {
		if v.singly {
			step = 1
		}
		n, err := v.run(ctx, first, min(end, first+step), rows)
		if err != nil {
			return 0, nil, err
		}
		first += n
	}
	return total, v.answer, nil
}

// maxRun bounds the bytes of the records that are read at once.
const maxRun = 1 << 20

// run reads records a to b, and returns how many it took: fewer where they are long.
func (v *value) run(ctx context.Context, a, b int64, rows *kept) (int64, error) {
	out := &capped{most: maxRun}
	answer, err := v.h.Read(ctx, ref.Selection{Records: &merkle.Range{Start: a, End: b}}, out)
	if err != nil && !out.full {
		return 0, err
	}
	if v.answer == nil {
		v.answer = answer
	}
	isJSON := v.to.Info.Format == selector.FormatJSON || v.to.Info.Format == selector.FormatNDJSON || v.to.Info.Format == selector.FormatConcat
	text := out.Bytes()
	lines := int64(bytes.Count(text, []byte{'\n'}))
	if isJSON && !out.full && lines != b-a { // with line ends in them
		if list := split(text); int64(len(list)) == b-a {
			for i, el := range list {
				rows.row(ref.Row{Record: a + int64(i), Bytes: el, JSON: true})
			}
			return b - a, nil
		}
	}
	switch {
	case out.full && b-a > 1, lines != b-a && b-a > 1:
		v.singly = true // they are long, or have line ends in them
		return v.run(ctx, a, a+1, rows)
	case out.full: // a record of which a beginning must do
		rows.row(ref.Row{Record: a, Bytes: text[:4*ResultChars]})
		rows.cut = true
	case lines == b-a:
		for i := a; i < b; i++ {
			end := bytes.IndexByte(text, '\n')
			rows.row(ref.Row{Record: i, Bytes: text[:end], JSON: isJSON})
			text = text[end+1:]
		}
	default: // one, with line ends in it
		rows.row(ref.Row{Record: a, Bytes: bytes.TrimSuffix(text, []byte{'\n'}), JSON: isJSON})
	}
	return b - a, nil
}

// split splits JSON values that stand one after another; nil where it cannot.
func split(text []byte) (list [][]byte) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		el, err := d.ReadValue()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			return nil
		}
		list = append(list, bytes.Clone(el))
	}
}

// capped keeps the first bytes, and then fails.
type capped struct {
	bytes.Buffer
	most int
	full bool
}

var errCapped = errors.New("enough")

func (c *capped) Write(p []byte) (int, error) {
	if n := c.most - c.Len(); len(p) > n {
		c.full = true
		c.Buffer.Write(p[:n])
		return n, errCapped
	}
	return c.Buffer.Write(p)
}

// elements reads the elements of an array in memory.
func (v *value) elements(first, count int64, rows *kept) (total int64, err error) {
	raw := make([]byte, v.size)
	if _, err := v.src.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != jsontext.KindBeginArray {
		return 0, refuse(leafproof.CodeNotRecords, leafproof.FixCall, "source", "The value is no array: read_json reads it.")
	}
	for ; d.PeekKind() != jsontext.KindEndArray; total++ {
		el, err := d.ReadValue()
		if err != nil {
			return 0, err
		}
		if total >= first && (count == 0 || total-first < count) {
			rows.row(ref.Row{Record: total, Bytes: el, JSON: true})
		}
	}
	if first > total {
		return 0, refuse(leafproof.CodeSelectorInvalid, leafproof.FixCall, "first", "The value has %d records.", total)
	}
	return total, nil
}
