package main

import (
	"encoding/json"
	"fmt"

	"leafproof/manifest"
)

// schemaText says which schema the bytes have, and whether anybody has looked.
func schemaText(name *string, c *manifest.SchemaCheck) string {
	switch {
	case name == nil:
		return "-"
	case c == nil:
		return *name + ", declared, not checked"
	case c.Failed == 0:
		return fmt.Sprintf("%s, checked: %d", *name, c.Checked)
	}
	return fmt.Sprintf("%s, checked: %d, failed: %d, the first at bytes %d:%d", *name, c.Checked, c.Failed, c.Spans[0][0], c.Spans[0][1])
}

// omissionText says what is missing, and why.
func omissionText(o manifest.Omission) string {
	what, ok := o.What.(string)
	if !ok {
		b, err := json.Marshal(o.What)
		if err != nil {
			b = []byte("?")
		}
		what = string(b)
	}
	text := what + ": " + o.Reason
	if o.Detail != nil {
		text += ", " + *o.Detail
	}
	return text
}

// redactionText says what was removed, and why.
func redactionText(r manifest.Redaction) string {
	text := r.Path + ": " + r.Reason
	if r.Method != nil {
		text += ", " + *r.Method
	}
	if r.Records != nil {
		text += fmt.Sprintf(", in %d records", *r.Records)
	}
	return text
}

// lineageTexts are the rows about where the bytes came from.
func lineageTexts(l manifest.Lineage) [][2]string {
	rows := [][2]string{{"lineage", l.Kind}}
	add := func(name, text string) { rows = append(rows, [2]string{name, text}) }
	if p := l.Producer; p != nil {
		text := p.Tool
		if p.ToolVersion != nil {
			text += " " + *p.ToolVersion
		}
		add("tool", text+", "+p.Outcome)
		if p.StartedAt != nil || p.FinishedAt != nil {
			begin, end := "?", "?"
			if p.StartedAt != nil {
				begin = *p.StartedAt
			}
			if p.FinishedAt != nil {
				end = *p.FinishedAt
			}
			add("tool ran", begin+" to "+end)
		}
		if p.ArgumentsDigest != nil {
			add("arguments", *p.ArgumentsDigest+" (keyed)")
		}
	}
	for _, in := range l.Inputs {
		part := ""
		if in.SelectorDigest != nil {
			part = ", a part of it"
		}
		add("input", in.ArtifactID+" ("+in.Role+part+")")
	}
	if t := l.Transform; t != nil {
		text := t.ID
		if t.Deterministic {
			text += ", deterministic"
		}
		add("transform", text)
	}
	return rows
}
