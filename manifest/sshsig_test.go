package manifest_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
)

// rewrap gives an armored signature lines of 70 columns.
func rewrap(armored string) string {
	const begin, end = "-----BEGIN SSH SIGNATURE-----\n", "-----END SSH SIGNATURE-----\n"
	text := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(armored, begin), end), "\n", "")
	var out strings.Builder
	for len(text) > 0 {
		n := min(70, len(text))
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return begin + out.String() + end
}

// TestGeneratedSSH: a signature that another program made. Its lines have 64
// columns, which is read, and is not the spelling that a bundle may have.
func TestGeneratedSSH(t *testing.T) {
	const namespace = "manifest@holdfast.example"
	key, pub := testKey(vectorKey)
	payload := vector(t, "trust/generated/payload.json")
	narrow := string(vector(t, "trust/generated/payload.json.sig"))
	armored := rewrap(narrow)
	s, err := manifest.ParseSSH(narrow)
	if err != nil {
		t.Fatal(err)
	}
	if s.Armor() != armored || s.Namespace() != namespace {
		t.Errorf("it is written\n%sin the namespace %s", s.Armor(), s.Namespace())
	}
	if same, err := manifest.ParseSSH(armored); err != nil || same.Armor() != armored {
		t.Errorf("lines of 70 columns: %v", err)
	}
	if s.Key() != pub {
		t.Errorf("key %s", s.Key().Fingerprint())
	}
	if err := s.Verify(payload, namespace, pub); err != nil {
		t.Error(err)
	}
	if ours, err := manifest.SignSSH(payload, namespace, key); err != nil || ours != armored {
		t.Errorf("we sign\n%s%v, they\n%s", ours, err, armored)
	}
	_, other := testKey("two")
	for name, err := range map[string]error{
		"a byte more":       s.Verify(append(bytes.Clone(payload), '\n'), namespace, pub),
		"another namespace": s.Verify(payload, manifest.NamespaceManifest, pub),
		"another key":       s.Verify(payload, namespace, other),
		"no key":            s.Verify(payload, namespace, manifest.PublicKey{}),
	} {
		if !errors.Is(err, manifest.ErrSignature) {
			t.Errorf("%s: %v, want ErrSignature", name, err)
		}
	}
}

// TestOtherWidthBeside: the same signature in lines of another width is read, but
// beside an envelope it has one spelling.
func TestOtherWidthBeside(t *testing.T) {
	env, armored := signed(t)
	_, pub := testKey("one")
	body := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(armored, "-----BEGIN SSH SIGNATURE-----\n"), "-----END SSH SIGNATURE-----\n"), "\n", "")
	for _, width := range []int{16, 64, 76, len(body)} {
		var other strings.Builder
		other.WriteString("-----BEGIN SSH SIGNATURE-----\n")
		for text := body; text != ""; text = text[min(width, len(text)):] {
			other.WriteString(text[:min(width, len(text))] + "\n")
		}
		other.WriteString("-----END SSH SIGNATURE-----\n")
		if s, err := manifest.ParseSSH(other.String()); err != nil || s.Armor() != armored {
			t.Errorf("lines of %d columns: %v", width, err)
		}
		_, facts, err := manifest.VerifyEnvelope(env, other.String(), manifest.AdHoc(pub), at)
		if err != nil || !slices.ContainsFunc(facts, func(f manifest.Fact) bool { return f.Name == manifest.FactSignature && f.State == manifest.Mismatch }) {
			t.Errorf("beside an envelope, lines of %d columns: %v, %v", width, facts, err)
		}
	}
}

