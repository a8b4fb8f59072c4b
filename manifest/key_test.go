package manifest_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"leafproof/manifest"
)

// TestWycheproof: all 151 cases through the way that our signatures take.
func TestWycheproof(t *testing.T) {
	var file struct {
		NumberOfTests int `json:"numberOfTests"`
		TestGroups    []struct {
			PublicKey struct {
				PK  string `json:"pk"`
				PEM string `json:"-"`
			} `json:"publicKey"`
			PublicKeyPem string `json:"publicKeyPem"`
			Tests        []struct {
				TcID    int    `json:"tcId"`
				Comment string `json:"comment"`
				Msg     string `json:"msg"`
				Sig     string `json:"sig"`
				Result  string `json:"result"`
			} `json:"tests"`
		} `json:"testGroups"`
	}
	vectorJSON(t, "trust/wycheproof/ed25519_test.json", &file)
	n := 0
	for _, g := range file.TestGroups {
		raw, err := hex.DecodeString(g.PublicKey.PK)
		if err != nil {
			t.Fatal(err)
		}
		pub, err := manifest.NewPublicKey(raw)
		if err != nil {
			t.Fatalf("%s: %v", g.PublicKey.PK, err)
		}
		if g.PublicKeyPem != "" {
			text := strings.TrimRight(g.PublicKeyPem, "\n") + "\n"
			if got, err := manifest.ParsePublicKey([]byte(text)); err != nil || got != pub {
				t.Errorf("ParsePublicKey(%q) = %v, %v", text, got, err)
			}
		}
		for _, c := range g.Tests {
			msg, err1 := hex.DecodeString(c.Msg)
			sig, err2 := hex.DecodeString(c.Sig)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			n++
			if err := pub.Verify(msg, sig); (err == nil) != (c.Result == "valid") || err != nil && !errors.Is(err, manifest.ErrSignature) {
				t.Errorf("case %d (%s): %v, want %s", c.TcID, c.Comment, err, c.Result)
			}
		}
	}
	if n != 151 || n != file.NumberOfTests {
		t.Errorf("%d cases, want 151", n)
	}
}

func TestSmallOrderVector(t *testing.T) {
	var cases []struct {
		Name   string `json:"name"`
		Public string `json:"public_hex"`
		Sig    string `json:"sig_hex"`
		Msg    string `json:"msg"`
	}
	vectorJSON(t, "trust/ed25519_smallorder.json", &cases)
	for _, c := range cases {
		pub, err1 := hex.DecodeString(c.Public)
		sig, err2 := hex.DecodeString(c.Sig)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !ed25519.Verify(pub, []byte(c.Msg), sig) {
			t.Errorf("%s: the standard library no longer accepts it", c.Name)
		}
		if k, err := manifest.NewPublicKey(pub); !errors.Is(err, manifest.ErrKey) || !k.IsZero() {
			t.Errorf("%s: NewPublicKey = %v, %v, want ErrKey", c.Name, k, err)
		}
	}
}

// TestNewPublicKeyRefuses: the eight points of small order, and encodings that
// are not the canonical one (RFC 8032 section 5.1.3).
func TestNewPublicKeyRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"identity":                 "0100000000000000000000000000000000000000000000000000000000000000",
		"order 2":                  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"order 4":                  "0000000000000000000000000000000000000000000000000000000000000000",
		"order 4, negative":        "0000000000000000000000000000000000000000000000000000000000000080",
		"order 8":                  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"order 8, negative":        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"order 8, other":           "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"order 8, other, negative": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"identity, sign bit":       "0100000000000000000000000000000000000000000000000000000000000080",
		"y = p":                    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p + 1":                "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p + 3, large order":   "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"not on the curve":         "0200000000000000000000000000000000000000000000000000000000000000",
		"31 bytes":                 strings.Repeat("11", 31),
		"33 bytes":                 strings.Repeat("11", 33),
		"none":                     "",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(in)
			if err != nil {
				t.Fatal(err)
			}
			if k, err := manifest.NewPublicKey(b); !errors.Is(err, manifest.ErrKey) || !k.IsZero() {
				t.Errorf("NewPublicKey = %x, %v, want ErrKey", k.Bytes(), err)
			}
		})
	}
}

