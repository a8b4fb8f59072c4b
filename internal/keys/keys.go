// Package keys keeps Ed25519 signing keys in OpenSSH private key files, which
// ssh-keygen and ssh-agent read too, and signs with those that an ssh-agent holds.
//
// A key file is a secret: its owner alone may read it, and [Load] refuses one
// that others can read. The files have no passphrase; a key that must not lie on
// a disk is held by an [Agent] or another crypto.Signer.
package keys

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/crypto/ssh"

	"leafproof/manifest"
)

// The errors that callers tell apart, with [errors.Is]. A missing file is
// fs.ErrNotExist.
var (
	ErrMode   = errors.New("others can read this private key")
	ErrFormat = errors.New("not an OpenSSH private key file of an Ed25519 key without a passphrase")
)

// maxFile is the largest key file, in bytes; ours have about 400.
const maxFile = 64 << 10

// Error says which operation on which key file failed, and why.
type Error struct {
	Op   string // "generate", "marshal", "load", "list" or "sign with"
	Path string // the file, or the agent's socket; empty where there is none
	Err  error  // the reason, never nil
}

// Error gives one line with the path.
func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s key: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s key %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Key is a signing key and its public half.
type Key struct {
	Signer crypto.Signer // Ed25519
	Public manifest.PublicKey
}

// Generate makes a key. It is on no disk until the caller writes what
// [Key.Marshal] returns, durably and with mode 0600.
func Generate() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, &Error{"generate", "", err}
	}
	key, err := fromPrivate(private)
	if err != nil {
		return nil, &Error{"generate", "", err}
	}
	return key, nil
}

// Marshal returns the content of the key's file, which is a secret. The comment
// stands in it and names the key to ssh tools.
func (k *Key) Marshal(comment string) ([]byte, error) {
	block, err := ssh.MarshalPrivateKey(k.Signer, comment)
	if err != nil {
		return nil, &Error{"marshal", "", err}
	}
	return pem.EncodeToMemory(block), nil
}

// Load reads a key file. It refuses one that group or others can read
// ([ErrMode]), another type of key, and one under a passphrase ([ErrFormat]).
func Load(path string) (*Key, error) {
	key, err := load(path)
	if err != nil {
		return nil, &Error{"load", path, err}
	}
	return key, nil
}

func load(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err) // Error names the path already
	}
	defer f.Close()
	info, err := f.Stat() // of the open file: the name may be rebound
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file", ErrFormat)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: its mode is %04o; run chmod 600 on it", ErrMode, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return parse(b)
}

func parse(b []byte) (*Key, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrFormat, maxFile)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "OPENSSH PRIVATE KEY" {
		return nil, ErrFormat
	}
	raw, err := ssh.ParseRawPrivateKey(b)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return nil, fmt.Errorf("%w: it has a passphrase; ssh-keygen -p takes it off", ErrFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFormat, err)
	}
	private, ok := raw.(*ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: it holds a %T", ErrFormat, raw)
	}
	return fromPrivate(*private)
}

// fromPrivate checks that the two halves belong together: signatures under a key
// whose file is damaged would verify under none, and give the secret away.
func fromPrivate(private ed25519.PrivateKey) (*Key, error) {
	if !private.Equal(ed25519.NewKeyFromSeed(private.Seed())) {
		return nil, fmt.Errorf("%w: its two halves do not belong together", ErrFormat)
	}
	public, err := manifest.PublicKeyOf(private)
	if err != nil {
		return nil, err
	}
	return &Key{Signer: private, Public: public}, nil
}
