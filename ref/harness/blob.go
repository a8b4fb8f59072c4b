package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"leafproof/selector"
)

// Blob is content that leaves a tool's result, wherever it stands in it and however
// long it is: it is stored while it is read, and the model is given a marker in its
// place. What is not a Blob stays as it is.
type Blob struct {
	io.Reader
	// MediaType says what it is; "" lets the store find out.
	MediaType string
	// Name is a file name as a hint, and Records the record format; "" lets the store
	// find out.
	Name, Records string
	// Facts is a document of facts that the tool states of what it captured: coverage,
	// source, what was left out (docs/FORMAT.md, Stated facts). nil states none.
	Facts json.RawMessage
}

// ErrBlob is a Blob where nothing can take it out: in a value that writes its own
// JSON. Its content goes nowhere.
var ErrBlob = errors.New("a blob can leave a result only where the harness sees it")

// MarshalJSON refuses: a blob's content is never JSON for a model.
func (Blob) MarshalJSON() ([]byte, error) { return nil, ErrBlob }

// Raw is a result that is JSON already, from a program in another language say.
type Raw struct {
	JSON json.RawMessage
	// Blobs stand in place of the values at these JSON Pointers.
	Blobs map[string]Blob
}

// sink stores a blob that stands at a path of names and array indexes, and returns
// what stands in its place.
type sink func(path []string, b Blob) ([]byte, error)

// encode writes a result as JSON, with each blob, recipe and live object given to what
// takes it. A json.RawMessage is taken byte for byte; other values are written as
// encoding/json writes them.
func encode(v any, put sink, recipe func([]string, Recipe) []byte, freeze func(KernelHandle) (Blob, error)) ([]byte, error) {
	switch r := v.(type) {
	case json.RawMessage:
		return rawResult(Raw{JSON: r}, put)
	case Raw:
		return rawResult(r, put)
	case *Raw:
		if r != nil {
			return rawResult(*r, put)
		}
	}
	e := &encoder{put: put, seen: map[io.Reader]bool{}}
	blobs := jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, b Blob) error { return e.blob(enc, b) })
	recipes := jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, r Recipe) error {
		return enc.WriteValue(recipe(placeOf(enc), r))
	})
	live := jsonv2.MarshalToFunc(func(enc *jsontext.Encoder, h KernelHandle) error {
		b, err := freeze(h)
		if err != nil {
			return err
		}
		return e.blob(enc, b)
	})
	var out bytes.Buffer
	err := jsonv2.MarshalWrite(&out, v, jsonv1.DefaultOptionsV1(), jsonv2.WithMarshalers(jsonv2.JoinMarshalers(blobs, recipes, live)))
	if err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

type encoder struct {
	put  sink
	seen map[io.Reader]bool
}

func (e *encoder) blob(enc *jsontext.Encoder, b Blob) error {
	if b.Reader != nil && reflect.TypeOf(b.Reader).Comparable() {
		if e.seen[b.Reader] {
			return fmt.Errorf("%w: one reader stands in two places, and can be read once", ErrBlob)
		}
		e.seen[b.Reader] = true
	}
	marker, err := e.put(placeOf(enc), b)
	if err != nil {
		return err
	}
	return enc.WriteValue(jsontext.Value(marker))
}

// placeOf is the path of the value that is written next.
func placeOf(enc *jsontext.Encoder) []string {
	path := slices.Collect(enc.StackPointer().Tokens())
	depth := enc.StackDepth()
	if kind, n := enc.StackIndex(depth); kind == jsontext.KindBeginArray {
		if n > 0 { // the pointer is that of the element before
			path = path[:len(path)-1]
		}
		path = append(path, strconv.FormatInt(n, 10))
	}
	return path
}

