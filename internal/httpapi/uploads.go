package httpapi

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"leafproof"
	"leafproof/cas"
)

// Resumable uploads as draft-ietf-httpbis-resumable-upload has them: POST begins one,
// HEAD says how far it came, PATCH goes on there, and the request that says
// Upload-Complete: ?1 publishes the artifact.

// The headers of an upload.
const (
	uploadOffset   = "Upload-Offset"
	uploadComplete = "Upload-Complete"
	uploadLength   = "Upload-Length"
	uploadLimit    = "Upload-Limit"
	mediaPartial   = "application/partial-upload"
)

// mismatch is the type of the problem that an upload goes on elsewhere.
const mismatch = "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"

// uploadNote is what an upload keeps of the request that began it.
type uploadNote struct {
	Facts   []byte `json:"facts,omitempty"`
	Query   string `json:"query,omitempty"`
	Media   string `json:"media,omitempty"`
	Length  int64  `json:"length"`           // of all bytes; -1: not said
	SHA256  []byte `json:"sha256,omitempty"` // of all bytes, where it was said
	Purpose string `json:"purpose,omitempty"`
}

// beginUpload answers POST /v1/uploads. The body, if there is one, has the first bytes.
func (c *call) beginUpload() error {
	complete, length, err := c.uploadHeaders()
	if err != nil {
		return err
	}
	note := uploadNote{Query: c.r.URL.RawQuery, Length: length, Purpose: c.who.Purpose}
	if note.Media, _, err = c.mediaType(); err != nil {
		return err
	}
	if note.Media == mediaPartial {
		note.Media = ""
	}
	if err := c.uploadDigest(&note); err != nil {
		return err
	}
	p, facts, err := c.uploadFacts(&note)
	if err != nil {
		return err
	}
	note.Facts = facts
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	u, err := c.s.store.BeginUpload(c.r.Context(), c.who, p.o.Tenant, text)
	if err != nil {
		return err
	}
	defer u.Close()
	c.w.Header().Set("Location", "/v1/uploads/"+u.ID)
	c.w.Header().Set(uploadLimit, c.s.uploadLimits())
	return c.advance(u, &note, 0, complete, http.StatusCreated)
}

// uploadFacts are the facts of the header, checked as far as they can be before there
// are bytes.
func (c *call) uploadFacts(note *uploadNote) (*putting, []byte, error) {
	p := &putting{}
	facts, err := headerFacts(c.r.Header.Values(factsHeader))
	if err == nil && facts != nil {
		err = p.facts(facts)
	}
	if err != nil {
		return nil, nil, err
	}
	q, err := c.query(putParams...)
	if err != nil {
		return nil, nil, err
	}
	return p, facts, p.settle(c, q, note.Media)
}

// recall makes the put of an upload out of what it kept.
func (n *uploadNote) recall(c *call) (*putting, error) {
	p := &putting{}
	if n.Facts != nil {
		if err := p.facts(n.Facts); err != nil {
			return nil, err
		}
	}
	q, err := url.ParseQuery(n.Query)
	if err != nil {
		return nil, err
	}
	return p, p.settle(c, q, n.Media)
}

// uploadDigest takes what the request says of the digest of all bytes.
func (c *call) uploadDigest(note *uploadNote) error {
	list, err := c.statedDigests("Repr-Digest")
	if err != nil || list == nil {
		return err
	}
	for _, s := range list {
		if s.name != "sha-256" {
			continue
		}
		if note.SHA256 != nil && !bytes.Equal(note.SHA256, s.want) {
			return invalid(http.StatusBadRequest, "Repr-Digest", "it was said to be another when the upload was begun")
		}
		note.SHA256 = s.want
		return nil
	}
	return invalid(http.StatusBadRequest, "Repr-Digest", "of an upload sha-256 is checked")
}

// uploadLimits is what the server takes.
func (s *Server) uploadLimits() string {
	return fmt.Sprintf("max-size=%d, max-age=%d", s.o.BodyBytes, int64(cas.UploadKept/time.Second))
}

