package bundle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"leafproof/manifest"
)

// laterFact judges statements that the reader brought: that something superseded
// the artifact, or ended it. Nothing is read from the bundle. Without any, what is
// known stands as it is.
//
// The fact is attested, and lapsed where a statement is in force as of o.At; it is
// unverifiable where one of them has nobody to vouch for it or is about another
// artifact, and a MISMATCH where a signature is wrong. A tombstone has the last
// word among those in force; the detail names whoever said another part of it.
func laterFact(m *manifest.Manifest, o Options) (manifest.Fact, error) {
	fact := manifest.Fact{Name: manifest.FactSupersession}
	var said []manifest.Fact
	for i, env := range o.Later {
		one, err := laterOne(m, env, o)
		if err != nil {
			return fact, fmt.Errorf("later statement %d: %w", i+1, err)
		}
		if one.State != manifest.Attested {
			one.Name = fact.Name
			return one, nil
		}
		said = append(said, one)
		if i == 0 || one.Lapsed && (!fact.Lapsed || one.Role == manifest.RoleTombstone) {
			fact.State, fact.By, fact.Role, fact.Lapsed = one.State, one.By, one.Role, one.Lapsed
		}
	}
	details := make([]string, len(said))
	for i, one := range said {
		if details[i] = one.Detail; one.By != fact.By || one.Role != fact.Role {
			details[i] = fmt.Sprintf("%s (%s) says: %s", one.By, one.Role, one.Detail)
		}
	}
	fact.Detail = strings.Join(details, "; ")
	return fact, nil
}

// laterOne judges one of them.
func laterOne(m *manifest.Manifest, env manifest.Envelope, o Options) (manifest.Fact, error) {
	var fact manifest.Fact
	payload, err := env.PayloadBytes()
	if err != nil {
		return fact, fmt.Errorf("%w: %w", ErrLater, err)
	}
	kind, err := manifest.StatementKind(payload)
	if err != nil {
		return fact, fmt.Errorf("%w: %w", ErrLater, err)
	}
	if kind != manifest.PredicateSupersede && kind != manifest.PredicateTombstone {
		return fact, fmt.Errorf("%w: %s says neither that an artifact was superseded nor that it ended", ErrLater, manifest.Printable(kind))
	}
	doc, err := manifest.ParseStatement(payload, kind)
	if err != nil {
		return fact, fmt.Errorf("%w: %w", ErrLater, err)
	}
	if err := doc.Body.About().Fits(m); err != nil {
		fact.State, fact.Reason = manifest.Unverifiable, "the later statement is about "+doc.Body.About().ArtifactID
		return fact, nil
	}
	_, keys, err := manifest.VerifyStatement(env, kind, o.Policy, o.At)
	switch {
	case errors.Is(err, manifest.ErrSignature):
		fact.State, fact.Reason = manifest.Mismatch, "the later statement: "+reason(err)
		return fact, nil
	case err != nil:
		fact.State, fact.Reason = manifest.Unverifiable, "the later statement: "+reason(err)
		return fact, nil
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	fact.State, fact.By, fact.Role = manifest.Attested, strings.Join(names, "+"), doc.Kind.Role
	switch b := doc.Body.(type) {
	case *manifest.Superseded:
		fact.Detail = fmt.Sprintf("superseded by %s (%s) since %s", b.By.ArtifactID, b.Kind, b.IssuedAt)
		fact.Lapsed = begun(b.IssuedAt, o.At)
	case *manifest.Tombstone:
		fact.Detail = "ended by its store at " + b.EffectiveAt
		if b.Reason != nil {
			fact.Detail += ", reason " + strconv.Quote(*b.Reason) // free text: it must not pass for more of ours
		}
		fact.Lapsed = begun(b.EffectiveAt, o.At)
	}
	return fact, nil
}

// begun reports whether a time has come as of at.
func begun(t string, at time.Time) bool {
	from, err := manifest.ParseTime(t)
	return err != nil || !at.Before(from)
}

// reason is an error's text without the operation before it.
func reason(err error) string {
	if e, ok := errors.AsType[*manifest.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
