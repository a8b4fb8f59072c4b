package selector_test

import (
	"errors"
	"strings"
	"testing"

	"leafproof/selector"
)

func TestFits(t *testing.T) {
	csv := selector.Layout{Format: selector.FormatCSV, Dialect: selector.Dialect{Delimiter: ",", Quote: `"`, Header: true, Columns: []string{"id", "name"}}}
	bare := selector.Layout{Format: selector.FormatCSV, Dialect: selector.Dialect{Delimiter: ",", Quote: `"`}}
	text := selector.Layout{Format: selector.FormatText}
	json := selector.Layout{Format: selector.FormatJSON}
	for name, test := range map[string]struct {
		layout selector.Layout
		where  string
		says   string // "" is no error
	}{
		"string in a column":   {csv, `@.id == "7"`, ""},
		"number in a column":   {csv, `@.id == 7`, "in quotes"},
		"null in a column":     {csv, `@.id == null`, "in quotes"},
		"no such column":       {csv, `@.bogus == "7"`, `"id", "name"`},
		"column, short form":   {csv, `{"field":"/name","contains":"x"}`, ""},
		"deeper than a column": {csv, `{"field":"/name/x","contains":"x"}`, "not a column"},
		"column by index":      {bare, `{"field":"/1","equals":"x"}`, ""},
		"index by name":        {bare, `@.id == "7"`, "/0, /1"},
		"the line":             {text, `{"field":"","contains":"disk"}`, ""},
		"a field of a line":    {text, `@.text == "x"`, "no fields"},
		"anything in json":     {json, `@.id == 7`, ""},
		"one of two parts":     {csv, `@.id == "7" || !(@.bogus == "x")`, `"id", "name"`},
		"a number, compared":   {csv, `@.id > 7`, "in quotes"},
		"a number, first":      {csv, `7 < @.id`, "in quotes"},
		"a length":             {csv, `length(@.id) > 2 && count(@.*) == 2`, ""},
		"a length as a value":  {csv, `@.id == length(@.name)`, "in quotes"},
		"two columns":          {csv, `@.id == @["name"] && $.id`, ""},
		"missing column":       {csv, `!@.bogus`, `"id", "name"`},
		"any column":           {csv, `@[?search(@, "x")]`, ""},
		"any field":            {bare, `@[1,0]`, ""},
		"a field from the end": {bare, `@[-1] == "x"`, ""},
		"search a line":        {text, `search(@, "disk [0-9]+") && length(@) > 3`, ""},
		"below a line":         {text, `@..x`, "no fields"},
		"no pattern":           {json, `search(@.a, "[a")`, "RFC 9485"},
		"no pattern, part":     {text, `@ == "x" || match(@, "\\d+")`, "RFC 9485"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := selector.ParseWhere(test.where)
			if err != nil {
				t.Fatal(err)
			}
			err = w.Fits(test.layout)
			switch {
			case test.says == "" && err != nil:
				t.Errorf("error = %v", err)
			case test.says != "" && (!errors.Is(err, selector.ErrSelector) || !strings.Contains(err.Error(), test.says)):
				t.Errorf("error = %v, want one that says %s", err, test.says)
			}
		})
	}
}
