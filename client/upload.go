package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"leafproof/merkle"
)

// UploadOptions say what is uploaded.
type UploadOptions struct {
	PutOptions
	// ID, where not "", is an upload that was begun before with the same bytes and
	// facts: it goes on there.
	ID string
	// Begun, where set, is told the id of a new upload, so that it can be gone on with
	// by another process.
	Begun func(id string)
}

// Upload is [Client.Put] for what can be read again: when the connection breaks, or the
// server does, it goes on with what had arrived. r is read from its beginning to its
// end.
func (c *Client) Upload(ctx context.Context, r io.ReadSeeker, o UploadOptions) (*Artifact, error) {
	if len(o.Arguments) > 0 {
		return nil, errors.New("client: an upload has no room for arguments: put it at once")
	}
	facts, err := o.facts()
	if err != nil {
		return nil, err
	}
	u := &upload{c: c, r: r, o: o, hash: merkle.NewBuilder(nil), facts: facts}
	if u.size, err = r.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	if o.ID == "" {
		if err := u.begin(ctx); err != nil {
			return nil, err
		}
	} else if !isUpload(o.ID) {
		return nil, fmt.Errorf("client: %q is no upload's id", o.ID)
	} else {
		u.at, u.id = -1, o.ID
	}
	return u.run(ctx)
}

// upload is one under way.
type upload struct {
	c      *Client
	r      io.ReadSeeker
	o      UploadOptions
	id     string
	size   int64
	at     int64 // how far it came; -1: the server knows
	came   int64 // how far the server said that it came, at most
	hash   *merkle.Builder
	hashed int64 // the bytes up to there are in hash, each once
	facts  []byte
}

func isUpload(id string) bool {
	rest, ok := strings.CutPrefix(id, "up_")
	return ok && len(rest) == 26 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func (u *upload) path() string { return "/v1/uploads/" + u.id }

func (u *upload) begin(ctx context.Context) error {
	q := &request{
		method: "POST", path: "/v1/uploads", query: u.o.query(), want: []int{http.StatusCreated}, once: true,
		header: header("Content-Type", u.o.mediaType(), "Upload-Complete", "?0", "Upload-Length", strconv.FormatInt(u.size, 10)),
	}
	if u.facts != nil {
		if len(u.facts) > maxFactsHeader {
			return fmt.Errorf("client: facts of %d bytes, and an upload has room for %d", len(u.facts), maxFactsHeader)
		}
		q.header.Set("Leafproof-Manifest", base64.StdEncoding.EncodeToString(u.facts))
	}
	resp, err := u.c.do(ctx, q)
	if err != nil {
		return err
	}
	resp.Body.Close()
	id, ok := strings.CutPrefix(resp.Header.Get("Location"), "/v1/uploads/")
	if !ok || !isUpload(id) {
		return refuse(ErrProtocol, "Location", "an upload was begun, and has no place")
	}
	u.id = id
	if u.o.Begun != nil {
		u.o.Begun(id)
	}
	return nil
}

func (u *upload) run(ctx context.Context) (*Artifact, error) {
	for try := 0; ; try++ {
		came := u.came
		a, err := u.step(ctx)
		if a != nil || err == nil {
			return a, err
		}
		if u.came > came {
			try = 0
		}
		if !again(err) && !elsewhere(err) || try >= u.c.o.Retries || pause(ctx, try, err) != nil {
			return nil, err
		}
		u.at = -1
	}
}

// elsewhere reports an upload that goes on at another byte.
func elsewhere(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusConflict && e.offset >= 0
}

// step sends what is missing.
func (u *upload) step(ctx context.Context) (*Artifact, error) {
	if u.at < 0 {
		done, err := u.look(ctx)
		if err != nil || done != "" {
			if err == nil {
				err = u.hashTo(u.size)
			}
			if err != nil {
				return nil, err
			}
			return u.c.placed(ctx, done, u.sent())
		}
	}
	if err := u.hashTo(u.at); err != nil {
		return nil, err
	}
	if _, err := u.r.Seek(u.at, io.SeekStart); err != nil {
		return nil, err
	}
	seen := u.at
	in := newAhead(io.LimitReader(u.r, u.size-u.at), func(p []byte) {
		if fresh := seen + int64(len(p)) - u.hashed; fresh > 0 {
			_, _ = u.hash.Write(p[int64(len(p))-fresh:])
			u.hashed += fresh
		}
		seen += int64(len(p))
	})
	defer in.stop()
	resp, err := u.c.do(ctx, &request{
		method: "PATCH", path: u.path(), body: in, length: u.size - u.at, once: true, want: []int{http.StatusCreated, http.StatusOK},
		header: header("Content-Type", "application/partial-upload", "Upload-Complete", "?1", "Upload-Offset", strconv.FormatInt(u.at, 10)),
	})
	in.stop()
	if err != nil {
		return nil, readError(err)
	}
	if err := u.hashTo(u.size); err != nil { // of what was complete already
		resp.Body.Close()
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		resp.Body.Close()
		return nil, refuse(ErrUnverified, u.id, "it was published, and its manifest is not shown")
	}
	return u.c.published(ctx, resp, u.sent())
}

func (u *upload) sent() sent { return sent{u.hash.Root(), u.size, u.facts, u.o.Index} }

// look asks how far it came; done is the artifact that it became.
func (u *upload) look(ctx context.Context) (done string, err error) {
	resp, err := u.c.do(ctx, &request{method: "HEAD", path: u.path(), want: []int{http.StatusNoContent}})
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound { // a HEAD's answer has no reasons
		return "", &Error{Code: "ref_not_found", Action: "fix_call", Status: e.Status, At: u.id, Message: "no such upload, or no more", offset: -1}
	}
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.Header.Get("Upload-Complete") == "?1" {
		id, _ := strings.CutPrefix(resp.Header.Get("Location"), "/v1/artifacts/")
		if checkID(id) != nil {
			return "", refuse(ErrProtocol, "Location", "an upload is complete, and no artifact is named")
		}
		return id, nil
	}
	n, err := strconv.ParseInt(resp.Header.Get("Upload-Offset"), 10, 64)
	if err != nil || n < 0 {
		return "", refuse(ErrProtocol, "Upload-Offset", "an upload is nowhere")
	}
	if n > u.size {
		return "", refuse(ErrSize, u.id, "%d bytes arrived, and there are %d", n, u.size)
	}
	u.at, u.came = n, max(u.came, n)
	return "", nil
}

// hashTo hashes the bytes up to a place that were not hashed yet.
func (u *upload) hashTo(n int64) error {
	if u.hashed >= n {
		return nil
	}
	if _, err := u.r.Seek(u.hashed, io.SeekStart); err != nil {
		return err
	}
	m, err := io.CopyBuffer(struct{ io.Writer }{u.hash}, io.LimitReader(u.r, n-u.hashed), make([]byte, block))
	u.hashed += m
	if err == nil && u.hashed < n {
		err = fmt.Errorf("client: the bytes ended at %d, and were %d before", u.hashed, u.size)
	}
	return err
}

// Drop gives an upload up.
func (c *Client) Drop(ctx context.Context, id string) error {
	if !isUpload(id) {
		return fmt.Errorf("client: %q is no upload's id", id)
	}
	return c.nothing(ctx, &request{method: "DELETE", path: "/v1/uploads/" + id})
}
