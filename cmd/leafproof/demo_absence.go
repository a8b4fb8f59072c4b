package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"leafproof"
	"leafproof/internal/verifycmd"
	"leafproof/merkle"
)

const demoCritical = `@.severity == "critical"`

// absence proves that snapshot B holds no critical event, has that verified where
// there is no network, and then alters the proof.
func (d *demo) absence(id, storeDir string) error {
	d.title("Half an hour later no critical event was found in the captured region and interval. A file proves it.")
	var buf bytes.Buffer
	a, err := d.store.ProveQuery(d.ctx, leafproof.Owner, id, leafproof.Query{Where: demoCritical}, &buf)
	if err != nil {
		return err
	}
	proof := filepath.Join(d.dir, "absence.proof")
	if err := os.WriteFile(proof, buf.Bytes(), 0o600); err != nil {
		return err
	}
	d.say("leafproof query %s --where '%s' --prove -o absence.proof     %d bytes, and not one record", id, demoCritical, buf.Len())
	code, text, shell, err := d.verifyAlone(proof, storeDir)
	d.say("%sleafproof verify absence.proof --policy trust.policy --expect-where '%s'", shell, demoCritical)
	if err != nil {
		return err
	}
	d.indent(text)
	if code != 0 || !strings.Contains(text, a.Conclusion) {
		return fmt.Errorf("the proof of absence did not verify: exit %d", code)
	}
	d.say("exit 0. The index lists every severity in order; the page where \"critical\" would stand has none, and no page is missing.")
	return d.alterIndex(buf.Bytes(), a.Claim.Sections.Pages.Length, proof, storeDir)
}

// verifyAlone verifies a proof in a process without a network, where the system
// lets one be made, and says how.
func (d *demo) verifyAlone(proof, storeDir string) (code int, text, shell string, err error) {
	if program, err := os.Executable(); err == nil {
		cmd := exec.CommandContext(d.ctx, "unshare", "--map-root-user", "--net", program, "verify", proof, "--policy", leafproof.PolicyPath(storeDir), "--expect-where", demoCritical)
		out, err := cmd.Output()
		e, ended := errors.AsType[*exec.ExitError](err)
		if err == nil || ended && len(out) > 0 {
			if ended {
				code = e.ExitCode()
			}
			return code, string(out), "unshare --net ", nil
		}
	}
	var out bytes.Buffer
	code, err = verifycmd.Run(verifycmd.Options{File: proof, Policy: leafproof.PolicyPath(storeDir), ExpectWhere: demoCritical}, &out, &out)
	return code, out.String(), "", err
}

// alterIndex changes a byte of the index in a proof, and has it refused.
func (d *demo) alterIndex(file []byte, pages int64, proof, storeDir string) error {
	d.title("Somebody changes one byte of the index in it, and repairs the checksum.")
	file[int64(len(file))-pages/2] ^= 1
	end := bytes.IndexByte(file, '\n')
	first := strings.Fields(string(file[:end]))
	first[len(first)-1] = merkle.Sum(file[end+1:]).String()
	if err := os.WriteFile(proof, append([]byte(strings.Join(first, " ")), file[end:]...), 0o600); err != nil {
		return err
	}
	code, text, err := d.verify(proof, storeDir)
	if err == nil {
		d.indent(firstLine(text, "index "))
	}
	if code != exitMismatch {
		return fmt.Errorf("an altered index was not refused: exit %d", code)
	}
	d.say("exit 3. That nothing was found is believed only while every byte of the proof is in its place.")
	return nil
}
