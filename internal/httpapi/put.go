package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"leafproof"
	"leafproof/cas"
	"leafproof/manifest"
)

// factsHeader states facts in a header: JSON in ASCII, or base64 (either alphabet) of
// JSON.
const factsHeader = "Leafproof-Manifest"

// noteHeader carries what a producer should hear of what was published.
const noteHeader = "Leafproof-Note"

// putParams are the parameters that say how to store, and what no facts can.
var putParams = []string{"sha256", "place", "durability", "filename", "records", "at", "csv_delimiter", "csv_quote", "csv_header", "index"}

// indexMemory is how many bytes the build of an artifact's indexes may take: there may
// be many under way.
const indexMemory = 16 << 20

// putting is an artifact that is about to be put.
type putting struct {
	o leafproof.PutOptions
	f leafproof.Facts
}

// put answers PUT and POST /v1/artifacts.
func (c *call) put() error {
	q, err := c.query(putParams...)
	if err != nil {
		return err
	}
	b, err := c.take(c.s.o.BodyBytes)
	if err != nil {
		return err
	}
	media, params, err := c.mediaType()
	if err != nil {
		return err
	}
	whole, err := c.statedDigests("Repr-Digest")
	if err != nil {
		return err
	}
	if strings.HasPrefix(media, "multipart/") {
		if whole != nil {
			return invalid(http.StatusBadRequest, "Repr-Digest", "of a form there is a Content-Digest alone")
		}
		return c.putParts(q, b, params["boundary"])
	}
	b.demand(whole)
	p := &putting{}
	if err := p.headerFacts(c); err != nil {
		return err
	}
	if err := p.settle(c, q, media); err != nil {
		return err
	}
	return c.store(p, b, nil)
}

// mediaType is what the caller says that the body is; "" for what programs say that
// have not looked.
func (c *call) mediaType() (media string, params map[string]string, err error) {
	text := c.r.Header.Get("Content-Type")
	if text == "" {
		return "", nil, nil
	}
	media, params, err = mime.ParseMediaType(text)
	switch {
	case err != nil:
		return "", nil, invalid(http.StatusUnsupportedMediaType, "Content-Type", "%s is no media type", printable(text))
	case media == "application/x-www-form-urlencoded" || media == "application/octet-stream":
		return "", nil, nil
	case strings.HasPrefix(media, "multipart/"):
		return media, params, nil
	}
	return text, params, nil
}

// headerFacts is the JSON of the facts header; nil where there is none.
func headerFacts(given []string) ([]byte, error) {
	if len(given) == 0 {
		return nil, nil
	}
	text := []byte(strings.TrimSpace(given[0]))
	if len(text) > 0 && text[0] == '{' {
		return text, nil
	}
	plain := strings.NewReplacer("-", "+", "_", "/", "=", "").Replace(string(text))
	text, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		return nil, invalid(http.StatusBadRequest, factsHeader, "%s is neither JSON nor base64 of JSON", factsHeader)
	}
	return text, nil
}

// headerFacts takes the facts of the header, if there are any.
func (p *putting) headerFacts(c *call) error {
	text, err := headerFacts(c.r.Header.Values(factsHeader))
	if err != nil || text == nil {
		return err
	}
	return p.facts(text)
}

func (p *putting) facts(text []byte) (err error) {
	p.f, p.o, err = leafproof.ParseFacts(text)
	return err
}

