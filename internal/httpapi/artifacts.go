package httpapi

import (
	"net/http"
	"strconv"

	"leafproof"
	"leafproof/manifest"
	"leafproof/selector"
)

// listing is the body of GET /v1/artifacts.
type listing struct {
	Artifacts []leafproof.Entry `json:"artifacts"`
	Next      string            `json:"next,omitempty"` // the cursor to go on with; none at the end
}

func (c *call) list() error {
	q, err := c.query("cursor", "limit", "tenant")
	if err != nil {
		return err
	}
	tenant, err := c.tenant(q.Get("tenant"))
	if err != nil {
		return err
	}
	after, limit, err := c.page(q)
	if err != nil {
		return err
	}
	entries, next, err := c.s.store.List(c.r.Context(), c.who, tenant, after, limit)
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []leafproof.Entry{}
	}
	return c.json(http.StatusOK, listing{entries, cursorText(next)})
}

// cursorText is where a listing goes on; "" at the end.
func cursorText(next int64) string {
	if next == 0 {
		return ""
	}
	return strconv.FormatInt(next, 10)
}

func (c *call) stat() error {
	if _, err := c.query(); err != nil {
		return err
	}
	st, err := c.s.store.Resolve(c.r.Context(), c.who, c.params["id"])
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, st.Ref)
}

func (c *call) manifest() error {
	if _, err := c.query(); err != nil {
		return err
	}
	b, err := c.s.store.Envelope(c.r.Context(), c.who, c.params["id"])
	if err != nil {
		return err
	}
	return c.jsonBytes(http.StatusOK, append(b, '\n'))
}

func (c *call) remove() error {
	q, err := c.query("reason", "cascade")
	if err != nil {
		return err
	}
	reason := q.Get("reason")
	if len(reason) > 256 {
		return invalid(http.StatusBadRequest, "reason", "a reason has at most 256 bytes")
	}
	cascade, err := truth(q, "cascade")
	if err != nil {
		return err
	}
	id := c.params["id"]
	if err := c.s.store.Delete(c.r.Context(), c.who, id, reason); err != nil {
		return err
	}
	if cascade {
		if _, err := c.s.store.DeleteDerived(c.r.Context(), c.who, id); err != nil {
			return err
		}
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// lineage is the body of GET /v1/artifacts/{id}/lineage.
type lineage struct {
	ArtifactID    string                `json:"artifact_id"`
	Lineage       manifest.Lineage      `json:"lineage"`
	Supersedes    []manifest.Supersede  `json:"supersedes"`
	SupersededBy  []selector.Successor  `json:"superseded_by"`
	InputsDeleted []string              `json:"inputs_deleted"`
	Schema        *manifest.SchemaCheck `json:"schema"`
}

func (c *call) lineage() error {
	if _, err := c.query(); err != nil {
		return err
	}
	st, err := c.s.store.Resolve(c.r.Context(), c.who, c.params["id"])
	if err != nil {
		return err
	}
	p := st.Manifest.Predicate
	return c.json(http.StatusOK, lineage{
		ArtifactID: st.Ref.ArtifactID, Lineage: p.Lineage, Supersedes: orEmpty(p.Supersedes),
		SupersededBy: orEmpty(st.SupersededBy), InputsDeleted: orEmpty(st.InputsDeleted), Schema: p.Schema,
	})
}

// orEmpty is a list that is never null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// statements is the body of GET /v1/artifacts/{id}/receipts.
type statements struct {
	Statements []*leafproof.Statement `json:"statements"`
	Next       string                 `json:"next,omitempty"`
}

func (c *call) receipts() error {
	q, err := c.query("cursor", "limit")
	if err != nil {
		return err
	}
	after, limit, err := c.page(q)
	if err != nil {
		return err
	}
	list, next, err := c.s.store.Statements(c.r.Context(), c.who, c.params["id"], after, limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, statements{orEmpty(list), cursorText(next)})
}

// inventory is the body of GET /v1/artifacts/{id}/copies.
type inventory struct {
	Copies []leafproof.Copy `json:"copies"`
	Next   string           `json:"next,omitempty"`
}

func (c *call) copies() error {
	q, err := c.query("cursor", "limit")
	if err != nil {
		return err
	}
	after, limit, err := c.page(q)
	if err != nil {
		return err
	}
	list, next, err := c.s.store.Copies(c.r.Context(), c.who, c.params["id"], after, limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, inventory{orEmpty(list), cursorText(next)})
}

// newCopy is the body of POST /v1/artifacts/{id}/copies.
type newCopy struct {
	Kind       string `json:"kind"`
	Where      string `json:"where"`
	Controller string `json:"controller,omitempty"`
	Holder     string `json:"holder,omitempty"`
	Note       string `json:"note,omitempty"`
}

func (c *call) registerCopy() error {
	var in newCopy
	if err := c.decode(&in); err != nil {
		return err
	}
	out, err := c.s.store.RegisterCopy(c.r.Context(), c.who, leafproof.Copy{
		ArtifactID: c.params["id"], Kind: in.Kind, Where: in.Where, Controller: in.Controller, Holder: in.Holder, Note: in.Note,
	})
	if err != nil {
		return err
	}
	return c.json(http.StatusCreated, out)
}

// changedCopy is the body of PATCH /v1/artifacts/{id}/copies/{copy}.
type changedCopy struct {
	Propagation string `json:"propagation"`
	Note        string `json:"note,omitempty"`
}

func (c *call) updateCopy() error {
	var in changedCopy
	if err := c.decode(&in); err != nil {
		return err
	}
	out, err := c.s.store.UpdateCopy(c.r.Context(), c.who, c.params["copy"], in.Propagation, in.Note)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, out)
}
