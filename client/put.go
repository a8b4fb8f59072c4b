package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// PutOptions say what an artifact is, and how it is to be stored.
type PutOptions struct {
	// Facts are what the producer states; the manifest must say the same.
	Facts manifest.Stated
	// Arguments are the exact bytes of the tool call's arguments, where Facts name a
	// producer. The manifest gets a keyed digest of them.
	Arguments []byte
	// Records is the format of the records: auto, ndjson, json, csv, text, concat or
	// none; "" is auto. Name, a file's, is a hint at it. They take the place of what
	// Facts say.
	Records, Name string
	// Index are paths over whose values in the records indexes are built: JSON Pointers or
	// JSONPath queries. The manifest must name each.
	Index []string
	// SHA256 asks for that digest too.
	SHA256 bool
	// Place and Durability are as of leafproof put: auto, whole, chunked or packed;
	// durable, batch or cache. "" is the first.
	Place, Durability string
}

// maxFactsHeader is how many bytes of facts go into a header.
const maxFactsHeader = 24 << 10

// facts is the JSON of what is stated; nil where nothing is. Paths of indexes that are
// none are refused, before anything is put.
func (o *PutOptions) facts() ([]byte, error) {
	for _, text := range o.Index {
		if _, err := selector.ParseKeyPath(text); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	full, err := json.Marshal(o.Facts)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	var m any
	d := json.NewDecoder(bytes.NewReader(full))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if m = stated(m); m == nil {
		return nil, nil
	}
	return json.Marshal(m)
}

// stated is a JSON value without the members that say nothing; nil where none says
// anything.
func stated(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if s := stated(member); s == nil {
				delete(v, name)
			} else {
				v[name] = s
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			if m, ok := v[i].(map[string]any); ok {
				v[i] = stated(m)
			}
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return v
}

func (o *PutOptions) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"records": o.Records, "filename": o.Name, "place": o.Place, "durability": o.Durability} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.SHA256 {
		q.Set("sha256", "true")
	}
	for _, path := range o.Index {
		q.Add("index", path)
	}
	return q
}

// mediaType is the Content-Type of the bytes.
func (o *PutOptions) mediaType() string {
	if o.Facts.Bytes.MediaType != nil {
		return *o.Facts.Bytes.MediaType
	}
	return "application/octet-stream"
}

// Put stores what r has, and publishes it. The bytes are hashed while they are sent.
// The reference that comes back, and the manifest, must name that hash and that
// length and say what was stated; else the error says which of them differs.
//
// Where the principal may put and not look, as one without the leave to stat, the
// manifest stays unseen: the error is [ErrUnverified], and of the artifact only Ref
// is set, whose content_hash is right. A put is made once: what was published before
// a connection broke is not known, see [Client.Upload].
func (c *Client) Put(ctx context.Context, r io.Reader, o PutOptions) (*Artifact, error) {
	facts, err := o.facts()
	if err != nil {
		return nil, err
	}
	hash := merkle.NewBuilder(nil)
	length := sizeOf(r)                                        // before what is read ahead is gone from it
	in := newAhead(r, func(p []byte) { _, _ = hash.Write(p) }) // it has no nodes to fail on
	defer in.leave()
	q := &request{
		method: "PUT", path: "/v1/artifacts", query: o.query(), header: header("Content-Type", o.mediaType()),
		body: in, length: length, once: true, want: []int{http.StatusCreated},
	}
	switch {
	case len(o.Arguments) > 0 || len(facts) > maxFactsHeader:
		o.parts(q, facts)
	case facts != nil:
		q.header.Set("Leafproof-Manifest", base64.StdEncoding.EncodeToString(facts))
	}
	resp, err := c.do(ctx, q)
	if err != nil {
		return nil, readError(err)
	}
	if !in.done(ctx) {
		resp.Body.Close()
		return nil, refuse(ErrProtocol, "", "it was published before all of it was sent")
	}
	return c.published(ctx, resp, sent{hash.Root(), hash.Size(), facts, o.Index})
}

// sizeOf is how much a reader has; -1 where it does not say.
func sizeOf(r io.Reader) int64 {
	switch r := r.(type) {
	case interface{ Len() int }: // of bytes and strings
		return int64(r.Len())
	case interface{ Size() int64 }:
		if s, ok := r.(io.Seeker); ok {
			if at, err := s.Seek(0, io.SeekCurrent); err == nil {
				return r.Size() - at
			}
		}
	}
	return -1
}

// parts makes the body a multipart one, for facts that no header holds.
func (o *PutOptions) parts(q *request, facts []byte) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	part := func(name, media string, text []byte) {
		p, _ := w.CreatePart(textproto.MIMEHeader{ // it writes to memory
			"Content-Disposition": {fmt.Sprintf("form-data; name=%q", name)}, "Content-Type": {media},
		})
		_, _ = p.Write(text)
	}
	if facts != nil {
		part("facts", "application/json", facts)
	}
	if len(o.Arguments) > 0 {
		part("arguments", "application/octet-stream", o.Arguments)
	}
	part("content", o.mediaType(), nil)
	tail := "\r\n--" + w.Boundary() + "--\r\n"
	q.header.Set("Content-Type", w.FormDataContentType())
	if q.length >= 0 {
		q.length += int64(head.Len() + len(tail))
	}
	q.body = io.MultiReader(&head, q.body, bytes.NewReader([]byte(tail)))
}