// settle completes what the facts say with the parameters, and binds them to who
// puts: the tenant and, where he is bound to one, the run are his.
func (p *putting) settle(c *call, q url.Values, media string) (err error) {
	if p.o.Tenant, err = c.tenant(p.o.Tenant); err != nil {
		return err
	}
	if run := c.info.Run; run != nil {
		if p.f.RunID != "" && p.f.RunID != *run {
			return invalid(http.StatusBadRequest, "/artifact_ref/scope/run_id", "the run is that of who asks, and need not be said")
		}
		p.f.RunID = *run
	}
	if p.o.MediaType == "" {
		p.o.MediaType = media
	}
	for name, target := range map[string]*string{"records": &p.o.Records, "at": &p.o.At} {
		if q.Has(name) && *target != "" {
			return invalid(http.StatusBadRequest, name, "%s is said by the facts too", name)
		}
		if q.Has(name) {
			*target = q.Get(name)
		}
	}
	if p.o.SHA256, err = truth(q, "sha256"); err != nil {
		return err
	}
	p.o.Name = q.Get("filename")
	switch p.o.Place = cas.Placement(q.Get("place")); p.o.Place {
	case "", cas.Auto, cas.Whole, cas.Chunked, cas.Packed:
	default:
		return invalid(http.StatusBadRequest, "place", "place is auto, whole, chunked or packed")
	}
	switch p.o.Durability = cas.Durability(q.Get("durability")); p.o.Durability {
	case "", cas.Durable, cas.Grouped, cas.Cached:
	default:
		return invalid(http.StatusBadRequest, "durability", "durability is durable, batch or cache")
	}
	for name, target := range map[string]**string{"csv_delimiter": &p.o.CSV.Delimiter, "csv_quote": &p.o.CSV.Quote} {
		if q.Has(name) {
			*target = new(q.Get(name))
		}
	}
	if q.Has("csv_header") {
		header, err := truth(q, "csv_header")
		if err != nil {
			return err
		}
		p.o.CSV.Header = &header
	}
	p.o.Indexes, p.o.IndexMemory = q["index"], indexMemory
	p.f.Caller = c.who
	return p.f.Check(p.o)
}

// store puts the bytes of r and publishes them, if end finds nothing wrong behind
// them.
func (c *call) store(p *putting, r io.Reader, end func() error) error {
	d, err := c.s.store.Put(c.r.Context(), r, p.o)
	if err != nil {
		return err
	}
	if end != nil {
		if err := end(); err != nil {
			d.Discard()
			return err
		}
	}
	return c.publish(p, d)
}

// publish publishes a draft and answers with its reference. Nobody who goes away now
// stops it: it is a matter of milliseconds.
func (c *call) publish(p *putting, d *leafproof.Draft) error {
	ref, err := c.s.store.Publish(context.WithoutCancel(c.r.Context()), d, p.f)
	if err != nil {
		return err
	}
	c.published(d, ref)
	return c.json(http.StatusCreated, ref)
}

// published says in the header of the answer what was published.
func (c *call) published(d *leafproof.Draft, ref manifest.ArtifactRef) {
	c.s.metrics.published.Inc()
	h := c.w.Header()
	h.Set("Location", "/v1/artifacts/"+ref.ArtifactID)
	for _, note := range notes(d, ref) {
		h.Add(noteHeader, note)
	}
}

// notes are what a producer should hear of what he published.
func notes(d *leafproof.Draft, ref manifest.ArtifactRef) (out []string) {
	say := func(format string, args ...any) {
		out = append(out, ascii(fmt.Sprintf(format, args...)))
	}
	say("records: %s", d.Chosen())
	if n := d.Undecidable(); n > 0 {
		say("undecidable records: %d; no query will match or rule them out", n)
	}
	for _, h := range d.StillHeld() {
		say("warning: %s is declared redacted, and still has a value (record %d)", h.Path, h.Record)
	}
	if err := d.Unsaid(); err != nil {
		say("warning: no signed statement says what it supersedes, beside its own manifest")
	}
	if s := d.Schema(); s != nil && s.Failed > 0 {
		say("warning: %d of %d do not satisfy the schema %s", s.Failed, s.Checked, *ref.SchemaVersion)
	}
	return out[:min(len(out), 16)]
}

// ascii is text as a header can have it.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), 512)])
}

