package catalogue

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxBatch bounds the changes of one commit, and thereby how long the others
// wait for theirs.
const maxBatch = 512

// job is one change that waits for a commit.
type job struct {
	op, subject string
	now         int64 // the clock when it was asked for, in microseconds
	// do makes the change. Its refusals (an Error, such as ErrExists) leave the
	// transaction as it was.
	do func(context.Context, *writer) error
	// applied looks whether the change stands, after a commit with an unknown
	// outcome; nil where to make it again changes nothing.
	applied func(context.Context) (bool, error)
	// soft changes need not outlive the machine, since what they speak of does
	// not: a commit of soft ones alone is not synced. A later synced one takes
	// them along.
	soft bool

	err  error
	done chan struct{} // closed when err is final
}

// writer makes all changes of this process over one connection. There is no
// goroutine: whoever finds the turn free leads, and commits the changes of all
// that wait with its own, so that 16 at once pay for about one sync.
type writer struct {
	path   string
	short  atomic.Bool // the log is kept short
	sealer atomic.Pointer[Sealer]
	turn   chan struct{} // holds one token while somebody leads

	mu    sync.Mutex
	queue []*job // those that nobody has taken

	// The rest belongs to who leads.
	db      *sql.DB
	conn    *sql.Conn
	stmts   map[string]*sql.Stmt
	soft    bool  // the connection does not sync its commits
	mark    *mark // see there; nil where there is none
	raised  bool  // the transaction raises the policy epoch
	failed  error // a write that failed for good
	closed  bool
	commits commits
}

func newWriter(path string) *writer {
	return &writer{path: path, turn: make(chan struct{}, 1)}
}

// run waits until the job is committed or refused. When ctx ends before
// somebody took the job, it is withdrawn; after that, its outcome is waited
// for, so that it is never unknown.
func (w *writer) run(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	j.done = make(chan struct{})
	w.mu.Lock()
	w.queue = append(w.queue, j)
	w.mu.Unlock()
	for {
		select {
		case <-j.done:
			return j.err
		case w.turn <- struct{}{}:
			w.commit(w.take())
			<-w.turn
		case <-ctx.Done():
			if w.withdraw(j) {
				return context.Cause(ctx)
			}
			<-j.done
			return j.err
		}
	}
}

func (w *writer) take() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), maxBatch)
	batch := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	return batch
}

func (w *writer) withdraw(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, j)
	if i < 0 {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	return true
}

// commit settles every job of the batch. It does not heed their contexts: one
// caller that gives up must not undo the changes of the others.
func (w *writer) commit(batch []*job) {
	if len(batch) == 0 {
		return
	}
	ctx := context.Background()
	err := w.transact(ctx, batch)
	for _, j := range batch {
		if err != nil && j.err == nil {
			j.err = w.outcome(ctx, j, err)
		}
		close(j.done)
	}
}

// outcome looks at what became of a job whose transaction failed: SQLite may
// have committed it all the same.
func (w *writer) outcome(ctx context.Context, j *job, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	if j.applied == nil {
		return err
	}
	applied, lookErr := j.applied(ctx)
	switch {
	case lookErr != nil && !errors.Is(lookErr, ErrNotFound):
		return errors.Join(err, lookErr)
	case applied:
		return nil
	}
	return err
}

// transact makes the changes of a batch in one transaction. Refusals go to
// their jobs; the error it returns is that of the transaction, and then none
// of the changes stands, as far as can be known here.
func (w *writer) transact(ctx context.Context, batch []*job) error {
	switch {
	case w.closed:
		return ErrClosed
	case w.failed != nil:
		return w.failed
	}
	err := w.try(ctx, batch)
	if err == nil {
		return nil
	}
	w.commits.edge = nil // whether the log has grown is not known
	for _, j := range batch {
		j.err = nil // a refusal rested on a state that was rolled back
	}
	if isIOError(err) {
		// After a failed sync the system may have dropped what it could not
		// write, and the next sync would claim success: no retry.
		w.failed = err
	}
	return errors.Join(err, w.disconnect())
}

func (w *writer) try(ctx context.Context, batch []*job) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	soft := !slices.ContainsFunc(batch, func(j *job) bool { return !j.soft })
	if err := w.sync(ctx, !soft); err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	clock := int64(0)
	w.raised = false
	w.commits.pending = nil
	for _, j := range batch {
		clock = max(clock, j.now)
		j.err = j.do(ctx, w)
		if _, refused := errors.AsType[*Error](j.err); j.err != nil && !refused {
			return j.err
		}
	}
	if err := w.exec(ctx, `UPDATE meta SET clock = max(clock, ?) WHERE one = 1`, clock); err != nil {
		return err
	}
	if err := w.grow(ctx, clock); err != nil {
		return err
	}
	if !w.raised {
		return w.exec(ctx, `COMMIT`)
	}
	if w.mark == nil {
		w.mark, _ = openMark(w.path) // another process may have been able to
	}
	n := w.mark.begin()
	defer w.mark.end(n)
	return w.exec(ctx, `COMMIT`)
}

// raise raises the policy epoch and returns it.
func (w *writer) raise(ctx context.Context) (int64, error) {
	w.raised = true
	if err := w.exec(ctx, `UPDATE meta SET policy_epoch = policy_epoch + 1 WHERE one = 1`); err != nil {
		return 0, err
	}
	return w.number(ctx, `SELECT policy_epoch FROM meta WHERE one = 1`)
}

// sync says whether commits are synced.
func (w *writer) sync(ctx context.Context, on bool) error {
	if on != w.soft {
		return nil
	}
	mode := "FULL"
	if !on {
		mode = "NORMAL"
	}
	if _, err := w.conn.ExecContext(ctx, `PRAGMA synchronous = `+mode); err != nil {
		return err
	}
	w.soft = !on
	return nil
}

