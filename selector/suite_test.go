package selector

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leafproof/merkle"
)

// The files of the public parsing suite that RFC 8259 leaves to the
// implementation, one by one: what validation says of each as a record. Numbers
// are exact, so an exponent is only too large beyond 10^±1,000,000; text must be
// UTF-8 without lone surrogates; a byte order mark belongs to a file, not to a
// record.
var implementationDefined = map[string]verdict{
	"number_double_huge_neg_exp":                   {},
	"number_huge_exp":                              {overLimit: true},
	"number_neg_int_huge_exp":                      {},
	"number_pos_double_huge_exp":                   {},
	"number_real_neg_overflow":                     {},
	"number_real_pos_overflow":                     {},
	"number_real_underflow":                        {overLimit: true},
	"number_too_big_neg_int":                       {},
	"number_too_big_pos_int":                       {},
	"number_very_big_negative_int":                 {},
	"object_key_lone_2nd_surrogate":                {badText: true},
	"string_1st_surrogate_but_2nd_missing":         {badText: true},
	"string_1st_valid_surrogate_2nd_invalid":       {badText: true},
	"string_UTF-16LE_with_BOM":                     {unparseable: true},
	"string_UTF-8_invalid_sequence":                {badText: true},
	"string_UTF8_surrogate_U+D800":                 {badText: true},
	"string_incomplete_surrogate_and_escape_valid": {badText: true},
	"string_incomplete_surrogate_pair":             {badText: true},
	"string_incomplete_surrogates_escape_valid":    {badText: true},
	"string_invalid_lonely_surrogate":              {badText: true},
	"string_invalid_surrogate":                     {badText: true},
	"string_invalid_utf-8":                         {badText: true},
	"string_inverted_surrogates_U+1D11E":           {badText: true},
	"string_iso_latin_1":                           {badText: true},
	"string_lone_second_surrogate":                 {badText: true},
	"string_lone_utf8_continuation_byte":           {badText: true},
	"string_not_in_unicode_range":                  {badText: true},
	"string_overlong_sequence_2_bytes":             {badText: true},
	"string_overlong_sequence_6_bytes":             {badText: true},
	"string_overlong_sequence_6_bytes_null":        {badText: true},
	"string_truncated-utf-8":                       {badText: true},
	"string_utf16BE_no_BOM":                        {unparseable: true},
	"string_utf16LE_no_BOM":                        {unparseable: true},
	"structure_500_nested_arrays":                  {depth: 500},
	"structure_UTF-8_BOM_empty_object":             {unparseable: true},
}

func TestImplementationDefined(t *testing.T) {
	dir := os.Getenv("LEAFPROOF_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "vectors")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "json", "JSONTestSuite", "test_parsing", "i_*.json"))
	if len(names) == 0 {
		t.Skip("no test vectors")
	}
	if len(names) != len(implementationDefined) {
		t.Errorf("%d files, %d are known", len(names), len(implementationDefined))
	}
	v, c := newValidator(DefaultLimits), newCleaner(DefaultLimits)
	for _, name := range names {
		p, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.bytes(p)
		if err != nil {
			t.Fatal(err)
		}
		want, known := implementationDefined[strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "i_"), ".json")]
		if want.depth == 0 {
			got.depth = 0
		}
		if !known || got != want {
			t.Errorf("%s: %+v, want %+v", filepath.Base(name), got, want)
		}
		if c.record(p) && got.undecidable() {
			t.Errorf("%s is clean, but %+v", filepath.Base(name), got)
		}
	}
}

// Hostile records take time in proportion to their length: at these sizes
// anything else would not come to an end.
func TestHostileRecords(t *testing.T) {
	const n = 1 << 19
	var keys strings.Builder
	for range n / 8 {
		keys.WriteString(`"kkkk":0,`)
	}
	for name, record := range map[string]string{
		"brackets":    strings.Repeat("[", n),
		"braces":      strings.Repeat(`{"a":`, n/5),
		"backslashes": `"` + strings.Repeat(`\`, n),
		"escapes":     `"` + strings.Repeat(`\\`, n/2-8) + `"`,
		"quotes":      strings.Repeat(`"`, n),
		"equal keys":  "{" + keys.String() + `"z":0}`,
		"digits":      strings.Repeat("9", n),
		"commas":      strings.Repeat(",", n),
		"blanks":      strings.Repeat(" ", n) + "1",
	} {
		for _, l := range []Layout{{Format: FormatNDJSON}, {Format: FormatConcat}, {Format: FormatText}, {Format: FormatJSON}, {Format: FormatCSV, Dialect: Dialect{Delimiter: ",", Quote: `"`}}} {
			src := "1\n" + record + "\n2\n"
			if l.Format == FormatJSON {
				src = "[1," + record + ",2]"
			}
			var out sink
			info, stats, full, err := BuildMap(t.Context(), strings.NewReader(src), int64(len(src)), merkle.Root{}, l, &out)
			if err != nil {
				continue // it has no such records, and that was found out in time
			}
			m, err := OpenMap(bytes.NewReader(out.b), info.Size, merkle.Root{}, int64(len(src)), full)
			if err != nil {
				t.Fatal(err)
			}
			task := Task{Source: strings.NewReader(src), Map: m, Layout: full, Trust: stats.Trust()}
			if full.isJSON() {
				if task.Where, err = ParseWhere(`@.kkkk == 0 || @.z.a == "x"`); err != nil {
					t.Fatal(err)
				}
			}
			scan, err := task.Run(t.Context(), nil)
			if err != nil || scan.Stop != StopComplete || full.isJSON() && scan.Position.Undecidable == 0 && (name == "brackets" || name == "braces" || name == "equal keys") {
				t.Errorf("%s as %s: %+v, %v", name, l.Format, scan, err)
			}
		}
	}
}
