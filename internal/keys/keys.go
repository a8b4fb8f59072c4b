// Package keys holds signing keys in OpenSSH private key files.
package keys

import (
	"crypto"
	"errors"

	"leafproof/manifest"
)

// Key is a signing key and its public half.
type Key struct {
	Signer crypto.Signer
	Public manifest.PublicKey
}

var errTodo = errors.New("not supported yet")

// Generate makes a new key file of mode 0600 at path, which must not exist.
func Generate(path, comment string) (*Key, error) { return nil, errTodo }

// Load reads a key file.
func Load(path string) (*Key, error) { return nil, errTodo }
