package leafproof

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
)

// copiedFile says that the catalogue beside it is a copy, which does not know what
// was deleted since it was made. Every backup has one.
const copiedFile = "catalogue.copied"

const copiedText = "This catalogue is a copy. When the store is next opened, it hears the tombstones among the objects.\n"

// hearTombstones ends what a catalogue that was put back from a backup lists, and a
// tombstone among the objects speaks of: a backup revives nothing that was deleted
// where it is put back. It reads all small objects, once: then the file is taken
// away. Until the catalogue has heard, the store does not open.
func (s *Store) hearTombstones(ctx context.Context) error {
	name := filepath.Join(s.dir, copiedFile)
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	c := newChecker(ctx, CheckOptions{}, s.objects, s.catalogue, s.Policy())
	_, said, _, err := c.signedObjects()
	for _, st := range said {
		if err == nil && st.Kind == manifest.PredicateTombstone {
			err = s.hear(ctx, st)
		}
	}
	if err != nil {
		return wireError("", fmt.Errorf("%s: hear the tombstones: %w", name, err))
	}
	if err := os.Remove(name); err != nil && !cannotWrite(err) {
		return err
	}
	return nil // on a disk that cannot be written, it is heard again the next time
}

// hear ends an artifact by a tombstone that stands as an object.
func (s *Store) hear(ctx context.Context, st catalogue.Statement) error {
	opened, err := openStatement(st)
	if err != nil {
		return err
	}
	body, ok := opened.Statement.Body.(*manifest.Tombstone)
	if !ok {
		return nil
	}
	row, err := s.catalogue.Artifact(ctx, st.ArtifactID)
	if errors.Is(err, catalogue.ErrNotFound) {
		return nil // published since the copy was made: it is not listed
	}
	if err != nil || row.DeletedAt != nil || row.ManifestID != body.ManifestID {
		return err
	}
	at, err := manifest.ParseTime(body.EffectiveAt)
	if err != nil {
		return err
	}
	reason := ""
	if body.Reason != nil {
		reason = *body.Reason
	}
	records, indexes := (&artifact{store: s, row: row}).named(ctx)
	return s.catalogue.DeleteBy(ctx, "", reason, at, st, records.Root, records.Size, indexes...)
}
