package keys_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"leafproof/internal/keys"
	"leafproof/manifest"
)

// keyFile writes a new key to a file and returns both.
func keyFile(t *testing.T, comment string) (*keys.Key, string) {
	key, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Marshal(comment)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manifest.key")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return key, path
}

func TestRoundTrip(t *testing.T) {
	made, path := keyFile(t, "manifest")
	loaded, err := keys.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Public != made.Public {
		t.Errorf("loaded %s, made %s", loaded.Public.Fingerprint(), made.Public.Fingerprint())
	}
	sig, err := loaded.Signer.Sign(rand.Reader, []byte("message"), crypto.Hash(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Public.Verify([]byte("message"), sig); err != nil {
		t.Error(err)
	}
	other, _ := keyFile(t, "manifest")
	if other.Public == made.Public {
		t.Error("two keys are the same")
	}
}

// TestSSHKeygen: the tool that everyone has reads our file and sees the same key.
func TestSSHKeygen(t *testing.T) {
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	key, path := keyFile(t, "a comment")
	line, err := exec.CommandContext(t.Context(), tool, "-y", "-f", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := key.Public.OpenSSHLine() + " a comment\n"; string(line) != want {
		t.Errorf("ssh-keygen -y prints %q, want %q", line, want)
	}
	list, err := exec.CommandContext(t.Context(), tool, "-l", "-f", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(list), " "+key.Public.Fingerprint()+" ") {
		t.Errorf("ssh-keygen -l prints %q, want %s", list, key.Public.Fingerprint())
	}
	// And we read one that it made.
	theirs := filepath.Join(t.TempDir(), "theirs")
	if out, err := exec.CommandContext(t.Context(), tool, "-q", "-t", "ed25519", "-N", "", "-f", theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loaded, err := keys.Load(theirs)
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(theirs + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := manifest.ParsePublicKey(public); err != nil || want != loaded.Public {
		t.Errorf("ParsePublicKey of the .pub file gives %v, %v", want, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	k, good := keyFile(t, "")
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(other, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(k.Signer, "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := k.Signer.(ed25519.PrivateKey), make(ed25519.PrivateKey, ed25519.PrivateKeySize)
	copy(b, a)
	b[3] ^= 1 // in the secret half
	halves, err := ssh.MarshalPrivateKey(b, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content []byte
		mode    os.FileMode
		err     error
		says    string
	}{
		"group can read":  {text, 0o640, keys.ErrMode, "chmod 600"},
		"world can read":  {text, 0o604, keys.ErrMode, "0604"},
		"other type":      {pem.EncodeToMemory(block), 0o600, keys.ErrFormat, "ecdsa"},
		"passphrase":      {pem.EncodeToMemory(locked), 0o600, keys.ErrFormat, "passphrase"},
		"two halves":      {pem.EncodeToMemory(halves), 0o600, keys.ErrFormat, "do not belong together"},
		"empty":           {nil, 0o600, keys.ErrFormat, ""},
		"truncated":       {text[:len(text)/2], 0o600, keys.ErrFormat, ""},
		"a public key":    {[]byte(k.Public.OpenSSHLine()), 0o600, keys.ErrFormat, ""},
		"far too much":    {make([]byte, 1<<20), 0o600, keys.ErrFormat, "more than"},
		"one byte is off": {append([]byte(nil), strings.Replace(string(text), "A", "B", 1)...), 0o600, keys.ErrFormat, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && test.err == keys.ErrMode {
				t.Skip("no modes here")
			}
			path := filepath.Join(t.TempDir(), "k")
			if err := os.WriteFile(path, test.content, test.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			got, err := keys.Load(path)
			if !errors.Is(err, test.err) || got != nil {
				t.Fatalf("Load = %v, %v, want %v", got, err, test.err)
			}
			if !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not say %q and the path", err, test.says)
			}
		})
	}
	if _, err := keys.Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := keys.Load(t.TempDir()); !errors.Is(err, keys.ErrFormat) {
		t.Errorf("a folder: %v", err)
	}
}
