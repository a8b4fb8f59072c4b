package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/mcpproxy"
	"leafproof/manifest"
	"leafproof/ref"
	"leafproof/ref/harness"
)

// spoolBytes bounds what of a run waits for a store that takes nothing.
const spoolBytes = 1 << 30

func mcpProxyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp-proxy -- COMMAND…",
		Short: "Wrap an MCP server: what its tools return goes into the store, and the model reads references",
		Long: "Run COMMAND, an MCP server on standard input and output, and stand between it and a client. Images, audio, resources and\n" +
			"texts of results are stored, whatever their length, and the model reads a marker or a preview; every parameter of the\n" +
			"server's tools takes a reference to what was shown; and read_json, query_json, read_text, read_records and stat read on.\n" +
			"The server is not changed, and knows nothing of it.\n\n" +
			"What was shown is kept in a transcript, by the name of the run: the command itself, if --run gives no other. Who starts\n" +
			"the proxy again with the same name finds that every reference means what it meant.",
		Args: args(1, -1),
	}
	asFlags(cmd)
	f := cmd.Flags()
	tenant := f.String("tenant", "", "the tenant of what is stored (the owner may name one; default "+leafproof.DefaultTenant+")")
	run := f.String("run", "", "the name of the run (default: one that follows from the command)")
	dir := f.String("transcripts", "", "the folder of the transcripts (default $XDG_STATE_HOME/leafproof/transcripts, else ~/.local/state/…)")
	f.SetInterspersed(false) // what follows COMMAND is its own
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := *run
		if name == "" {
			name = commandRun(args)
		} else if err := manifest.CheckName(name); err != nil {
			return usage("--run: %v", err)
		}
		folder, err := transcriptsDir(*dir)
		if err != nil {
			return err
		}
		transcript, err := openTranscript(cmd.Context(), folder, name)
		if err != nil {
			return err
		}
		defer transcript.Close()
		spool, err := harness.OpenSpool(filepath.Join(folder, ref.TranscriptName(name)+".spool"), spoolBytes)
		if err != nil {
			return err
		}
		defer spool.Close()
		return withStore(cmd, func(s *leafproof.Store) error {
			who, err := mcpIdentity(cmd, s, *tenant, "")
			if err != nil {
				return err
			}
			return proxyTo(cmd, args, mcpproxy.Options{
				Store: s, Caller: who.Caller, Tenant: who.Tenant, Run: name, Transcript: transcript, Spool: spool,
				Log: slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		})
	}
	return cmd
}

// openTranscript opens a run's transcript. A client that begins a server anew often does
// so before the last one has ended: it is waited for, a while.
func openTranscript(ctx context.Context, folder, name string) (*ref.File, error) {
	for until := time.Now().Add(lockWait); ; {
		t, err := ref.OpenTranscript(folder, name)
		if !errors.Is(err, ref.ErrInUse) {
			return t, err
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return nil, &hinted{
				fmt.Errorf("another proxy has the transcript of the run %s", name),
				"give each conversation a run of its own: leafproof mcp-proxy --run NAME -- …",
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lockWait is how long a proxy waits for one before it to end.
const lockWait = 5 * time.Second

// commandRun is the name of the run of a command: the same for the same words.
func commandRun(args []string) string {
	sum := sha256.Sum256([]byte(strings.Join(args, "\x00")))
	return "mcp-proxy-" + hex.EncodeToString(sum[:12])
}

// transcriptsDir makes the folder of the transcripts, which others cannot read.
func transcriptsDir(dir string) (string, error) {
	if dir == "" {
		state, err := stateDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(state, "transcripts")
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// stateDir is the folder of what a user's programs keep from one run to the next.
func stateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "leafproof"), nil
}

// proxyTo runs the server and passes messages until one side ends.
func proxyTo(cmd *cobra.Command, args []string, o mcpproxy.Options) error {
	ctx, end := context.WithCancel(cmd.Context())
	defer end()
	server := exec.CommandContext(ctx, args[0], args[1:]...)
	server.Stderr = cmd.ErrOrStderr()
	server.Env = without(os.Environ(), tokenVariable) // it acts for nobody
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = 5 * time.Second
	in, err := server.StdinPipe()
	if err != nil {
		return err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	err = mcpproxy.Run(ctx, o, mcpproxy.Pipe{In: cmd.InOrStdin(), Out: nopCloser{cmd.OutOrStdout()}}, mcpproxy.Pipe{In: out, Out: in})
	in.Close()
	if errors.Is(err, mcpproxy.ErrHangs) {
		end()
	}
	// One that ends its output need not end.
	late := time.AfterFunc(server.WaitDelay, end)
	defer late.Stop()
	if werr := server.Wait(); err == nil && cmd.Context().Err() == nil {
		var exit *exec.ExitError
		if errors.As(werr, &exit) {
			return &exitError{exitFailed, errors.New(args[0] + ": " + werr.Error())}
		}
		err = werr
	}
	return err
}

// without is an environment that lacks a variable.
func without(env []string, name string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			out = append(out, v)
		}
	}
	return out
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
