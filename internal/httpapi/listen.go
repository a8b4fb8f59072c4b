package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxConnections is how many connections of a door are open at once; others wait to be
// accepted. One that waits takes the place of one without a request.
var maxConnections = 1024 // a test lessens it

// Door is where connections come in.
type Door struct {
	net.Listener
	TLS *tls.Config // nil: they are not encrypted
}

// Serve answers requests that come through some doors until ctx ends. Then /readyz
// says so, no connection is taken any more, and requests that are under way have so
// long to end; what was acknowledged until then is stored. It closes the
// doors.
func (s *Server) Serve(ctx context.Context, drain time.Duration, doors ...Door) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := s.HTTP()
	server.BaseContext = func(net.Listener) context.Context { return base }
	idle := &idleConns{}
	server.ConnState = idle.note
	failed := make(chan error, len(doors))
	for _, d := range doors {
		var l net.Listener = &bounded{Listener: d.Listener, room: make(chan struct{}, maxConnections), closed: make(chan struct{}), idle: idle}
		if d.TLS != nil {
			l = tls.NewListener(l, d.TLS) // outermost: the server looks for it
		}
		go func() { failed <- server.Serve(l) }()
	}
	var err error
	ended := 0
	select {
	case <-ctx.Done():
	case err = <-failed:
		ended = 1
	}
	s.Drain()
	patient, stop := context.WithTimeout(base, drain)
	defer stop()
	if shutErr := server.Shutdown(patient); shutErr != nil {
		cancel() // what is still under way hears that it is over
		err = errors.Join(err, fmt.Errorf("requests were cut after %v: %w", drain, shutErr), server.Close())
	}
	cancel()
	for range len(doors) - ended {
		if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// idleConns are the connections on which nothing is asked, the longest first: whoever
// holds many open must not keep others out.
type idleConns struct {
	mu  sync.Mutex
	all []*counted
}

// note hears what becomes of a connection.
func (l *idleConns) note(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*counted)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(o *counted) bool { return o == c })
	if state != http.StateIdle {
		return
	}
	if c.door.waiting.Load() > 0 {
		_ = c.Conn.Close() // the server hears of it and closes the rest
		return
	}
	l.all = append(l.all, c)
}

// end ends the one of a door that has been idle longest.
func (l *idleConns) end(door *bounded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.all, func(c *counted) bool { return c.door == door }); i >= 0 {
		_ = l.all[i].Conn.Close()
		l.all = slices.Delete(l.all, i, i+1)
	}
}

// bounded takes no connection while there are many.
type bounded struct {
	net.Listener
	room    chan struct{}
	closed  chan struct{} // whoever waits in Accept hears of Close
	once    sync.Once
	idle    *idleConns
	waiting atomic.Int32 // Accept waits for room
}

// Accept implements [net.Listener].
func (l *bounded) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	default:
		if err := l.wait(); err != nil {
			return nil, err
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, door: l, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

// Close implements [net.Listener].
func (l *bounded) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// wait waits until there is room.
func (l *bounded) wait() error {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	l.idle.end(l)
	select {
	case l.room <- struct{}{}:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// counted gives its room back when it is closed.
type counted struct {
	net.Conn
	door  *bounded
	leave func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// ListenSocket listens on a unix socket that only the owner of the process can open.
// A socket that a dead process left is replaced, one that answers is not.
func ListenSocket(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s is there, and no socket", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: another process answers there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
