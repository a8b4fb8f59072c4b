package httpapi

import (
	"context"
	"net/http"
	"time"
)

// health is the body of /livez and /readyz.
type health struct {
	Status string `json:"status"` // ok, draining or failing
}

// live says that the process answers.
func (c *call) live() error {
	c.w.Header().Set("Cache-Control", "no-store")
	return c.json(http.StatusOK, health{"ok"})
}

// ready says whether requests should be sent here: the server is not about to end,
// and the catalogue answers.
func (c *call) ready() error {
	c.w.Header().Set("Cache-Control", "no-store")
	if c.s.leaving.Load() {
		return c.json(http.StatusServiceUnavailable, health{"draining"})
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.s.store.LogSize(ctx); err != nil {
		c.s.o.Log.Warn("not ready", "err", err.Error())
		return c.json(http.StatusServiceUnavailable, health{"failing"})
	}
	return c.json(http.StatusOK, health{"ok"})
}
