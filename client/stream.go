package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"leafproof/manifest"
	"leafproof/merkle"
)

const mediaSlice = "application/vnd.leafproof.slice"

// readRoom is how much of an answer is read at once.
const readRoom = 256 << 10

// A slice is a stream of proven bytes, as they come.
type slice struct {
	ctx  context.Context
	body io.Closer
	in   *watched
	r    *merkle.SliceReader
	part merkle.Range
}

// watched notes why a reader ended.
type watched struct {
	r   io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// slice asks for a part of the artifact with its proof.
func (a *Artifact) slice(ctx context.Context, part merkle.Range) (*slice, error) {
	h := header("Accept", mediaSlice)
	if part.Start > 0 || part.End < a.Size() {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", part.Start, part.End-1))
	}
	resp, err := a.c.do(ctx, &request{method: "GET", path: a.path("/content"), header: h})
	if err != nil {
		return nil, err
	}
	s, err := a.proofIn(ctx, resp, part)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return s, nil
}

func (a *Artifact) proofIn(ctx context.Context, resp *http.Response, part merkle.Range) (*slice, error) {
	if err := isMedia(resp, mediaSlice); err != nil {
		return nil, err
	}
	set, err := merkle.Leaves(a.Size(), part)
	if err != nil {
		return nil, err
	}
	s := &slice{ctx: ctx, body: resp.Body, in: &watched{r: resp.Body}, part: part}
	s.r, err = merkle.NewSliceReader(bufio.NewReaderSize(s.in, readRoom), a.Root())
	if err != nil {
		return nil, s.why(err)
	}
	if s.r.Size() != a.Size() {
		return nil, refuse(ErrSize, a.ID(), "the proof is of %d bytes, and %d were signed", s.r.Size(), a.Size())
	}
	if fmt.Sprint(s.r.Ranges()) != fmt.Sprint(set.Ranges()) {
		return nil, refuse(ErrRange, a.ID(), "the proof is of the leaves %v, and %v were asked for", s.r.Ranges(), set.Ranges())
	}
	return s, nil
}

// next returns verified bytes of the part, which are valid until the next call;
// io.EOF says that all were verified and nothing follows.
func (s *slice) next() ([]byte, error) {
	for {
		off, p, err := s.r.Next()
		if err == io.EOF { //nolint:errorlint // a reader's end is that value
			return nil, io.EOF
		}
		if err != nil {
			return nil, s.why(err)
		}
		from, to := max(off, s.part.Start), min(off+int64(len(p)), s.part.End)
		if from < to {
			return p[from-off : to-off], nil
		}
	}
}

// why says what is wrong with a proof, or with how it came.
func (s *slice) why(err error) error {
	switch {
	case errors.Is(err, merkle.ErrMismatch):
		return refuse(ErrMismatch, "", "%s", manifest.Printable(err.Error()))
	case s.r != nil && s.r.SizeProven() && errors.Is(err, merkle.ErrMalformed) && !errors.Is(s.in.err, io.ErrUnexpectedEOF):
		// The last leaf is in each answer, and the last in it.
		return refuse(ErrExtended, "", "the answer goes on behind the proof")
	case s.in.err == io.EOF, errors.Is(s.in.err, io.ErrUnexpectedEOF): //nolint:errorlint // a reader's end is that value
		return refuse(ErrTruncated, "", "the answer ended within the proof")
	case s.in.err != nil:
		return unreachable(s.ctx, s.in.err)
	}
	return refuse(ErrProtocol, "", "the proof: %s", manifest.Printable(err.Error()))
}

func (s *slice) close() { s.body.Close() }

// copySlices writes a part to w as it is verified. Where the connection breaks it goes
// on behind the last byte that was written.
func (a *Artifact) copySlices(ctx context.Context, w io.Writer, part merkle.Range) (n int64, err error) {
	for try := 0; ; try++ {
		m, err := a.copySlice(ctx, w, merkle.Range{Start: part.Start + n, End: part.End})
		n += m
		if m > 0 {
			try = 0
		}
		if err == nil || try >= a.c.o.Retries || !again(err) || pause(ctx, try, err) != nil {
			return n, err
		}
		if part.Start+n == part.End { // all came, but for the end of the proof
			return n, nil
		}
	}
}

func (a *Artifact) copySlice(ctx context.Context, w io.Writer, part merkle.Range) (n int64, err error) {
	s, err := a.slice(ctx, part)
	if err != nil {
		return 0, err
	}
	defer s.close()
	for {
		p, err := s.next()
		if err == io.EOF { //nolint:errorlint // a reader's end is that value
			return n, nil
		}
		if err != nil {
			return n, err
		}
		m, err := w.Write(p)
		n += int64(m)
		if err != nil {
			return n, &writeError{err}
		}
	}
}

// writeError is an error of the caller's writer.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// contentRange refuses a Content-Range other than the one of a part.
func contentRange(resp *http.Response, part merkle.Range, size int64) error {
	got := resp.Header.Get("Content-Range")
	if want := fmt.Sprintf("bytes %d-%d/%d", part.Start, part.End-1, size); got != want {
		return refuse(ErrRange, "Content-Range", "%q, and %q was asked for", manifest.Printable(got), want)
	}
	return nil
}

// etag is what the server calls all of the content, where it shows all.
func (a *Artifact) etag() string { return `"b3-` + a.Root().String() + `"` }

// checkHeader holds what the header of all of the content says to the manifest.
func (a *Artifact) checkHeader(resp *http.Response) error {
	if tag := resp.Header.Get("ETag"); tag != "" && tag != a.etag() {
		if strings.HasPrefix(tag, `"b3-`) {
			return refuse(ErrArtifact, a.ID(), "the content's tag is %s", manifest.Printable(tag))
		}
		return refuse(ErrProtocol, "ETag", "%s", manifest.Printable(tag))
	}
	if resp.Header.Get("Content-Encoding") != "" {
		return refuse(ErrProtocol, "Content-Encoding", "nothing was asked for in another encoding")
	}
	return nil
}
