package leafproof

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/merkle"
)

// grants is the Authority of a store: the grants in its catalogue decide.
//
//   - The owner may do everything, except with what a restriction is about.
//   - A principal may do what a grant of its own lets it, inside its tenant and, if it
//     is bound to one, its run; and nothing that a restriction is about.
//   - Everything else is refused. Whoever has, or had, a grant about an artifact
//     hears that leave was withdrawn; others, that there is no such artifact.
//
// What was decided is remembered for as long as the policy epoch stands.
type grants struct {
	catalogue catalogue.Catalogue
	known     atomic.Pointer[decided]
}

// decided is what is remembered at one epoch.
type decided struct {
	epoch int64
	mu    sync.RWMutex
	of    map[gate.Principal]*standing
}

// Bounds on what is remembered; what is over them is asked of the catalogue again.
const (
	maxStandings = 1024
	maxRulings   = 4096
)

// standing is one principal's.
type standing struct {
	owner        bool
	principal    *catalogue.Principal // nil for none
	grants       []grantRule
	held         []gate.Pattern
	restrictions []gate.Pattern

	mu      sync.RWMutex
	rulings map[question]ruling
}

// grantRule is a grant as it is compared.
type grantRule struct {
	id       string
	action   gate.Action
	pattern  gate.Pattern
	records  *merkle.Range
	purpose  string
	notAfter time.Time // zero for never
}

// question is what a ruling is about.
type question struct {
	tenant, run, artifact string
	action                gate.Action
	purpose               string
}

// ruling is what the catalogue says about a question, at any time.
type ruling struct {
	refused string      // why nothing can allow it; "" where something may
	owner   bool        // the owner asks, who needs no grant
	allow   []grantRule // those that allow it: the ones for all records first, and the last to end first
	known   bool        // the asker has, or had, a grant about the artifact
}

// newGrants returns the authority of a catalogue.
func newGrants(c catalogue.Catalogue) *grants { return &grants{catalogue: c} }

// Decide implements [Authority].
func (g *grants) Decide(ctx context.Context, r Request) (Decision, error) {
	epoch, err := g.catalogue.Epoch(ctx)
	if err != nil {
		return Decision{}, err
	}
	now, err := g.catalogue.Now(ctx)
	if err != nil {
		return Decision{}, err
	}
	if d, ok := g.Remembered(r, epoch, now); ok {
		return d, nil
	}
	st, err := g.standing(ctx, r.Principal, epoch)
	if err != nil {
		return Decision{}, err
	}
	return st.ruling(r).at(now), nil
}

// Remembered implements [gate.Prompt].
func (g *grants) Remembered(r Request, epoch int64, now time.Time) (Decision, bool) {
	known := g.known.Load()
	if known == nil || known.epoch != epoch {
		return Decision{}, false
	}
	known.mu.RLock()
	st := known.of[r.Principal]
	known.mu.RUnlock()
	if st == nil {
		return Decision{}, false
	}
	return st.ruling(r).at(now), true
}

// standing reads a principal's, and remembers it for the epoch.
func (g *grants) standing(ctx context.Context, name gate.Principal, epoch int64) (*standing, error) {
	// The epoch was read first: what is read now may be newer, and is then read
	// again at its own.
	rights, err := g.catalogue.Rights(ctx, string(name))
	if err != nil {
		return nil, err
	}
	st := &standing{owner: name == gate.Owner, principal: rights.Principal, rulings: map[question]ruling{}}
	for _, g := range rights.Grants {
		rule := grantRule{id: g.GrantID, action: gate.Action(g.Action), pattern: gate.Pattern(g.Pattern), records: g.Records, purpose: g.Purpose}
		if g.NotAfter != nil {
			rule.notAfter = *g.NotAfter
		}
		st.grants = append(st.grants, rule)
	}
	for _, p := range rights.Held {
		st.held = append(st.held, gate.Pattern(p))
	}
	for _, r := range rights.Restrictions {
		st.restrictions = append(st.restrictions, gate.Pattern(r.Pattern))
	}
	known := g.known.Load()
	if known == nil || known.epoch < epoch {
		next := &decided{epoch: epoch, of: map[gate.Principal]*standing{}}
		if g.known.CompareAndSwap(known, next) {
			known = next
		} else {
			known = g.known.Load()
		}
	}
	if known.epoch == epoch {
		known.mu.Lock()
		if len(known.of) >= maxStandings {
			clear(known.of)
		}
		known.of[name] = st
		known.mu.Unlock()
	}
	return st, nil
}

