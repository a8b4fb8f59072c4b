package leafproof

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
	"leafproof/merkle"
)

// What a store remembers of manifests: at most so many, and none with a longer
// payload. With its base64 that is up to 10 MiB, and about 3 MiB of usual ones.
const (
	cachedManifests  = 512
	cachedPayloadMax = 8 << 10
)

// manifestCache remembers manifests whose signatures were verified. It holds data
// and no decision: whether the artifact is there, and whether a caller may have it,
// is asked each time.
type manifestCache struct {
	once sync.Once
	lru  *lru.Cache[manifestKey, cachedManifest]
}

// manifestKey is all that the outcome of a verification depends on: the object, by
// which row it is reached, and the policy in force. Another version of the policy
// is another pointer, so that nothing which an older one let stand is found.
type manifestKey struct {
	tenant     string
	manifestID string
	object     merkle.Root
	created    time.Time
	policy     *manifest.Policy
}

// cachedManifest is lent to nobody outside: each reader gets a copy of m.
type cachedManifest struct {
	signed signedManifest
	m      *manifest.Manifest
}

func (c *manifestCache) open() *lru.Cache[manifestKey, cachedManifest] {
	c.once.Do(func() {
		c.lru, _ = lru.New[manifestKey, cachedManifest](cachedManifests) // it fails for sizes below 1
	})
	return c.lru
}

// load returns the manifest of a catalogue row: the one that the row names, which
// a key that the store's policy knows has signed.
func (s *Store) load(ctx context.Context, row catalogue.Artifact) (signedManifest, *manifest.Manifest, error) {
	policy, err := s.ruling()
	if err != nil {
		return signedManifest{}, nil, err
	}
	key := manifestKey{row.Tenant, row.ManifestID, row.EnvelopeRoot, row.CreatedAt, policy}
	cache := s.manifests.open()
	if c, ok := cache.Get(key); ok {
		m, err := c.m.Clone()
		if err != nil {
			return signedManifest{}, nil, err
		}
		return c.signed, m, matches(row, m)
	}
	o, m, err := s.readManifest(ctx, row, policy)
	if err != nil {
		return o, nil, err
	}
	if err := matches(row, m); err != nil {
		return o, nil, err
	}
	if len(m.Payload) <= cachedPayloadMax {
		kept, err := m.Clone()
		if err != nil {
			return o, nil, err
		}
		cache.Add(key, cachedManifest{o, kept})
	}
	return o, m, nil
}

// loadShared is load for who only looks: the manifest may be one that others look at.
func (s *Store) loadShared(ctx context.Context, row catalogue.Artifact) (*manifest.Manifest, error) {
	policy, err := s.ruling()
	if err != nil {
		return nil, err
	}
	key := manifestKey{row.Tenant, row.ManifestID, row.EnvelopeRoot, row.CreatedAt, policy}
	if c, ok := s.manifests.open().Get(key); ok {
		return c.m, matches(row, c.m)
	}
	_, m, err := s.load(ctx, row)
	return m, err
}

// matches refuses a catalogue row that says something else than its manifest.
func matches(row catalogue.Artifact, m *manifest.Manifest) error {
	if what := differs(row, m); what != "" {
		return fmt.Errorf("%w: the catalogue and the manifest %s (%s) differ in the %s", errManifest, m.ArtifactID, m.ManifestID, what)
	}
	return nil
}
