package leafproof

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leafproof/internal/catalogue"
	"leafproof/internal/gate"
	"leafproof/internal/rootfs"
	"leafproof/manifest"
	"leafproof/merkle"
)

// linkInputs looks at the artifacts that a new one was made from: that they are
// there, that who may derive from them, and that they are what the facts say. What
// the facts leave out is filled in.
func (s *Store) linkInputs(ctx context.Context, who Caller, tenant string, inputs []manifest.Input) error {
	for i := range inputs {
		in := &inputs[i]
		at := fmt.Sprintf("/lineage/inputs/%d", i)
		a, err := s.linked(ctx, who, tenant, in.ArtifactID, gate.Derive)
		if err != nil {
			return named(at, err)
		}
		for _, said := range []struct {
			at   string
			what *string
			is   string
		}{
			{"content_hash", &in.ContentHash, a.m.Predicate.ArtifactRef.ContentHash},
			{"manifest_id", &in.ManifestID, a.m.ManifestID},
		} {
			if *said.what == "" {
				*said.what = said.is
			}
			if *said.what != said.is {
				return fail(CodeRefAltered, FixCall, at+"/"+said.at, "%s/%s: of %s it is %s, not %s",
					at, said.at, in.ArtifactID, said.is, *said.what)
			}
		}
	}
	return nil
}

// linked is an artifact of the tenant that who may take action on. One of another
// tenant is not found: a manifest never tells of those.
func (s *Store) linked(ctx context.Context, who Caller, tenant, id string, action gate.Action) (*artifact, error) {
	a, err := s.find(ctx, who, id, action)
	if err != nil {
		return nil, err
	}
	if _, err := a.permit(ctx); err != nil {
		return nil, err
	}
	if a.row.Tenant != tenant {
		return nil, notFound(id)
	}
	return a, nil
}

// linkSuperseded looks at the artifacts that a new one takes the place of. They may
// have expired, which is a reason to acquire them again.
func (s *Store) linkSuperseded(ctx context.Context, who Caller, tenant string, list []manifest.Supersede) error {
	for i, old := range list {
		at := fmt.Sprintf("/supersedes/%d", i)
		if err := CheckID(old.ArtifactID); err != nil {
			return named(at, err)
		}
		row, err := s.catalogue.Artifact(ctx, old.ArtifactID)
		if errors.Is(err, catalogue.ErrNotFound) {
			return named(at, s.absent(ctx, who, old.ArtifactID, gate.Stat))
		}
		if err != nil {
			return wireError(at, err)
		}
		if _, err := s.artifact(who, row, gate.Stat).permit(ctx); err != nil {
			return named(at, err)
		}
		switch {
		case row.Tenant != tenant:
			return named(at, notFound(old.ArtifactID))
		case row.DeletedAt != nil:
			return named(at, s.available(ctx, row))
		}
	}
	return nil
}

// named says at which place of the facts an artifact was named that an error is
// about.
func named(at string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return wireError(at, err)
	}
	out := *e
	out.At, out.Message = at, at+": "+e.Message
	return &out
}

// tenantKeyFile holds the secret that the keys of tenants derive from.
const tenantKeyFile = "keys/tenants"

// contextTenant derives a tenant's key for the digests of arguments.
const contextTenant = "leafproof 2026 arguments key v1"

// ArgumentsDigest is what a manifest of the tenant says of a tool call's arguments:
// BLAKE3 of their exact bytes under a key of the tenant, in hex. Without the key,
// which never leaves the store, arguments cannot be guessed from it, and those of
// two tenants cannot be compared.
func (s *Store) ArgumentsDigest(tenant string, arguments []byte) (string, error) {
	if tenant == "" {
		tenant = DefaultTenant
	}
	if err := manifest.CheckName(tenant); err != nil {
		return "", wireError("tenant", err)
	}
	secret, err := s.tenantSecret()
	if err != nil {
		return "", wireError("", err)
	}
	key := merkle.DeriveKey(contextTenant, append(secret[:], tenant...))
	digest := merkle.Keyed(key, arguments)
	return hex.EncodeToString(digest[:]), nil
}

// tenantSecret reads the secret, and makes one at its first use.
func (s *Store) tenantSecret() ([32]byte, error) {
	var secret [32]byte
	if s.dir == "" {
		return secret, errors.New("a store without a folder has no keys of tenants")
	}
	path := filepath.Join(s.dir, filepath.FromSlash(tenantKeyFile))
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeTenantSecret(); err != nil && !errors.Is(err, fs.ErrExist) {
			return secret, err
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return secret, err
	}
	if secret, err = parseSecret(text); err != nil {
		return secret, fmt.Errorf("%s: %w", path, err)
	}
	return secret, nil
}

// makeTenantSecret makes the file, unless another process does.
func (s *Store) makeTenantSecret() error {
	fresh, err := randomHex(32)
	if err != nil {
		return err
	}
	root, err := rootfs.Open(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return writeFile(root, tenantKeyFile, []byte(fresh+"\n"))
}

// parseSecret reads the content of a file that holds 32 bytes in hex.
func parseSecret(text []byte) ([32]byte, error) {
	b, err := hex.DecodeString(strings.TrimSuffix(string(text), "\n"))
	if err != nil || len(b) != 32 {
		return [32]byte{}, errors.New("it is not a key of 64 hex digits")
	}
	return [32]byte(b), nil
}
