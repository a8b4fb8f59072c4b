package leafproof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/ref"
	"leafproof/selector"
)

// ReferenceOptions say for which run a [ref.Source] is.
type ReferenceOptions struct {
	Tenant string // "" is DefaultTenant
	Run    string // the run that what is put belongs to; "" is none
	Agent  string // the agent's own name for itself: data, of any characters and length
}

// References is the store as one run sees it, for resolving references: bound to a
// caller, a tenant, a run and an agent. Every call asks the gate as the store's own
// methods do. An artifact of another tenant is not there, whatever leave the caller has.
//
// A principal that the store knows must be of that tenant, and of that run if it is
// bound to one.
func (s *Store) References(ctx context.Context, who Caller, o ReferenceOptions) (ref.Source, error) {
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	if err := manifest.CheckName(o.Tenant); err != nil {
		return nil, wireError("tenant", err)
	}
	if o.Run != "" {
		if err := manifest.CheckName(o.Run); err != nil {
			return nil, wireError("run", err)
		}
	}
	p, err := s.catalogue.Principal(ctx, string(who.Principal))
	switch {
	case errors.Is(err, catalogue.ErrNoPrincipal): // the owner, or one whom another authority knows
	case err != nil:
		return nil, wireError("principal", err)
	case p.Tenant != o.Tenant, p.Run != nil && *p.Run != o.Run:
		return nil, fail(CodeSelectorInvalid, FixCall, "run", "the principal is of another tenant or run")
	}
	return &references{s: s, who: who, o: o}, nil
}

// references is a [ref.Source].
type references struct {
	s   *Store
	who Caller
	o   ReferenceOptions
}

const (
	prefixAgent = "agent/"
	prefixName  = "name/"
	idDigits    = 32 // of an artifact's id, behind art_
)

// key is what a stored marker calls an artifact: agent/<agent>/<call>-<digits of its
// id>. What the caller named is escaped, and no two artifacts have the same.
func (r *references) key(callID, id string) string {
	return prefixAgent + escape(r.o.Agent) + "/" + escape(callID) + "-" + strings.TrimPrefix(id, "art_")
}

// escape writes a string of any characters in letters, digits, _ and %, with at most 96
// bytes: a longer one is its beginning and a digest of it.
func escape(s string) string {
	const most, kept = 96, 40
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isAlnum(c) || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
		if b.Len() > most {
			return b.String()[:kept] + "~" + merkle.Sum([]byte(s)).String()[:32]
		}
	}
	return b.String()
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Stat says what a key leads to; see [ref.Source].
func (r *references) Stat(ctx context.Context, key string) (ref.Info, error) {
	id := key
	switch {
	case strings.HasPrefix(key, prefixName):
		n, err := r.s.Name(ctx, r.who, r.o.Tenant, key[len(prefixName):], 0)
		if err != nil {
			return ref.Info{}, err
		}
		id = n.ArtifactID
	case strings.HasPrefix(key, prefixAgent):
		id = "art_" + key[max(len(prefixAgent), len(key)-idDigits):]
		if CheckID(id) != nil {
			return ref.Info{}, notFound(key)
		}
	}
	st, err := r.stat(ctx, id)
	if err != nil {
		return ref.Info{}, err
	}
	if id != key && strings.HasPrefix(key, prefixAgent) && !r.made(key, st) {
		return ref.Info{}, notFound(key)
	}
	return infoOf(st)
}

// made reports whether a key is the one that a put of this agent and run gave an
// artifact.
func (r *references) made(key string, st *Stat) bool {
	return key == r.key(value(st.Ref.ToolCallID), st.Ref.ArtifactID) && value(st.Ref.Scope.RunID) == r.o.Run
}

// stat is what is known of an artifact of the tenant.
func (r *references) stat(ctx context.Context, id string) (*Stat, error) {
	if err := r.ours(ctx, id, gate.Stat); err != nil {
		return nil, err
	}
	return r.s.Resolve(ctx, r.who, id)
}

// ours refuses an artifact of another tenant like one that never was.
func (r *references) ours(ctx context.Context, id string, action gate.Action) error {
	if err := CheckID(id); err != nil {
		return err
	}
	row, err := r.s.catalogue.Artifact(ctx, id)
	if errors.Is(err, catalogue.ErrNotFound) || err == nil && row.Tenant != r.o.Tenant {
		return r.s.absent(ctx, r.who, id, action)
	}
	return wireError(id, err)
}

func infoOf(st *Stat) (ref.Info, error) {
	doc, err := json.Marshal(st.Ref)
	if err != nil {
		return ref.Info{}, wireError(st.Ref.ArtifactID, err)
	}
	p := &st.Manifest.Predicate
	info := ref.Info{
		ArtifactID: st.Ref.ArtifactID, Size: p.Bytes.Size, MediaType: p.Bytes.MediaType,
		Format: selector.FormatBytes, Ref: doc,
	}
	if rec := p.Records; rec != nil {
		info.Format, info.Pointer, info.Records = rec.Format, rec.Pointer, rec.Count
	}
	return info, nil
}

