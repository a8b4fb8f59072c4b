package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/httpapi"
)

// defaultAddr is where serve listens if nothing else is said.
const defaultAddr = "127.0.0.1:7117"

// serving are serve's flags.
type serving struct {
	o          httpapi.Options
	http       string
	socket     string
	ephemeral  bool
	ownerToken string
	cert, key  string
	clientCA   string
	plaintext  bool
	drain      time.Duration
	gcEvery    string
	quiet      bool
	json       *bool
}

// started is what serve prints once it listens.
type started struct {
	HTTP   string `json:"http,omitempty"`
	Socket string `json:"socket,omitempty"`
	Token  string `json:"token,omitempty"`
}

func serveCommand() *cobra.Command {
	var v serving
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer over HTTP: put, read, query, prove, grant",
		Long: "Answer HTTP requests about the store until a signal ends it: SIGTERM and an interrupt let what is under way end.\n" +
			"Who asks shows the token of a principal (leafproof principal add), or a client certificate. GET /openapi.json describes all.\n\n" +
			"With --ephemeral the store is a new one in a temporary folder, which is gone when this ends; a token of its owner is printed.",
		Args: args(0, 0),
	}
	f := cmd.Flags()
	f.StringVar(&v.http, "http", "", "listen at this `ADDR`, host:port (default "+defaultAddr+", unless --socket or --ephemeral is given)")
	f.StringVar(&v.socket, "socket", "", "listen on a unix socket at this `PATH`")
	f.BoolVar(&v.ephemeral, "ephemeral", false, "serve a new store that is gone afterwards, on a unix socket")
	f.StringVar(&v.ownerToken, "owner-token", "", "`FILE` of a token that asks as the owner of the store; made if it is missing")
	f.StringVar(&v.cert, "tls-cert", "", "`FILE` of the server's certificate chain (PEM)")
	f.StringVar(&v.key, "tls-key", "", "`FILE` of its private key (PEM)")
	f.StringVar(&v.clientCA, "client-ca", "", "`FILE` of the authorities (PEM) whose client certificates name principals")
	f.BoolVar(&v.plaintext, "plaintext", false, "allow --http beyond the loopback without TLS, as behind a proxy that ends it")
	f.StringArrayVar(&v.o.Hosts, "host", nil, "a `NAME` under which this server is asked, beside localhost and the address it listens at (may be repeated)")
	f.StringArrayVar(&v.o.Origins, "origin", nil, "an `ORIGIN`, as in https://app.example, whose pages may ask (may be repeated)")
	f.BoolVar(&v.o.OpenMetrics, "open-metrics", false, "let everybody read /metrics, not the owner alone")
	f.StringVar(&v.o.Runs, "runs", "", "the `FOLDER` in which runs of harnesses are kept (default: runs, in the store's folder)")
	f.IntVar(&v.o.Requests, "max-requests", 256, "how many requests are answered at once; half of them may be one principal's")
	f.Int64Var(&v.o.BodyBytes, "max-body", 64<<30, "how many bytes an artifact that is put may have")
	f.DurationVar(&v.o.QueryTime, "max-query-time", 30*time.Second, "how long one query may take before it is cut short, with what it found")
	f.DurationVar(&v.drain, "drain", 30*time.Second, "how long requests that are under way have to end after a signal")
	f.StringVar(&v.gcEvery, "gc-every", "", "sweep the store so often: 90m, 12h, 7d")
	f.BoolVar(&v.quiet, "quiet", false, "log failures alone, not each request")
	v.json = jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.run(cmd) }
	return cmd
}

func (v *serving) run(cmd *cobra.Command) error {
	if err := v.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var out started
	if v.ephemeral {
		base, err := v.makeEphemeral(ctx, cmd)
		if err != nil {
			return err
		}
		defer os.RemoveAll(base)
		out.Token = v.o.OwnerToken
	}
	if v.ownerToken != "" {
		var err error
		if v.o.OwnerToken, err = readOwnerToken(v.ownerToken); err != nil {
			return err
		}
	}
	level := slog.LevelInfo
	if v.quiet {
		level = slog.LevelWarn
	}
	v.o.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	return withStore(cmd, func(s *leafproof.Store) error {
		doors, err := v.listen(&out)
		if err != nil {
			return err
		}
		if err := v.announce(cmd, out); err != nil {
			return err
		}
		v.o.MCP = mcpHandler(s, v.o.Log)
		if v.o.Runs == "" {
			dir, err := storeDir(cmd)
			if err != nil {
				return err
			}
			v.o.Runs = filepath.Join(dir, "runs")
		}
		sweeps := v.sweep(ctx, s)
		server := httpapi.New(s, v.o)
		err = errors.Join(server.Serve(ctx, v.drain, doors...), server.Close())
		stop()
		<-sweeps
		return err
	})
}

