package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
	"leafproof/selector"
)

// at is when the tests verify; the fixtures were issued an hour before.
var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// memory is room that an io.WriterAt can grow.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(m.b); n > 0 {
		m.b = append(m.b, make([]byte, n)...)
	}
	return copy(m.b[off:], p), nil
}

func signer(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// tree hashes data and returns its tree.
func tree(t testing.TB, data []byte) *merkle.Tree {
	t.Helper()
	nodes := memory{make([]byte, merkle.OutboardSize(int64(len(data))))} // written to by several goroutines
	root, err := merkle.BuildAt(context.Background(), bytes.NewReader(data), int64(len(data)), &nodes)
	if err != nil {
		t.Fatal(err)
	}
	return merkle.NewTree(root, int64(len(data)), bytes.NewReader(nodes.b))
}

// source signs a manifest over data, whose records have the given format; "" is
// none.
func source(t testing.TB, data []byte, format string) bundle.Source {
	t.Helper()
	return sourceOf(t, data, format, func(*manifest.Predicate) {})
}

// sourceOf is source with a change of what is signed.
func sourceOf(t testing.TB, data []byte, format string, change func(*manifest.Predicate)) bundle.Source {
	t.Helper()
	tr := tree(t, data)
	src := bundle.Source{Data: bytes.NewReader(data), Tree: tr}
	var records *manifest.Records
	if format != "" {
		records = mapRecords(t, data, format, &src)
	}
	key, err := manifest.PublicKeyOf(signer("one"))
	if err != nil {
		t.Fatal(err)
	}
	tenant, sourceID := "acme", "infra.events"
	p := manifest.Predicate{
		ArtifactRef: manifest.ArtifactRef{
			ContentHash: "blake3:" + tr.Root().String(), CreatedAt: manifest.FormatTime(at.Add(-time.Hour)),
			SourceVersion: manifest.SourceVersion{SourceID: &sourceID},
			Completeness:  manifest.Completeness{Status: "complete", Coverage: map[string]any{"region": "eu"}},
			Scope:         manifest.Scope{TenantID: tenant},
			Retrieval: manifest.Retrieval{Resolver: manifest.Resolver, Consistency: manifest.Consistency, Selectors: []string{
				manifest.SelectorByteRange, manifest.SelectorRecordRange, manifest.SelectorPointer, manifest.SelectorQuery,
			}},
		},
		Bytes:    manifest.Bytes{Size: tr.Size(), MediaType: "text/plain", Root: tr.Root().String(), Tree: manifest.DefaultTree},
		Records:  records,
		Lineage:  manifest.Lineage{Kind: "capture"},
		Issuer:   manifest.Issuer{KeyID: key.Fingerprint()},
		IssuedAt: manifest.FormatTime(at.Add(-time.Hour)),
		Nonce:    strings.Repeat("07", 16),
	}
	if records != nil {
		p.ArtifactRef.Completeness.Records = &records.Count
	}
	change(&p)
	sign(t, p, &src)
	return src
}

// sign makes the statement of p and its signatures.
func sign(t testing.TB, p manifest.Predicate, src *bundle.Source) {
	t.Helper()
	payload, err := manifest.NewStatement(p)
	if err != nil {
		t.Fatal(err)
	}
	if src.Manifest, err = manifest.ParseManifest(payload); err != nil {
		t.Fatal(err)
	}
	if src.Envelope, err = manifest.Sign(payload, signer("one")); err != nil {
		t.Fatal(err)
	}
	if src.SSH, err = manifest.SignSSH(payload, manifest.NamespaceManifest, signer("one")); err != nil {
		t.Fatal(err)
	}
}

// mapRecords builds the record map of data.
func mapRecords(t testing.TB, data []byte, format string, src *bundle.Source) *manifest.Records {
	t.Helper()
	var mapped memory
	layout, err := selector.NewLayout(format, "", data)
	if err != nil {
		t.Fatal(err)
	}
	info, stats, layout, err := selector.BuildMap(context.Background(), bytes.NewReader(data), src.Tree.Size(), src.Tree.Root(), layout, &mapped)
	if err != nil {
		t.Fatal(err)
	}
	src.Map, src.MapTree = bytes.NewReader(mapped.b[:info.Size]), tree(t, mapped.b[:info.Size])
	return &manifest.Records{
		Format: layout.Format, Count: stats.Records, Limits: manifest.Limits(layout.Limits),
		Flags: manifest.Flags{LongestRecord: stats.LongestRecord, Depth: stats.Depth},
		Map:   &manifest.MapRef{Root: src.MapTree.Root().String(), Size: info.Size},
	}
}

// policy admits the key of that name for everything.
func policy(t testing.TB, name string) *manifest.Policy {
	t.Helper()
	key, err := manifest.PublicKeyOf(signer(name))
	if err != nil {
		t.Fatal(err)
	}
	p, err := manifest.NewPolicy("test", manifest.Key{Name: name, Public: key, Roles: []string{manifest.RoleManifest}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lines makes n lines of text, some of them long, some empty.
func lines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%d %s\n", i, strings.Repeat("x", i*i%97))
		if i%31 == 0 {
			b.WriteString("\n")
		}
		if i%101 == 0 {
			b.WriteString(strings.Repeat("long ", 1000) + "\n")
		}
	}
	return b.Bytes()
}

func write(t testing.TB, b *bundle.Bundle, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := b.WriteTo(&out)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(out.Len()) {
		t.Errorf("WriteTo = %d, wrote %d", n, out.Len())
	}
	return out.Bytes()
}

func verify(file []byte, p *manifest.Policy, out io.Writer) (*bundle.Result, error) {
	return bundle.Verify(bytes.NewReader(file), int64(len(file)), bundle.Options{Policy: p, At: at, Out: out})
}

// reseal makes line 1 fit what follows it.
func reseal(file []byte) []byte {
	i := bytes.IndexByte(file, '\n')
	return append(fmt.Appendf(nil, "leafproof bundle v1 %s\n", merkle.Sum(file[i+1:])), file[i+1:]...)
}
