package mcpserver

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"leafproof"
)

// uriPrefix begins the URI of an artifact as a resource.
const uriPrefix = "leafproof://artifact/"

// parseURI reads leafproof://artifact/{id}{?offset,length}.
func parseURI(uri string) (id string, off, n int64, err error) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return "", 0, 0, invalid("uri", "not a resource of this server")
	}
	id, query, asked := strings.Cut(rest, "?")
	if err := leafproof.CheckID(id); err != nil {
		return "", 0, 0, err
	}
	n = MaxPage
	if !asked {
		return id, 0, n, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", 0, 0, invalid("uri", "the query cannot be read")
	}
	for name, list := range values {
		into, least := &off, int64(0)
		switch name {
		case "length":
			into, least = &n, 1
		case "offset":
		default:
			return "", 0, 0, invalid("uri", "there is no parameter but offset and length")
		}
		v, err := strconv.ParseUint(list[0], 10, 63)
		if err != nil || len(list) != 1 || int64(v) < least || strconv.FormatUint(v, 10) != list[0] {
			return "", 0, 0, invalid("uri", "%s: not one number of bytes, from %d on", name, least)
		}
		*into = int64(v)
	}
	return id, off, min(n, MaxPage), nil
}

// resource reads a page of an artifact. An id that is not the caller's is answered
// like one that never was.
func (f *face) resource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	ctx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	uri := req.Params.URI
	id, off, n, err := parseURI(uri)
	if err != nil {
		return nil, f.resourceError(ctx, uri, err)
	}
	_, v, mediaType, err := f.page(ctx, id, off, n)
	if err != nil {
		return nil, f.resourceError(ctx, uri, err)
	}
	c := &mcp.ResourceContents{URI: uri, MIMEType: mediaType, Meta: mcp.Meta{
		"io.leafproof/data_only": true, "io.leafproof/offset": v.Offset, "io.leafproof/length": v.Length, "io.leafproof/size": v.Size,
	}}
	if v.NextOffset != nil {
		c.Meta["io.leafproof/next"] = fmt.Sprintf("%s%s?offset=%d", uriPrefix, id, *v.NextOffset)
	}
	switch content := v.Content.(type) {
	case string:
		c.Text = content
	case []byte:
		c.Blob = content
		if c.Blob == nil {
			c.Blob = []byte{}
		}
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
}

// resourceError is an error of a resource, with the store's own as its data.
func (f *face) resourceError(ctx context.Context, uri string, err error) error {
	p := f.problem(ctx, "resources/read", err)
	switch p.Code {
	case leafproof.CodeRefNotFound, leafproof.CodeRefMalformed:
		data, merr := marshal(map[string]string{"uri": uri})
		if merr != nil {
			data = nil
		}
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
	}
	data, merr := marshal(p)
	if merr != nil {
		data = nil
	}
	code := int64(jsonrpc.CodeInvalidParams)
	if p.Retryable || p.Action == leafproof.Stop && p.Code == leafproof.CodeInternal || p.Code == leafproof.CodeIntegrityFailed {
		code = jsonrpc.CodeInternalError
	}
	return &jsonrpc.Error{Code: code, Message: p.Message, Data: data}
}

// listResources lists artifacts as resources, for hosts that let a person choose.
func (f *face) listResources(ctx context.Context, req *mcp.ListResourcesRequest) (*mcp.ListResourcesResult, error) {
	cursor := ""
	if req.Params != nil {
		cursor = req.Params.Cursor
	}
	entries, next, err := f.entries(ctx, cursor, maxEntries)
	if err != nil {
		return nil, f.resourceError(ctx, "", err)
	}
	out := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, NextCursor: next}
	out.Cacheable = mcp.Cacheable{CacheScope: "private"}
	for _, e := range entries {
		r := &mcp.Resource{URI: uriPrefix + e.ArtifactID, Name: e.ArtifactID, Size: e.Size, Description: "made at " + e.CreatedAt.UTC().Format("2006-01-02T15:04:05Z")}
		if e.SourceID != nil {
			r.Description = "of " + *e.SourceID + ", " + r.Description
		}
		out.Resources = append(out.Resources, r)
	}
	return out, nil
}
