package keys_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"leafproof/internal/keys"
	"leafproof/manifest"
)

// socketPath is a path short enough for a Unix socket.
func socketPath(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no ssh-agent socket here")
	}
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve answers on a socket with an agent in this process.
func serve(t *testing.T, a agent.Agent) string {
	t.Helper()
	socket := socketPath(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = agent.ServeAgent(a, conn)
			}()
		}
	}()
	return socket
}

func newKey(t *testing.T) (*keys.Key, ed25519.PrivateKey) {
	t.Helper()
	k, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k, k.Signer.(ed25519.PrivateKey)
}

// A signature by an agent is the one that the key itself makes.
func TestAgent(t *testing.T) {
	held, private := newKey(t)
	other, _ := newKey(t)
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: &private}); err != nil {
		t.Fatal(err)
	}
	a := keys.NewAgent(serve(t, ring))
	got, err := a.Held(other.Public, held.Public)
	if err != nil || len(got) != 1 || got[0].Public != held.Public {
		t.Fatalf("Held = %v, %v", got, err)
	}
	if pub, err := manifest.PublicKeyOf(got[0].Signer); err != nil || pub != held.Public {
		t.Errorf("its public half is %v, %v", pub, err)
	}
	payload := []byte(`{"a":1}`)
	for name, by := range map[string]func(crypto.Signer) (string, error){
		"DSSE": func(s crypto.Signer) (string, error) {
			e, err := manifest.Sign(payload, s)
			return string(e.Bytes()), err
		},
		"SSH": func(s crypto.Signer) (string, error) {
			return manifest.SignSSH(payload, manifest.NamespaceManifest, s)
		},
	} {
		want, err1 := by(private)
		sig, err2 := by(got[0].Signer)
		if err := errors.Join(err1, err2); err != nil || sig != want {
			t.Errorf("%s: the agent signs %q, %v, the key %q", name, sig, err, want)
		}
	}
	if _, err := got[0].Signer.Sign(rand.Reader, payload, crypto.SHA512); !errors.Is(err, keys.ErrAgent) {
		t.Errorf("another kind of signature: %v", err)
	}
	if err := ring.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := got[0].Signer.Sign(rand.Reader, payload, crypto.Hash(0)); !errors.Is(err, keys.ErrAgent) {
		t.Errorf("a key that the agent gave up: %v", err)
	}
	if got, err := a.Held(held.Public); err != nil || len(got) != 0 {
		t.Errorf("Held = %v, %v", got, err)
	}
}

// liar signs another message than it is given.
type liar struct{ agent.Agent }

func (l liar) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return l.Agent.Sign(key, append(data, 'x'))
}

func TestAgentThatLies(t *testing.T) {
	held, private := newKey(t)
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: &private}); err != nil {
		t.Fatal(err)
	}
	got, err := keys.NewAgent(serve(t, liar{ring})).Held(held.Public)
	if err != nil || len(got) != 1 {
		t.Fatalf("Held = %v, %v", got, err)
	}
	if _, err := manifest.Sign([]byte("{}"), got[0].Signer); !errors.Is(err, manifest.ErrSignature) {
		t.Errorf("a wrong signature: %v, want ErrSignature", err)
	}
}

func TestAgentAbsent(t *testing.T) {
	k, _ := newKey(t)
	socket := socketPath(t)
	_, err := keys.NewAgent(socket).Held(k.Public)
	if !errors.Is(err, keys.ErrAgent) || !strings.Contains(err.Error(), socket) {
		t.Errorf("nobody there: %v", err)
	}
	// One who talks nonsense.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Write([]byte("\xff\xff\xff\xffHTTP/1.1 200 OK"))
		conn.Close()
	}()
	if _, err := keys.NewAgent(socket).Held(k.Public); !errors.Is(err, keys.ErrAgent) {
		t.Errorf("nonsense: %v", err)
	}
	if got, err := keys.NewAgent(socket).Held(); err != nil || got != nil {
		t.Errorf("no keys: %v, %v", got, err)
	}
}

// TestSSHAgent: the agent that everyone has.
func TestSSHAgent(t *testing.T) {
	tool, err := exec.LookPath("ssh-agent")
	if err != nil {
		t.Skip("no ssh-agent")
	}
	add, err := exec.LookPath("ssh-add")
	if err != nil {
		t.Skip("no ssh-add")
	}
	socket := socketPath(t)
	cmd := exec.CommandContext(t.Context(), tool, "-D", "-a", socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line := make([]byte, 256) // it says where it listens when it does
	n, _ := out.Read(line)
	if !regexp.MustCompile(`SSH_AUTH_SOCK=`).Match(line[:n]) {
		t.Fatalf("ssh-agent says %q", line[:n])
	}
	key, path := keyFile(t, "held")
	put := exec.CommandContext(t.Context(), add, "-q", path)
	put.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
	if out, err := put.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := keys.NewAgent(socket).Held(key.Public)
	if err != nil || len(got) != 1 {
		t.Fatalf("Held = %v, %v", got, err)
	}
	theirs, err := manifest.Sign([]byte("{}"), got[0].Signer)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := manifest.Sign([]byte("{}"), key.Signer)
	if err != nil || string(ours.Bytes()) != string(theirs.Bytes()) {
		t.Errorf("the agent signs %s, the key %s, %v", theirs.Bytes(), ours.Bytes(), err)
	}
}
