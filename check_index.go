package leafproof

import (
	"fmt"
	"slices"
	"strings"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/manifest"
)

// mendIndex builds an index again of which something cannot be read: all of it
// follows from the artifact's bytes. It reports whether that was done; where the
// bytes give another one, or cannot be read themselves, it was not.
func (c *checker) mendIndex(row catalogue.Artifact, tenant cas.Tenant, p artifactPart) (bool, error) {
	text, ok := strings.CutPrefix(p.name, partIndex)
	if !ok || !c.repair {
		return false, nil
	}
	err := c.rebuildPart(row, tenant, p, text)
	if c.ctx.Err() != nil {
		return false, c.ctx.Err()
	}
	found := slices.Clone(c.byBlob[blobKey{tenant, p.root}])
	if len(found) == 0 {
		found = append(found, c.find(CheckFinding{Fault: "lost", Detail: fmt.Sprintf("%s: its index %s", row.ArtifactID, text), Damage: true}))
	}
	for _, i := range found {
		f := &c.report.Findings[i]
		switch {
		case err != nil:
			f.Detail += fmt.Sprintf("; the index %s was not built again: %v", manifest.Printable(text), err)
		case f.Repaired == "" && c.blobs(i) == 1:
			f.Repaired = "the index was built again from the artifact's bytes"
		}
	}
	if err != nil && len(c.byBlob[blobKey{tenant, p.root}]) == 0 {
		c.touch(found[0], row, p, wholeRange(p.size))
		return true, nil // it is told
	}
	return err == nil, nil
}

// blobs counts the blobs that a finding reaches.
func (c *checker) blobs(finding int) (n int) {
	for _, list := range c.byBlob {
		if slices.Contains(list, finding) {
			n++
		}
	}
	return n
}

func (c *checker) rebuildPart(row catalogue.Artifact, tenant cas.Tenant, p artifactPart, text string) error {
	s := &Store{config: config{objects: c.objects, policy: c.policy}}
	_, m, err := s.load(c.ctx, row)
	if err != nil {
		return err
	}
	batch := c.objects.Begin(c.ctx, tenant)
	defer batch.Discard()
	if err := (&artifact{store: s, row: row, m: m}).buildInto(c.ctx, batch, p, text); err != nil {
		return err
	}
	return batch.Commit(c.ctx)
}
