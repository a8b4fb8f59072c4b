package client

import (
	"context"
	"errors"
	"io"
	"time"
)

// block is how much is read, and hashed, at once.
const block = 256 << 10

// An ahead reads r in a goroutine of its own, and hands each block to seen there, so
// that reading and hashing go on while what came before is sent.
type ahead struct {
	full, free chan []byte
	quit       chan struct{}
	gone       chan struct{}
	err        error // why it ended; set before full is closed
	p, whole   []byte
}

func newAhead(r io.Reader, seen func([]byte)) *ahead {
	const room = 3
	a := &ahead{full: make(chan []byte, room), free: make(chan []byte, room), quit: make(chan struct{}), gone: make(chan struct{})}
	for range room {
		a.free <- nil
	}
	go func() {
		defer close(a.gone)
		defer close(a.full)
		for {
			var b []byte
			select {
			case b = <-a.free:
			case <-a.quit:
				return
			}
			if b == nil {
				b = make([]byte, block)
			}
			n, err := io.ReadFull(r, b[:block])
			seen(b[:n])
			if n > 0 {
				a.full <- b[:n]
			}
			if err != nil {
				switch err {
				case io.EOF, io.ErrUnexpectedEOF: //nolint:errorlint // as io.ReadFull says that a reader ended
					a.err = io.EOF
				default:
					a.err = &readerError{err}
				}
				return
			}
		}
	}()
	return a
}

// Read implements [io.Reader].
func (a *ahead) Read(p []byte) (int, error) {
	if len(a.p) == 0 {
		if a.whole != nil {
			a.free <- a.whole
			a.whole = nil
		}
		b, ok := <-a.full
		if !ok {
			if a.err == nil {
				return 0, io.ErrClosedPipe
			}
			return 0, a.err
		}
		a.p, a.whole = b, b
	}
	n := copy(p, a.p)
	a.p = a.p[n:]
	return n, nil
}

// leave ends the goroutine as soon as the read that it is in returns, and does not wait.
func (a *ahead) leave() {
	select {
	case <-a.quit:
	default:
		close(a.quit)
	}
}

// stop is leave, and waits: nothing is read from the source, and nothing seen,
// afterwards.
func (a *ahead) stop() {
	a.leave()
	<-a.gone
}

// done reports whether the source was read to its end, which is waited for a while.
func (a *ahead) done(ctx context.Context) bool {
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-a.gone:
		return a.err == io.EOF //nolint:errorlint // a reader's end is that value
	case <-ctx.Done():
	case <-t.C:
	}
	return false
}

// readerError is an error of the caller's reader.
type readerError struct{ err error }

func (e *readerError) Error() string { return e.err.Error() }
func (e *readerError) Unwrap() error { return e.err }

// readError is an error of the caller's reader as it came from there; others stay.
func readError(err error) error {
	if e, ok := errors.AsType[*readerError](err); ok {
		return e.err
	}
	return err
}
