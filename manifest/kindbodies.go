package manifest

import (
	"fmt"
	"strconv"
)

// The limits of free text in a statement, in bytes.
const (
	maxPrincipal = 256
	maxReason    = 1024
)

// IndexAdded says that an index over the artifact's records exists. The artifact's
// identity does not change by it. The subject's digest is that of the index's
// bytes, as b3sum prints it.
type IndexAdded struct {
	Head
	Index Index `json:"index"`
}

func (*IndexAdded) predicateType() string { return PredicateIndex }

func (b *IndexAdded) digest() (name, value string) { return "blake3", b.Index.Root }

func (b *IndexAdded) check(c *checker) {
	c.index(&b.Index, "/index")
}

// Superseded says that another artifact takes the place of this one. This one
// stays what it is and is read as before.
type Superseded struct {
	Head
	By     Successor `json:"superseded_by"`
	Kind   string    `json:"kind"`   // reacquire, correct, redact or transform
	Reason *string   `json:"reason"` // null: not given
}

// Successor is the artifact that takes the place.
type Successor struct {
	ArtifactID string `json:"artifact_id"`
	ManifestID string `json:"manifest_id"`
}

func (*Superseded) predicateType() string { return PredicateSupersede }

func (b *Superseded) check(c *checker) {
	c.must(isID(b.By.ArtifactID, "art_"), "/superseded_by/artifact_id", "%s is not an artifact_id", quote(b.By.ArtifactID))
	c.must(isID(b.By.ManifestID, "mf_"), "/superseded_by/manifest_id", "%s is not a manifest_id", quote(b.By.ManifestID))
	c.must(b.By.ArtifactID != b.ArtifactID, "/superseded_by/artifact_id", "it supersedes itself")
	c.oneOf(b.Kind, "/kind", "reacquire", "correct", "redact", "transform")
	c.reason(b.Reason)
}

func (c *checker) reason(s *string) {
	if s != nil {
		c.short(*s, maxReason, "/reason")
	}
}

// Decided is under which decision of the store's authority something happened.
type Decided struct {
	Epoch     int64  `json:"epoch"`      // the policy epoch; it grows whenever what is allowed changes
	CheckedAt string `json:"checked_at"` // when the authority was asked last, by the store's clock
	// MaxStaleMS is for how long an earlier decision may have stood in for a new
	// one, in milliseconds.
	MaxStaleMS int64 `json:"max_stale_ms"`
}

func (d *Decided) check(c *checker) {
	c.notNegative(&d.Epoch, "/authority/epoch")
	c.time(d.CheckedAt, "/authority/checked_at")
	c.notNegative(&d.MaxStaleMS, "/authority/max_stale_ms")
}

// Tombstone ends an artifact: from EffectiveAt on it is answered with
// artifact_deleted, and its bytes may be reclaimed. It holds no digest of them.
type Tombstone struct {
	Head
	RequestedBy string  `json:"requested_by"` // the principal, as the authority named it
	Authority   Decided `json:"authority"`
	Reason      *string `json:"reason"` // null: not given
	EffectiveAt string  `json:"effective_at"`
}

func (*Tombstone) predicateType() string { return PredicateTombstone }

func (b *Tombstone) check(c *checker) {
	c.short(b.RequestedBy, maxPrincipal, "/requested_by")
	b.Authority.check(c)
	c.reason(b.Reason)
	c.time(b.EffectiveAt, "/effective_at")
}

// The states of a [Location].
const (
	LocationDeleted     = "deleted"
	LocationShared      = "shared"      // another artifact of the tenant has the same blob, which stays
	LocationPending     = "pending"     // not reclaimed yet
	LocationHeld        = "held"        // kept by an order that outranks the deletion
	LocationUnreachable = "unreachable" // the place does not answer
)

// Deletion is the receipt of a deletion, one row for each place that held a part
// of the artifact. Later ones take the place of earlier ones.
type Deletion struct {
	Head
	TombstoneID string     `json:"tombstone_id"`
	Locations   []Location `json:"locations"`
	// Complete: every location is deleted or shared.
	Complete bool `json:"complete"`
}

// Location is a part of the artifact at a place.
type Location struct {
	Part   string  `json:"part"`   // bytes, manifest, record_map or index
	Place  string  `json:"place"`  // a name, as in "objects": the store's own
	State  string  `json:"state"`  // deleted, shared, pending, held or unreachable
	Method *string `json:"method"` // of a deleted one: unlink, version_delete or crypto_shred; else null
	At     *string `json:"at"`     // of a deleted one: when it was seen to be gone; else null
	// SharedChunks is how many pieces of a deleted one stay because other artifacts
	// of the tenant have them too; null: not counted.
	SharedChunks *int64 `json:"shared_chunks"`
}

func (*Deletion) predicateType() string { return PredicateDeletion }