// begin waits for the other processes' commits. It asks far more often than
// SQLite's own busy handler, whose sleeps of up to 100 ms never meet the short
// gaps that a busy process leaves between two commits: that one then wins
// nearly every time.
func (w *writer) begin(ctx context.Context) error {
	for until := time.Now().Add(busyTimeout); ; {
		err := w.exec(ctx, `BEGIN IMMEDIATE`)
		if !isBusy(err) || time.Now().After(until) {
			return err
		}
		time.Sleep(100*time.Microsecond + rand.N(400*time.Microsecond))
	}
}

// insert publishes a, or refuses.
func (w *writer) insert(ctx context.Context, a Artifact) error {
	stmt, err := w.prepare(ctx, `INSERT INTO artifacts (artifact_id, manifest_id, tenant, run, source_id, root, size,
		envelope_root, envelope_size, created_at, expires_at, state)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'committed') ON CONFLICT DO NOTHING`)
	if err != nil {
		return err
	}
	res, err := stmt.ExecContext(ctx, a.ArtifactID, a.ManifestID, a.Tenant, a.Run, a.SourceID, a.Root[:], a.Size,
		a.EnvelopeRoot[:], a.EnvelopeSize, a.CreatedAt.UnixMicro(), toMicro(a.ExpiresAt))
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 1 && !a.Leaf.none() {
		var seq int64
		if seq, err = res.LastInsertId(); err == nil {
			w.log(a.Leaf, &seq, nil)
		}
	}
	if err == nil && n == 1 {
		err = a.linkStatements(func(text string, args ...any) error { return w.exec(ctx, text, args...) })
	}
	if err != nil || n == 1 {
		return err
	}
	old, err := w.row(ctx, a.ArtifactID)
	if errors.Is(err, sql.ErrNoRows) {
		return &Error{Op: "publish", Subject: a.ArtifactID, Err: ErrExists, Detail: "its manifest belongs to another artifact"}
	}
	if err != nil {
		return err
	}
	return republish(old, a)
}

// remove deletes the artifact, or refuses.
func (w *writer) remove(ctx context.Context, id, reason string, at time.Time) error {
	stmt, err := w.prepare(ctx, `UPDATE artifacts SET state = 'deleted', deleted_at = ?, delete_reason = ?
		WHERE artifact_id = ? AND state = 'committed'`)
	if err != nil {
		return err
	}
	res, err := stmt.ExecContext(ctx, at.UnixMicro(), reason, id)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 1 {
		err = w.endCopies(ctx, id, at)
	}
	if err == nil && n == 1 {
		_, err = w.raise(ctx)
	}
	if err != nil || n == 1 {
		return err
	}
	if _, err := w.row(ctx, id); !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return notFound("delete", id)
}

// row reads inside the transaction.
func (w *writer) row(ctx context.Context, id string) (Artifact, error) {
	stmt, err := w.prepare(ctx, `SELECT `+columns+` FROM artifacts WHERE artifact_id = ?`)
	if err != nil {
		return Artifact{}, err
	}
	return scan(stmt.QueryRowContext(ctx, id))
}

// number runs a statement that returns one number, or no row, which is 0.
func (w *writer) number(ctx context.Context, text string, args ...any) (n int64, err error) {
	stmt, err := w.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	if err := stmt.QueryRowContext(ctx, args...).Scan(&n); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	return n, nil
}

// live refuses a lease that is lost or gone.
func (w *writer) live(ctx context.Context, op, lease string) error {
	n, err := w.number(ctx, `SELECT count(*) FROM leases WHERE lease = ? AND lost = 0`, lease)
	if err == nil && n == 0 {
		err = leaseLost(op, lease)
	}
	return err
}

func (w *writer) exec(ctx context.Context, text string, args ...any) error {
	stmt, err := w.prepare(ctx, text)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx, args...)
	return err
}

func (w *writer) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := w.stmts[text]; ok {
		return stmt, nil
	}
	stmt, err := w.conn.PrepareContext(ctx, text)
	if err == nil {
		w.stmts[text] = stmt
	}
	return stmt, err
}

// connect opens the one connection at the first write: most processes only
// read.
func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	// fullfsync makes a sync reach the medium on macOS.
	params := []string{"mode=rw", "_pragma=synchronous(FULL)", "_pragma=fullfsync(1)", "_pragma=checkpoint_fullfsync(1)"}
	if w.short.Load() {
		params = append(params, "_pragma=wal_autocheckpoint(16)")
	}
	w.db, err = openDB(w.path, params...)
	if err != nil {
		return err
	}
	w.stmts = map[string]*sql.Stmt{}
	if w.conn, err = w.db.Conn(ctx); err != nil {
		return errors.Join(err, w.disconnect())
	}
	if err := setWAL(ctx, w.conn); err != nil {
		return errors.Join(err, w.disconnect())
	}
	if _, err := w.conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil { // see begin
		return errors.Join(err, w.disconnect())
	}
	return nil
}

// disconnect drops the connection and with it a transaction that is open.
// Statements come first: database/sql leaves those of a Conn to their owner,
// and with one left SQLite keeps the connection and its locks.
func (w *writer) disconnect() error {
	var err error
	for _, stmt := range w.stmts {
		err = errors.Join(err, stmt.Close())
	}
	if w.conn != nil {
		err = errors.Join(err, w.conn.Close())
	}
	if w.db != nil {
		err = errors.Join(err, w.db.Close())
	}
	w.db, w.conn, w.stmts, w.soft = nil, nil, nil, false
	return err
}

// close waits for who leads and refuses everything after it.
func (w *writer) close() error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	w.closed = true
	return errors.Join(w.disconnect(), w.mark.close())
}
