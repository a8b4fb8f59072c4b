package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ParsePolicy reads a trust policy: one statement a line, words divided by single
// or more spaces or tabs, comments from a # that begins a word to the end of the
// line. The first statement is the policy's own. Characters that make a screen show
// another text than this one reads are refused, also in comments: a person decides
// by what he sees. Every error wraps [ErrPolicy] beside its own reason and names
// the line.
func ParsePolicy(text []byte) (*Policy, error) {
	const op = "parse policy"
	if len(text) > MaxPolicy {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: %w: %d bytes, at most %d", ErrPolicy, ErrTooLarge, len(text), MaxPolicy)}
	}
	if !utf8.Valid(text) {
		return nil, &Error{Op: op, Err: fmt.Errorf("%w: not UTF-8 text", ErrPolicy)}
	}
	p := policyParser{p: &Policy{retired: map[string]ending{}, compromised: map[string]ending{}, thresholds: map[string]int{}}}
	for line := range strings.Lines(string(text)) {
		p.line++
		if i := strings.IndexFunc(strings.TrimRight(line, "\r\n"), hides); i >= 0 {
			r, _ := utf8.DecodeRuneInString(line[i:])
			return nil, &Error{op, "line " + strconv.Itoa(p.line), fmt.Errorf("%w: %w: the character %U", ErrPolicy, ErrMalformed, r)}
		}
		if err := p.statement(words(line)); err != nil {
			return nil, &Error{op, "line " + strconv.Itoa(p.line), fmt.Errorf("%w: %w", ErrPolicy, err)}
		}
	}
	if err := p.finish(); err != nil {
		return nil, &Error{op, "line " + strconv.Itoa(max(1, p.line)), fmt.Errorf("%w: %w", ErrPolicy, err)}
	}
	return p.p, nil
}

// hides reports whether a character of a policy can act on a screen: by moving about
// on it, ending the line there alone, or turning the direction of the text.
func hides(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// words splits a line and drops its comment.
func words(line string) []string {
	w := strings.FieldsFunc(strings.TrimRight(line, "\r\n"), func(r rune) bool { return r == ' ' || r == '\t' })
	if i := slices.IndexFunc(w, func(s string) bool { return s[0] == '#' }); i >= 0 {
		w = w[:i]
	}
	return w
}

type policyParser struct {
	p          *Policy
	line       int
	thresholds map[string]int // role → line
	quorums    int
}

func (p *policyParser) statement(w []string) error {
	if len(w) == 0 {
		return nil
	}
	if p.p.version == 0 && w[0] != "policy" {
		return fmt.Errorf("%w: the first statement is %s, not policy NAME version N", ErrMalformed, quote(w[0]))
	}
	switch w[0] {
	case "policy":
		return p.header(w)
	case "key":
		return p.key(w)
	case "retired":
		return p.ending(w, "at", p.p.retired)
	case "compromised":
		return p.ending(w, "since", p.p.compromised)
	case "threshold":
		return p.threshold(w)
	case "log":
		return p.log(w)
	case "witness":
		return p.witness(w)
	case "group":
		return p.group(w)
	case "quorum":
		return p.quorum(w)
	}
	return fmt.Errorf("%w: no statement begins with %s", ErrMalformed, quote(w[0]))
}

// header reads policy NAME version N [expires T].
func (p *policyParser) header(w []string) error {
	if p.p.version != 0 {
		return fmt.Errorf("%w: a second policy statement", ErrMalformed)
	}
	if len(w) != 4 && len(w) != 6 || w[2] != "version" || len(w) == 6 && w[4] != "expires" {
		return fmt.Errorf("%w: want policy NAME version N, or policy NAME version N expires TIME", ErrMalformed)
	}
	if err := CheckName(w[1]); err != nil {
		return err
	}
	n, err := number(w[3], maxInteger)
	if err != nil {
		return err
	}
	if len(w) == 6 {
		if p.p.expires, err = boundary(w[5]); err != nil {
			return err
		}
	}
	p.p.name, p.p.version = w[1], n
	return nil
}

// number reads an integer from 1 in its one spelling.
func number(s string, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > most || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%w: %s is not a number from 1 to %d", ErrMalformed, quote(s), most)
	}
	return n, nil
}

// boundary reads a time from or until which something holds. The zero [time.Time]
// means "no bound" in a [Policy], so the instant that it stands for is refused
// rather than read as its opposite.
func boundary(s string) (time.Time, error) {
	t, err := ParseTime(s)
	if err == nil && t.IsZero() {
		return t, fmt.Errorf("%w: %s cannot be a bound; a time after it can", ErrTime, s)
	}
	return t, err
}

