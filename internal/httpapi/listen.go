package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// maxConnections is how many connections are open at once; others wait to be
// accepted.
const maxConnections = 1024

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
	room := make(chan struct{}, maxConnections)
	failed := make(chan error, len(doors))
	for _, d := range doors {
		var l net.Listener = &bounded{Listener: d.Listener, room: room, done: base.Done()}
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

// bounded takes no connection while there are many.
type bounded struct {
	net.Listener
	room chan struct{}
	done <-chan struct{}
}

// Accept implements [net.Listener].
func (l *bounded) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

// counted gives its room back when it is closed.
type counted struct {
	net.Conn
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
