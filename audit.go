package leafproof

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/merkle"
)

// A Disclosure is one record of the audit log: something was shown, or what is
// allowed was changed.
type Disclosure struct {
	Seq        int64     `json:"seq"` // the order in which they were entered
	At         time.Time `json:"at"`
	Principal  Principal `json:"principal"`
	Purpose    string    `json:"purpose"`
	Action     string    `json:"action"` // an Action; or revoke, restrict, unrestrict, principal_add, principal_remove
	Tenant     string    `json:"tenant_id"`
	ArtifactID string    `json:"artifact_id"` // "" where it is about none
	GrantID    string    `json:"grant_id"`    // that allowed it; "" for the owner
	Epoch      int64     `json:"policy_epoch"`
	// Shown says what was shown or changed: see [Shown].
	Shown json.RawMessage `json:"shown"`
}

// Shown is what a record says of a disclosure. Never what stood there.
type Shown struct {
	// Bytes are ranges of the artifact's bytes, and all that was shown lies in them;
	// null where none were.
	Bytes [][2]int64 `json:"bytes,omitempty"`
	// Exact is false where the ranges were rounded outward.
	Exact bool `json:"exact,omitempty"`
	// Placed are the numbers of records whose places were shown.
	Placed *[2]int64 `json:"placed,omitempty"`
	// Index is the path of an index of which Pages were shown, from 0: keys, and the
	// records that have them.
	Index string     `json:"index,omitempty"`
	Pages [][2]int64 `json:"pages,omitempty"`
	// Rows is how many records were shown, or counted, or listed.
	Rows *int64 `json:"rows,omitempty"`
	// QID is the query's.
	QID string `json:"qid,omitempty"`
	// Facts says that the manifest's facts were shown, or statements.
	Facts bool `json:"facts,omitempty"`
	// Export says that it left as a proof, which whoever holds it can pass on.
	Export bool `json:"export,omitempty"`

	now bool // it is entered at once
}

// auditDelay is how long a record waits for others, at most.
const auditDelay = 500 * time.Millisecond

// maxWaiting is how many records wait before who enters the next one waits.
const maxWaiting = 4096

// auditor enters records into the audit log, many with one commit.
type auditor struct {
	log catalogue.Audit
	// entered is called after each commit; what fails in it is done after the next.
	entered func(context.Context)

	mu      sync.Mutex
	waiting []waiting
	timer   *time.Timer // nil while nothing waits
	// failed is why the last commit failed: what it held waits again.
	failed error

	turn sync.Mutex // held by who commits
}

// waiting is a record on its way. What it says is put into words when it is entered.
type waiting struct {
	record catalogue.Disclosure
	shown  Shown
}

// note enters a record within a second; an export or a deletion before it returns.
// After a commit that failed it tries again, and returns the error.
func (a *auditor) note(ctx context.Context, record catalogue.Disclosure, shown Shown) error {
	a.mu.Lock()
	a.waiting = append(a.waiting, waiting{record, shown})
	now := shown.Export || shown.now || a.failed != nil || len(a.waiting) >= maxWaiting
	if a.timer == nil && !now {
		a.timer = time.AfterFunc(auditDelay, func() { a.flush(context.Background()) }) //nolint:errcheck // it is kept, for the next
	}
	a.mu.Unlock()
	if now {
		return a.flush(context.WithoutCancel(ctx))
	}
	return nil
}

