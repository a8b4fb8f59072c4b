package httpapi

import (
	"net/http"
	"time"

	"leafproof"
	"leafproof/merkle"
)

// grantList is the body of GET /v1/grants.
type grantList struct {
	Grants []leafproof.Grant `json:"grants"`
}

func (c *call) grants() error {
	q, err := c.query("principal")
	if err != nil {
		return err
	}
	of := c.who.Principal
	if c.who.Principal == leafproof.Owner.Principal || q.Has("principal") {
		of = leafproof.Principal(q.Get("principal"))
	}
	list, err := c.s.store.Grants(c.r.Context(), c.who, of)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, grantList{list})
}

// newGrant is the body of POST /v1/grants.
type newGrant struct {
	Principal leafproof.Principal `json:"principal"`
	Action    leafproof.Action    `json:"action"`
	Pattern   string              `json:"pattern"`
	Records   *[2]int64           `json:"records,omitempty"`
	Purpose   string              `json:"purpose,omitempty"`
	NotAfter  *time.Time          `json:"not_after,omitempty"`
}

func (c *call) grant() error {
	var in newGrant
	if err := c.decode(&in); err != nil {
		return err
	}
	spec := leafproof.GrantSpec{Principal: in.Principal, Action: in.Action, Pattern: in.Pattern, Purpose: in.Purpose}
	if in.Records != nil {
		spec.Records = &merkle.Range{Start: in.Records[0], End: in.Records[1]}
	}
	if in.NotAfter != nil {
		spec.NotAfter = *in.NotAfter
	}
	g, err := c.s.store.Grant(c.r.Context(), c.who, spec)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/grants/"+g.ID)
	return c.json(http.StatusCreated, g)
}

func (c *call) revoke() error {
	if _, err := c.query(); err != nil {
		return err
	}
	if err := c.s.store.Revoke(c.r.Context(), c.who, c.params["grant"]); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) name() error {
	q, err := c.query("seq", "tenant")
	if err != nil {
		return err
	}
	tenant, err := c.tenant(q.Get("tenant"))
	if err != nil {
		return err
	}
	seq, err := number(q, "seq", 0, 1, 1<<62)
	if err != nil {
		return err
	}
	n, err := c.s.store.Name(c.r.Context(), c.who, tenant, c.params["name"], seq)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, n)
}

// newName is the body of PUT /v1/names/{name}.
type newName struct {
	ArtifactID string `json:"artifact_id"`
	IfSeq      *int64 `json:"if_seq,omitempty"`
	TenantID   string `json:"tenant_id,omitempty"`
}

func (c *call) setName() error {
	var in newName
	if err := c.decode(&in); err != nil {
		return err
	}
	tenant, err := c.tenant(in.TenantID)
	if err != nil {
		return err
	}
	seq := int64(leafproof.AnySeq)
	if in.IfSeq != nil {
		seq = *in.IfSeq
	}
	n, err := c.s.store.SetName(c.r.Context(), c.who, tenant, c.params["name"], in.ArtifactID, seq)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, n)
}
