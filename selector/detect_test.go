package selector_test

import (
	"strings"
	"testing"

	"leafproof/selector"
)

func TestDetect(t *testing.T) {
	long := strings.Repeat(`{"a":"`+strings.Repeat("x", 100)+`"}`+"\n", 50)
	for name, test := range map[string]struct {
		head, media, file string
		format, delimiter string
	}{
		"empty":                        {"", "", "x.json", "bytes", ""},
		"white space":                  {" \n", "", "", "bytes", ""},
		"binary":                       {"\x89PNG\r\n\x1a\n\x00", "", "x.csv", "bytes", ""},
		"Latin-1":                      {"M\xfcnchen,1\n", "text/csv", "x.csv", "bytes", ""},
		"UTF-16":                       {"\xff\xfe{\x00", "", "", "bytes", ""},
		"control characters":           {"a\x01b\n", "", "", "bytes", ""},
		"rune cut off":                 {"line\nlin\xc3", "", "", "text", ""},
		"ndjson":                       {"{\"a\":1}\n{\"a\":2}\n", "", "", "ndjson", ""},
		"ndjson named json":            {"{\"a\":1}\n{\"a\":2}\n", "application/json", "x.json", "ndjson", ""},
		"ndjson BOM, CRLF, blank":      {"\xef\xbb\xbf{\"a\":1}\r\n\r\n{\"a\":2}\r\n", "", "", "ndjson", ""},
		"ndjson cut off":               {long[:len(long)-50], "", "", "ndjson", ""},
		"ndjson of arrays":             {"[1,2]\n[3]\n", "", "", "ndjson", ""},
		"one object":                   {"{\"a\":1}\n", "", "", "bytes", ""},
		"one object named ndjson":      {"{\"a\":1}\n", "", "x.ndjson", "ndjson", ""},
		"ndjson with a bad line":       {"{\"a\":1}\n{\"a\":\n", "", "x.jsonl", "ndjson", ""},
		"bad line, no hint":            {"{\"a\":1}\n{\"a\":\n", "", "", "text", ""},
		"numbers named ndjson":         {"1\n2\n", "application/x-ndjson; charset=utf-8", "", "ndjson", ""},
		"numbers":                      {"1\n2\n", "", "", "text", ""},
		"array":                        {"[1,2,3]", "", "", "json", ""},
		"array on one line":            {"[1,2,3]\n", "", "", "json", ""},
		"pretty array":                 {"[\n  {\"a\": 1},\n  {\"a\": 2}\n]\n", "", "", "json", ""},
		"array cut off":                {"[{\"a\":1},{\"a\":", "", "", "json", ""},
		"pretty object":                {"{\n \"a\": [1]\n}\n", "", "", "bytes", ""},
		"object cut off":               {"{\"a\":[1,2,", "", "", "bytes", ""},
		"array of no JSON":             {"[section]\nkey=1\n", "", "", "text", ""},
		"csv":                          {"a,b\n1,2\n3,4\n", "", "", "csv", ","},
		"csv named":                    {"a,b\n1,2\n", "", "X.CSV", "csv", ","},
		"csv, two rows, no hint":       {"a,b\n1,2\n", "", "", "text", ""},
		"semicolons":                   {"a;b\n1,5;2\n1,6;3\n", "", "", "csv", ";"},
		"tabs":                         {"a\tb\tc\n1\t2\t3\n", "text/tab-separated-values", "", "csv", "\t"},
		"csv with newlines in quotes":  {"a,b\n\"x\ny\",1\n\"z\",2\n", "", "", "csv", ","},
		"csv cut off":                  {"a,b\n1,2\n3,4\n5", "", "", "csv", ","},
		"csv with ragged rows":         {"a,b\n1,2\n3,4,5\n", "", "", "text", ""},
		"one column":                   {"a\n1\n2\n", "text/csv", "", "text", ""},
		"prose":                        {"Hello, world.\nThis is it.\n", "", "", "text", ""},
		"header with an empty cell":    {"a,,b\n1,2,3\n4,5,6\n", "", "", "text", ""},
		"one line without its end":     {"hello", "", "", "bytes", ""},
		"one line, said to be text":    {"hello", "text/plain", "", "text", ""},
		"object of the wrong brackets": {"{\"a\":1]\n", "", "", "text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, why := selector.Detect([]byte(test.head), test.media, test.file)
			if l.Format != test.format || l.Dialect.Delimiter != test.delimiter {
				t.Errorf("Detect = %+v (%s), want %s %q", l, why, test.format, test.delimiter)
			}
			if !strings.HasPrefix(why, l.Format+":") || !strings.HasSuffix(why, ".") {
				t.Errorf("why = %q, not a sentence about %s", why, l.Format)
			}
			// What is chosen can be built from a whole file.
			if l.Format != "bytes" && !strings.Contains(name, "cut off") {
				build(t, []byte(test.head), l)
			}
		})
	}
}
