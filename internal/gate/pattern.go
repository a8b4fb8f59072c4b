package gate

import (
	"errors"
	"fmt"
	"strings"
)

// Pattern says which artifacts a grant or a restriction is about. Each part is a
// name, the beginning of names with a * behind it, or * for all. A run of * takes in
// artifacts of no run.
type Pattern struct{ Tenant, Run, Artifact string }

// ErrPattern is a text that is no pattern.
var ErrPattern = errors.New("not a pattern")

// maxPart is the longest part of a pattern, in bytes.
const maxPart = 256

// ParsePattern reads tenant[/run[/artifact]]. What is left out is *.
func ParsePattern(s string) (Pattern, error) {
	parts := strings.Split(s, "/")
	if len(parts) > 3 {
		return Pattern{}, fmt.Errorf("%w: %.100q has more than the three parts tenant/run/artifact", ErrPattern, s)
	}
	all := [3]string{"*", "*", "*"}
	copy(all[:], parts)
	for i, what := range []string{"tenant", "run", "artifact"} {
		if err := checkPart(all[i]); err != nil {
			return Pattern{}, fmt.Errorf("%w: the %s of %.100q %w", ErrPattern, what, s, err)
		}
	}
	return Pattern{all[0], all[1], all[2]}, nil
}

// checkPart demands the characters of names, and a * as the last alone.
func checkPart(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; * stands for all")
	case len(s) > maxPart:
		return fmt.Errorf("has over %d bytes", maxPart)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && strings.IndexByte("._:-", c) >= 0: // no name begins with one
		case c == '*' && i == len(s)-1:
		case c == '*':
			return errors.New("has a * that is not its last character")
		default:
			return fmt.Errorf("has a character outside A-Z a-z 0-9 . _ : - * at byte %d, or begins with one that no name begins with", i)
		}
	}
	return nil
}

func (p Pattern) String() string {
	switch {
	case p.Artifact != "*":
		return p.Tenant + "/" + p.Run + "/" + p.Artifact
	case p.Run != "*":
		return p.Tenant + "/" + p.Run
	}
	return p.Tenant
}

// Matches reports whether an artifact is one of those that the pattern is about.
func (p Pattern) Matches(tenant, run, artifact string) bool {
	return matches(p.Tenant, tenant) && matches(p.Run, run) && matches(p.Artifact, artifact)
}

func matches(part, name string) bool {
	if begin, open := strings.CutSuffix(part, "*"); open {
		return strings.HasPrefix(name, begin)
	}
	return part == name
}

// Covers reports whether all that q is about is among what p is about.
func (p Pattern) Covers(q Pattern) bool {
	return covers(p.Tenant, q.Tenant) && covers(p.Run, q.Run) && covers(p.Artifact, q.Artifact)
}

func covers(p, q string) bool {
	begin, open := strings.CutSuffix(p, "*")
	if !open {
		return p == q
	}
	return strings.HasPrefix(strings.TrimSuffix(q, "*"), begin)
}