// putParts puts the last part of a multipart body; before it may stand facts (JSON)
// and arguments (the exact bytes of the tool call's).
func (c *call) putParts(q url.Values, b *body, boundary string) error {
	if boundary == "" || len(boundary) > 70 {
		return invalid(http.StatusUnsupportedMediaType, "Content-Type", "a multipart body names its boundary")
	}
	parts := multipart.NewReader(b, boundary)
	p := &putting{}
	if err := p.headerFacts(c); err != nil {
		return err
	}
	seen := map[string]bool{}
	stated := c.r.Header.Get(factsHeader) != ""
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // a reader's end is that value
			return invalid(http.StatusBadRequest, "content", "no part is named content")
		}
		if err != nil {
			return c.badParts(err)
		}
		name := part.FormName()
		if seen[name] {
			return invalid(http.StatusBadRequest, name, "two parts are named %s", printable(name))
		}
		seen[name] = true
		switch name {
		case "facts":
			text, err := c.readPart(part, maxJSON)
			if err == nil && stated {
				err = invalid(http.StatusBadRequest, "facts", "facts stand in a header and in a part")
			}
			if err == nil {
				err = p.facts(text)
			}
			if err != nil {
				return err
			}
		case "arguments":
			text, err := c.readPart(part, maxArguments)
			if err != nil {
				return err
			}
			if p.f.Producer == nil {
				return invalid(http.StatusBadRequest, "arguments", "the facts, which come first, name no tool whose arguments these are (lineage.producer.tool)")
			}
			p.f.Producer.Arguments = text
		case "content":
			media := part.Header.Get("Content-Type")
			if media == "application/octet-stream" {
				media = ""
			}
			if err := p.settle(c, q, media); err != nil {
				return err
			}
			if p.o.Name == "" {
				p.o.Name = part.FileName()
			}
			return c.store(p, &partReader{c: c, r: part}, func() error { return c.endParts(parts, "content") })
		default:
			return invalid(http.StatusBadRequest, "parts", "%s is none of the parts facts, arguments and content", printable(name))
		}
	}
}

// partReader reads the bytes of the last part; that the body does not go on as it must
// is the caller's fault.
type partReader struct {
	c   *call
	r   io.Reader
	end func() error // what is wrong with what follows; nil: it is not asked
	err error        // why it ended before its end: whoever asks again hears it again
}

func (p *partReader) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.r.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // a reader's end is that value
		if p.c.body.err == nil {
			p.c.body.err = p.c.badParts(err)
		}
		p.err = p.c.body.err
		return n, p.err
	}
	if err == io.EOF && p.end != nil { //nolint:errorlint // a reader's end is that value
		if wrong := p.end(); wrong != nil {
			p.c.body.err, p.err, err = wrong, wrong, wrong
		}
		p.end = nil
	}
	return n, err
}

// endParts demands that no part follows the one that may be of any length.
func (c *call) endParts(parts *multipart.Reader, what string) error {
	_, err := parts.NextRawPart()
	switch {
	case err == io.EOF: //nolint:errorlint // a reader's end is that value
		return c.body.finish()
	case err == nil:
		return invalid(http.StatusBadRequest, "parts", "%s is the last part", what)
	}
	return c.badParts(err)
}

// badParts is what is wrong with a multipart body, or with the connection.
func (c *call) badParts(err error) error {
	if c.body.err != nil {
		return c.body.err
	}
	return invalid(http.StatusBadRequest, "parts", "the multipart body does not parse")
}

func (c *call) readPart(part *multipart.Part, most int64) ([]byte, error) {
	text, err := c.readAll(io.LimitReader(part, most+1))
	if err == nil && int64(len(text)) > most {
		err = refuse(http.StatusRequestEntityTooLarge, leafproof.CodeTooLarge, leafproof.FixCall, part.FormName(), "the part has more than %d bytes", most)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = invalid(http.StatusBadRequest, part.FormName(), "the part does not end")
	}
	return text, err
}
