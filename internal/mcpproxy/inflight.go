package mcpproxy

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/ref/harness"
)

// waiting is a request of the client that is not answered yet.
type waiting struct {
	id     json.RawMessage // as the client wrote it
	method string
	passes bool     // its answer goes to the client as it comes
	asked  bool     // the server has it
	set    *toolset // as it was when it was asked; nil where nothing is recorded
	tool   *tool
	input  *harness.Input
	stop   context.CancelFunc // ends what the proxy does for it; nil for nothing
	own    bool               // it is a call of the harness's own tools, and needs no server
}

// key is an id in one spelling: 1 and 1.0 are one id, and "a" is "\u0061".
func key(id json.RawMessage) string {
	switch jsontext.Value(id).Kind() {
	case '"':
		var s string
		if parse(id, &s) == nil {
			return "s" + s
		}
	case '0':
		if f, err := strconv.ParseFloat(string(id), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return "n" + strconv.FormatInt(int64(f), 10)
		}
	}
	return string(id)
}

func isID(id json.RawMessage) bool {
	k := key(id)
	return k[0] == 's' || k[0] == 'n' && k != "null"
}

// begin notes a request. It answers itself, and returns false, where none can be under
// that id.
func (p *proxy) begin(w waiting) (bool, error) {
	k := key(w.id)
	p.mu.Lock()
	_, twice := p.pending[k]
	gone := p.gone
	if !twice && !gone {
		p.pending[k] = w
		p.asked.Add(1)
	}
	p.mu.Unlock()
	switch {
	case gone:
		return false, p.refuse(w.id, codeInternal, "the server has ended")
	case twice: // its id is the other one's
		return false, p.refuse(nil, codeInvalid, "a request with this id is under way")
	}
	return true, nil
}

// take ends a request: whoever took it answers it, and says p.asked.Done then. There is
// none where it was cancelled, or is answered.
func (p *proxy) take(id json.RawMessage) (waiting, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key(id)
	w, ok := p.pending[k]
	delete(p.pending, k)
	return w, ok
}

// change notes more of a request that waits.
func (p *proxy) change(id json.RawMessage, f func(*waiting)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.pending[key(id)]
	if ok {
		f(&w)
		p.pending[key(id)] = w
	}
	return ok
}

// ask passes a request on whose answer is to be looked at.
func (p *proxy) ask(id json.RawMessage, set *toolset, t *tool, in *harness.Input, line []byte) error {
	if !p.change(id, func(w *waiting) { w.asked, w.set, w.tool, w.input = true, set, t, in }) {
		return nil // it was cancelled
	}
	return p.server.write(line)
}

// cancelled ends a request that the client does not want answered any more: what the
// server says to it later is dropped. It reports whether the server must hear of it.
func (p *proxy) cancelled(params json.RawMessage) bool {
	var c struct {
		ID json.RawMessage `json:"requestId"`
	}
	if parse(params, &c) != nil || c.ID == nil {
		return true
	}
	w, ok := p.take(c.ID)
	if !ok {
		return true
	}
	if w.stop != nil {
		w.stop()
	}
	p.asked.Done()
	return w.asked
}

// answer ends a request with what f makes of its id.
func (p *proxy) answer(id json.RawMessage, f func(id json.RawMessage) error) error {
	w, ok := p.take(id)
	if !ok {
		return nil
	}
	defer p.asked.Done()
	return f(w.id)
}

// end answers what the server has not, when it is gone.
func (p *proxy) end() {
	p.mu.Lock()
	pending, own := p.pending, p.own
	p.pending, p.own, p.gone = map[string]waiting{}, map[string]chan answer{}, true
	for k, w := range pending {
		if w.own {
			p.pending[k] = w
			delete(pending, k)
		}
	}
	p.mu.Unlock()
	for _, w := range pending {
		p.refuse(w.id, codeInternal, "the server ended before it answered")
		p.asked.Done()
	}
	for _, c := range own {
		close(c)
	}
}
