package httpapi

import (
	"context"
	"net/http"

	"leafproof"
)

// provable says what is to be proven: a part, or the answer to a question.
type provable struct {
	Bytes   *[2]int64       `json:"bytes,omitempty"`
	Records *[2]int64       `json:"records,omitempty"`
	Pointer *string         `json:"pointer,omitempty"`
	Whole   bool            `json:"whole,omitempty"`
	Query   *provenQuestion `json:"query,omitempty"`
	Receipt bool            `json:"receipt,omitempty"`
}

// provenQuestion is a question whose answer an index can prove.
type provenQuestion struct {
	Where   string   `json:"where,omitempty"`
	OrderBy []string `json:"order_by,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
	Count   bool     `json:"count,omitempty"`
}

func (c *call) prove() error {
	var in provable
	if err := c.decode(&in); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", mediaBundle)
	part := asked{Bytes: in.Bytes, Records: in.Records, Pointer: in.Pointer, Whole: in.Whole, Receipt: in.Receipt}
	if in.Query == nil {
		_, err := c.s.store.Prove(c.r.Context(), c.who, c.params["id"], part.selector(), &c.w)
		return err
	}
	if in.Bytes != nil || in.Records != nil || in.Pointer != nil || in.Whole {
		return invalid(http.StatusBadRequest, "/query", "a proof is of a part or of the answer to a query")
	}
	q := leafproof.Query{Where: in.Query.Where, Order: in.Query.OrderBy, Limit: in.Query.Limit, Count: in.Query.Count}
	if in.Receipt {
		q.Receipt = new(leafproof.Statement)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.o.QueryTime)
	defer cancel()
	_, err := c.s.store.ProveQuery(ctx, c.who, c.params["id"], q, &c.w)
	return err
}
