package leafproof

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"strings"

	"leafproof/cas"
	"leafproof/internal/catalogue"
	"leafproof/manifest"
)

// errManifest is a stored manifest that is not what the catalogue names, or that no
// key of the store's policy has signed.
var errManifest = errors.New("its manifest does not verify")

// maxEnvelope bounds a manifest object: a 1 MiB payload in base64 and its
// signatures.
const maxEnvelope = 2 << 20

// signedManifest is the object that a store keeps for each artifact: both
// signatures of one payload, in canonical JSON.
type signedManifest struct {
	Manifest manifest.Envelope `json:"manifest"`
	SSH      string            `json:"ssh"`
}

// sign makes the manifest object of a predicate.
func sign(p manifest.Predicate, by crypto.Signer) ([]byte, *manifest.Manifest, error) {
	m, err := manifest.NewManifest(p)
	if err != nil {
		return nil, nil, err
	}
	var o signedManifest
	if o.Manifest, err = manifest.Sign(m.Payload, by); err != nil {
		return nil, nil, err
	}
	if o.SSH, err = manifest.SignSSH(m.Payload, manifest.NamespaceManifest, by); err != nil {
		return nil, nil, err
	}
	return o.object(), m, nil
}

// object is the canonical JSON of what [sign] made, in which only the lines of the
// SSH signature need an escape. Who reads it holds it to that form.
func (o signedManifest) object() []byte {
	b := make([]byte, 0, len(o.Manifest.Payload)+len(o.SSH)+512)
	b = append(append(b, `{"manifest":{"payload":"`...), o.Manifest.Payload...)
	b = append(append(b, `","payloadType":"`...), o.Manifest.PayloadType...)
	b = append(b, `","signatures":[`...)
	for i, s := range o.Manifest.Signatures {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"keyid":"`...), s.KeyID...)
		b = append(append(append(b, `","sig":"`...), s.Sig...), `"}`...)
	}
	b = append(append(b, `]},"ssh":"`...), strings.ReplaceAll(o.SSH, "\n", `\n`)...)
	return append(b, `"}`...)
}

// readManifest reads the manifest object of a catalogue row and checks that a key
// which the policy knows has signed it.
func (s *Store) readManifest(ctx context.Context, row catalogue.Artifact, policy *manifest.Policy) (signedManifest, *manifest.Manifest, error) {
	var o signedManifest
	if row.EnvelopeSize > maxEnvelope {
		return o, nil, fmt.Errorf("%w: it has %d bytes", errManifest, row.EnvelopeSize)
	}
	r, err := s.objects.Open(ctx, cas.TenantOf(row.Tenant), row.EnvelopeRoot, row.EnvelopeSize)
	if err != nil {
		return o, nil, fmt.Errorf("its manifest: %w", err)
	}
	defer r.Close()
	object := make([]byte, row.EnvelopeSize)
	if _, err := r.ReadAt(object, 0); err != nil && err != io.EOF {
		return o, nil, fmt.Errorf("its manifest: %w", err)
	}
	if err := manifest.DecodeLimit(object, &o, maxEnvelope, manifest.MaxDepth); err != nil {
		return o, nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	// Nothing that a retired key signs gets a row, so that the row is evidence.
	m, facts, err := manifest.VerifyEnvelope(o.Manifest, o.SSH, policy.Given(manifest.Evidence{Logged: row.CreatedAt}), row.CreatedAt)
	if err != nil {
		return o, nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	for _, f := range facts {
		if f.State == manifest.Mismatch || (f.Name == manifest.FactKey && f.State == manifest.Unverifiable) {
			hint := ""
			if strings.HasPrefix(f.Reason, manifest.ErrUnknownKey.Error()) {
				hint = " (are two stores' files mixed up?)"
			}
			return o, nil, fmt.Errorf("%w: its %s is %s under trust.policy%s", errManifest, f.Name, f, hint)
		}
	}
	return o, m, nil
}

// differs names the first field of a catalogue row that is not what the manifest
// says; "" is none. The catalogue leads to manifests; it does not overrule them.
func differs(row catalogue.Artifact, m *manifest.Manifest) string {
	ref := m.Predicate.ArtifactRef
	expires := ""
	if row.ExpiresAt != nil {
		expires = manifest.FormatTime(*row.ExpiresAt)
	}
	switch {
	case m.ArtifactID != row.ArtifactID:
		return "artifact id"
	case m.ManifestID != row.ManifestID:
		return "manifest id"
	case m.Root != row.Root, m.Size != row.Size:
		return "content"
	case ref.Scope.TenantID != row.Tenant:
		return "tenant"
	case !same(ref.Scope.RunID, row.Run):
		return "run"
	case !same(ref.SourceVersion.SourceID, row.SourceID):
		return "source"
	case ref.CreatedAt != manifest.FormatTime(row.CreatedAt):
		return "creation time"
	case !same(ref.ExpiresAt, optional(expires)):
		return "expiry"
	}
	return ""
}

func same(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// recordsOf states what ingest found, in the manifest's words.
func recordsOf(d *Draft) *manifest.Records {
	l, st := d.layout, d.stats
	r := &manifest.Records{
		Format: l.Format, Pointer: l.Pointer,
		Limits: manifest.Limits{Depth: l.Limits.Depth, Digits: l.Limits.Digits, Exponent: l.Limits.Exponent, Record: l.Limits.Record},
		Count:  st.Records,
		Flags: manifest.Flags{
			BlankLines: st.BlankLines, BOM: st.BOM, Depth: st.Depth, DuplicateNames: st.DuplicateNames, Escapes: st.Escapes,
			InvalidUTF8: st.InvalidUTF8, LongestRecord: st.LongestRecord, OverLimit: st.OverLimit, Ragged: st.Ragged,
			Undecidable: st.Undecidable, Unparseable: st.Unparseable,
		},
		Map: &manifest.MapRef{Root: d.mapped.Root.String(), Size: d.mapped.Size},
	}
	for _, span := range st.UndecidableSpans {
		r.Flags.UndecidableSpans = append(r.Flags.UndecidableSpans, [2]int64{span.Start, span.End})
	}
	if l.Format == "csv" {
		r.Dialect = &manifest.Dialect{
			Delimiter: l.Dialect.Delimiter, Quote: l.Dialect.Quote, Header: l.Dialect.Header, Columns: l.Dialect.Columns,
		}
	}
	return r
}
