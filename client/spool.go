package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"leafproof/merkle"
)

// inMemory is up to how many bytes are kept aside in memory, and not in a file.
const inMemory = 1 << 20

// A spool keeps bytes aside until it is known whether they are right.
type spool struct {
	mem  bytes.Buffer
	file *os.File
	gone bool // the file has no name any more
	dir  string
	n    int64
}

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.n+int64(len(p)) > inMemory {
		f, err := os.CreateTemp(s.dir, "leafproof-*")
		if err != nil {
			return 0, err
		}
		s.file, s.gone = f, os.Remove(f.Name()) == nil // where that goes while it is open
		if _, err := f.Write(s.mem.Bytes()); err != nil {
			return 0, err
		}
		s.mem = bytes.Buffer{}
	}
	n, err := len(p), error(nil)
	if s.file != nil {
		n, err = s.file.Write(p)
	} else {
		s.mem.Write(p)
	}
	s.n += int64(n)
	return n, err
}

// ReadAt implements [io.ReaderAt].
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	return bytes.NewReader(s.mem.Bytes()).ReadAt(p, off)
}

// copy writes a part to w.
func (s *spool) copy(w io.Writer, part merkle.Range) (int64, error) {
	return io.Copy(w, io.NewSectionReader(s, part.Start, part.End-part.Start))
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if !s.gone {
		err = errors.Join(err, os.Remove(s.file.Name()))
	}
	return err
}

// whole gets all of the content without a proof, and holds its hash to the root.
func (a *Artifact) whole(ctx context.Context) (*spool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.plain != nil {
		return a.plain, nil
	}
	s := &spool{dir: a.c.o.TempDir}
	hash := merkle.NewBuilder(nil)
	err := a.fetch(ctx, io.MultiWriter(s, hash))
	if err == nil && hash.Root() != a.Root() {
		err = refuse(ErrMismatch, a.ID(), "the hash of its content is %s, and %s was signed", hash.Root(), a.Root())
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	a.plain = s
	return s, nil
}

// fetch writes the content to w as it comes: nothing is verified yet but its length.
func (a *Artifact) fetch(ctx context.Context, w io.Writer) error {
	n := int64(0)
	for try := 0; ; try++ {
		m, err := a.fetchFrom(ctx, w, n)
		n += m
		if m > 0 {
			try = 0
		}
		if err == nil || try >= a.c.o.Retries || !again(err) || pause(ctx, try, err) != nil {
			return err
		}
	}
}

func (a *Artifact) fetchFrom(ctx context.Context, w io.Writer, n int64) (int64, error) {
	part := merkle.Range{Start: n, End: a.Size()}
	q := &request{method: "GET", path: a.path("/content"), header: header("Accept", "*/*")}
	if n > 0 {
		if n == a.Size() {
			return 0, nil
		}
		q.header.Set("Range", fmt.Sprintf("bytes=%d-", n))
		q.want = []int{http.StatusPartialContent}
	}
	resp, err := a.c.do(ctx, q)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := a.checkHeader(resp); err != nil {
		return 0, err
	}
	if n > 0 {
		if err := contentRange(resp, part, a.Size()); err != nil {
			return 0, err
		}
	}
	if l := resp.ContentLength; l >= 0 && l != part.End-part.Start {
		return 0, refuse(ErrSize, a.ID(), "%d bytes are announced, and it must be %d", l, part.End-part.Start)
	}
	in := &watched{r: resp.Body}
	buf := make([]byte, readRoom)
	m, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(in, part.End-part.Start), buf)
	if err != nil && in.err == nil {
		return m, err // of w
	}
	if m == part.End-part.Start {
		switch more, err := in.Read(buf[:1]); {
		case more > 0:
			return m, refuse(ErrExtended, a.ID(), "it has %d bytes", a.Size())
		case err == nil:
			return m, refuse(ErrProtocol, a.ID(), "the answer does not end")
		}
		return m, nil
	}
	if in.err == io.EOF || errors.Is(in.err, io.ErrUnexpectedEOF) { //nolint:errorlint // a reader's end is that value
		return m, refuse(ErrTruncated, a.ID(), "%d of %d bytes came", n+m, a.Size())
	}
	return m, unreachable(ctx, in.err)
}
