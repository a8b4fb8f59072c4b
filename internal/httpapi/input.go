package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"leafproof"
)

// maxDepth is how deep a JSON body may be nested.
const maxDepth = 32

// body is what the caller sends, with the bounds on it: it is at most so long, and
// does not stand still.
type body struct {
	c    *call
	r    io.Reader
	most int64
	n    int64
	when time.Time // of the deadline that was set last
	done bool      // it was read to its end
	err  error     // why it ended before its end
	// What is stated of it.
	stated []promised
}

// take gives the body of the request, of at most so many bytes.
func (c *call) take(most int64) (*body, error) {
	if c.r.ContentLength > most {
		return nil, refuse(http.StatusRequestEntityTooLarge, leafproof.CodeTooLarge, leafproof.FixCall, "", "the body has %d bytes, and at most %d are taken", c.r.ContentLength, most)
	}
	c.body = &body{c: c, r: c.r.Body, most: most}
	list, err := c.statedDigests("Content-Digest")
	if err != nil {
		return nil, err
	}
	c.body.demand(list)
	return c.body, nil
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	// The time to send it grows with what has come: patience, and a second for each KiB.
	if now := time.Now(); b.when.IsZero() || now.Sub(b.when) > min(time.Second, patience/8) {
		b.when = now
		_ = b.c.control.SetReadDeadline(maxTime(b.c.begun.Add(patience+time.Duration(b.n/slowest)*time.Second), now, b.n))
	}
	if b.c.cut.Load() {
		_ = b.c.control.SetReadDeadline(past)
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.took(p[:n])
	switch {
	case b.n > b.most:
		b.err = refuse(http.StatusRequestEntityTooLarge, leafproof.CodeTooLarge, leafproof.FixCall, "", "the body has more than %d bytes", b.most)
		return 0, b.err
	case err == io.EOF: //nolint:errorlint // a reader's end is that value
		// What is done with it now may take its time.
		b.done = true
		_ = b.c.control.SetReadDeadline(time.Time{})
		b.err = b.judge()
	case err == nil:
	case isTimeout(err):
		b.err = wait(http.StatusRequestTimeout, leafproof.CodeRequestInvalid, "", "the body came too slowly: %d bytes in %v", b.n, time.Since(b.c.begun).Round(time.Second))
	default:
		b.err = wait(http.StatusBadRequest, leafproof.CodeRequestInvalid, "", "the body ended after %d bytes: %v", b.n, err)
	}
	if b.err != nil {
		err = b.err
	}
	return n, err
}

// finish reads what is left of the body, which is nothing that is wanted, to its end.
func (b *body) finish() error {
	if _, err := io.Copy(io.Discard, b); err != nil {
		return err
	}
	return nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// cutBody ends the body of a call that is under way, from another goroutine.
func (c *call) cutBody() {
	if c.r.Body == http.NoBody {
		return
	}
	c.cut.Store(true) // before the deadline, which Read may be about to set anew
	_ = c.control.SetReadDeadline(past)
}

// maxTime bounds how long a body that was quick until now may stand still.
func maxTime(until, now time.Time, n int64) time.Time {
	if limit := now.Add(2 * patience); n > 0 && until.After(limit) {
		return limit
	}
	return until
}

// decode reads the JSON body into v: one value with no member twice, unknown or in
// another case, nested no deeper than maxDepth.
func (c *call) decode(v any) error {
	if !isJSON(c.r.Header.Get("Content-Type")) {
		return invalid(http.StatusUnsupportedMediaType, "Content-Type", "the body must be application/json")
	}
	b, err := c.take(maxJSON)
	if err != nil {
		return err
	}
	text, err := c.readAll(b)
	if err != nil {
		return err
	}
	return decodeStrict(text, v)
}

func decodeStrict(text []byte, v any) error {
	if err := checkDepth(text); err != nil {
		return err
	}
	return decodeMembers(text, v)
}

// decodeMembers is decodeStrict without a bound on the depth but that of the parser.
func decodeMembers(text []byte, v any) error {
	err := json.Unmarshal(text, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	at, why := "", err.Error()
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, why = string(e.JSONPointer), fmt.Sprintf("byte %d: %v", e.ByteOffset, e.Err)
	} else if e, ok := errors.AsType[*json.SemanticError](err); ok {
		at = string(e.JSONPointer)
		switch {
		case errors.Is(e.Err, json.ErrUnknownName):
			why = "an unknown member"
		case e.Err != nil:
			why = e.Err.Error()
		default:
			why = fmt.Sprintf("a JSON %v does not go there", e.JSONKind)
		}
	}
	return invalid(http.StatusBadRequest, at, "the body: %s: %s", at, why)
}

// checkDepth reads the tokens of one JSON value.
func checkDepth(text []byte) error {
	depth := 0
	inString := false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return invalid(http.StatusBadRequest, "", "the body is nested deeper than %d at byte %d", maxDepth, i)
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}

// query returns the query parameters, of which there are no others than those named
// and none twice but index.
func (c *call) query(names ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, invalid(http.StatusBadRequest, "query", "the query does not parse")
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			return nil, invalid(http.StatusBadRequest, "query", "%s is no parameter of this", printable(name))
		}
		if len(values) > 1 && name != "index" {
			return nil, invalid(http.StatusBadRequest, name, "%s is given twice", name)
		}
	}
	return q, nil
}