// options reads NAME=VALUE words, each name once.
func options(w []string, known ...string) (map[string]string, error) {
	opts := make(map[string]string, len(w))
	for _, word := range w {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok || value == "":
			return nil, fmt.Errorf("%w: %s is not NAME=VALUE", ErrMalformed, quote(word))
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%w: %s is not one of %s", ErrMalformed, quote(name+"="), strings.Join(known, "=, ")+"=")
		case opts[name] != "":
			return nil, fmt.Errorf("%w: %s= stands twice", ErrMalformed, name)
		}
		opts[name] = value
	}
	return opts, nil
}

// key reads key ssh-ed25519 BASE64 name=… roles=… tenants=… [sources=…] [not-before=…] [not-after=…].
func (p *policyParser) key(w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("%w: want key %s BASE64 name=NAME roles=ROLES tenants=PATTERNS", ErrMalformed, sshEd25519)
	}
	if w[1] != sshEd25519 {
		return fmt.Errorf("%w: the key type %s is unknown; only %s is", ErrKey, quote(w[1]), sshEd25519)
	}
	pub, err := parseSSHBlob64(w[2])
	if err != nil {
		return err
	}
	opts, err := options(w[3:], "name", "roles", "tenants", "sources", "not-before", "not-after")
	if err != nil {
		return err
	}
	k := Key{Name: opts["name"], Public: pub, Roles: commas(opts["roles"]), Tenants: commas(opts["tenants"]), Sources: commas(opts["sources"])}
	if k.Sources == nil {
		k.Sources = []string{"*"}
	}
	for name, t := range map[string]*time.Time{"not-before": &k.NotBefore, "not-after": &k.NotAfter} {
		if s, ok := opts[name]; ok {
			if *t, err = boundary(s); err != nil {
				return err
			}
		}
	}
	return p.p.add(k)
}

// log reads log VKEY, as a C2SP tlog-policy has it.
func (p *policyParser) log(w []string) error {
	if len(w) != 2 {
		return fmt.Errorf("%w: want log ORIGIN+HASH+BASE64", ErrMalformed)
	}
	v, err := ParseVerifierKey(w[1])
	if err != nil {
		return err
	}
	return p.p.addLog(v)
}

// witness reads witness NAME VKEY.
func (p *policyParser) witness(w []string) error {
	if len(w) != 3 {
		return fmt.Errorf("%w: want witness NAME NAME+HASH+BASE64", ErrMalformed)
	}
	v, err := ParseVerifierKey(w[2])
	if err != nil {
		return err
	}
	return p.p.addWitness(Witness{w[1], v})
}

func commas(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// ending reads retired FINGERPRINT at=TIME and compromised FINGERPRINT since=TIME.
func (p *policyParser) ending(w []string, option string, to map[string]ending) error {
	if len(w) != 3 {
		return fmt.Errorf("%w: want %s FINGERPRINT %s=TIME", ErrMalformed, w[0], option)
	}
	if !isFingerprint(w[1]) {
		return fmt.Errorf("%w: %s is not a SHA256: fingerprint", ErrMalformed, quote(w[1]))
	}
	if _, ok := to[w[1]]; ok {
		return fmt.Errorf("%w: %s stands twice for this key", ErrMalformed, w[0])
	}
	opts, err := options(w[2:], option)
	if err != nil {
		return err
	}
	t, err := boundary(opts[option])
	if err != nil {
		return err
	}
	to[w[1]] = ending{t, p.line}
	return nil
}

// threshold reads threshold ROLE N.
func (p *policyParser) threshold(w []string) error {
	if len(w) != 3 {
		return fmt.Errorf("%w: want threshold ROLE N", ErrMalformed)
	}
	if !slices.Contains(roles, w[1]) {
		return fmt.Errorf("%w: %s is not a role; there are %s", ErrMalformed, quote(w[1]), strings.Join(roles, ", "))
	}
	if _, ok := p.p.thresholds[w[1]]; ok {
		return fmt.Errorf("%w: a second threshold for %s", ErrMalformed, w[1])
	}
	n, err := number(w[2], MaxSignatures)
	if err != nil {
		return err
	}
	p.p.thresholds[w[1]] = int(n)
	if p.thresholds == nil {
		p.thresholds = map[string]int{}
	}
	p.thresholds[w[1]] = p.line
	return nil
}

// finish checks what needs the whole text, and blames the line it concerns.
func (p *policyParser) finish() error {
	if p.p.version == 0 {
		return fmt.Errorf("%w: no policy NAME version N", ErrMalformed)
	}
	for _, ends := range []map[string]ending{p.p.retired, p.p.compromised} {
		for fp, e := range ends {
			if !p.p.names(fp) {
				p.line = e.line
				return fmt.Errorf("%w: no key line has the fingerprint %s", ErrMalformed, fp)
			}
		}
	}
	for _, role := range roles {
		able := 0
		for _, k := range p.p.keys {
			if slices.Contains(k.Roles, role) {
				able++
			}
		}
		if n := p.p.thresholds[role]; n > able {
			p.line = p.thresholds[role]
			return fmt.Errorf("%w: threshold %s %d can never be met; keys with this role: %d", ErrMalformed, role, n, able)
		}
	}
	return nil
}
