package leafproof

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
	"leafproof/merkle"
)

// RestoreReport says what a catalogue was restored from, and what nobody knows.
type RestoreReport struct {
	Artifacts int64 `json:"artifacts"` // rows made
	// Deleted are artifacts that a tombstone among the objects, or the damaged file,
	// told to be deleted.
	Deleted int64 `json:"deleted"`
	// Statements are those that were entered again: tombstones and deletions from
	// among the objects, receipts as far as the damaged file told them.
	Statements int64 `json:"statements"`
	// Refused are manifests that the policy does not admit, or that do not
	// belong where they lie: their artifacts are not listed. Tombstones too, which
	// then end nothing.
	Refused []string `json:"refused"`
	// Unproven are artifacts that only the damaged file named: their manifest
	// was not found among the objects.
	Unproven []string `json:"unproven"`
	// Old is where the damaged file was moved to; "" where there was none.
	Old     string   `json:"old"`
	Epoch   int64    `json:"policy_epoch"`
	Unknown []string `json:"unknown"` // what nobody can know, in sentences
}

// restoreCatalogue makes a catalogue of the manifests that stand as objects, and
// of what the damaged one still tells. The damaged file is moved aside, kept.
func (c *checker) restoreCatalogue(storeID string) (*RestoreReport, error) {
	path := filepath.Join(c.dir, catalogueFile)
	old := catalogue.Salvage(c.ctx, path)
	found, said, refused, err := c.signedObjects()
	if err != nil {
		return nil, err
	}
	said = c.alsoSaid(said, old.Statements)
	r := &RestoreReport{Refused: refused, Unproven: []string{}, Epoch: old.Epoch + 1}
	if old.Epoch < 0 {
		r.Epoch = time.Now().Unix() // above any count of changes
	}
	if storeID == "" {
		storeID = old.StoreID
	}
	deleted := make(map[string]bool)
	for _, row := range old.Rows {
		listed, ok := found[row.ArtifactID]
		switch {
		case !ok:
			if CheckID(row.ArtifactID) != nil {
				continue
			}
			found[row.ArtifactID] = row
			if row.DeletedAt == nil {
				r.Unproven = append(r.Unproven, row.ArtifactID)
			}
		case row.DeletedAt != nil && row.ManifestID == listed.ManifestID:
			listed.DeletedAt, listed.DeleteReason = row.DeletedAt, row.DeleteReason
			found[row.ArtifactID] = listed
		}
		deleted[row.ArtifactID] = row.DeletedAt != nil
	}
	finished := bury(found, said, deleted)
	rows := make([]catalogue.Artifact, 0, len(found))
	clock := max(old.Clock, time.Now().UnixMicro())
	for _, row := range found {
		rows = append(rows, row)
		if deleted[row.ArtifactID] {
			r.Deleted++
		}
	}
	slices.SortFunc(rows, func(a, b catalogue.Artifact) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ArtifactID, b.ArtifactID)
	})
	if ahead := time.Now().Add(24 * time.Hour).UnixMicro(); clock > ahead {
		clock = time.Now().UnixMicro() // a damaged clock would end what has not expired
	}
	next, err := endLog(c.dir, c.policy, storeID, old.Checkpoint)
	if err != nil {
		return nil, err
	}
	if r.Old, err = moveAside(c.dir); err != nil {
		return nil, err
	}
	clashes, err := catalogue.Restore(c.ctx, path, catalogue.Restored{
		StoreID: storeID, Epoch: r.Epoch, Clock: clock, Rows: slices.Values(rows),
		Restrictions: old.Restrictions,
		Statements:   said, Tombstone: manifest.PredicateTombstone, Finished: finished,
		Names: old.Names, Copies: old.Copies,
	})
	if err != nil {
		return nil, err
	}
	for _, id := range clashes {
		r.Refused = append(r.Refused, id+": its manifest belongs to another artifact too")
	}
	r.Artifacts, r.Statements = int64(len(rows)-len(clashes)), int64(len(said))
	r.Unknown = unknown(old)
	if next != "" {
		r.Unknown = append(r.Unknown, "what the commit log held, but for its last checkpoint where the damaged file told it: another log begins, "+next)
	}
	return r, nil
}

// unknown says what cannot be known after a restore.
func unknown(old catalogue.Salvaged) []string {
	out := []string{
		"an artifact whose put was interrupted before it was published may be listed now; nobody was given its id",
		"the order of the list is that of the times in the manifests",
		"grants, where there were any, are gone: nobody but the owner may read until they are given again",
	}
	if !old.Whole {
		out = append(out, "which artifacts had been deleted without a signed tombstone is known only as far as the damaged file could be read: others are listed again")
	}
	if !old.WholeRestrictions {
		out = append(out, "which artifacts were restricted is known only as far as the damaged file could be read: the owner may read what was restricted")
	}
	if !old.WholeLifecycle {
		out = append(out, "names, and copies that were registered, are known only as far as the damaged file could be read: a name may have an older version than it had")
	}
	if !old.WholeStatements {
		out = append(out, "receipts of reads are known only as far as the damaged file could be read")
	}
	return out
}