// uploadHeaders reads what the request says of the upload.
func (c *call) uploadHeaders() (complete bool, length int64, err error) {
	switch v := c.r.Header.Get(uploadComplete); v {
	case "?1":
		complete = true
	case "?0", "":
	default:
		return false, 0, invalid(http.StatusBadRequest, uploadComplete, "%s is ?0 or ?1", uploadComplete)
	}
	length = -1
	if v := c.r.Header.Get(uploadLength); v != "" {
		n, ok := digits(v)
		if !ok {
			return false, 0, invalid(http.StatusBadRequest, uploadLength, "%s is a number of bytes", uploadLength)
		}
		length = n
	}
	if length > c.s.o.BodyBytes {
		return false, 0, refuse(http.StatusRequestEntityTooLarge, leafproof.CodeTooLarge, leafproof.FixCall, uploadLength, "an artifact has at most %d bytes", c.s.o.BodyBytes)
	}
	return complete, length, nil
}

// advance adds the body of the request to an upload, and publishes it if that is all.
func (c *call) advance(u *leafproof.Upload, note *uploadNote, off int64, complete bool, status int) error {
	most := c.s.o.BodyBytes
	if note.Length >= 0 {
		most = min(most, note.Length)
	}
	b, err := c.take(most - off)
	if err != nil {
		return err
	}
	if err := u.Append(c.r.Context(), off, b); err != nil {
		if b.done && b.err != nil { // all of it came, and is not what it was said to be
			if status == http.StatusCreated {
				return errors.Join(b.err, u.Abort(context.WithoutCancel(c.r.Context())))
			}
			return errors.Join(b.err, u.Cut(context.WithoutCancel(c.r.Context()), off))
		}
		return err
	}
	h := c.w.Header()
	if !complete {
		h.Set(uploadOffset, strconv.FormatInt(u.Size(), 10))
		h.Set(uploadComplete, "?0")
		if status == http.StatusNoContent {
			c.w.WriteHeader(status)
			return nil
		}
		return c.json(status, uploadState{u.ID, u.Size(), false, ""})
	}
	if note.Length >= 0 && u.Size() != note.Length {
		return invalid(http.StatusBadRequest, uploadLength, "it was to have %d bytes, and has %d", note.Length, u.Size())
	}
	p, err := note.recall(c)
	if err != nil {
		return err
	}
	if note.SHA256 != nil {
		p.o.WantSHA256 = hex.EncodeToString(note.SHA256)
	}
	size := u.Size()
	d, ref, err := u.Publish(context.WithoutCancel(c.r.Context()), p.o, p.f)
	if err != nil {
		return err
	}
	h.Set(uploadOffset, strconv.FormatInt(size, 10))
	h.Set(uploadComplete, "?1")
	c.published(d, ref)
	return c.json(http.StatusCreated, ref)
}

// uploadState is the body of an answer about an upload that is not complete.
type uploadState struct {
	ID         string `json:"id"`
	Offset     int64  `json:"offset"`
	Complete   bool   `json:"complete"`
	ArtifactID string `json:"artifact_id,omitempty"`
}

