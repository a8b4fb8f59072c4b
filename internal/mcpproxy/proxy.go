// Package mcpproxy stands between an MCP client and an MCP server on standard input
// and output, and keeps what the server's tools return out of the model's view.
//
// Every image, every audio clip, every resource and every text of a result goes into
// the store, by its type and whatever its length; the model reads a marker, and of a
// text a preview. A tool's structured content stands as it is where the schema that the
// tool declares for it bounds it. Each parameter of the server's tools takes a
// reference, whose value stands in the call when the server sees it. All else passes
// unchanged: the server knows of no proxy.
//
// What was shown is kept in a transcript, so that a reference means the same after the
// proxy was killed and started again.
package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"leafproof"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// MaxMessage is the longest message, in bytes. Of a longer one nothing but its id is read,
// which is looked for in longEnds bytes of its beginning and its end.
const (
	MaxMessage = 128 << 20
	longEnds   = 4 << 10
)

// maxValues bounds what the references of one call may lead to, in bytes.
const maxValues = 48 << 20

// Options say for whom a proxy acts, and what it keeps.
type Options struct {
	Store  *leafproof.Store
	Caller leafproof.Caller
	Tenant string // "" is the store's default
	// Run names the conversation, and Transcript is where it is kept.
	Run        string
	Transcript ref.Transcript
	// Spool keeps what the store does not take; nil: it is lost, and the model is told so.
	Spool *harness.Spool
	Log   *slog.Logger // nil: nothing is logged
	// Watch sees all that crosses into the model's view; may be nil.
	Watch func(harness.Crossing)
}

// A Pipe is one side's messages, a line each.
type Pipe struct {
	In  io.Reader
	Out io.WriteCloser
}

// proxy is what stands between the two.
type proxy struct {
	o      Options
	client *lines
	server *lines

	mu      sync.Mutex
	pending map[string]waiting     // requests of the client, by the key of their ids
	own     map[string]chan answer // requests of the proxy's own
	next    int
	gone    bool // the server ended
	tools   *toolset
	stale   bool               // the server says that its tools changed
	tasks   map[string]waiting // the tools and inputs of calls that go on, by the task's id

	work  chan message   // of the client, in order
	asked sync.WaitGroup // as many as pending, and those that are being answered
}

type answer struct {
	result json.RawMessage
	err    json.RawMessage
}

// grace is how long the server may take to answer what was asked, once the client has
// said its last, and how long to end then.
const grace = 10 * time.Second

// Run passes messages until the client's end, and then the server's. It waits for a
// server that does not come to its end as long as a client would.
func Run(ctx context.Context, o Options, client, server Pipe) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &proxy{
		o: o, client: newLines(client), server: newLines(server),
		pending: map[string]waiting{}, own: map[string]chan answer{}, work: make(chan message, 64),
	}
	go p.works(ctx)
	served := make(chan error, 1)
	go func() {
		err := p.server.each(func(line []byte) error { return p.fromServer(ctx, line) }, func(head, tail []byte) error {
			return p.tooLong(ctx, head, tail)
		})
		p.end()
		served <- err
	}()
	asked := make(chan error, 1)
	go func() {
		err := p.client.each(func(line []byte) error { return p.fromClient(ctx, line) }, func(head, _ []byte) error {
			return p.refuse(idOf(head), codeInvalid, tooLong)
		})
		close(p.work)
		answered := make(chan struct{})
		go func() {
			p.asked.Wait()
			close(answered)
		}()
		select { // what was asked is answered, unless the server ends first
		case <-answered:
		case <-time.After(grace):
		}
		p.server.close()
		asked <- err
	}()
	select {
	case err := <-served: // without a server there is nobody to ask
		return err
	case err := <-asked:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		p.server.close()
		return nil
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return nil
	case <-time.After(grace / 2):
		return ErrHangs
	}
}

// ErrHangs is a server that goes on though there is nothing to come any more.
var ErrHangs = errors.New("the server does not end")

// message is a JSON-RPC message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	line []byte
}

const (
	codeParse    = -32700
	codeInvalid  = -32600
	codeParams   = -32602
	codeInternal = -32603
	codeMethod   = -32601
)

// errNoMethod is a method that the server does not have.
var errNoMethod = errors.New("the server has no such method")

