package httpapi

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"leafproof"
)

// route is one thing that can be asked.
type route struct {
	method string
	path   string // {name} stands for one segment
	op     string // its name in the description
	open   bool   // needs nobody to be known
	// ownerOnly is for the owner alone, unless the options open it.
	ownerOnly bool
	handle    func(*call) error

	parts []string
}

// table lists the routes.
func (s *Server) table() []route {
	list := []route{
		{method: "PUT", path: "/v1/artifacts", op: "putArtifact", handle: (*call).put},
		{method: "POST", path: "/v1/artifacts", op: "postArtifact", handle: (*call).put},
		{method: "GET", path: "/v1/artifacts", op: "listArtifacts", handle: (*call).list},
		{method: "GET", path: "/v1/artifacts/{id}", op: "getArtifact", handle: (*call).stat},
		{method: "DELETE", path: "/v1/artifacts/{id}", op: "deleteArtifact", handle: (*call).remove},
		{method: "GET", path: "/v1/artifacts/{id}/manifest", op: "getManifest", handle: (*call).manifest},
		{method: "GET", path: "/v1/artifacts/{id}/content", op: "getContent", handle: (*call).content},
		{method: "HEAD", path: "/v1/artifacts/{id}/content", op: "headContent", handle: (*call).content},
		{method: "GET", path: "/v1/artifacts/{id}/lineage", op: "getLineage", handle: (*call).lineage},
		{method: "GET", path: "/v1/artifacts/{id}/receipts", op: "listReceipts", handle: (*call).receipts},
		{method: "GET", path: "/v1/artifacts/{id}/copies", op: "listCopies", handle: (*call).copies},
		{method: "POST", path: "/v1/artifacts/{id}/copies", op: "registerCopy", handle: (*call).registerCopy},
		{method: "PATCH", path: "/v1/artifacts/{id}/copies/{copy}", op: "updateCopy", handle: (*call).updateCopy},
		{method: "POST", path: "/v1/artifacts/{id}/read", op: "readArtifact", handle: (*call).read},
		{method: "POST", path: "/v1/artifacts/{id}/query", op: "queryArtifact", handle: (*call).answerQuery},
		{method: "POST", path: "/v1/artifacts/{id}/prove", op: "proveArtifact", handle: (*call).prove},
		{method: "POST", path: "/v1/artifacts/{id}/derive", op: "deriveArtifact", handle: (*call).derive},
		{method: "POST", path: "/v1/artifacts/{id}/assess", op: "assessArtifact", handle: (*call).assess},
		{method: "GET", path: "/v1/grants", op: "listGrants", handle: (*call).grants},
		{method: "POST", path: "/v1/grants", op: "giveGrant", handle: (*call).grant},
		{method: "DELETE", path: "/v1/grants/{grant}", op: "revokeGrant", handle: (*call).revoke},
		{method: "GET", path: "/v1/names/{name}", op: "getName", handle: (*call).name},
		{method: "PUT", path: "/v1/names/{name}", op: "setName", handle: (*call).setName},
		{method: "POST", path: "/v1/uploads", op: "beginUpload", handle: (*call).beginUpload},
		{method: "GET", path: "/v1/uploads/{upload}", op: "getUpload", handle: (*call).headUpload},
		{method: "HEAD", path: "/v1/uploads/{upload}", op: "headUpload", handle: (*call).headUpload},
		{method: "PATCH", path: "/v1/uploads/{upload}", op: "appendUpload", handle: (*call).appendUpload},
		{method: "DELETE", path: "/v1/uploads/{upload}", op: "endUpload", handle: (*call).endUpload},
		{method: "POST", path: "/v1/runs", op: "beginRun", handle: (*call).beginRun},
		{method: "GET", path: "/v1/runs/{run}", op: "getRun", handle: (*call).getRun},
		{method: "POST", path: "/v1/runs/{run}/schemas", op: "setTools", handle: (*call).schemas},
		{method: "POST", path: "/v1/runs/{run}/calls", op: "callTool", handle: (*call).callTool},
		{method: "GET", path: "/v1/runs/{run}/calls/{call}/{param}", op: "readLazy", handle: (*call).lazy},
		{method: "POST", path: "/v1/runs/{run}/results", op: "recordResult", handle: (*call).result},
		{method: "POST", path: "/v1/runs/{run}/retries", op: "retryResult", handle: (*call).retry},
		{method: "POST", path: "/v1/runs/{run}/messages", op: "recordMessage", handle: (*call).message},
		{method: "GET", path: "/v1/runs/{run}/references", op: "checkReferences", handle: (*call).references},
		{method: "GET", path: "/v1/runs/{run}/admissions", op: "listAdmissions", handle: (*call).admissions},
		{method: "GET", path: "/livez", op: "live", open: true, handle: (*call).live},
		{method: "GET", path: "/readyz", op: "ready", open: true, handle: (*call).ready},
		{method: "GET", path: "/openapi.json", op: "openapi", open: true, handle: (*call).describe},
		{method: "GET", path: "/metrics", op: "metrics", open: true, ownerOnly: true, handle: (*call).showMetrics},
	}
	if s.o.MCP != nil {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			list = append(list, route{method: method, path: "/mcp", op: "mcp" + method, handle: (*call).mcp})
		}
	}
	for i := range list {
		list[i].parts = strings.Split(list[i].path[1:], "/")
	}
	return list
}

// match finds the route of a request whose path was checked.
func (s *Server) match(r *http.Request) (*route, map[string]string, error) {
	parts := strings.Split(r.URL.Path[1:], "/")
	var allowed []string
	var get *route
	var params map[string]string
	for i := range s.routes {
		rt := &s.routes[i]
		if !rt.fits(parts) {
			continue
		}
		if params == nil {
			params = rt.named(parts)
		}
		if rt.method == r.Method {
			return rt, params, nil
		}
		if rt.method == http.MethodGet {
			get = rt
		}
		allowed = append(allowed, rt.method)
	}
	switch {
	case len(allowed) == 0:
		return nil, nil, refuse(http.StatusNotFound, leafproof.CodeRequestInvalid, leafproof.FixCall, "path", "there is nothing at this path: /openapi.json lists what there is")
	case get != nil && r.Method == http.MethodHead:
		return get, params, nil
	}
	if get != nil && !slices.Contains(allowed, http.MethodHead) {
		allowed = append(allowed, http.MethodHead)
	}
	return nil, nil, &notAllowed{strings.Join(allowed, ", "), invalid(http.StatusMethodNotAllowed, "method", "this path has the methods %s", strings.Join(allowed, ", "))}
}

// notAllowed is a method that a path does not have.
type notAllowed struct {
	allow string
	err   error
}

func (e *notAllowed) Error() string { return e.err.Error() }
func (e *notAllowed) Unwrap() error { return e.err }

func (rt *route) fits(parts []string) bool {
	if len(parts) != len(rt.parts) {
		return false
	}
	for i, p := range rt.parts {
		if p[0] != '{' && p != parts[i] {
			return false
		}
	}
	return true
}

func (rt *route) named(parts []string) map[string]string {
	out := map[string]string{}
	for i, p := range rt.parts {
		if p[0] == '{' {
			out[p[1:len(p)-1]] = parts[i]
		}
	}
	return out
}

// mcp lets the server of the Model Context Protocol answer.
func (c *call) mcp() error {
	b, err := c.take(maxMCP)
	if err != nil {
		return err
	}
	c.r.Body = struct {
		io.Reader
		io.Closer
	}{&holding{c: c, r: b}, c.r.Body}
	c.s.o.MCP.ServeHTTP(&c.w, c.r)
	return nil
}
