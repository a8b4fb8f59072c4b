package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// decode reads one JSON value, strictly: no name stands twice, strings are valid
// Unicode, and numbers keep their digits.
func decode(b []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	v, err := next(d)
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF {
			return v, nil
		}
		if err == nil {
			err = errors.New("something follows the value")
		}
	}
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends inside a value")
	}
	return nil, err
}

func next(d *jsontext.Decoder) (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if d.StackDepth() > MaxDepth {
		return nil, fmt.Errorf("more than %d levels", MaxDepth)
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return t.Bool(), nil
	case '"':
		return t.String(), nil
	case '0':
		return number(t.String())
	case '{':
		m := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			if m[key], err = next(d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return m, err
	default:
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := next(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.ReadToken()
		return list, err
	}
}

// number refuses numbers that would take long to compare exactly.
func number(s string) (any, error) {
	if len(s) > MaxDigits {
		return nil, fmt.Errorf("a number of more than %d digits", MaxDigits)
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(s[i+1:]); err != nil || exp > MaxExponent || exp < -MaxExponent {
			return nil, fmt.Errorf("a number with an exponent beyond ±%d", MaxExponent)
		}
	}
	return json.Number(s), nil
}
