package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
)

// Serve answers requests that come as lines of in by lines of out, until in ends or
// ctx does. What is asked by then is answered.
func Serve(ctx context.Context, s *leafproof.Store, who Identity, o Options, in io.Reader, out io.Writer) error {
	session, err := New(s, who, o).Connect(ctx, &lineTransport{in, out}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		session.Close()
		err = <-ended
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lineTransport is the stdio transport: one JSON-RPC message a line. The library's
// own ends the session at the first line that is no message; here such a line is
// answered with an error, and the next one is read.
type lineTransport struct {
	in  io.Reader
	out io.Writer
}

func (t *lineTransport) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{out: t.out, lines: make(chan line), open: map[any]bool{}, closed: make(chan struct{})}
	// A read of standard input cannot be interrupted: this goroutine ends with it.
	go c.readLines(bufio.NewReaderSize(t.in, 64<<10))
	return c, nil
}

type line struct {
	text []byte
	long bool // it had more than MaxRequest bytes, and was dropped
	err  error
}

type lineConn struct {
	out    io.Writer
	lines  chan line
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex    // of what follows, and of writes to out
	open   map[any]bool  // the ids of requests that were not answered yet
	idle   chan struct{} // closed when there are none left, where somebody waits; else nil
}

func (c *lineConn) readLines(r *bufio.Reader) {
	for {
		l := readLine(r)
		select {
		case c.lines <- l:
		case <-c.closed:
			return
		}
		if l.err != nil {
			return
		}
	}
}

// readLine reads up to a line end. Of a line that is too long nothing is kept.
func readLine(r *bufio.Reader) (l line) {
	for {
		part, err := r.ReadSlice('\n')
		if l.long = l.long || len(l.text)+len(part) > MaxRequest; l.long {
			l.text = nil
		} else {
			l.text = append(l.text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && (l.long || len(bytes.TrimSpace(l.text)) > 0):
			return l // the end comes again
		case err != nil:
			l.err = err
			return l
		default:
			return l
		}
	}
}

// Read returns the next message.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var l line
		select {
		case l = <-c.lines:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		text := bytes.TrimSpace(l.text)
		switch {
		case l.err != nil:
			c.settle(ctx) // the library answers nothing any more once it knows of the end
			return nil, l.err
		case l.long:
			if err := c.refuse(nil, &frameError{jsonrpc.CodeInvalidRequest, "the message is longer than 12 MiB"}); err != nil {
				return nil, err
			}
			continue
		case len(text) == 0:
			continue
		}
		f, refusal := readFrame(text)
		var msg jsonrpc.Message
		if refusal == nil {
			var err error
			if msg, err = jsonrpc.DecodeMessage(text); err != nil {
				refusal = &frameError{jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC message"}
			}
		}
		if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && !c.begin(req.ID) {
			f.id = nil // the other one's
			refusal = &frameError{jsonrpc.CodeInvalidRequest, "a request with this id is under way"}
		}
		if refusal == nil {
			return msg, nil
		}
		if err := c.refuse(f.id, refusal); err != nil {
			return nil, err
		}
	}
}

// begin notes a request that is to be answered; there can be one of an id at a time.
func (c *lineConn) begin(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[id.Raw()] {
		return false
	}
	c.open[id.Raw()] = true
	return true
}

// settle waits until all that was asked is answered, or nobody waits any more.
func (c *lineConn) settle(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-c.closed:
	case <-ctx.Done():
	}
}

// refuse answers a message that the library is not shown.
func (c *lineConn) refuse(id jsontext.Value, e *frameError) error { return c.write(e.answer(id), nil) }

// Write sends a message.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	r, ok := msg.(*jsonrpc.Response)
	if ok && r.Error != nil {
		e, is := errors.AsType[*jsonrpc.Error](r.Error)
		switch {
		case !is: // it was cancelled before it began
			e = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request was not answered: " + r.Error.Error()}
			fallthrough
		case len(e.Message) > maxText: // it repeats what was sent
			r = &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: e.Code, Message: cut(e.Message), Data: e.Data}}
			msg = r
		}
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if ok && err != nil { // one answer less must not be the end of all
		b, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer has no form in JSON"}})
	}
	if err != nil {
		return err
	}
	return c.write(b, r)
}

// write writes a line; answer, where it is not nil, is what it holds.
func (c *lineConn) write(b []byte, answer *jsonrpc.Response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.out.Write(append(b, '\n'))
	if answer == nil {
		return err
	}
	if delete(c.open, answer.ID.Raw()); len(c.open) == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
	return err
}

// Close ends the connection.
func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID is part of [mcp.Connection]; standard input has one session.
func (c *lineConn) SessionID() string { return "" }