// ruling returns what is remembered about a request, or finds it out.
func (st *standing) ruling(r Request) ruling {
	q := question{r.Tenant, r.Run, r.Artifact, r.Action, r.Purpose}
	st.mu.RLock()
	v, ok := st.rulings[q]
	st.mu.RUnlock()
	if ok {
		return v
	}
	v = st.judge(q)
	st.mu.Lock()
	if len(st.rulings) >= maxRulings {
		clear(st.rulings)
	}
	st.rulings[q] = v
	st.mu.Unlock()
	return v
}

// judge compares a question with everything that was granted and restricted.
func (st *standing) judge(q question) (v ruling) {
	about := func(p gate.Pattern) bool { return q.about(p) }
	if st.owner {
		v.owner, v.known = true, true
	} else {
		p := st.principal
		if p == nil {
			return ruling{refused: "there is no such principal"}
		}
		if p.Tenant != q.tenant {
			return ruling{refused: "it is another tenant's"}
		}
		if p.Run != nil && q.artifact != "" && *p.Run != q.run {
			return ruling{refused: "it is another run's"}
		}
		v.known = slices.ContainsFunc(st.held, about)
		for _, g := range st.grants {
			if !about(g.pattern) {
				continue
			}
			v.known = true
			if g.action == q.action && (g.purpose == "" || g.purpose == q.purpose) && p.RemovedAt == nil {
				v.allow = append(v.allow, g)
			}
		}
		slices.SortStableFunc(v.allow, func(a, b grantRule) int { return a.rank(b) })
	}
	if slices.ContainsFunc(st.restrictions, func(p gate.Pattern) bool { return p.Matches(q.tenant, q.run, q.artifact) }) {
		v.refused, v.owner, v.allow = "it is restricted", false, nil
	}
	return v
}

// about reports whether a grant of a pattern is about what is asked for. A listing
// of a tenant is what any grant in the tenant is about: its rows are asked for one
// by one.
func (q question) about(p gate.Pattern) bool {
	if q.artifact == "" {
		p.Run, p.Artifact = "*", "*"
	}
	return p.Matches(q.tenant, q.run, q.artifact)
}

// rank puts grants for all records first, and the last to end first.
func (g grantRule) rank(o grantRule) int {
	if (g.records == nil) != (o.records == nil) {
		if g.records == nil {
			return -1
		}
		return 1
	}
	switch {
	case g.notAfter.Equal(o.notAfter):
		return 0
	case g.notAfter.IsZero(), !o.notAfter.IsZero() && g.notAfter.After(o.notAfter):
		return -1
	}
	return 1
}

// at is the decision at a time.
func (v ruling) at(now time.Time) Decision {
	if v.refused != "" {
		return Decision{Reason: v.refused, Known: v.known}
	}
	if v.owner {
		return Decision{Allow: true}
	}
	var d Decision
	for _, g := range v.allow {
		if !g.notAfter.IsZero() && !now.Before(g.notAfter) {
			continue
		}
		if g.records == nil {
			return Decision{Allow: true, NotAfter: g.notAfter, Grant: g.id}
		}
		// Of several grants for some records the union counts, until the first ends.
		if !d.Allow {
			d.Allow, d.NotAfter, d.Grant = true, g.notAfter, g.id
		}
		if !g.notAfter.IsZero() && (d.NotAfter.IsZero() || g.notAfter.Before(d.NotAfter)) {
			d.NotAfter = g.notAfter
		}
		d.Records = append(d.Records, *g.records)
	}
	if !d.Allow {
		d.Reason, d.Known = "no grant allows it", v.known
	}
	return d
}