// moveAside moves a damaged catalogue, and what SQLite has beside it, out of the
// way of a new one.
func moveAside(dir string) (string, error) {
	stamp := time.Now().UTC().Format("20060102T150405.000000000")
	moved := ""
	for _, suffix := range []string{"-shm", "-wal", "-journal", ""} { // the file last: with it, there is still a catalogue to restore
		from := filepath.Join(dir, catalogueFile+suffix)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		name := setAside + stamp + suffix
		if err := os.Rename(from, filepath.Join(dir, name)); err != nil {
			return "", err
		}
		moved = name
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		return "", err
	}
	return moved, errors.Join(rootfs.SyncDir(root, "."), root.Close())
}

// signedObjects finds every signed manifest among the objects, by artifact id, and
// every statement that stands there.
func (c *checker) signedObjects() (found map[string]catalogue.Artifact, said []catalogue.Statement, refused []string, err error) {
	found, refused = make(map[string]catalogue.Artifact), []string{}
	const manifests, statements = `{"manifest":{"payload"`, `{"payload":"`
	tenants, err := c.objects.Tenants(c.ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, tenant := range tenants {
		blobs := c.objects.Blobs(c.ctx, tenant, maxEnvelope, func(head []byte) bool {
			return bytes.HasPrefix(head, []byte(manifests)) || bytes.HasPrefix(head, []byte(statements))
		})
		for blob, err := range blobs {
			if err != nil {
				return nil, nil, nil, err
			}
			if bytes.HasPrefix(blob.Bytes, []byte(statements)) {
				switch st, ok, err := c.statementOf(tenant, blob); {
				case !ok: // somebody's data that looks like a statement
				case err != nil:
					refused = append(refused, fmt.Sprintf("%s: %s about it: %v", st.ArtifactID, st.StatementID, err))
				default:
					said = append(said, st)
				}
				continue
			}
			row, ok, err := c.rowOf(tenant, blob)
			switch {
			case !ok: // somebody's data that looks like a manifest
			case err != nil:
				refused = append(refused, fmt.Sprintf("%s: %v", row.ArtifactID, err))
			default:
				if _, twice := found[row.ArtifactID]; !twice {
					found[row.ArtifactID] = row
				}
			}
		}
	}
	slices.Sort(refused)
	return found, said, slices.Compact(refused), nil
}

// statementOf makes the row of a statement that stands as an object. It is not ok
// when the blob is none.
func (c *checker) statementOf(tenant cas.Tenant, blob cas.Blob) (st catalogue.Statement, ok bool, err error) {
	env, err := manifest.ParseEnvelope(blob.Bytes)
	if err != nil {
		return st, false, nil
	}
	payload, err := env.PayloadBytes()
	if err != nil {
		return st, false, nil
	}
	kind, err := manifest.StatementKind(payload)
	if err != nil {
		return st, false, nil
	}
	doc, err := manifest.ParseStatement(payload, kind)
	if err != nil {
		return st, false, nil
	}
	head := doc.Body.About()
	st = catalogue.Statement{
		StatementID: doc.ID, Kind: kind, Tenant: head.Scope.TenantID, ArtifactID: head.ArtifactID,
		Envelope: blob.Bytes, ObjectRoot: blob.Root, ObjectSize: int64(len(blob.Bytes)),
	}
	if st.IssuedAt, err = manifest.ParseTime(head.IssuedAt); err != nil {
		return st, true, err
	}
	if cas.TenantOf(st.Tenant) != tenant {
		return st, true, fmt.Errorf("%w: it lies with another tenant's objects", errStatement)
	}
	return st, true, admitStatement(env, st, c.policy)
}

// admitStatement refuses a statement that the policy does not let stand. When it
// was made is its own word here: a key that was retired since has spoken all the
// same, and what it ended stays ended.
func admitStatement(env manifest.Envelope, st catalogue.Statement, policy *manifest.Policy) error {
	policy = policy.Given(manifest.Evidence{Logged: st.IssuedAt})
	_, _, err := manifest.VerifyStatement(env, st.Kind, policy, st.IssuedAt)
	return err
}

// alsoSaid adds the statements that only the damaged catalogue told, if the policy
// lets them stand, and what it told besides of the others. They are in the order in
// which they were made.
func (c *checker) alsoSaid(said, told []catalogue.Statement) []catalogue.Statement {
	place := make(map[string]int)
	for i, st := range said {
		place[st.StatementID] = i
	}
	for _, st := range told {
		if i, ok := place[st.StatementID]; ok {
			said[i].Cursor = st.Cursor
			continue
		}
		opened, err := openStatement(st)
		if err != nil || admitStatement(opened.Envelope, st, c.policy) != nil {
			continue
		}
		st.ObjectRoot, st.ObjectSize = merkle.Root{}, 0 // it was not found there
		place[st.StatementID] = len(said)
		said = append(said, st)
	}
	slices.SortStableFunc(said, func(a, b catalogue.Statement) int {
		if n := a.IssuedAt.Compare(b.IssuedAt); n != 0 {
			return n
		}
		return strings.Compare(a.StatementID, b.StatementID)
	})
	return said
}

// bury ends the artifacts that tombstones speak of, and notes them among the
// deleted. Of one whose manifest is gone, nothing is left but that: its row has the
// roots of its tombstone, so that its id is never free again. It returns those of
// which nothing is left to delete.
func bury(found map[string]catalogue.Artifact, said []catalogue.Statement, deleted map[string]bool) (finished map[string]bool) {
	finished = make(map[string]bool)
	for _, st := range said {
		opened, err := openStatement(st)
		if err != nil {
			continue
		}
		switch body := opened.Statement.Body.(type) {
		case *manifest.Deletion:
			finished[st.ArtifactID] = finished[st.ArtifactID] || body.Complete
		case *manifest.Tombstone:
			at, err := manifest.ParseTime(body.EffectiveAt)
			if err != nil {
				continue
			}
			row, ok := found[st.ArtifactID]
			if !ok {
				root, size := merkle.Sum(st.Envelope), int64(len(st.Envelope))
				row = catalogue.Artifact{
					ArtifactID: st.ArtifactID, ManifestID: body.ManifestID, Tenant: st.Tenant, Run: body.Scope.RunID, SourceID: body.SourceID,
					Root: root, Size: size, EnvelopeRoot: root, EnvelopeSize: size, CreatedAt: at,
				}
				finished[st.ArtifactID] = true
			}
			if row.ManifestID != body.ManifestID || row.DeletedAt != nil {
				continue
			}
			row.DeletedAt = &at
			if body.Reason != nil {
				row.DeleteReason = *body.Reason
			}
			found[st.ArtifactID], deleted[st.ArtifactID] = row, true
		}
	}
	return finished
}

// rowOf makes the row of a manifest object. It is not ok when the blob is none.
func (c *checker) rowOf(tenant cas.Tenant, blob cas.Blob) (row catalogue.Artifact, ok bool, err error) {
	var o signedManifest
	if manifest.DecodeLimit(blob.Bytes, &o, maxEnvelope, manifest.MaxDepth) != nil {
		return row, false, nil
	}
	payload, err := o.Manifest.PayloadBytes()
	if err != nil {
		return row, false, nil
	}
	m, err := manifest.ParseManifest(payload)
	if err != nil {
		return row, false, nil
	}
	row, err = rowFor(m, blob.Root, int64(len(blob.Bytes)))
	if err != nil {
		return row, true, err
	}
	if cas.TenantOf(row.Tenant) != tenant {
		return row, true, fmt.Errorf("%w: it lies with another tenant's objects", errManifest)
	}
	return row, true, admit(o, c.policy, row.CreatedAt)
}

// rowFor is the catalogue's row of a manifest that stands as the object envelope.
func rowFor(m *manifest.Manifest, envelope [32]byte, size int64) (catalogue.Artifact, error) {
	ref := m.Predicate.ArtifactRef
	row := catalogue.Artifact{
		ArtifactID: m.ArtifactID, ManifestID: m.ManifestID, Tenant: ref.Scope.TenantID,
		Run: ref.Scope.RunID, SourceID: ref.SourceVersion.SourceID,
		Root: m.Root, Size: m.Size, EnvelopeRoot: envelope, EnvelopeSize: size,
	}
	var err error
	if row.CreatedAt, err = manifest.ParseTime(ref.CreatedAt); err != nil {
		return row, err
	}
	if ref.ExpiresAt != nil {
		at, err := manifest.ParseTime(*ref.ExpiresAt)
		if err != nil {
			return row, err
		}
		row.ExpiresAt = &at
	}
	row.Supersedes, row.Inputs = links(&m.Predicate)
	return row, nil
}

// admit refuses a signed manifest that a policy does not let stand.
func admit(o signedManifest, policy *manifest.Policy, at time.Time) error {
	_, facts, err := manifest.VerifyEnvelope(o.Manifest, o.SSH, policy, at)
	if err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	for _, f := range facts {
		if f.State == manifest.Mismatch || (f.Name == manifest.FactKey && f.State == manifest.Unverifiable) {
			return fmt.Errorf("%w: its %s is %s under trust.policy", errManifest, f.Name, f)
		}
	}
	return nil
}