// Read writes a part of an artifact; see [ref.Source].
func (r *references) Read(ctx context.Context, id string, what ref.Selection, w io.Writer) (*selector.Answer, error) {
	if err := r.ours(ctx, id, gate.Read); err != nil {
		return nil, err
	}
	sel := Selector{Bytes: what.Bytes, Records: what.Records, Pointer: what.Pointer}
	if what.Receipt != nil {
		sel.Receipt = new(Statement)
	}
	answer, err := r.s.Read(ctx, r.who, id, sel, w)
	if err == nil && what.Receipt != nil {
		what.Receipt(sel.Receipt)
	}
	return answer, err
}

// Query gives the records that satisfy a condition to emit; see [ref.Source].
func (r *references) Query(ctx context.Context, id string, q ref.Query, emit func(ref.Row) error) (*selector.Answer, error) {
	if err := r.ours(ctx, id, gate.Query); err != nil {
		return nil, err
	}
	ask := Query{
		Where: q.Where, Order: q.Order, Limit: q.Limit, Cursor: q.Cursor, Count: q.Count,
		MaxBytes: q.MaxBytes, ReturnBytes: q.ReturnBytes,
	}
	if q.Receipt != nil {
		ask.Receipt = new(Statement)
	}
	var give func(Row) error
	if emit != nil {
		give = func(row Row) error {
			return emit(ref.Row{Record: row.Record, Span: row.Span, Bytes: row.Bytes, JSON: row.JSON})
		}
	}
	answer, err := r.s.Query(ctx, r.who, id, ask, give)
	if answer != nil && q.Receipt != nil && ask.Receipt.ID != "" {
		q.Receipt(ask.Receipt)
	}
	return answer, err
}

// Put stores what in has as an artifact of the run; see [ref.Source].
func (r *references) Put(ctx context.Context, what ref.New, in io.Reader) (ref.Marker, error) {
	f, o := Facts{}, PutOptions{}
	if what.Facts != nil {
		var err error
		if f, o, err = ParseFacts(what.Facts); err != nil {
			return ref.Marker{}, err
		}
	}
	r.describe(what, &f, &o)
	if err := f.Check(o); err != nil {
		return ref.Marker{}, err
	}
	d, err := r.s.Put(ctx, in, o)
	if err != nil {
		return ref.Marker{}, err
	}
	made, err := r.s.Publish(ctx, d, f)
	if err != nil {
		return ref.Marker{}, err
	}
	return ref.Marker{
		Key: r.key(f.ToolCallID, made.ArtifactID), ArtifactID: made.ArtifactID, Size: d.Size(), MediaType: d.media,
	}, nil
}

// describe turns what the caller says of new bytes into facts and options.
func (r *references) describe(what ref.New, f *Facts, o *PutOptions) {
	o.Tenant, o.Name = r.o.Tenant, what.Name
	if what.Records != "" {
		o.Records = what.Records
	}
	if m := what.MediaType; m != "" && (Facts{}).Check(PutOptions{MediaType: m}) == nil {
		o.MediaType = m // one that no manifest can state is not stated
	}
	f.Caller, f.RunID = r.who, r.o.Run
	if what.CallID != "" {
		f.ToolCallID = nameable(what.CallID)
	}
	if what.Tool != "" || what.Arguments != nil {
		if f.Producer == nil {
			f.Producer = &Producer{}
		}
		if f.Producer.Tool = nameable(what.Tool); what.Tool == "" {
			f.Producer.Tool = "unknown"
		}
		f.Producer.Arguments = what.Arguments
	}
	for _, id := range what.Inputs {
		f.Inputs = append(f.Inputs, manifest.Input{ArtifactID: id, Role: "source"})
	}
	if len(f.Inputs) > 0 && f.Transform == nil && f.Lineage == "" {
		f.Transform = toolTransform(f.Producer)
	}
}

// TransformTool is the transform of what a tool made of the artifacts that it was
// called with. Its spec is {"tool":NAME}: what it was asked is in the digest of the
// arguments, which is keyed.
const TransformTool = "leafproof.tool.v1"

func toolTransform(p *Producer) *manifest.Transform {
	name := "unknown"
	if p != nil {
		name = p.Tool
	}
	spec, err := manifest.Canonical(map[string]any{"tool": name})
	if err != nil { // a name is canonical, or escaped
		spec = nil
	}
	return &manifest.Transform{ID: TransformTool, SpecDigest: merkle.Sum(spec).String()}
}

// nameable is a caller's string in a manifest: as it is where a manifest can hold it,
// else escaped.
func nameable(s string) string {
	if _, err := manifest.Canonical(s); err == nil && len(s) <= maxNamed {
		return s
	}
	return escape(s)
}
