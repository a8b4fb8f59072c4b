package httpapi

import (
	"io"
	"net/http"
	"sync"

	"leafproof"
)

// room bounds what bodies and answers that are held in memory have together.
type room struct {
	most, each int64 // each: of one principal

	mu  sync.Mutex
	now int64
	of  map[leafproof.Principal]int64
}

// take takes n more bytes for a principal, or none.
func (m *room) take(p leafproof.Principal, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now+n > m.most || m.of[p]+n > m.each {
		return wait(http.StatusTooManyRequests, leafproof.CodeBudgetExhausted, "", "the bodies and answers that are under way have many bytes already")
	}
	m.now += n
	m.of[p] += n
	return nil
}

func (m *room) give(p leafproof.Principal, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now -= n
	if m.of[p] -= n; m.of[p] <= 0 {
		delete(m.of, p)
	}
}

// hold accounts for n bytes that the call holds in memory until it ends.
func (c *call) hold(n int) error {
	if err := c.s.room.take(c.who.Principal, int64(n)); err != nil {
		c.w.Header().Set("Retry-After", "1")
		return err
	}
	c.held += int64(n)
	return nil
}

// readAll reads what is to be held in memory.
func (c *call) readAll(r io.Reader) ([]byte, error) { return io.ReadAll(&holding{c: c, r: r}) }

// holding accounts for what is read.
type holding struct {
	c   *call
	r   io.Reader
	err error
}

func (h *holding) Read(p []byte) (int, error) {
	if h.err != nil {
		return 0, h.err
	}
	n, err := h.r.Read(p)
	if h.err = h.c.hold(n); h.err != nil {
		if h.c.body != nil && h.c.body.err == nil {
			h.c.body.err = h.err
		}
		return 0, h.err
	}
	return n, err
}
