package leafproof

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/merkle"
)

// Upload is an artifact whose bytes arrive in parts, over any number of connections
// and processes: what was synced before something stopped it is not sent again. It
// belongs to the principal who began it, and to nobody else there is none of its id.
// Nobody sees it until a draft of it is published. It is not safe for concurrent use,
// one at a time can use it, and it must be closed.
type Upload struct {
	ID string
	// Note is what its beginner had to say of it, in words of his own.
	Note []byte
	// ArtifactID is set once it was published, and then it has no bytes of its own.
	ArtifactID string

	s      *Store
	file   string
	record uploadRecord
	parts  *cas.Upload // nil once it is over
}

// uploadRecord is the file that is kept of an upload, beside its bytes.
type uploadRecord struct {
	Format     string    `json:"format"`
	Tenant     string    `json:"tenant_id"`
	Principal  Principal `json:"principal"`
	Since      time.Time `json:"since,omitzero"` // when the principal was entered; zero: it is none of the catalogue's
	CreatedAt  time.Time `json:"created_at"`
	Note       []byte    `json:"note"`
	ArtifactID string    `json:"artifact_id,omitempty"`
}

const (
	uploadsDir    = "uploads"
	runsDir       = "runs" // of the harnesses that leafproof serve answers
	uploadFormat  = "leafproof upload v1"
	contextUpload = "leafproof 2026 upload-of v1"
	uploadPrefix  = "up_"
)

// Bounds on what is kept of uploads.
const (
	MaxUploads    = 256     // that one principal has at once, those included that are over and not yet forgotten
	MaxUploadNote = 2 << 20 // bytes
)

// BeginUpload begins an upload into a tenant ("" is [DefaultTenant]). A note says
// what its beginner wants to know later. An upload that nobody touches for a week is
// forgotten by a sweep.
func (s *Store) BeginUpload(ctx context.Context, who Caller, tenant string, note []byte) (*Upload, error) {
	if tenant == "" {
		tenant = DefaultTenant
	}
	if err := manifest.CheckName(tenant); err != nil {
		return nil, wireError("tenant", err)
	}
	switch {
	case s.dir == "":
		return nil, fail(CodeInternal, Stop, "upload", "this store keeps no uploads: it has no folder")
	case who.Principal == "":
		return nil, fail(CodeRefNotFound, FixCall, "upload", "nobody has no uploads")
	case len(note) > MaxUploadNote:
		return nil, fail(CodeTooLarge, FixCall, "note", "a note of %d bytes: at most %d", len(note), MaxUploadNote)
	}
	dir := filepath.Join(s.dir, uploadsDir)
	there, err := filepath.Glob(filepath.Join(dir, uploadsOf(who.Principal)+"-*"))
	if err != nil {
		return nil, wireError("upload", err)
	}
	if len(there) >= MaxUploads {
		return nil, &Error{Code: CodeBudgetExhausted, Message: "there are many uploads already: end some", Action: Wait, Retryable: true, At: "upload"}
	}
	now, err := s.catalogue.Now(ctx)
	if err != nil {
		return nil, wireError("upload", err)
	}
	since, err := s.enteredAt(ctx, who)
	if err != nil {
		return nil, wireError("upload", err)
	}
	id := uploadPrefix + strings.ToLower(rand.Text())
	u := &Upload{
		ID: id, Note: note, s: s, file: uploadFile(who.Principal, id),
		record: uploadRecord{Format: uploadFormat, Tenant: tenant, Principal: who.Principal, Since: since, CreatedAt: now, Note: note},
	}
	if err := u.save(); err != nil {
		return nil, wireError("upload", err)
	}
	if err := u.open(ctx); err != nil {
		return nil, errors.Join(err, u.forget())
	}
	return u, nil
}

// enteredAt is when the caller's principal was entered: who is given the name of one
// that was removed is somebody else. It is zero for who has no entry, as the owner.
func (s *Store) enteredAt(ctx context.Context, who Caller) (time.Time, error) {
	p, err := s.catalogue.Principal(ctx, string(who.Principal))
	if errors.Is(err, catalogue.ErrNoPrincipal) {
		return time.Time{}, nil
	}
	return p.CreatedAt, err
}

// uploadsOf begins the names of a principal's uploads.
func uploadsOf(p Principal) string {
	key := merkle.DeriveKey(contextUpload, []byte(p))
	return hex.EncodeToString(key[:16])
}

func uploadFile(p Principal, id string) string {
	return uploadsDir + "/" + uploadsOf(p) + "-" + id + ".json"
}