// rawResult puts markers into JSON where blobs stand in place of its values.
func rawResult(r Raw, put sink) (_ []byte, err error) {
	taken := map[string]bool{}
	defer func() {
		for ptr, b := range r.Blobs { // put closes what it is given
			if !taken[ptr] {
				err = errors.Join(err, closeReader(b.Reader))
			}
		}
	}()
	if !json.Valid(r.JSON) {
		return nil, errors.New("the result is not JSON")
	}
	type hole struct {
		span selector.Span
		ptr  string
		path []string
		blob Blob
	}
	var holes []hole
	for ptr, b := range r.Blobs {
		span, err := selector.FindPointer(context.Background(), bytes.NewReader(r.JSON), int64(len(r.JSON)), ptr)
		if err != nil {
			return nil, fmt.Errorf("a blob for %q: %w", ptr, err)
		}
		holes = append(holes, hole{span, ptr, slices.Collect(jsontext.Pointer(ptr).Tokens()), b})
	}
	slices.SortFunc(holes, func(a, b hole) int { return int(a.span.Start - b.span.Start) })
	out, at := []byte(nil), int64(0)
	for _, h := range holes {
		if h.span.Start < at {
			return nil, fmt.Errorf("a blob for %q, which is within another", strings.Join(h.path, "/"))
		}
		taken[h.ptr] = true
		marker, err := put(h.path, h.blob)
		if err != nil {
			return nil, err
		}
		out = append(append(out, r.JSON[at:h.span.Start]...), marker...)
		at = h.span.End
	}
	return append(out, r.JSON[at:]...), nil
}

// Content is the result of an MCP tool call as a result's value: the object with the
// array "content". It is recorded as [FromContent] reads it, its text as the tool's
// OpaqueText says, and it is an error where it says isError.
type Content json.RawMessage

// content is what there is of an MCP content block.
type content struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
	Resource *struct {
		MIMEType string  `json:"mimeType"`
		Blob     *string `json:"blob"`
		Text     *string `json:"text"`
	} `json:"resource"`
}

// FromContent reads the result of an MCP tool call, an object with the array
// "content", or that array alone. Images, audio and the blobs of embedded resources
// are Blobs. Text is a value like any other, unless the tool's text is content: with
// opaqueText each text is a Blob too. It is for the tool to be declared so, once; no
// length decides it.
func FromContent(raw json.RawMessage, opaqueText bool) (Raw, error) {
	out := Raw{JSON: raw, Blobs: map[string]Blob{}}
	var result struct {
		Content []content `json:"content"`
	}
	list, at := &result.Content, "/content"
	var err error
	if t := bytes.TrimLeft(raw, " \t\r\n"); len(t) > 0 && t[0] == '[' {
		at, err = "", json.Unmarshal(raw, list)
	} else {
		err = json.Unmarshal(raw, &result)
	}
	if err != nil {
		return Raw{}, fmt.Errorf("not the result of a tool: %w", err)
	}
	for i, c := range *list {
		at := at + "/" + strconv.Itoa(i)
		switch {
		case c.Type == "image" || c.Type == "audio":
			out.Blobs[at+"/data"] = Blob{Reader: base64.NewDecoder(base64.StdEncoding, strings.NewReader(c.Data)), MediaType: c.MIMEType}
		case c.Type == "resource" && c.Resource != nil && c.Resource.Blob != nil:
			out.Blobs[at+"/resource/blob"] = Blob{
				Reader: base64.NewDecoder(base64.StdEncoding, strings.NewReader(*c.Resource.Blob)), MediaType: c.Resource.MIMEType,
			}
		case c.Type == "resource" && c.Resource != nil && c.Resource.Text != nil && opaqueText:
			out.Blobs[at+"/resource/text"] = Blob{Reader: strings.NewReader(*c.Resource.Text), MediaType: c.Resource.MIMEType}
		case c.Type == "text" && opaqueText:
			out.Blobs[at+"/text"] = Blob{Reader: strings.NewReader(c.Text)}
		}
	}
	return out, nil
}