func (b *Deletion) check(c *checker) {
	c.must(isID(b.TombstoneID, "tb_"), "/tombstone_id", "%s is not the id of a tombstone", quote(b.TombstoneID))
	c.must(len(b.Locations) > 0, "/locations", "no location")
	complete := true
	for i := range b.Locations {
		l, at := &b.Locations[i], "/locations/"+strconv.Itoa(i)
		c.oneOf(l.Part, at+"/part", "bytes", "manifest", "record_map", "index")
		c.name(l.Place, at+"/place")
		c.oneOf(l.State, at+"/state", LocationDeleted, LocationShared, LocationPending, LocationHeld, LocationUnreachable)
		gone := l.State == LocationDeleted
		c.must((l.Method != nil) == gone, at+"/method", "a method belongs to what is deleted, and that needs one")
		c.must((l.At != nil) == gone, at+"/at", "a time belongs to what is deleted, and that needs one")
		if l.Method != nil {
			c.oneOf(*l.Method, at+"/method", "unlink", "version_delete", "crypto_shred")
		}
		c.optTime(l.At, at+"/at")
		c.notNegative(l.SharedChunks, at+"/shared_chunks")
		c.must(gone || l.SharedChunks == nil, at+"/shared_chunks", "chunks are counted of what is deleted")
		complete = complete && (gone || l.State == LocationShared)
	}
	c.must(b.Complete == complete, "/complete", "%t, and the locations say %t", b.Complete, complete)
}

// The outcomes of a [Rebuilt].
const (
	OutcomeSame    = "same"
	OutcomeDiffers = "differs"
)

// Audit says that somebody read the artifact's bytes and made what is derived from
// them again.
type Audit struct {
	Head
	Tool    string    `json:"tool"` // what rebuilt it, as in "leafproof 0.1"
	Checked []Rebuilt `json:"checked"`
}

// Rebuilt is one thing that was made again and compared.
type Rebuilt struct {
	Part    string  `json:"part"`    // bytes, record_map or index
	Path    *string `json:"path"`    // of an index; else null
	Claimed string  `json:"claimed"` // the root that was signed, 64 hex digits
	Found   string  `json:"found"`   // the root that came out
	Outcome string  `json:"outcome"` // same or differs
}

func (*Audit) predicateType() string { return PredicateAudit }

func (b *Audit) check(c *checker) {
	c.short(b.Tool, maxPrincipal, "/tool")
	c.must(len(b.Checked) > 0, "/checked", "nothing was checked")
	for i := range b.Checked {
		r, at := &b.Checked[i], "/checked/"+strconv.Itoa(i)
		c.oneOf(r.Part, at+"/part", "bytes", "record_map", "index")
		c.must((r.Path != nil) == (r.Part == "index"), at+"/path", "a path belongs to an index, and that needs one")
		c.digest(&r.Claimed, at+"/claimed")
		c.digest(&r.Found, at+"/found")
		want := OutcomeSame
		if r.Claimed != r.Found {
			want = OutcomeDiffers
		}
		c.must(r.Outcome == want, at+"/outcome", "%s, and the roots say %s", quote(r.Outcome), want)
	}
}

// Admission says which part of a receipt's answer entered a prompt. It is the word
// of the harness that made the prompt, and says nothing about capture or scan.
type Admission struct {
	Head
	ReceiptID     string `json:"receipt_id"`
	ReceiptDigest string `json:"receipt_digest"` // BLAKE3 of the receipt's payload
	// Size is the number of bytes of the answer. Admitted and Omitted are ranges of
	// them, and leave none out.
	Size     int64      `json:"size"`
	Admitted [][2]int64 `json:"admitted"`
	Omitted  []Omitted  `json:"omitted"`
	// SerialisedDigest is BLAKE3 of what the model was given for it.
	SerialisedDigest string `json:"serialised_digest"`
}

// Omitted is a part of an answer that the model was not given.
type Omitted struct {
	Range  [2]int64 `json:"range"`
	Reason string   `json:"reason"` // token_budget, policy or elided
}

func (*Admission) predicateType() string { return PredicateAdmission }

func (b *Admission) check(c *checker) {
	c.must(isID(b.ReceiptID, "rc_"), "/receipt_id", "%s is not the id of a receipt", quote(b.ReceiptID))
	c.digest(&b.ReceiptDigest, "/receipt_digest")
	c.notNegative(&b.Size, "/size")
	c.digest(&b.SerialisedDigest, "/serialised_digest")
	c.ranges(b.Admitted, "/admitted")
	// Both lists ascend, so one walk over them meets every byte.
	at, a := int64(0), 0
	for i, o := range b.Omitted {
		for ; a < len(b.Admitted) && b.Admitted[a][0] == at; a++ {
			at = b.Admitted[a][1]
		}
		where := fmt.Sprintf("/omitted/%d", i)
		c.oneOf(o.Reason, where+"/reason", "token_budget", "policy", "elided")
		c.must(o.Range[0] == at && o.Range[1] > at, where+"/range", "[%d,%d) does not begin at %d, where the part before ends, or is empty", o.Range[0], o.Range[1], at)
		at = o.Range[1]
	}
	for ; a < len(b.Admitted) && b.Admitted[a][0] == at; a++ {
		at = b.Admitted[a][1]
	}
	c.must(a == len(b.Admitted) && at == b.Size, "", "admitted and omitted do not make up the %d bytes of the answer", b.Size)
}
