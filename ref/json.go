package ref

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxInt is the highest number of a seq, part or size: what every JSON reader keeps.
const maxInt = 1<<53 - 1

var (
	errTrailing = errors.New("something follows the value")
	errKind     = errors.New("a value of another type")
)

// decoder reads strict JSON: no name stands twice, strings are UTF-8.
func decoder(raw []byte) *jsontext.Decoder { return jsontext.NewDecoder(bytes.NewBuffer(raw)) }

// valueAt reads the next value and returns it as it stands in raw, which the decoder
// reads.
func valueAt(d *jsontext.Decoder, raw []byte) ([]byte, error) {
	v, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	return raw[end-len(v) : end : end], nil
}

// members gives the members of the object that raw is to each, in order; the values
// are parts of raw.
func members(raw []byte, each func(name string, value []byte) error) error {
	return membersAt(raw, func(name string, value []byte, _ int) error { return each(name, value) })
}

// membersAt is members with the place in raw where a value begins.
func membersAt(raw []byte, each func(name string, value []byte, at int) error) error {
	d := decoder(raw)
	t, err := d.ReadToken()
	if err == nil && t.Kind() != '{' {
		err = errKind
	}
	if err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		value, err := valueAt(d, raw)
		if err == nil {
			err = each(key, value, int(d.InputOffset())-len(value))
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	return ends(d)
}

// elements gives the elements of the array that raw is to each.
func elements(raw []byte, each func(value []byte) error) error {
	d := decoder(raw)
	t, err := d.ReadToken()
	if err == nil && t.Kind() != '[' {
		err = errKind
	}
	if err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		value, err := valueAt(d, raw)
		if err == nil {
			err = each(value)
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	return ends(d)
}

// ends refuses what follows the value.
func ends(d *jsontext.Decoder) error {
	switch _, err := d.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	}
	return errTrailing
}

// isNull reports the value null.
func isNull(value []byte) bool { return string(value) == "null" }

// text reads a JSON string, whose quotes and escapes were checked.
func text(value []byte) (string, error) {
	if len(value) == 0 || value[0] != '"' {
		return "", errKind
	}
	s, err := jsontext.AppendUnquote(nil, value)
	return string(s), err
}

// integer reads a whole number from 0 to 2^53 − 1, written in digits alone.
func integer(value []byte) (uint64, error) {
	if len(value) == 0 || len(value) > 16 {
		return 0, errKind
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, errKind
		}
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || n > maxInt {
		return 0, errKind
	}
	return n, nil
}

// clip is a text of the caller's, fit to be repeated in a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