// page returns the parameters of a listing: where it goes on, and how much is wanted.
func (c *call) page(q url.Values) (after int64, limit int, err error) {
	if q.Get("cursor") == "" {
		q.Del("cursor") // the beginning
	}
	if after, err = number(q, "cursor", 0, 0, math.MaxInt64); err != nil {
		return 0, 0, err
	}
	n, err := number(q, "limit", 100, 1, 1000)
	return after, int(n), err
}

// number reads a parameter that is a whole number.
func number(q url.Values, name string, absent, low, high int64) (int64, error) {
	text := q.Get(name)
	if text == "" && !q.Has(name) {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high || text != strconv.FormatInt(n, 10) {
		return 0, invalid(http.StatusBadRequest, name, "%s is a whole number from %d to %d", name, low, high)
	}
	return n, nil
}

// truth reads a parameter that is true or false.
func truth(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	if q.Has(name) {
		return false, invalid(http.StatusBadRequest, name, "%s is true or false", name)
	}
	return false, nil
}

// bodyText reads a JSON body.
func (c *call) bodyText(most int64) ([]byte, error) {
	if !isJSON(c.r.Header.Get("Content-Type")) {
		return nil, invalid(http.StatusUnsupportedMediaType, "Content-Type", "the body must be application/json")
	}
	b, err := c.take(most)
	if err != nil {
		return nil, err
	}
	return c.readAll(b)
}

// isJSON reports the media type of JSON, with whatever parameters: they mean nothing.
func isJSON(text string) bool {
	media, _, err := mime.ParseMediaType(text)
	return err == nil && media == "application/json"
}

// decodeDeep is decode for bodies that hold other people's JSON, which may be nested
// deeper.
func (c *call) decodeDeep(v any, most int64) error {
	text, err := c.bodyText(most)
	if err != nil {
		return err
	}
	return decodeMembers(text, v)
}

// memberSet are the members of an object as they stand there.
type memberSet map[string]jsontext.Value

// topMembers reads the members of an object, which has no others than those named and
// none twice. What stands in them is for whoever takes it to judge: a model's input
// with a name twice gets the answer that is for models.
func topMembers(text []byte, names ...string) (memberSet, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	bad := func(err error) (memberSet, error) {
		at := int64(d.InputOffset())
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			at = e.ByteOffset
		}
		return nil, invalid(http.StatusBadRequest, "", "the body: byte %d: not a JSON object: %v", at, err)
	}
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return bad(errors.Join(err, errors.New("an object is expected")))
	}
	out := memberSet{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return bad(err)
		}
		known := false
		for _, n := range names {
			known = known || n == name.String()
		}
		key := name.String()
		if _, twice := out[key]; twice || !known {
			return nil, invalid(http.StatusBadRequest, "/"+printable(key), "%s is no member of this body, or is given twice", printable(key))
		}
		v, err := d.ReadValue()
		if err != nil {
			return bad(err)
		}
		out[key] = v.Clone()
	}
	if _, err := d.ReadToken(); err != nil {
		return bad(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return bad(errors.New("something stands behind it"))
	}
	return out, nil
}

// strings reads the members that are strings.
func (m memberSet) strings(into map[string]*string) error {
	for name, target := range into {
		if v := m[name]; v != nil {
			if err := decodeStrict(v, target); err != nil {
				return invalid(http.StatusBadRequest, "/"+name, "%s is a string", name)
			}
		}
	}
	return nil
}
