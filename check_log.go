package leafproof

import (
	"fmt"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/manifest/tlog"
	"leafproof/merkle"
)

// commitLog holds the log against itself and against the rows: every checkpoint has
// the root of the leaves before it and is signed by a log of the policy, and every
// leaf of an artifact or a statement still has its row. What was committed and has
// none is lost, whatever the catalogue lists.
func (c *checker) commitLog() error {
	const page = 10_000
	var tree tlog.Growing
	next, err := c.rows.HeadOf(c.ctx, 0, false)
	for from := int64(0); ; {
		list, bad := c.rows.Leaves(c.ctx, from, page)
		if bad != nil {
			return c.rowsFailed(bad)
		}
		for _, l := range list {
			if l.Index != from {
				c.logDamaged("damaged", fmt.Sprintf("the log has no leaf %d", from))
				return nil
			}
			if (tlog.Leaf{Kind: l.Kind, Digest: l.Digest}).Hash() != l.Hash {
				c.logDamaged("damaged", fmt.Sprintf("leaf %d of the log has another hash than its kind and digest", l.Index))
			}
			tree.Add(l.Hash)
			from++
			for err == nil && next.Size == from {
				c.head(next, tree.Root())
				next, err = c.rows.HeadOf(c.ctx, from, false)
			}
		}
		if len(list) < page {
			break
		}
	}
	if err == nil {
		c.logDamaged("damaged", fmt.Sprintf("a checkpoint of %d leaves, and the log has %d: leaves were removed", next.Size, tree.Size()))
	}
	return c.orphans()
}

// logDamaged enters a finding about the log.
func (c *checker) logDamaged(fault, detail string) {
	c.find(CheckFinding{File: catalogueFile, Fault: fault, Detail: detail, Damage: true})
}

// head holds one checkpoint to the leaves before it.
func (c *checker) head(h catalogue.Head, root tlog.Hash) {
	cp, err := tlog.ParseCheckpoint(h.Note)
	switch {
	case err != nil:
		c.logDamaged("damaged", fmt.Sprintf("the checkpoint of %d leaves: %v", h.Size, err))
	case cp.Size != h.Size || cp.Root != root:
		c.logDamaged("damaged", fmt.Sprintf("the checkpoint of %d leaves has another root than they have: a leaf was altered, removed or moved", h.Size))
	case c.policy != nil:
		for _, l := range c.policy.Logs() {
			if l.Name != cp.Origin {
				continue
			}
			if _, err = cp.SignedBy(l); err == nil {
				return
			}
		}
		if err != nil {
			c.logDamaged("damaged", fmt.Sprintf("the checkpoint of %d leaves: %v", h.Size, err))
		}
	}
}

// orphans are leaves without the row that they were entered with.
func (c *checker) orphans() error {
	list, err := c.rows.Orphans(c.ctx, 1000)
	if err != nil {
		return c.rowsFailed(err)
	}
	for _, l := range list {
		c.logDamaged("lost", fmt.Sprintf("leaf %d of the log is a %s that the catalogue has no row of", l.Index, l.Kind))
	}
	return nil
}

// logged holds a manifest to its leaf.
func (c *checker) logged(row catalogue.Artifact, m *manifest.Manifest) {
	l, err := c.rows.LeafOf(c.ctx, row.ArtifactID)
	if err == nil && l.Digest != merkle.Sum(m.Payload) && !c.unlike[row.ArtifactID] {
		if c.unlike == nil {
			c.unlike = map[string]bool{}
		}
		c.unlike[row.ArtifactID] = true
		c.logDamaged("other manifest", fmt.Sprintf("%s: leaf %d of the log is of another manifest than the one that stands", row.ArtifactID, l.Index))
	}
}