// flush enters what waits.
func (a *auditor) flush(ctx context.Context) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.mu.Lock()
	list := a.waiting
	a.waiting = nil
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	a.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	rows := make([]catalogue.Disclosure, len(list))
	for i, w := range list {
		rows[i] = w.record
		rows[i].Shown = inWords(w.shown)
	}
	err := a.log.Disclose(ctx, rows)
	if err == nil && a.entered != nil {
		a.entered(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed = err; err != nil {
		// Of more than can wait the oldest stay: they are what was shown first.
		a.waiting = append(list, a.waiting...)[:min(maxWaiting, len(list)+len(a.waiting))]
	}
	return err
}

// close enters what waits, for the last time. What the owner was shown on a store
// that cannot be written has no record: that is no error.
func (a *auditor) close() error {
	err := a.flush(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	if !slices.ContainsFunc(a.waiting, func(w waiting) bool { return w.record.Principal != string(gate.Owner) }) {
		return nil
	}
	return err
}

// inWords writes a value as one line of JSON.
func inWords(v any) string {
	text, err := json.Marshal(v)
	if err != nil || len(text) > catalogue.MaxShown {
		return `{"unsaid":true}` // not reached: all of them are bounded
	}
	return string(text)
}

// disclosed enters that something of the artifact is shown under a permit. It comes
// before the first byte. Where the log cannot be written, on a disk that is full or
// read-only, only the owner is shown anything, and that has no record then.
func (a *artifact) disclosed(ctx context.Context, permit gate.Permit, shown Shown) error {
	r := permit.Request()
	return a.store.disclosed(ctx, permit, r.Tenant, r.Artifact, shown)
}

func (s *Store) disclosed(ctx context.Context, permit gate.Permit, tenant, id string, shown Shown) error {
	r := permit.Request()
	err := s.audit.note(ctx, catalogue.Disclosure{
		At: s.now(ctx), Principal: string(r.Principal), Purpose: clipped(r.Purpose), Action: string(r.Action),
		Tenant: tenant, ArtifactID: id, GrantID: permit.Grant(), Epoch: permit.Epoch(),
	}, shown)
	if err == nil || r.Principal == gate.Owner {
		return nil
	}
	return &Error{Code: CodeAuthorityUnavailable, Message: message(id, err), Action: Wait, Retryable: true, At: id, err: err}
}

// clipped is as much of a purpose as is recorded.
func clipped(s string) string { return s[:min(len(s), maxNamed)] }

// now is the time of the catalogue; that of the machine where it cannot be had.
func (s *Store) now(ctx context.Context) time.Time {
	if _, now, ok := s.catalogue.Quick(); ok {
		return now
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return time.Now()
	}
	return now
}

// changed is the record of a change of what is allowed.
func (s *Store) changed(who Caller, now time.Time, action, tenant, grantID string, what any) catalogue.Disclosure {
	return catalogue.Disclosure{
		At: now, Principal: string(who.Principal), Purpose: clipped(who.Purpose), Action: action, Tenant: tenant, GrantID: grantID, Shown: inWords(what),
	}
}

// shownRanges is what is recorded of ranges of bytes.
func shownRanges(size int64, ranges ...merkle.Range) Shown {
	var set spanSet
	for _, r := range ranges {
		set.add(r)
	}
	list, exact := set.list(size)
	return Shown{Bytes: list, Exact: exact}
}

// exported is what is recorded of a proof.
func exported(size int64, r gate.Request) Shown {
	shown := shownRanges(size, r.Ranges...)
	if shown.Export = true; r.Placed.Start < r.Placed.End {
		shown.Placed = &[2]int64{r.Placed.Start, r.Placed.End}
	}
	shown.Index, shown.Pages = r.Index, pageList(r.Pages)
	return shown
}

// rowsShown collects what a query shows, and has it recorded while it goes on.
type rowsShown struct {
	a      *artifact
	permit gate.Permit
	qid    string
	set    spanSet
	rows   int64
	last   time.Time // of the record before
}

// row takes a row in that is about to be shown.
func (l *rowsShown) row(ctx context.Context, row Row) error {
	if row.Selected == nil {
		l.set.add(merkle.Range{Start: row.Span.Start, End: row.Span.End})
	}
	for _, values := range row.Selected {
		for _, v := range values {
			l.set.add(merkle.Range{Start: v.Span.Start, End: v.Span.End})
		}
	}
	l.rows++
	if time.Since(l.last) < auditDelay {
		return nil
	}
	return l.record(ctx)
}

// record enters what was shown since the record before.
func (l *rowsShown) record(ctx context.Context) error {
	shown := Shown{QID: l.qid}
	shown.Bytes, shown.Exact = l.set.list(l.a.m.Size)
	if l.a.request.Action != gate.Count { // the number that was told is an answer
		shown.Rows = new(l.rows)
	}
	l.set, l.rows, l.last = spanSet{}, 0, time.Now()
	return l.a.disclosed(ctx, l.permit, shown)
}

// DisclosureFilter says which records of the audit log are wanted.
type DisclosureFilter struct {
	ArtifactID string    // "" for all
	Principal  Principal // "" for all
	After      int64     // those with Seq > After
	Limit      int       // at most, from 1 to 10,000
}

// Disclosures returns records of the audit log, oldest first. The owner sees all;
// whoever may grant leave for an artifact, those about it; everybody else of an
// artifact that he may stat, those of his own.
func (s *Store) Disclosures(ctx context.Context, who Caller, f DisclosureFilter) ([]Disclosure, error) {
	if err := s.audit.flush(ctx); err != nil {
		return nil, wireError("audit", err)
	}
	if f.ArtifactID == "" {
		if err := ownerOnly(who, "read the whole audit log"); err != nil {
			return nil, err
		}
	} else {
		a, err := s.row(ctx, who, f.ArtifactID, gate.Stat)
		if err != nil {
			return nil, err
		}
		if _, err := a.permit(ctx); err != nil {
			return nil, err
		}
		if _, err := s.artifact(who, a.row, gate.Grant).permit(ctx); err != nil {
			if !refused(err) {
				return nil, err
			}
			f.Principal = who.Principal
		}
	}
	rows, err := s.catalogue.Disclosures(ctx, catalogue.Asked{ArtifactID: f.ArtifactID, Principal: string(f.Principal), After: s.positions(who).hide(f.After), Limit: f.Limit})
	if err != nil {
		return nil, wireError("audit", err)
	}
	out := make([]Disclosure, 0, len(rows))
	for _, d := range rows {
		out = append(out, Disclosure{
			s.positions(who).show(d.Seq), d.At, Principal(d.Principal), d.Purpose, d.Action, d.Tenant, d.ArtifactID, d.GrantID, d.Epoch, json.RawMessage(d.Shown),
		})
	}
	return out, nil
}