// sent is what was put.
type sent struct {
	root  merkle.Root
	size  int64
	facts []byte
	index []string
}

// published holds the answer to a put to what was sent.
func (c *Client) published(ctx context.Context, resp *http.Response, s sent) (*Artifact, error) {
	notes := resp.Header.Values("Leafproof-Note")
	b, err := readJSON(ctx, resp, maxManifest)
	if err != nil {
		return nil, err
	}
	ref, err := manifest.ParseRef(bytes.TrimSpace(b))
	if err != nil {
		return nil, refuse(ErrProtocol, "", "the reference: %s", manifest.Printable(err.Error()))
	}
	if err := checkID(ref.ArtifactID); err != nil {
		return nil, refuse(ErrProtocol, "/artifact_id", "the reference has no id")
	}
	if want := "blake3:" + s.root.String(); ref.ContentHash != want {
		return nil, refuse(ErrMismatch, "/content_hash", "it is %s, and %s was sent", manifest.Printable(ref.ContentHash), want)
	}
	a, err := c.placed(ctx, ref.ArtifactID, s)
	if isDenied(err) {
		err = refuse(ErrUnverified, ref.ArtifactID, "it was published, and its manifest is not shown")
		a = &Artifact{c: c}
	}
	if a == nil {
		return nil, err
	}
	if a.Manifest != nil && err == nil {
		err = sameRef(ref, a.Ref)
	}
	a.Ref = ref
	for _, n := range notes[:min(len(notes), 16)] {
		a.Notes = append(a.Notes, manifest.Printable(n))
	}
	return a, err
}

// placed holds the manifest of what was put to what was sent.
func (c *Client) placed(ctx context.Context, id string, s sent) (*Artifact, error) {
	a, err := c.Open(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case a.Size() != s.size:
		return nil, refuse(ErrSize, id, "%d bytes were signed, and %d were sent", a.Size(), s.size)
	case a.Root() != s.root:
		return nil, refuse(ErrMismatch, id, "the manifest names the root %s, and %s was sent", a.Root(), s.root)
	}
	if err := indexed(s.index, a.Manifest); err != nil {
		return a, err
	}
	return a, saidSame(s.facts, a.Manifest)
}

// indexed holds the indexes that were asked for to those that were signed.
func indexed(paths []string, m *manifest.Manifest) error {
	for _, text := range paths {
		p, err := selector.ParseKeyPath(text)
		if err != nil {
			return fmt.Errorf("client: %w", err)
		}
		if !slices.ContainsFunc(m.Predicate.Indexes, func(x manifest.Index) bool { return x.Path == p.Canonical() }) {
			return refuse(ErrAltered, "/indexes", "the manifest names no index over %s", manifest.Printable(text))
		}
	}
	return nil
}

// saidSame holds what was stated to what was signed.
func saidSame(facts []byte, m *manifest.Manifest) error {
	if facts == nil {
		return nil
	}
	var said, signed any
	text, err := manifest.Canonical(m.Predicate)
	if err == nil {
		err = errors.Join(json.Unmarshal(facts, &said), json.Unmarshal(text, &signed))
	}
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if at, ok := within(said, signed, ""); !ok {
		return refuse(ErrAltered, at, "the manifest says another thing there than was stated")
	}
	return nil
}

// within reports whether a value stands in another one: each member of its objects
// does, and its arrays are as long. At is where it does not.
func within(a, b any, at string) (string, bool) {
	switch a := a.(type) {
	case map[string]any:
		m, _ := b.(map[string]any)
		for name, v := range a {
			below := at + "/" + name
			if below == "/records/format" || below == "/records/pointer" { // a wish, and not a fact
				continue
			}
			if where, ok := within(v, m[name], below); !ok {
				return where, false
			}
		}
		return "", true
	case []any:
		list, _ := b.([]any)
		if len(a) != len(list) {
			return at, false
		}
		for i := range a {
			if where, ok := within(a[i], list[i], at+"/"+strconv.Itoa(i)); !ok {
				return where, false
			}
		}
		return "", true
	case string:
		s, ok := b.(string)
		return at, ok && (a == s || at == "/artifact_ref/expires_at" && sameMicrosecond(a, s))
	}
	return at, a == b
}

// sameMicrosecond compares times as finely as a store keeps them.
func sameMicrosecond(a, b string) bool {
	x, errX := manifest.ParseTime(a)
	y, errY := manifest.ParseTime(b)
	return errX == nil && errY == nil && x.UnixMicro() == y.UnixMicro()
}