// Upload opens an upload that who began. Where there is none of the id, or it is
// somebody else's, the error is ref_not_found; where somebody else is at work on it,
// one that may pass.
func (s *Store) Upload(ctx context.Context, who Caller, id string) (*Upload, error) {
	absent := fail(CodeRefNotFound, FixCall, id, "%s: no such upload", id)
	random, ok := strings.CutPrefix(id, uploadPrefix)
	if !ok || len(random) != 26 || strings.Trim(random, "abcdefghijklmnopqrstuvwxyz234567") != "" || s.dir == "" {
		return nil, absent
	}
	u := &Upload{ID: id, s: s, file: uploadFile(who.Principal, id)}
	name := filepath.Join(s.dir, filepath.FromSlash(u.file))
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent
	}
	if err != nil {
		return nil, wireError(id, err)
	}
	if err := json.Unmarshal(text, &u.record); err != nil || u.record.Format != uploadFormat || u.record.Principal != who.Principal {
		return nil, absent
	}
	switch since, err := s.enteredAt(ctx, who); {
	case err != nil:
		return nil, wireError(id, err)
	case !since.Equal(u.record.Since):
		return nil, absent
	}
	u.Note, u.ArtifactID = u.record.Note, u.record.ArtifactID
	now := time.Now()
	_ = os.Chtimes(name, now, now) // it is touched
	if u.ArtifactID != "" {
		return u, nil
	}
	return u, u.open(ctx)
}

// open opens the bytes.
func (u *Upload) open(ctx context.Context) (err error) {
	u.parts, err = u.s.objects.Upload(ctx, cas.TenantOf(u.record.Tenant), "upload "+u.ID)
	return wireError(u.ID, err)
}

// save writes the record, durably.
func (u *Upload) save() error {
	text, err := json.Marshal(u.record)
	if err != nil {
		return err
	}
	return replaceFile(u.s.dir, u.file, append(text, '\n'))
}

// forget removes the record.
func (u *Upload) forget() error { return remove(filepath.Join(u.s.dir, filepath.FromSlash(u.file))) }

// Tenant is whose artifact it will be.
func (u *Upload) Tenant() string { return u.record.Tenant }

// Size is how many of its bytes are here: where to go on.
func (u *Upload) Size() int64 {
	if u.parts == nil {
		return 0
	}
	return u.parts.Size()
}

// Append adds the bytes of r, which begin at the byte off: that must be Size. When r
// fails, what came before is kept.
func (u *Upload) Append(ctx context.Context, off int64, r io.Reader) error {
	if u.parts == nil {
		return fail(CodeSelectorInvalid, FixCall, u.ID, "%s is over: it is %s", u.ID, u.ArtifactID)
	}
	if off != u.Size() {
		return fail(CodeSelectorInvalid, FixCall, "offset", "%s goes on at byte %d, not %d", u.ID, u.Size(), off)
	}
	return wireError(u.ID, u.parts.Append(ctx, off, r))
}

// Cut drops what is behind the first size bytes, as where it is not what it was said to
// be.
func (u *Upload) Cut(ctx context.Context, size int64) error {
	if u.parts == nil {
		return fail(CodeSelectorInvalid, FixCall, u.ID, "%s is over: it is %s", u.ID, u.ArtifactID)
	}
	return wireError(u.ID, u.parts.Cut(ctx, size))
}

// Publish makes an artifact of what is here, as [Store.Put] and [Store.Publish] do;
// the tenant is that of the upload. The upload is over then, and tells of the
// artifact until it is forgotten. If it fails, the bytes may have to be sent again.
func (u *Upload) Publish(ctx context.Context, o PutOptions, f Facts) (*Draft, manifest.ArtifactRef, error) {
	var none manifest.ArtifactRef
	if u.parts == nil {
		return nil, none, fail(CodeSelectorInvalid, FixCall, u.ID, "%s is over: it is %s", u.ID, u.ArtifactID)
	}
	o.Tenant, o.Resume, o.upload = u.record.Tenant, "", u.parts
	if err := f.Check(o); err != nil {
		return nil, none, err
	}
	d, err := u.s.Put(ctx, io.NewSectionReader(u.parts, 0, u.parts.Size()), o)
	if err != nil {
		return nil, none, err
	}
	ref, err := u.s.Publish(ctx, d, f)
	if err != nil {
		return nil, none, err
	}
	u.Close()
	u.ArtifactID, u.record.ArtifactID, u.record.Note = ref.ArtifactID, ref.ArtifactID, nil
	_ = u.save() // where it cannot say so, it is taken for one whose bytes are gone
	return d, ref, nil
}

// Abort ends the upload and drops all of it.
func (u *Upload) Abort(ctx context.Context) error {
	var err error
	if u.parts != nil {
		err = u.parts.Abort(ctx)
		u.parts = nil
	}
	return wireError(u.ID, errors.Join(err, u.forget()))
}

// Close ends the use of the upload and keeps what was synced.
func (u *Upload) Close() error {
	if u.parts == nil {
		return nil
	}
	err := u.parts.Close()
	u.parts = nil
	return wireError(u.ID, err)
}

// forgetUploads removes the records of uploads that nobody touched for as long as
// their bytes are kept.
func (s *Store) forgetUploads() error {
	dir := filepath.Join(s.dir, uploadsDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr == nil && time.Since(info.ModTime()) > cas.UploadKept {
			err = errors.Join(err, remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