// fromClient takes a message of the client. What is not the proxy's business goes on
// as it came.
func (p *proxy) fromClient(ctx context.Context, line []byte) error {
	var m message
	if err := parse(line, &m); err != nil {
		return p.refuse(idOf(line), codeParse, "the line is no message: "+short(err.Error()))
	}
	switch {
	case m.Method == "": // an answer to the server
		return p.server.write(line)
	case len(m.ID) == 0:
		if m.Method == "notifications/cancelled" && !p.cancelled(m.Params) {
			return nil
		}
		return p.server.write(line)
	case !isID(m.ID):
		return p.refuse(nil, codeInvalid, "the id is neither a string nor a whole number")
	}
	w := waiting{id: m.ID, method: m.Method}
	switch m.Method {
	case "tools/list", "tools/call", "resources/read", "tasks/result", "tasks/get", "tasks/update", "tasks/cancel":
		if ok, err := p.begin(w); !ok {
			return err
		}
		m.line = bytes.Clone(line)
		p.work <- m
		return nil
	case "initialize", "server/discover":
	default:
		w.passes = true
	}
	w.asked = true
	if ok, err := p.begin(w); !ok {
		return err
	}
	return p.server.write(line)
}

// works does what the client asks and the proxy has to think about: one after the
// other, while answers that the server waits for pass it by.
func (p *proxy) works(ctx context.Context) {
	for m := range p.work {
		doing, stop := context.WithCancel(ctx)
		if !p.change(m.ID, func(w *waiting) { w.stop = stop }) {
			stop()
			continue // it was cancelled
		}
		err := p.do(doing, m)
		if doing.Err() != nil && ctx.Err() == nil {
			err = nil // it was cancelled meanwhile
		}
		own := false
		p.change(m.ID, func(w *waiting) {
			if own = w.own; !own {
				w.stop = nil
			}
		})
		if !own {
			stop()
		}
		if err != nil {
			p.o.Log.ErrorContext(ctx, "mcp-proxy", "method", m.Method, "error", err)
			p.answer(m.ID, func(id json.RawMessage) error {
				return p.refuse(id, codeInternal, "the proxy could not do this")
			})
		}
	}
}

func (p *proxy) do(ctx context.Context, m message) error {
	switch m.Method {
	case "tools/list":
		return p.listTools(ctx, m)
	case "tools/call":
		return p.callTool(ctx, m)
	}
	t, err := p.load(ctx, metaOf(m.Params))
	if err != nil {
		return err
	}
	of := p.taskOf(m.Params)
	return p.ask(m.ID, t, of.tool, of.input, m.line)
}

// fromServer takes a message of the server. What answers nothing that the client waits
// for goes nowhere.
func (p *proxy) fromServer(ctx context.Context, line []byte) error {
	var m message
	err := parse(line, &m)
	if err != nil { // a text that was cut inside a character is common
		if mended := mend(line); mended != nil && parse(mended, &m) == nil {
			line, err = mended, nil
		}
	}
	if err != nil {
		// What nobody can read for sure must not reach a model.
		p.o.Log.WarnContext(ctx, "mcp-proxy: a message of the server was dropped", "error", err)
		if id := answered(line); id != nil {
			return p.answer(id, func(id json.RawMessage) error {
				return p.refuse(id, codeInternal, "the server's answer is not well-formed")
			})
		}
		return nil
	}
	switch {
	case m.Method == "notifications/tools/list_changed":
		p.mu.Lock()
		p.stale = true
		p.mu.Unlock()
		return p.client.write(line)
	case strings.HasPrefix(m.Method, "notifications/tasks"):
		return p.told(ctx, m)
	case m.Method != "":
		return p.client.write(line)
	}
	p.mu.Lock()
	own, mine := p.own[key(m.ID)]
	delete(p.own, key(m.ID))
	p.mu.Unlock()
	if mine {
		own <- answer{m.Result, m.Error}
		return nil
	}
	w, looked := p.take(m.ID)
	if !looked {
		p.o.Log.WarnContext(ctx, "mcp-proxy: an answer of the server that nobody waits for was dropped", "id", short(string(m.ID)))
		return nil
	}
	defer p.asked.Done()
	switch {
	case w.passes:
		return p.client.write(line)
	case m.Error != nil:
		return p.fail(w.id, m.Error)
	case m.Result == nil:
		return p.refuse(w.id, codeInternal, "the server's answer has neither a result nor an error")
	}
	result, err := p.rewrite(ctx, w, m.Result)
	if err != nil {
		p.o.Log.ErrorContext(ctx, "mcp-proxy", "method", w.method, "error", err)
		return p.refuse(w.id, codeInternal, "the answer could not be kept, and nothing of it is shown")
	}
	return p.reply(w.id, result)
}

