package leafproof

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leafproof/internal/flock"
	"leafproof/internal/keys"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
	"leafproof/manifest/tlog"
)

// The files in the folder of a witness.
const (
	witnessKeyFile  = "witness"      // its private key
	witnessVKey     = "witness.vkey" // its public half, as a policy names it
	witnessLogs     = "logs"         // the keys of the logs that it cosigns, one a line
	witnessSeen     = "checkpoints"  // what it cosigned last, see [tlog.Memory]
	witnessLock     = "lock"
	witnessPatience = 5 * time.Second
)

// InitWitness makes the folder of a witness of that name, and returns its key as a
// policy names it. A witness is no store: it has a key, the keys of the logs that
// it knows, and its memory of them.
func InitWitness(dir, name string) (manifest.VerifierKey, error) {
	var none manifest.VerifierKey
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return none, err
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return none, err
	}
	defer root.Close()
	key, err := keys.Generate()
	if err != nil {
		return none, err
	}
	vkey, err := manifest.WitnessKey(name, key.Public)
	if err != nil {
		return none, err
	}
	private, err := key.Marshal("leafproof witness " + name)
	if err != nil {
		return none, err
	}
	// The private key is first: where it stands, nothing is made over it.
	for _, f := range []struct{ name, text string }{
		{witnessKeyFile, string(private)}, {witnessVKey, vkey.String() + "\n"}, {witnessLogs, ""},
	} {
		if err := writeFile(root, f.name, []byte(f.text)); err != nil {
			return none, fmt.Errorf("%s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return vkey, syncParent(dir)
}

// TrustLog makes a witness cosign the checkpoints of a log from now on.
func TrustLog(dir string, log manifest.VerifierKey) error {
	if log.Cosigns() {
		return fmt.Errorf("%w: %s is the key of a witness, not of a log", manifest.ErrKey, log.Name)
	}
	w, err := openWitness(dir)
	if err != nil {
		return err
	}
	defer w.lock.Close()
	text := ""
	for _, l := range append(w.Logs, log) {
		if line := l.String() + "\n"; !strings.Contains(text, line) {
			text += line
		}
	}
	return replaceFile(dir, witnessLogs, []byte(text))
}

// Cosign answers a request (see [tlog.Request]) with a witness's signature lines.
// What it has seen is on disk before it answers. The errors are those of
// [tlog.Witness.Cosign]; two checkpoints of one size that differ are kept as
// evidence.
func Cosign(dir string, request []byte) (tlog.Signature, error) {
	r, err := tlog.ParseRequest(request)
	if err != nil {
		return tlog.Signature{}, err
	}
	w, err := openWitness(dir)
	if err != nil {
		return tlog.Signature{}, err
	}
	defer w.lock.Close()
	before := w.Memory.String()
	sig, err := w.Cosign(r, time.Now())
	if after := w.Memory.String(); after != before {
		if bad := replaceFile(dir, witnessSeen, []byte(after)); bad != nil {
			return tlog.Signature{}, bad
		}
	}
	return sig, err
}

// witness is one with its folder locked.
type witness struct {
	tlog.Witness
	lock *flock.Lock
}

func openWitness(dir string) (w *witness, err error) {
	w = &witness{}
	if _, err := os.Stat(filepath.Join(dir, witnessKeyFile)); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		w.lock, err = flock.Exclusive(filepath.Join(dir, witnessLock))
		if !errors.Is(err, flock.ErrHeld) || time.Since(begin) > witnessPatience {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.lock.Close()
		}
	}()
	key, err := keys.Load(filepath.Join(dir, witnessKeyFile))
	if err != nil {
		return nil, err
	}
	text, err := readPolicyFile(filepath.Join(dir, witnessVKey), manifest.MaxPolicy)
	if err != nil {
		return nil, err
	}
	vkey, err := manifest.ParseVerifierKey(strings.TrimSuffix(string(text), "\n"))
	if err == nil && vkey.Public != key.Public {
		err = fmt.Errorf("%w: it is of another key than %s", manifest.ErrKey, witnessKeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", witnessVKey, err)
	}
	w.Name, w.Key = vkey.Name, key.Signer
	if text, err = readPolicyFile(filepath.Join(dir, witnessLogs), manifest.MaxPolicy); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		l, err := manifest.ParseVerifierKey(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", witnessLogs, err)
		}
		w.Logs = append(w.Logs, l)
	}
	if text, err = readPolicyFile(filepath.Join(dir, witnessSeen), tlog.MaxMemory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	w.Memory, err = tlog.ParseMemory(text)
	return w, err
}