func TestParseSSHRefuses(t *testing.T) {
	_, good := signed(t)
	body := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(good, "-----BEGIN SSH SIGNATURE-----\n"), "-----END SSH SIGNATURE-----\n"), "\n", "")
	blob, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	armor := func(b []byte) string {
		return rewrap("-----BEGIN SSH SIGNATURE-----\n" + base64.StdEncoding.EncodeToString(b) + "-----END SSH SIGNATURE-----\n")
	}
	if armor(blob) != good {
		t.Fatal("the test cannot write the armor")
	}
	swap := func(from, to string) string { return armor(bytes.Replace(blob, []byte(from), []byte(to), 1)) }
	identity := append([]byte{1}, make([]byte, 31)...)
	_, pub := testKey("one")
	for name, test := range map[string]struct {
		in   string
		err  error
		says string
	}{
		"empty":             {"", manifest.ErrMalformed, "first or last line"},
		"no final newline":  {strings.TrimSuffix(good, "\n"), manifest.ErrMalformed, "first or last line"},
		"something after":   {good + "\n", manifest.ErrMalformed, "first or last line"},
		"something before":  {"\n" + good, manifest.ErrMalformed, "first or last line"},
		"crlf":              {strings.ReplaceAll(good, "\n", "\r\n"), manifest.ErrMalformed, "first or last line"},
		"no line":           {"-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n", manifest.ErrMalformed, "one width"},
		"empty line":        {strings.Replace(good, "\n", "\n\n", 1), manifest.ErrMalformed, "one width"},
		"empty last line":   {strings.Replace(good, "\n-----END", "\n\n-----END", 1), manifest.ErrMalformed, "one width"},
		"two widths":        {"-----BEGIN SSH SIGNATURE-----\n" + body[:70] + "\n" + body[70:134] + "\n" + body[134:] + "\n-----END SSH SIGNATURE-----\n", manifest.ErrMalformed, "one width"},
		"a longer line":     {"-----BEGIN SSH SIGNATURE-----\n" + body[:64] + "\n" + body[64:134] + "\n" + body[134:] + "\n-----END SSH SIGNATURE-----\n", manifest.ErrMalformed, "one width"},
		"tiny lines":        {"-----BEGIN SSH SIGNATURE-----\n" + body[:4] + "\n" + body[4:] + "\n-----END SSH SIGNATURE-----\n", manifest.ErrMalformed, "one width"},
		"a byte more":       {armor(append(bytes.Clone(blob), 0)), manifest.ErrMalformed, "do not fill"},
		"a byte less":       {armor(blob[:len(blob)-1]), manifest.ErrMalformed, "do not fill"},
		"magic":             {swap("SSHSIG", "SSHSIH"), manifest.ErrMalformed, "version 1"},
		"version":           {swap("SSHSIG\x00\x00\x00\x01", "SSHSIG\x00\x00\x00\x02"), manifest.ErrMalformed, "version 1"},
		"hash":              {swap("sha512", "sha256"), manifest.ErrMalformed, "sha512"},
		"reserved":          {swap("\x00\x00\x00\x00\x00\x00\x00\x06sha512", "\x00\x00\x00\x01x\x00\x00\x00\x06sha512"), manifest.ErrMalformed, "do not fill"},
		"length of 4 GiB":   {swap("\x00\x00\x00\x33", "\xff\xff\xff\xff"), manifest.ErrMalformed, "do not fill"},
		"signature type":    {swap("S\x00\x00\x00\x0bssh-ed25519", "S\x00\x00\x00\x0bssh-ed25518"), manifest.ErrMalformed, "Ed25519"},
		"key type":          {swap("\x0bssh-ed25519", "\x0bssh-ed25518"), manifest.ErrKey, "another type"},
		"small-order key":   {swap(string(pub.Bytes()), string(identity)), manifest.ErrKey, "small order"},
		"namespace missing": {swap("\x00\x00\x00\x12manifest@leafproof", "\x00\x00\x00\x00"), manifest.ErrMalformed, "namespace"},
		"huge":              {"-----BEGIN SSH SIGNATURE-----\n" + strings.Repeat("A", 1<<20), manifest.ErrTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := manifest.ParseSSH(test.in)
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) || !s.Key().IsZero() {
				t.Errorf("ParseSSH = %v, want %v saying %q", err, test.err, test.says)
			}
		})
	}
}

// TestSSHKeygen: the verifier that everyone already has checks our signature,
// with the allowed_signers line that a policy would give, and we check its.
func TestSSHKeygen(t *testing.T) {
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env, armored := signed(t)
	payload, err := env.PayloadBytes()
	if err != nil {
		t.Fatal(err)
	}
	_, pub := testKey("one")
	sig := put("payload.sig", armored)
	signers := put("allowed_signers", `tenant_acme_prod/* namespaces="manifest@leafproof" `+pub.OpenSSHLine()+"\n")
	verify := func(principal, namespace string, message []byte) error {
		cmd := exec.CommandContext(t.Context(), tool, "-Y", "verify", "-f", signers, "-I", principal, "-n", namespace, "-s", sig)
		cmd.Stdin = bytes.NewReader(message)
		return cmd.Run()
	}
	const principal = "tenant_acme_prod/infra.incident-events"
	if err := verify(principal, manifest.NamespaceManifest, payload); err != nil {
		t.Errorf("ssh-keygen refuses our signature: %v", err)
	}
	for name, err := range map[string]error{
		"another namespace": verify(principal, "receipt@leafproof", payload),
		"another tenant":    verify("tenant_other/x", manifest.NamespaceManifest, payload),
		"a byte more":       verify(principal, manifest.NamespaceManifest, append(bytes.Clone(payload), '\n')),
	} {
		if err == nil {
			t.Errorf("ssh-keygen accepts %s", name)
		}
	}

	theirKey := filepath.Join(dir, "theirs")
	if out, err := exec.CommandContext(t.Context(), tool, "-q", "-t", "ed25519", "-N", "", "-f", theirKey).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	message := put("message", string(payload))
	if out, err := exec.CommandContext(t.Context(), tool, "-q", "-Y", "sign", "-f", theirKey, "-n", manifest.NamespaceManifest, message).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err1 := os.ReadFile(message + ".sig")
	line, err2 := os.ReadFile(theirKey + ".pub")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	theirs, err := manifest.ParsePublicKey(line)
	if err != nil {
		t.Fatal(err)
	}
	s, err := manifest.ParseSSH(string(text))
	if err != nil {
		t.Fatalf("we do not read ssh-keygen's signature: %v", err)
	}
	if err := s.Verify(payload, manifest.NamespaceManifest, theirs); err != nil {
		t.Errorf("we refuse ssh-keygen's signature: %v", err)
	}
}
