package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

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
	c := &lineConn{out: t.out, lines: make(chan line), closed: make(chan struct{})}
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
	mu     sync.Mutex     // of out
	asked  sync.WaitGroup // requests that were not answered yet
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
		refusal := ""
		code := jsonrpc.CodeInvalidRequest
		switch {
		case l.err != nil:
			c.settle(ctx) // the library answers nothing any more once it knows of the end
			return nil, l.err
		case l.long:
			refusal = "the message is longer than 12 MiB"
		case len(text) == 0:
			continue
		case depth(text) > maxFrameDepth:
			refusal = "the message is nested too deep"
		case !json.Valid(text):
			refusal, code = "the line is not JSON", jsonrpc.CodeParseError
		default:
			msg, err := jsonrpc.DecodeMessage(text)
			if err == nil {
				if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
					c.asked.Add(1)
				}
				return msg, nil
			}
			refusal = "the line is no JSON-RPC message"
		}
		if err := c.refuse(code, refusal); err != nil {
			return nil, err
		}
	}
}

// settle waits until all that was asked is answered, or nobody waits any more.
func (c *lineConn) settle(ctx context.Context) {
	answered := make(chan struct{})
	go func() {
		c.asked.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-c.closed:
	case <-ctx.Done():
	}
}

// maxFrameDepth is how deep a message is nested that the library reads.
const maxFrameDepth = 500

// refuse answers a line that has no id to answer to.
func (c *lineConn) refuse(code int, text string) error {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return err
	}
	return c.write(b)
}

// Write sends a message.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	if _, ok := msg.(*jsonrpc.Response); ok {
		defer c.asked.Done()
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if r, ok := msg.(*jsonrpc.Response); ok && err != nil { // one answer less must not be the end of all
		b, err = jsonrpc.EncodeMessage(&jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the answer has no form in JSON"}})
	}
	if err != nil {
		return err
	}
	return c.write(b)
}

func (c *lineConn) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.out.Write(append(b, '\n'))
	return err
}

// Close ends the connection.
func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID is part of [mcp.Connection]; standard input has one session.
func (c *lineConn) SessionID() string { return "" }