// check refuses flags that do not go together.
func (v *serving) check() error {
	switch {
	case v.ephemeral && v.ownerToken != "":
		return usage("--owner-token goes with a store that stays: --ephemeral prints a token")
	case (v.cert == "") != (v.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case v.clientCA != "" && v.cert == "":
		return usage("--client-ca goes with --tls-cert and --tls-key")
	}
	if v.gcEvery != "" {
		if _, err := parseDuration(v.gcEvery); err != nil {
			return usage("--gc-every: %v", err)
		}
	}
	if v.http == "" && v.socket == "" && !v.ephemeral {
		v.http = defaultAddr
	}
	if v.http == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(v.http)
	if err != nil {
		return usage("--http: %v", err)
	}
	addr, err := netip.ParseAddr(host)
	loopback := host == "localhost" || err == nil && addr.IsLoopback()
	if !loopback && v.cert == "" && !v.plaintext {
		return usage("--http %s is beyond the loopback: tokens would pass in clear text. Give --tls-cert and --tls-key, or --plaintext behind a proxy that ends TLS", v.http)
	}
	if err != nil || !addr.IsUnspecified() { // who listens everywhere is asked by names that --host gives
		v.o.Hosts = append(v.o.Hosts, host)
	}
	return nil
}

// makeEphemeral makes a store in a temporary folder, which the caller removes.
func (v *serving) makeEphemeral(ctx context.Context, cmd *cobra.Command) (base string, err error) {
	if base, err = os.MkdirTemp("", "leafproof-"); err != nil {
		return "", err
	}
	dir := filepath.Join(base, "store")
	if err := leafproof.Init(ctx, dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(base))
	}
	if v.socket == "" {
		v.socket = filepath.Join(base, "socket")
	}
	v.o.OwnerToken = newToken()
	return base, cmd.Flags().Set("store", dir)
}

// newToken is a token of 256 random bits, and a few more.
func newToken() string { return "lpt_" + strings.ToLower(rand.Text()+rand.Text()) }

// readOwnerToken reads a token from a file that nobody else may read, or makes it.
func readOwnerToken(name string) (string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", err
		}
		token := newToken()
		_, err = fmt.Fprintln(f, token)
		return token, errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others: chmod 600 it", name)
	}
	token := strings.TrimSpace(string(text))
	if !strings.HasPrefix(token, "lpt_") || len(token) < 40 || len(token) > 128 {
		return "", fmt.Errorf("%s holds no token: lpt_ and at least 36 characters", name)
	}
	return token, nil
}

// listen opens what was asked for.
func (v *serving) listen(out *started) (doors []httpapi.Door, err error) {
	defer func() {
		if err != nil {
			for _, d := range doors {
				d.Close()
			}
		}
	}()
	if v.http != "" {
		var config *tls.Config
		scheme := "http://"
		if v.cert != "" {
			scheme = "https://"
			if config, err = v.tls(); err != nil {
				return nil, err
			}
		}
		l, err := net.Listen("tcp", v.http)
		if err != nil {
			return nil, err
		}
		doors, out.HTTP = append(doors, httpapi.Door{Listener: l, TLS: config}), scheme+l.Addr().String()
	}
	if v.socket != "" {
		l, err := httpapi.ListenSocket(v.socket)
		if err != nil {
			return doors, err
		}
		doors, out.Socket = append(doors, httpapi.Door{Listener: l}), v.socket
	}
	return doors, nil
}

// tls is how connections are encrypted, and whose certificates name a principal.
func (v *serving) tls() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(v.cert, v.key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if v.clientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(v.clientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", v.clientCA)
	}
	return config, nil
}

// announce prints where it listens.
func (v *serving) announce(cmd *cobra.Command, out started) error {
	if *v.json {
		return printJSON(cmd.OutOrStdout(), out)
	}
	for _, line := range [][2]string{{"http", out.HTTP}, {"socket", out.Socket}, {"token", out.Token}} {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%-7s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// sweep sweeps the store now and then, until ctx ends; then the channel is closed.
func (v *serving) sweep(ctx context.Context, s *leafproof.Store) <-chan struct{} {
	done := make(chan struct{})
	every, err := parseDuration(v.gcEvery)
	if err != nil { // it was checked: nothing is asked for
		close(done)
		return done
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r, err := s.GC(ctx, leafproof.GCOptions{})
			if err != nil && ctx.Err() == nil {
				v.o.Log.Error("gc", "err", err.Error())
			} else if err == nil {
				v.o.Log.Info("gc", "epoch", r.Epoch, "deleted", r.Deleted, "freed_bytes", r.Freed, "kept", len(r.Kept))
			}
		}
	}()
	return done
}
