package client

import (
	"net"
	"time"
)

// defaultStall is how long a server may say and take nothing.
const defaultStall = 10 * time.Minute

// stalling is a connection that ends when nothing passes over it for so long, in either
// direction: a server that neither answers nor reads would be waited for without end.
type stalling struct {
	net.Conn
	most time.Duration
}

// moved moves on what a pending or coming Read and Write wait for.
func (c stalling) moved() { _ = c.SetDeadline(time.Now().Add(c.most)) }

// Read implements [net.Conn].
func (c stalling) Read(p []byte) (int, error) {
	c.moved()
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.moved()
	}
	return n, err
}

// Write implements [net.Conn]. What is written goes in pieces, so that a slow reader is
// told from one that reads nothing.
func (c stalling) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		var m int
		c.moved()
		m, err = c.Conn.Write(p[n:min(n+64<<10, len(p))])
		n += m
	}
	return n, err
}