var tooLong = fmt.Sprintf("the message is longer than %d MiB", MaxMessage>>20)

// tooLong answers for a server whose answer is too long.
func (p *proxy) tooLong(ctx context.Context, head, tail []byte) error {
	p.o.Log.WarnContext(ctx, "mcp-proxy: a message of the server was dropped", "error", tooLong)
	s := sketched(head)
	if s.method || !s.result {
		return nil
	}
	if m := idAtEnd.FindSubmatch(tail); s.id == nil && m != nil {
		s.id = sketched(append([]byte(`{"id":`), m[1]...)).id
	}
	if s.id == nil {
		return nil
	}
	return p.answer(s.id, func(id json.RawMessage) error { return p.refuse(id, codeInternal, "the server's answer: "+tooLong) })
}

// idAtEnd is how an answer ends that has its id behind its result.
var idAtEnd = regexp.MustCompile(`"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}$`)

// rewrite makes of a result what a model may read of it.
func (p *proxy) rewrite(ctx context.Context, w waiting, result json.RawMessage) (json.RawMessage, error) {
	switch w.method {
	case "initialize", "server/discover":
		return withProtocol(result)
	}
	switch {
	case strings.HasPrefix(w.method, "tasks/") && w.method != "tasks/result":
		return p.task(ctx, w, result)
	case goesOn(result):
		p.began(w, result)
		return p.task(ctx, w, result)
	case w.method == "resources/read":
		return p.resources(ctx, w.set, result)
	}
	return p.called(ctx, w, result)
}

// request asks the server on the proxy's own account.
func (p *proxy) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return nil, errors.New("the server has ended")
	}
	p.next++
	id := fmt.Sprintf("%q", fmt.Sprintf("leafproof-%d", p.next))
	c := make(chan answer, 1)
	p.own[key(json.RawMessage(id))] = c
	p.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if err := p.server.write(line); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-c:
		if !ok {
			return nil, errors.New("the server ended before it answered")
		}
		if a.err != nil {
			var e struct {
				Code int `json:"code"`
			}
			if parse(a.err, &e) == nil && e.Code == codeMethod {
				return nil, errNoMethod
			}
			return nil, fmt.Errorf("%s: the server refuses: %.500s", method, a.err)
		}
		return a.result, nil
	case <-ctx.Done(): // whoever needed it does not any more
		p.mu.Lock()
		delete(p.own, key(json.RawMessage(id)))
		p.mu.Unlock()
		line := object([]member{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"method", quote("notifications/cancelled")}, {"params", object([]member{{"requestId", json.RawMessage(id)}})}})
		return nil, errors.Join(ctx.Err(), p.server.write(line))
	}
}

func (p *proxy) reply(id, result json.RawMessage) error {
	line := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"result":`...)
	return p.client.write(append(append(line, result...), '}'))
}

// fail passes on an error of the server.
func (p *proxy) fail(id, raw json.RawMessage) error {
	e := shortError(raw)
	if e == nil {
		return p.refuse(id, codeInternal, "the server's error is not well-formed")
	}
	line := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"error":`...)
	return p.client.write(append(append(line, e...), '}'))
}

func (p *proxy) refuse(id json.RawMessage, code int, text string) error {
	if id == nil {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return err
	}
	return p.client.write(line)
}

// lines is one side, a message a line.
type lines struct {
	in  *bufio.Reader
	out io.WriteCloser
	mu  sync.Mutex
}

func newLines(p Pipe) *lines { return &lines{in: bufio.NewReaderSize(p.In, 256<<10), out: p.Out} }

// each gives every line that is not empty to f, and of one that is too long the beginning
// and the end to long.
func (l *lines) each(f func([]byte) error, long func(head, tail []byte) error) error {
	for {
		var line, tail []byte
		var err error
		for more := true; more; {
			var part []byte
			part, err = l.in.ReadSlice('\n')
			more = errors.Is(err, bufio.ErrBufferFull)
			switch {
			case tail != nil:
				tail = append(tail, part...)
			case len(line)+len(part) <= MaxMessage:
				line = append(line, part...)
				continue
			default:
				line, tail = bytes.Clone(line[:longEnds]), append([]byte{}, part...)
			}
			tail = append([]byte{}, tail[max(0, len(tail)-longEnds):]...)
		}
		if tail != nil {
			if err := long(line, bytes.TrimSpace(tail)); err != nil {
				return err
			}
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := f(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *lines) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(line); err != nil {
		return err
	}
	_, err := l.out.Write([]byte{'\n'})
	return err
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Close()
}
