package manifest_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"leafproof/manifest"
)

func TestPrintable(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"empty":               {"", ""},
		"plain":               {`tenant acme, "x" \ é 😂 日本`, `tenant acme, "x" \ é 😂 日本`},
		"escape sequence":     {"\x1b[2J", `\x1b[2J`},
		"new line":            {"a\nb\r\tc", `a\nb\r\tc`},
		"nul and DEL":         {"\x00\x7f", `\x00\x7f`},
		"C1":                  {"\u009b2J\u0085", `\u009b2J\u0085`},
		"right to left":       {"a\u202eb\u2066c\u200f", `a\u202eb\u2066c\u200f`},
		"no width":            {"a\u200b\u200d\u2060\ufeff\u00ad", `a\u200b\u200d\u2060\ufeff\u00ad`},
		"line separators":     {"\u2028\u2029", `\u2028\u2029`},
		"other spaces":        {"a\u00a0\u3000b", `a\u00a0\u3000b`},
		"fillers":             {"\u3164\u115f\u2800\uffa0", `\u3164\u115f\u2800\uffa0`},
		"tags":                {"\U000e0041", `\U000e0041`},
		"variation":           {"a\ufe0f", `a\ufe0f`},
		"not UTF-8":           {"a\xff\xc3", `a\xff\xc3`},
		"U+FFFD":              {"\ufffd", "\ufffd"},
		"spaces":              {"a    b  c d", "a b c d"},
		"spaces around":       {"  a  ", "a"},
		"accents":             {"e\u0301\u0302\u0303", "e\u0301\u0302\u0303"},
		"too many accents":    {"e" + strings.Repeat("\u0301", 5), "e\u0301\u0301\u0301" + `\u0301\u0301`},
		"accent on our text":  {"\u0301a", `\u0301a`},
		"just short enough":   {strings.Repeat("é", 200), strings.Repeat("é", 200)},
		"too long":            {strings.Repeat("é", 201), strings.Repeat("é", 176) + "… and 25 more"},
		"far too long":        {strings.Repeat("é", 1e6), strings.Repeat("é", 176) + "… and 999824 more"},
		"many spaces":         {"a" + strings.Repeat(" ", 1e6) + "b", "a b"},
		"escapes are not cut": {strings.Repeat("\u202e", 1000), strings.Repeat(`\u202e`, 29) + "… and 971 more"},
	} {
		t.Run(name, func(t *testing.T) {
			got := manifest.Printable(test.in)
			if got != test.want {
				t.Errorf("Printable(%.300q) = %q, want %q", test.in, got, test.want)
			}
			if again := manifest.Printable(got); again != got || utf8.RuneCountInString(got) > 200 {
				t.Errorf("%q is printed as %q", got, again)
			}
		})
	}
}
