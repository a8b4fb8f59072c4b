package leafproof

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leafproof/manifest"
)

// policyFiles checks trust.policy and its versions, and finds the policy that
// counts: the newest that is signed, whatever stands in trust.policy.
func (c *checker) policyFiles() {
	text, err := readPolicyFile(PolicyPath(c.dir), manifest.MaxPolicy)
	var p *manifest.Policy
	if err == nil {
		p, err = manifest.ParsePolicy(text)
	}
	top := c.versions(text)
	if err == nil {
		c.policy = p
		_, err = loadPolicy(c.dir)
	}
	if top != nil && top.policy.HasSigners() && (p == nil || p.Version() <= top.Version) {
		c.policy = top.policy
	}
	if err == nil {
		return
	}
	if _, broken := errors.AsType[*versionError](err); broken {
		return // its file is reported already
	}
	c.fileFault(policyFile, err)
	if top != nil && top.policy.HasSigners() && c.repair && replaceFile(c.dir, policyFile, top.signed.Text) == nil {
		c.repaired(policyFile, fmt.Sprintf("written anew from %s/%d, the newest version that is signed", policyDir, top.Version))
	}
}

// versions checks the versions that are kept, and returns the newest of those that
// follow from one another. The text of the newest one is written anew from
// trust.policy where its signatures say that it stood there.
func (c *checker) versions(text []byte) *PolicyVersion {
	for tries := 0; ; tries++ {
		chain, err := policyChain(c.dir)
		var top *PolicyVersion
		if n := len(chain); n > 0 {
			top = &chain[n-1]
		}
		if err == nil {
			err = c.lostText(top)
		}
		if err == nil {
			return top
		}
		broken, ok := errors.AsType[*versionError](err)
		if !ok {
			c.fileFault(policyDir, err)
			return top
		}
		if tries > 0 && strings.HasSuffix(broken.file, signatureExt) {
			return top
		}
		c.fileFault(broken.file, broken.err)
		if !c.repair || !c.mendVersion(broken, top, text) {
			return top
		}
		c.repaired(broken.file, "written anew from "+policyFile)
	}
}

// lostText finds signatures after the newest version whose text is gone.
func (c *checker) lostText(top *PolicyVersion) error {
	version := int64(1)
	if top != nil {
		version = top.Version + 1
	}
	sigs, err := readPolicyFile(filepath.Join(c.dir, filepath.FromSlash(numbered(version)+signatureExt)), manifest.MaxPolicySignatures)
	if _, interrupted := os.Stat(filepath.Join(c.dir, filepath.FromSlash(nextPolicy))); err != nil || interrupted == nil {
		return nil // a change that was interrupted left them
	}
	return &versionError{numbered(version), manifest.SignedPolicy{Signatures: sigs}, fmt.Errorf("the text of these signatures: %w", fs.ErrNotExist)}
}

// mendVersion writes the text of a version anew, where the signatures that are kept
// cover another text that is at hand.
func (c *checker) mendVersion(broken *versionError, before *PolicyVersion, text []byte) bool {
	if !bytes.Equal(text, broken.signed.Text) && len(text) > 0 {
		signed := manifest.SignedPolicy{Text: text, Signatures: broken.signed.Signatures}
		var p *manifest.Policy
		if before != nil {
			p = before.policy
		}
		if v, err := link(p, signed); err == nil && numbered(v.Version) == broken.file {
			return replaceFile(c.dir, broken.file, text) == nil
		}
	}
	return false
}

// versionError is a version of the policy that is damaged, and its file.
type versionError struct {
	file   string
	signed manifest.SignedPolicy
	err    error
}

func (e *versionError) Error() string { return fmt.Sprintf("%s: %v", e.file, e.err) }

func (e *versionError) Unwrap() []error { return []error{ErrPolicyFile, e.err} }

// blame finds which of a version's two files is damaged.
func blame(dir, name string, signed manifest.SignedPolicy, err error) error {
	file := name
	if _, text := manifest.ParsePolicy(signed.Text); text == nil {
		_, bad := manifest.ParseSSHAll(signed.Signatures)
		_, missing := os.Stat(filepath.Join(dir, filepath.FromSlash(name+signatureExt)))
		if bad != nil || len(signed.Signatures) == 0 || errors.Is(missing, fs.ErrNotExist) {
			file = name + signatureExt
		}
	}
	return &versionError{file, signed, err}
}
