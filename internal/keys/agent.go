package keys

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"leafproof/manifest"
)

// ErrAgent is an ssh-agent that does not answer, or not as it should.
var ErrAgent = errors.New("the ssh-agent does not answer as it should")

// The patience with an agent. Before it signs it may ask a person (ssh-add -c).
const (
	agentAnswers = 10 * time.Second
	agentSigns   = 2 * time.Minute
)

// Agent is an ssh-agent: the keys that it holds sign without ever being seen here.
type Agent struct{ socket string }

// NewAgent is the agent that listens on a Unix socket, as SSH_AUTH_SOCK names it.
// Nobody is called yet.
func NewAgent(socket string) *Agent { return &Agent{socket} }

// Held returns those of the keys that the agent holds, as signers, in the order of
// keys. Each signature is a connection of its own, so that a signer outlives a
// restart of the agent. The error wraps [ErrAgent].
func (a *Agent) Held(keys ...manifest.PublicKey) ([]*Key, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var listed []*agent.Key
	err := a.call(agentAnswers, func(c agent.ExtendedAgent) (err error) {
		listed, err = c.List()
		return err
	})
	if err != nil {
		return nil, &Error{"list", a.socket, err}
	}
	var held []*Key
	for _, k := range keys {
		blob, err := ssh.NewPublicKey(ed25519.PublicKey(k.Bytes()))
		if err != nil {
			return nil, &Error{"list", a.socket, err}
		}
		if slices.ContainsFunc(listed, func(l *agent.Key) bool { return bytes.Equal(l.Blob, blob.Marshal()) }) {
			held = append(held, &Key{agentSigner{a, blob, k}, k})
		}
	}
	return held, nil
}

// call talks to the agent over a connection of its own.
func (a *Agent) call(patience time.Duration, f func(agent.ExtendedAgent) error) error {
	conn, err := net.DialTimeout("unix", a.socket, agentAnswers)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	if err := f(agent.NewClient(conn)); err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	return nil
}

// agentSigner is a crypto.Signer whose key the agent has.
type agentSigner struct {
	agent  *Agent
	key    ssh.PublicKey
	public manifest.PublicKey
}

func (s agentSigner) Public() crypto.PublicKey { return ed25519.PublicKey(s.public.Bytes()) }

// Sign has the agent sign. Only Ed25519 over the message itself is known, so that
// opts must be crypto.Hash(0).
func (s agentSigner) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts != nil && opts.HashFunc() != crypto.Hash(0) {
		return nil, &Error{"sign with", s.agent.socket, fmt.Errorf("%w: %v is not signed", ErrAgent, opts.HashFunc())}
	}
	var sig *ssh.Signature
	err := s.agent.call(agentSigns, func(c agent.ExtendedAgent) (err error) {
		sig, err = c.Sign(s.key, message)
		return err
	})
	if err == nil && (sig.Format != ssh.KeyAlgoED25519 || len(sig.Blob) != ed25519.SignatureSize) {
		err = fmt.Errorf("%w: it signed as %q with %d bytes", ErrAgent, sig.Format, len(sig.Blob))
	}
	if err != nil {
		return nil, &Error{"sign with", s.agent.socket, err}
	}
	return sig.Blob, nil
}
