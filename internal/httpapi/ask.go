package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"leafproof"
	"leafproof/cas"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// asked says which part of an artifact is wanted: at most one of the first three.
type asked struct {
	Bytes   *[2]int64 `json:"bytes,omitempty"`   // byte offsets, half open
	Records *[2]int64 `json:"records,omitempty"` // record numbers from 0, half open
	Pointer *string   `json:"pointer,omitempty"` // RFC 6901
	Whole   bool      `json:"whole,omitempty"`   // see [leafproof.Selector]
	Receipt bool      `json:"receipt,omitempty"` // sign a receipt
}

func (a asked) selector() leafproof.Selector {
	sel := leafproof.Selector{Pointer: a.Pointer, Whole: a.Whole}
	if a.Bytes != nil {
		sel.Bytes = &merkle.Range{Start: a.Bytes[0], End: a.Bytes[1]}
	}
	if a.Records != nil {
		sel.Records = &merkle.Range{Start: a.Records[0], End: a.Records[1]}
	}
	if a.Receipt {
		sel.Receipt = new(leafproof.Statement)
	}
	return sel
}

// part is the body of POST /v1/artifacts/{id}/read: bytes and what they are.
type part struct {
	Encoding string               `json:"encoding"` // of data: utf-8 or base64
	Data     string               `json:"data"`
	Answer   *selector.Answer     `json:"answer"`
	Receipt  *leafproof.Statement `json:"receipt,omitempty"`
}

// answerTrailer carries the answer behind bytes that are sent as they are.
const answerTrailer = "Leafproof-Answer"

func (c *call) read() error {
	var in asked
	if err := c.decode(&in); err != nil {
		return err
	}
	sel := in.selector()
	kind, err := c.accepts("application/json", "application/octet-stream")
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Authorization, Accept")
	if kind == "application/octet-stream" {
		return c.readRaw(sel)
	}
	room := &inline{c: c}
	answer, err := c.s.store.Read(c.r.Context(), c.who, c.params["id"], sel, room)
	if room.err != nil {
		return room.err
	}
	if room.over {
		return refuse(http.StatusRequestEntityTooLarge, leafproof.CodeTooLarge, leafproof.FixCall, "",
			"the part has more than %d bytes: ask for less, for application/octet-stream, or for the content", maxInline)
	}
	if err != nil {
		return err
	}
	out := part{Encoding: "utf-8", Data: room.String(), Answer: answer, Receipt: sel.Receipt}
	if !utf8.Valid(room.Bytes()) {
		out.Encoding, out.Data = "base64", base64.StdEncoding.EncodeToString(room.Bytes())
	}
	return c.json(http.StatusOK, out)
}

// readRaw sends a part as it stands. What it is comes behind it.
func (c *call) readRaw(sel leafproof.Selector) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Trailer", answerTrailer)
	answer, err := c.s.store.Read(c.r.Context(), c.who, c.params["id"], sel, &c.w)
	if err != nil {
		return err
	}
	text, err := json.Marshal(struct {
		Answer  *selector.Answer     `json:"answer"`
		Receipt *leafproof.Statement `json:"receipt,omitempty"`
	}{answer, sel.Receipt})
	if err != nil {
		return err
	}
	if c.w.status == 0 {
		c.w.WriteHeader(http.StatusOK)
	}
	h.Set(answerTrailer, base64.StdEncoding.EncodeToString(text))
	return nil
}

// inline is room for a part that stands in a JSON answer.
type inline struct {
	bytes.Buffer
	c    *call
	over bool
	err  error // there is no room in memory
}

// Write implements [io.Writer].
func (b *inline) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxInline {
		b.over = true
		return 0, bytes.ErrTooLarge
	}
	if b.err = b.c.hold(len(p)); b.err != nil {
		return 0, b.err
	}
	return b.Buffer.Write(p)
}

// derivation is the body of POST /v1/artifacts/{id}/derive.
type derivation struct {
	Where      string     `json:"where,omitempty"`
	Select     []column   `json:"select,omitempty"`
	RunID      string     `json:"run_id,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	Place      string     `json:"place,omitempty"`
}

// column is a part of each record.
type column struct {
	Name string `json:"name,omitempty"`
	Path string `json:"path"`
}

// derived is what became of it.
type derived struct {
	Ref    manifest.ArtifactRef `json:"ref"`
	Answer *selector.Answer     `json:"answer"`
	Spec   json.RawMessage      `json:"spec"`
}

func (c *call) derive() error {
	var in derivation
	if err := c.decode(&in); err != nil {
		return err
	}
	d := leafproof.Derivation{Where: in.Where, RunID: in.RunID, ToolCallID: in.ToolCallID, Place: cas.Placement(in.Place)}
	for _, col := range in.Select {
		d.Select = append(d.Select, leafproof.Column{Name: col.Name, Path: col.Path})
	}
	if in.ExpiresAt != nil {
		d.ExpiresAt = *in.ExpiresAt
	}
	out, err := c.s.store.Derive(c.r.Context(), c.who, c.params["id"], d)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/artifacts/"+out.Ref.ArtifactID)
	return c.json(http.StatusCreated, derived{out.Ref, out.Answer, out.Spec})
}

// need is the body of POST /v1/artifacts/{id}/assess.
type need struct {
	Require       []string              `json:"require,omitempty"` // K=V
	Optional      []string              `json:"optional,omitempty"`
	MaxAgeSeconds int64                 `json:"max_age_seconds,omitempty"`
	AsOf          *time.Time            `json:"as_of,omitempty"`
	Actions       []leafproof.Action    `json:"actions,omitempty"`
	Ref           *manifest.ArtifactRef `json:"ref,omitempty"`
	Deep          bool                  `json:"deep,omitempty"`
}

// maxAge is the longest that a need can be about: a hundred years.
const maxAge = 100 * 366 * 24 * 60 * 60

func (c *call) assess() error {
	var in need
	if err := c.decode(&in); err != nil {
		return err
	}
	if in.MaxAgeSeconds < 0 || in.MaxAgeSeconds > maxAge {
		return invalid(http.StatusBadRequest, "/max_age_seconds", "max_age_seconds is from 0 to %d", maxAge)
	}
	n := leafproof.Need{MaxAge: time.Duration(in.MaxAgeSeconds) * time.Second, Actions: in.Actions, Ref: in.Ref, Deep: in.Deep}
	for _, list := range []struct {
		at    string
		texts []string
		into  *[]leafproof.Fact
	}{{"/require", in.Require, &n.Require}, {"/optional", in.Optional, &n.Optional}} {
		for _, text := range list.texts {
			f, err := leafproof.ParseFact(text)
			if err != nil {
				return invalid(http.StatusBadRequest, list.at, "%v", err)
			}
			*list.into = append(*list.into, f)
		}
	}
	if in.AsOf != nil {
		n.AsOf = *in.AsOf
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.o.QueryTime)
	defer cancel()
	out, err := c.s.store.Assess(ctx, c.who, c.params["id"], n)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, out)
}
