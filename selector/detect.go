package selector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Detect chooses a layout from head, the first bytes of a file (64 KiB are
// plenty). Content decides; mediaType and name are only hints. It chooses
// conservatively, FormatBytes in doubt, and says in one sentence what it chose
// and why.
func Detect(head []byte, mediaType, name string) (Layout, string) {
	hint := hintOf(mediaType, name)
	text := bytes.TrimPrefix(head, bom)
	if why := notText(text); why != "" {
		return choose(FormatBytes, "bytes: "+why+".")
	}
	first := bytes.TrimLeft(text, " \t\r\n")
	if len(first) == 0 {
		return choose(FormatBytes, "bytes: there is nothing but white space.")
	}
	if first[0] == '[' || first[0] == '{' {
		if l, why := detectJSON(text, first, hint); l.Format != "" {
			return l, why
		}
	} else if hint == FormatNDJSON {
		if n, bad := jsonLines(text); n > 0 && bad == 0 {
			return choose(FormatNDJSON, "ndjson: the name or media type says so and every line at the beginning is one JSON value.")
		}
	}
	if l, why := detectCSV(text, hint); l.Format != "" {
		return l, why
	}
	if bytes.IndexByte(text, '\n') < 0 && hint != FormatText {
		return choose(FormatBytes, "bytes: text without a line end and of no known record format.")
	}
	return choose(FormatText, "text: lines of text of no stricter record format.")
}

func choose(format, why string) (Layout, string) {
	return Layout{Format: format, Limits: DefaultLimits}, why
}

// hintOf reads the format that a media type or a file name suggests; "" for none.
func hintOf(mediaType, name string) string {
	mediaType, _, _ = strings.Cut(strings.ToLower(mediaType), ";")
	switch mediaType = strings.TrimSpace(mediaType); mediaType {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines":
		return FormatNDJSON
	case "text/csv", "text/tab-separated-values":
		return FormatCSV
	case "text/plain":
		return FormatText
	}
	if mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") {
		return FormatJSON
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".ndjson", ".jsonl":
		return FormatNDJSON
	case ".csv", ".tsv":
		return FormatCSV
	case ".txt", ".log":
		return FormatText
	case ".json":
		return FormatJSON
	}
	return ""
}

// notText says why p, the beginning of a file, is no text; "" if it is.
func notText(p []byte) string {
	if len(p) == 0 {
		return "the file is empty"
	}
	if i := bytes.IndexByte(p, 0); i >= 0 {
		return fmt.Sprintf("binary, a NUL at byte %d", i)
	}
	if i := invalidUTF8(p[:len(p)-incompleteRune(p)]); i >= 0 {
		return fmt.Sprintf("binary, no UTF-8 at byte %d", i)
	}
	for i, c := range p {
		if c < 0x20 && !strings.ContainsRune("\t\n\r\f\x1b", rune(c)) {
			return fmt.Sprintf("binary, a control character at byte %d", i)
		}
	}
	return ""
}

// invalidUTF8 returns where p stops being UTF-8; -1 if it does not.
func invalidUTF8(p []byte) int {
	if utf8.Valid(p) {
		return -1
	}
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// detectJSON decides between NDJSON and one document for text whose first
// byte behind white space is [ or {. A zero layout: neither.
func detectJSON(text, first []byte, hint string) (Layout, string) {
	lines, bad := jsonLines(text)
	switch {
	case bad == 0 && lines >= 2:
		return choose(FormatNDJSON, "ndjson: every line at the beginning is one JSON value.")
	case bad == 0 && lines == 1 && hint == FormatNDJSON:
		return choose(FormatNDJSON, "ndjson: one JSON value on one line, and the name or media type says so.")
	case lines > bad && hint == FormatNDJSON:
		return choose(FormatNDJSON, "ndjson: the name or media type says so, though not every line at the beginning is one JSON value.")
	}
	s := scanBytes(text, maxNesting)
	err := (&walk{s: s, hit: func(t token) error { _, err := s.skip(t); return err }}).run()
	if e, ok := errors.AsType[*Error](err); ok && e.Offset < int64(len(text)) {
		return Layout{}, "" // broken before the end of what we see
	}
	if first[0] == '[' {
		return choose(FormatJSON, "json: the beginning of one JSON array, whose elements are the records.")
	}
	return choose(FormatBytes, "bytes: one JSON object, so there is no array to take records from; --records json --at /POINTER names one.")
}

// jsonLines counts the lines of text that are not blank, and those of them that
// are not one JSON value. A line that the end of text cuts off is not counted
// unless it is complete as it is.
func jsonLines(text []byte) (lines, bad int) {
	var s scanner
	for p := range bytes.Lines(text) {
		whole := p[len(p)-1] == '\n'
		if onlySpace(bytes.TrimRight(p, "\n")) {
			continue
		}
		s.reset(p, int(DefaultLimits.Depth))
		err := (&walk{s: &s, hit: func(t token) error { _, err := s.skip(t); return err }}).run()
		if err == nil {
			lines++
		} else if whole {
			lines++
			bad++
		}
	}
	return lines, bad
}

// detectCSV recognises rows of a constant number of columns.
func detectCSV(text []byte, hint string) (Layout, string) {
	need := 3
	if hint == FormatCSV {
		need = 1
	}
	d, rows, columns := sniffDelimiter(text, need)
	if columns < 2 {
		return Layout{}, ""
	}
	l, _ := choose(FormatCSV, "")
	l.Dialect = Dialect{Delimiter: d, Quote: `"`, Header: true}
	return l, fmt.Sprintf("csv: %d columns separated by %q in each of the %d rows at the beginning; the first row is taken as the header.", columns, d, rows)
}

// sniffDelimiter finds the delimiter with which the first rows of text, at
// least need of them, all have the same number of columns, two or more. Of
// several it takes the one with the most columns. columns is 0 if none fits.
func sniffDelimiter(text []byte, need int) (delimiter string, rows, columns int) {
	for _, d := range []string{",", "\t", ";", "|"} {
		if r, c := regularRows(text, d); r >= need && c > columns && c >= 2 && c <= maxColumns {
			delimiter, rows, columns = d, r, c
		}
	}
	return delimiter, rows, columns
}

// regularRows counts the complete rows of text and their columns; 0 columns if
// they differ, if a row is broken, or if a header cell is empty or repeated.
func regularRows(text []byte, delimiter string) (rows, columns int) {
	d := Dialect{Delimiter: delimiter, Quote: `"`}
	in := streamOf(context.Background(), bytes.NewReader(text), int64(len(text)))
	errStop := errors.New("irregular")
	err := eachRow(in, d, func(s Span, fields int64, broken bool) error {
		switch {
		case fields == 0:
			return nil
		case s.End == int64(len(text)) && rows > 0:
			// The last row may be cut off; it says nothing unless it is regular.
			if int(fields) == columns && !broken {
				rows++
			}
			return nil
		case broken || rows > 0 && int(fields) != columns:
			return errStop
		case rows == 0 && !goodHeader(text[s.Start:s.End], d):
			return errStop
		}
		rows, columns = rows+1, int(fields)
		return nil
	})
	if err != nil {
		return 0, 0
	}
	return rows, columns
}

func goodHeader(row []byte, d Dialect) bool {
	names, ok := csvFields(row, d)
	seen := map[string]bool{}
	for _, n := range names {
		ok = ok && n != "" && !seen[n]
		seen[n] = true
	}
	return ok
}