func TestParsePublicKey(t *testing.T) {
	private, pub := testKey("one")
	line, block := pub.OpenSSHLine(), pub.PEM()
	rsaLine := "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ== x"
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(other.Public())
	if err != nil {
		t.Fatal(err)
	}
	p256 := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	secret, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	identity := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for name, test := range map[string]struct {
		in   string
		ok   bool
		says string
	}{
		"line":              {line, true, ""},
		"line with comment": {line + " me@host and more\n", true, ""},
		"crlf":              {line + "\r\n", true, ""},
		"comments around":   {"# a key\n\n" + line + "\n\n", true, ""},
		"pem":               {block, true, ""},
		"pem, no newline":   {strings.TrimRight(block, "\n"), true, ""},
		"empty":             {"", false, "neither"},
		"two lines":         {line + "\n" + line + "\n", false, "more than one line"},
		"another type":      {rsaLine, false, "begins with ssh-ed25519"},
		"type mismatch":     {"ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQABAAAAgQ==", false, "damaged"},
		"options before":    {`no-pty ` + line, false, "begins with ssh-ed25519"},
		"cut short":         {line[:len(line)-4], false, "damaged"},
		"something after":   {line + "AAAA", false, "damaged"},
		"no base64":         {"ssh-ed25519 !!!!", false, "base64"},
		"no padding bits":   {line[:len(line)-1] + "=", false, ""},
		"no key":            {"ssh-ed25519", false, "damaged"},
		"small order":       {identity, false, "small order"},
		"P-256":             {p256, false, "PEM"},
		"private":           {string(pem.EncodeToMemory(secret)), false, "private key"},
		"pem of two":        {block + block, false, "one PEM block"},
		"pem cut":           {block[:len(block)-10], false, "one PEM block"},
		"huge":              {strings.Repeat("#\n", 1<<16), false, "bytes of text"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := manifest.ParsePublicKey([]byte(test.in))
			if test.ok {
				if err != nil || got != pub {
					t.Fatalf("ParsePublicKey = %v, %v", got, err)
				}
				return
			}
			if !errors.Is(err, manifest.ErrKey) || !got.IsZero() || !strings.Contains(err.Error(), test.says) {
				t.Errorf("ParsePublicKey = %v, %v, want ErrKey saying %q", got, err, test.says)
			}
		})
	}
}

// TestKeyForms: our spellings are those of x/crypto/ssh and crypto/x509.
func TestKeyForms(t *testing.T) {
	for _, name := range []string{"one", "two", "three"} {
		_, pub := testKey(name)
		theirs, err := ssh.NewPublicKey(ed25519.PublicKey(pub.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := pub.Fingerprint(), ssh.FingerprintSHA256(theirs); got != want {
			t.Errorf("Fingerprint = %s, want %s", got, want)
		}
		if got, want := pub.OpenSSHLine()+"\n", string(ssh.MarshalAuthorizedKey(theirs)); got != want {
			t.Errorf("OpenSSHLine = %q, want %q", got, want)
		}
		der, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(pub.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := pub.PEM(), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})); got != want {
			t.Errorf("PEM = %q, want %q", got, want)
		}
	}
}

func TestPublicKeyOf(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]crypto.Signer{"ecdsa": other, "nil": nil} {
		if _, err := manifest.PublicKeyOf(s); !errors.Is(err, manifest.ErrKey) {
			t.Errorf("%s: %v, want ErrKey", name, err)
		}
		if _, err := manifest.Sign([]byte("x"), s); !errors.Is(err, manifest.ErrKey) {
			t.Errorf("Sign with %s: %v, want ErrKey", name, err)
		}
	}
	if err := (manifest.PublicKey{}).Verify(nil, make([]byte, 64)); !errors.Is(err, manifest.ErrSignature) {
		t.Errorf("the zero key verifies: %v", err)
	}
}