// openUpload opens the upload of the path. A connection of before that still holds
// it, and perhaps is dead, is ended.
func (c *call) openUpload() (*leafproof.Upload, *uploadNote, func(), error) {
	id := c.params["upload"]
	leave, err := c.s.turns.take(c, string(c.who.Principal)+"/"+id)
	if err != nil {
		return nil, nil, nil, err
	}
	u, err := c.s.store.Upload(c.r.Context(), c.who, id)
	if err != nil {
		if u != nil {
			u.Close()
		}
		leave()
		return nil, nil, nil, err
	}
	note := &uploadNote{Length: -1}
	if len(u.Note) > 0 {
		err = json.Unmarshal(u.Note, note)
	}
	done := func() {
		u.Close()
		leave()
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return u, note, done, nil
}

func (c *call) headUpload() error {
	u, note, done, err := c.openUpload()
	if err != nil {
		return err
	}
	defer done()
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set(uploadLimit, c.s.uploadLimits())
	if note.Length >= 0 {
		h.Set(uploadLength, strconv.FormatInt(note.Length, 10))
	}
	if u.ArtifactID != "" {
		h.Set(uploadComplete, "?1")
		h.Set("Location", "/v1/artifacts/"+u.ArtifactID)
	} else {
		h.Set(uploadComplete, "?0")
		h.Set(uploadOffset, strconv.FormatInt(u.Size(), 10))
	}
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return c.json(http.StatusOK, uploadState{u.ID, u.Size(), u.ArtifactID != "", u.ArtifactID})
}

func (c *call) appendUpload() error {
	if media, _, _ := c.mediaType(); media != "" && media != mediaPartial {
		return invalid(http.StatusUnsupportedMediaType, "Content-Type", "the body is %s", mediaPartial)
	}
	complete, length, err := c.uploadHeaders()
	if err != nil {
		return err
	}
	off, ok := digits(c.r.Header.Get(uploadOffset))
	if !ok {
		return invalid(http.StatusBadRequest, uploadOffset, "%s says where the body begins", uploadOffset)
	}
	u, note, done, err := c.openUpload()
	if err != nil {
		return err
	}
	defer done()
	h := c.w.Header()
	if u.ArtifactID != "" { // the answer to the last request was lost
		h.Set(uploadComplete, "?1")
		st, err := c.s.store.Resolve(c.r.Context(), c.who, u.ArtifactID)
		if err != nil {
			h.Set("Location", "/v1/artifacts/"+u.ArtifactID)
			return c.json(http.StatusOK, uploadState{u.ID, 0, true, u.ArtifactID})
		}
		h.Set("Location", "/v1/artifacts/"+u.ArtifactID)
		return c.json(http.StatusCreated, st.Ref)
	}
	if length >= 0 && note.Length >= 0 && length != note.Length {
		return invalid(http.StatusBadRequest, uploadLength, "it was to have %d bytes, not %d", note.Length, length)
	}
	if off != u.Size() {
		h.Set(uploadOffset, strconv.FormatInt(u.Size(), 10))
		return &elsewhere{u.Size(), off}
	}
	if note.Length < 0 && length >= 0 {
		if length < off {
			return invalid(http.StatusBadRequest, uploadLength, "it has %d bytes already", off)
		}
		note.Length = length // of this request, and so of all if it is the last
	}
	if err := c.uploadDigest(note); err != nil {
		return err
	}
	return c.advance(u, note, off, complete, http.StatusNoContent)
}

func (c *call) endUpload() error {
	u, _, done, err := c.openUpload()
	if err != nil {
		return err
	}
	defer done()
	if err := u.Abort(c.r.Context()); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// elsewhere is an upload that goes on at another byte.
type elsewhere struct{ expected, provided int64 }

func (e *elsewhere) Error() string {
	return fmt.Sprintf("the upload goes on at byte %d, not %d", e.expected, e.provided)
}

func (e *elsewhere) Unwrap() error {
	return &refusal{http.StatusConflict, &leafproof.Error{Code: leafproof.CodeRequestInvalid, Message: e.Error(), Action: leafproof.FixCall, At: uploadOffset}}
}

// turns lets one request at a time work on an upload: the one that came last.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	c    *call
	done chan struct{}
}

// turnPatience is how long the end of an older request is waited for.
const turnPatience = 5 * time.Second

// take ends the request that has the turn, and takes it.
func (t *turns) take(c *call, key string) (leave func(), err error) {
	mine := &turn{c, make(chan struct{})}
	limit := time.After(turnPatience)
	for {
		t.mu.Lock()
		old := t.of[key]
		if old == nil {
			if t.of == nil {
				t.of = map[string]*turn{}
			}
			t.of[key] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.of, key)
				t.mu.Unlock()
				close(mine.done)
			}, nil
		}
		// What came of its body is kept. The lock keeps it from ending meanwhile: the
		// connection's next request is another one.
		old.c.cutBody()
		t.mu.Unlock()
		select {
		case <-old.done:
		case <-c.r.Context().Done():
			return nil, c.r.Context().Err()
		case <-limit:
			return nil, wait(http.StatusConflict, leafproof.CodeRequestInvalid, "", "another request is at work on the upload")
		}
	}
}
