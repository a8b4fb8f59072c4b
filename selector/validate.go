package selector

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// verdict is what validation found in one record.
type verdict struct {
	unparseable, duplicate, badText, overLimit bool
	depth                                      int64
}

func (v verdict) undecidable() bool {
	return v.unparseable || v.duplicate || v.badText || v.overLimit
}

// validator checks JSON records with jsontext, strictly: one value, no
// duplicate names, no invalid UTF-8 or lone surrogate, within the limits.
type validator struct {
	limits  Limits
	short   int64 // numbers of up to so many bytes are within the limits
	dec     *jsontext.Decoder
	buf     bytes.Buffer
	scratch []byte
}

func newValidator(l Limits) *validator {
	v := &validator{limits: l, dec: jsontext.NewDecoder(&bytes.Buffer{}), scratch: make([]byte, 0, 64)}
	if l.Digits >= 5 && l.Exponent >= 1000 {
		v.short = 5 // as in 9e999
	}
	return v
}

var errNumber = errors.New("number beyond the limits")

// record checks one record. open gives its bytes from the beginning, as often
// as it is called. The error is one of reading.
func (v *validator) record(open func() io.Reader) (verdict, error) {
	var out verdict
	err := v.walk(open(), &out.depth, true)
	if err == nil {
		return out, nil
	}
	// The strict pass names one fault. Find out which there are, by allowing
	// all, then all but one.
	lax := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	for _, pass := range []struct {
		flag *bool
		opts []jsontext.Options
	}{
		{&out.unparseable, lax},
		{&out.badText, lax[:1]},
		{&out.duplicate, lax[1:]},
	} {
		err := v.walk(open(), &out.depth, false, pass.opts...)
		switch {
		case isReadError(err):
			return out, err
		case errors.Is(err, errDepth): // nothing behind it was looked at
			out.overLimit = true
			return out, nil
		case err != nil:
			*pass.flag = true
		}
		if out.unparseable {
			return out, nil
		}
	}
	switch err := v.walk(open(), &out.depth, true, lax...); {
	case isReadError(err):
		return out, err
	case err != nil:
		out.overLimit = true
	}
	return out, nil
}

func isReadError(err error) bool {
	_, syntactic := errors.AsType[*jsontext.SyntacticError](err)
	return err != nil && !syntactic && err != io.ErrUnexpectedEOF && !errors.Is(err, errDepth) && !errors.Is(err, errNumber)
}

// walk reads all tokens of one value. It gives up at the depth limit, and at a
// number beyond the limits if numbers are looked at.
func (v *validator) walk(r io.Reader, depth *int64, numbers bool, opts ...jsontext.Options) error {
	d := v.dec
	d.Reset(r, opts...)
	for first := true; ; first = false {
		if !first && d.StackDepth() == 0 {
			if _, err := d.ReadToken(); err != io.EOF {
				if err == nil {
					err = &jsontext.SyntacticError{ByteOffset: d.InputOffset(), Err: errors.New("more after the value")}
				}
				return err
			}
			return nil
		}
		before := d.InputOffset()
		t, err := d.ReadToken()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch t.Kind() {
		case '{', '[':
			*depth = max(*depth, int64(d.StackDepth()))
			if *depth > v.limits.Depth {
				return errDepth
			}
		case '0':
			if numbers && d.InputOffset()-before > v.short {
				if _, ok := parseDecimal([]byte(t.String()), v.scratch, v.limits); !ok {
					return errNumber
				}
			}
		}
	}
}

// bytes checks a record in memory.
func (v *validator) bytes(p []byte) (verdict, error) {
	return v.record(func() io.Reader {
		v.buf = *bytes.NewBuffer(p)
		return &v.buf
	})
}

// utf8Reader reports whether all that r holds is valid UTF-8, in one block of
// memory.
func utf8Reader(r io.Reader) (bool, error) {
	buf := make([]byte, 0, blockSize)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil && err != io.EOF {
			return false, err
		}
		rest := incompleteRune(buf)
		if err == io.EOF {
			rest = 0
		}
		if !utf8.Valid(buf[:len(buf)-rest]) {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		buf = buf[:copy(buf, buf[len(buf)-rest:])]
	}
}

// incompleteRune returns how many bytes at the end of p may be the beginning of
// a rune that is cut off.
func incompleteRune(p []byte) int {
	for n := 1; n <= 3 && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if c >= 0xc0 && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
