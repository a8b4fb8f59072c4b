// Package manifest says who captured which bytes, how completely and from
// which version of a source, and lets a stranger check that somebody whom a
// trust policy admits has signed it.
//
// A [Manifest] is an in-toto statement in canonical JSON ([Canonical]). Its
// bytes are signed twice with the same Ed25519 key: in a DSSE [Envelope], which
// is the normative one, and as an SSH signature ([SignSSH]), which
// `ssh-keygen -Y verify` checks on any machine. Signed bytes are stored and
// verified as they are and parsed afterwards; nothing is ever encoded again in
// order to verify it.
//
// # What a verified manifest says, and what it does not
//
// It says that the holder of a key which the reader's [Policy] admits, in that
// role and for that tenant and source, stated these facts. Capture status,
// source version and times are therefore attested, never proven: a producer can
// lie about its source, and the lie is signed. It does not say that a
// particular file is the artifact (merkle proves that against [Manifest].Root),
// that an excerpt's records stand where they claim (selector), when the
// statement was made (the package tlog below this one), or whether a reader may see
// anything (the Authority of the root package).
//
// Everything that enters here is untrusted: [ParseEnvelope], [ParseManifest],
// [ParseSSH], [ParsePolicy] and [ParsePublicKey] bound their input before they
// allocate, and accept one spelling of each value.
package manifest

import (
	"errors"
	"fmt"
)

// The errors that callers tell apart, with [errors.Is].
var (
	// ErrNotCanonical: the JSON is not in the canonical subset; see [SyntaxError].
	ErrNotCanonical = errors.New("not canonical JSON")
	// ErrMalformed: canonical JSON, or another text form, that does not say what
	// its format demands.
	ErrMalformed = errors.New("malformed")
	// ErrUnsupported: a well-formed thing of a later version of the format.
	ErrUnsupported = errors.New("not supported yet")
	// ErrTooLarge: the input exceeds the limit of its format.
	ErrTooLarge = errors.New("too large")
	// ErrName: the text is not a name: [A-Za-z0-9][A-Za-z0-9._:-]{0,127}.
	ErrName = errors.New("not a name")
	// ErrTime: the text is not a time in its one spelling; see [ParseTime].
	ErrTime = errors.New("not a time")
	// ErrID: an artifact_id does not follow from the statement that carries it.
	ErrID = errors.New("id does not match its statement")
	// ErrDigest: the digests of a statement contradict each other.
	ErrDigest = errors.New("digests contradict each other")
	// ErrRefAltered: a presented ArtifactRef is not the one that was signed.
	ErrRefAltered = errors.New("reference was altered")
	// ErrKey: not an Ed25519 key that may be used; small-order points and
	// non-canonical encodings are refused.
	ErrKey = errors.New("not a usable Ed25519 public key")
	// ErrSignature: a signature does not verify.
	ErrSignature = errors.New("signature does not verify")
	// ErrPolicy: a trust policy that does not parse.
	ErrPolicy = errors.New("bad trust policy")

	// The reasons of [Policy.Judge].

	// ErrUnknownKey: no line of the policy has this key.
	ErrUnknownKey = errors.New("unknown key")
	// ErrRole: the key may not speak in this role.
	ErrRole = errors.New("key has not this role")
	// ErrScope: the key may not speak for this tenant or source.
	ErrScope = errors.New("key may not speak for this scope")
	// ErrTimeWindow: the key is not yet, or no longer, valid.
	ErrTimeWindow = errors.New("outside the key's time window")
	// ErrRetired: the key was retired, and nothing shows the statement is older.
	ErrRetired = errors.New("retired key, no time evidence")
	// ErrCompromised: the key was stolen, and nothing shows the statement is older.
	ErrCompromised = errors.New("compromised key, no time evidence")
	// ErrKeyEnded: the statement is younger than the end of its key.
	ErrKeyEnded = errors.New("the key had ended")
	// ErrPolicyExpired: the policy itself is past its date.
	ErrPolicyExpired = errors.New("policy expired")
	// ErrUnsigned: a version of a policy is not signed as the one before it asks.
	ErrUnsigned = errors.New("not signed as the version before it asks")
	// ErrThreshold: fewer distinct keys signed than the policy asks for.
	ErrThreshold = errors.New("too few signatures")
)

// Error says what failed and where. Match the reason with [errors.Is]; take the
// place with [errors.AsType].
type Error struct {
	Op  string // the operation, as in "parse manifest"
	At  string // a JSON Pointer, "line 3", or empty: where in the input
	Err error  // the reason, never nil
}

// Error gives one line: the operation, the place where there is one, the reason.
func (e *Error) Error() string {
	if e.At == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, e.At, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }
