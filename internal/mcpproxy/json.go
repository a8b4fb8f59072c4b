package mcpproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	v2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// parse reads JSON in which no member stands twice, names in their own case.
func parse(text []byte, into any) error {
	return v2.Unmarshal(text, into)
}

// A sketch is what can be made out of a message that cannot be read for sure: one that
// was cut, is nested too deep, or has members twice.
type sketch struct {
	id     json.RawMessage // nil for none, the last of several
	method bool
	result bool // or an error
}

// sketched looks at no more than the members of the outermost object.
func sketched(line []byte) (s sketch) {
	level, name, named := 0, "", false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '{' || c == '[':
			level++
			named = false
		case c == '}' || c == ']':
			level--
			named = true
		case c == ',':
			named = false
		case c == '"':
			from := i
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
			switch {
			case level != 1 || i >= len(line):
			case !named:
				name, named = "", true
				_ = parse(line[from:i+1], &name) // one that is none is another
				s.method = s.method || name == "method"
				s.result = s.result || name == "result" || name == "error"
			case name == "id":
				s.id = bytes.Clone(line[from : i+1])
			}
		case level == 1 && named && name == "id" && (c == '-' || '0' <= c && c <= '9'):
			from := i
			for i+1 < len(line) && strings.IndexByte("+-.eE0123456789", line[i+1]) >= 0 {
				i++
			}
			s.id = bytes.Clone(line[from : i+1])
		}
	}
	if s.id != nil && (!jsontext.Value(s.id).IsValid() || !isID(s.id)) {
		s.id = nil
	}
	return s
}

// idOf is the id of a message that cannot be read for sure; nil for none.
func idOf(line []byte) json.RawMessage { return sketched(line).id }

// answered is the id of an answer that cannot be read for sure; nil for none.
func answered(line []byte) json.RawMessage {
	if s := sketched(line); s.result && !s.method {
		return s.id
	}
	return nil
}

// mend writes a message with U+FFFD in place of what is no character; nil where it is
// not that what is wrong with it.
func mend(line []byte) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowInvalidUTF8(true))
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(out.Bytes())
		}
		if err != nil {
			return nil
		}
		if t.Kind() == '"' {
			t = jsontext.String(t.String())
		}
		if err := e.WriteToken(t); err != nil {
			return nil
		}
	}
}

// A member is one of an object, in the order of its text.
type member struct {
	name  string
	value json.RawMessage
}

// members reads an object.
func members(text []byte) ([]member, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if t.Kind() != '{' {
		return nil, errors.New("not an object")
	}
	var list []member
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = json.RawMessage(bytes.Clone(v))
		list = append(list, m)
	}
	_, err = d.ReadToken()
	return list, err
}

// object writes members.
func object(list []member) json.RawMessage {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, quote(m.name)...)
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
}

// set replaces a member, or adds it; nil takes it out.
func set(list []member, name string, value json.RawMessage) []member {
	for i, m := range list {
		if m.name == name {
			if value == nil {
				return append(list[:i:i], list[i+1:]...)
			}
			list[i].value = value
			return list
		}
	}
	if value == nil {
		return list
	}
	return append(list, member{name, value})
}

func get(list []member, name string) json.RawMessage {
	for _, m := range list {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// quote writes a string as JSON, as short as it can be.
func quote(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil { // not UTF-8: U+FFFD stands where it is not
		b, _ = json.Marshal(s)
	}
	return b
}
