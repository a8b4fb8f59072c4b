package leafproof

import (
	"bytes"
	"fmt"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/merkle"
)

// statements looks at the statements that outlive the catalogue: that each stands
// among the objects as the catalogue has it. A repair writes those anew that do
// not.
func (c *checker) statements() error {
	const page = 500
	for after := int64(0); ; {
		list, err := c.rows.Objects(c.ctx, "", after, page)
		if err != nil {
			return c.rowsFailed(err)
		}
		for _, st := range list {
			after = st.Seq
			tenant := cas.TenantOf(st.Tenant)
			c.needed = append(c.needed, blobKey{tenant, st.ObjectRoot}.short())
			if err := c.statement(tenant, st); err != nil {
				return err
			}
		}
		if len(list) < page {
			return nil
		}
	}
}

func (c *checker) statement(tenant cas.Tenant, st catalogue.Statement) error {
	_, wrong := openStatement(st)
	if wrong == nil {
		r, err := c.objects.Open(c.ctx, tenant, st.ObjectRoot, st.ObjectSize)
		if err == nil {
			err = r.Close()
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err == nil {
			return nil
		}
		wrong = err
	}
	i := c.find(CheckFinding{Fault: "lost", Detail: fmt.Sprintf("the statement %s about %s: %v", st.StatementID, st.ArtifactID, wrong), Damage: true})
	if !c.repair || merkle.Sum(st.Envelope) != st.ObjectRoot {
		return nil
	}
	batch := c.objects.Begin(c.ctx, tenant)
	defer batch.Discard()
	if _, err := batch.Put(c.ctx, bytes.NewReader(st.Envelope), cas.Auto); err != nil {
		return err
	}
	if err := batch.Commit(c.ctx); err != nil {
		return err
	}
	c.report.Findings[i].Repaired = "written anew from the catalogue"
	return nil
}
