package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// noQuorum is the quorum that asks for no witness.
const noQuorum = "none"

// Group is a set of witnesses and other groups of which Least must have cosigned
// a checkpoint (C2SP tlog-policy).
type Group struct {
	Name    string // unique among witnesses and groups
	Least   int    // from 1 to the number of members
	Members []string
}

// Groups returns the groups of the policy, in the order of the text.
func (p *Policy) Groups() []Group { return slices.Clone(p.groups) }

// Quorum is the witness or group that must have cosigned a checkpoint before it
// counts; "" when none must.
func (p *Policy) Quorum() string { return p.quorum }

// QuorumMet says when the quorum had cosigned a checkpoint, given when each
// witness did (by its name in the policy). Without a quorum any one witness is
// enough for a time, and none is needed: ok is then true whatever stands in seen.
func (p *Policy) QuorumMet(seen map[string]time.Time) (at time.Time, ok bool) {
	if p.quorum == "" {
		for _, t := range seen {
			at = earliest(at, t)
		}
		return at, true
	}
	// A member is defined before the group it is in, so one pass is enough.
	met := make(map[string]time.Time, len(seen)+len(p.groups))
	for _, w := range p.witnesses {
		if t, cosigned := seen[w.Name]; cosigned {
			met[w.Name] = t
		}
	}
	for _, g := range p.groups {
		var times []time.Time
		for _, m := range g.Members {
			if t, cosigned := met[m]; cosigned {
				times = append(times, t)
			}
		}
		if len(times) >= g.Least {
			slices.SortFunc(times, time.Time.Compare)
			met[g.Name] = times[g.Least-1]
		}
	}
	at, ok = met[p.quorum]
	return at, ok
}

// JudgeLog says whether the key of a log or a witness, which a line of the policy
// has, still counts for a checkpoint that other witnesses saw at a time (zero:
// none did). What a retired or compromised key says of the time itself is no
// evidence: whoever holds it can write any.
func (p *Policy) JudgeLog(k PublicKey, witnessed time.Time) error {
	return p.Given(Evidence{Witnessed: witnessed}).ended(k.Fingerprint())
}

// AddGroup names a group of witnesses.
func AddGroup(g Group) Change { return func(p *Policy) error { return p.addGroup(g) } }

// DemandQuorum makes checkpoints count only when that witness or group cosigned
// them; "none" or "" asks for nobody.
func DemandQuorum(name string) Change {
	return func(p *Policy) error {
		p.quorum = ""
		return p.setQuorum(name)
	}
}

func (p *Policy) addGroup(g Group) error {
	if err := p.newVoice(g.Name); err != nil {
		return err
	}
	if len(p.groups) >= MaxPolicyKeys {
		return fmt.Errorf("%w: more than %d groups", ErrTooLarge, MaxPolicyKeys)
	}
	if g.Least < 1 || g.Least > len(g.Members) {
		return fmt.Errorf("%w: %d of %d members can never be met, or mean nothing", ErrMalformed, g.Least, len(g.Members))
	}
	for i, m := range g.Members {
		switch {
		case !p.voice(m):
			return fmt.Errorf("%w: no line before has a witness or group %s", ErrMalformed, quote(m))
		case slices.Contains(g.Members[:i], m):
			return fmt.Errorf("%w: %s is in the group twice", ErrMalformed, m)
		case p.grouped[m]:
			return fmt.Errorf("%w: %s is in another group already", ErrMalformed, m)
		}
	}
	if p.grouped == nil {
		p.grouped = map[string]bool{}
	}
	for _, m := range g.Members {
		p.grouped[m] = true
	}
	p.groups = append(p.groups, g)
	return nil
}

// newVoice refuses a name that a witness or group cannot have.
func (p *Policy) newVoice(name string) error {
	switch {
	case name == noQuorum:
		return fmt.Errorf("%w: the name %s stands for no witness at all", ErrPolicy, noQuorum)
	case p.voice(name):
		return fmt.Errorf("%w: a second witness or group of the name %s", ErrPolicy, name)
	}
	return CheckName(name)
}

// voice reports whether a witness or group has the name.
func (p *Policy) voice(name string) bool {
	return slices.ContainsFunc(p.witnesses, func(w Witness) bool { return w.Name == name }) ||
		slices.ContainsFunc(p.groups, func(g Group) bool { return g.Name == name })
}

func (p *Policy) setQuorum(name string) error {
	if name == noQuorum || name == "" {
		return nil
	}
	if !p.voice(name) {
		return fmt.Errorf("%w: no line before has a witness or group %s", ErrMalformed, quote(name))
	}
	p.quorum = name
	return nil
}

// group reads group NAME any|all|N MEMBER….
func (p *policyParser) group(w []string) error {
	if len(w) < 4 {
		return fmt.Errorf("%w: want group NAME any|all|N MEMBER…", ErrMalformed)
	}
	g := Group{Name: w[1], Members: w[3:]}
	switch w[2] {
	case "any":
		g.Least = 1
	case "all":
		g.Least = len(g.Members)
	default:
		n, err := number(w[2], int64(len(g.Members)))
		if err != nil {
			return err
		}
		g.Least = int(n)
	}
	return p.p.addGroup(g)
}

// quorum reads quorum NAME and quorum none; there is at most one.
func (p *policyParser) quorum(w []string) error {
	if len(w) != 2 {
		return fmt.Errorf("%w: want quorum NAME, or quorum none", ErrMalformed)
	}
	if p.quorums++; p.quorums > 1 {
		return fmt.Errorf("%w: a second quorum", ErrMalformed)
	}
	return p.p.setQuorum(w[1])
}

func (g Group) String() string {
	s := "group " + g.Name + " " + strconv.Itoa(g.Least)
	for _, m := range g.Members {
		s += " " + m
	}
	return s
}
