package manifest

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// State is what a verification can say about one fact.
type State string

// The states, from best to worst as far as they can be ordered.
const (
	Proven       State = "proven"       // follows from the bytes and a root
	Attested     State = "attested"     // somebody whom the policy admits said so
	NotClaimed   State = "not-claimed"  // nobody said anything about it
	Unverifiable State = "unverifiable" // said, but nothing at hand lets us judge it
	Mismatch     State = "MISMATCH"     // contradicted
)

// The facts of a verdict.
const (
	FactBytes         = "bytes"
	FactLength        = "length"
	FactSignature     = "signature"
	FactKey           = "key"
	FactScope         = "scope"
	FactCommit        = "commit"
	FactSelector      = "selector"
	FactAnswer        = "answer"
	FactIndex         = "index"
	FactCapture       = "capture"
	FactSource        = "source"
	FactTimes         = "times"
	FactExpiry        = "expiry"
	FactSupersession  = "supersession"
	FactRecordNumbers = "record_numbers"
	FactScan          = "scan"
)

var factNames = []string{
	FactBytes, FactLength, FactSignature, FactKey, FactScope, FactCommit, FactSelector, FactAnswer, FactIndex,
	FactCapture, FactSource, FactTimes, FactExpiry, FactSupersession, FactRecordNumbers, FactScan,
}

// FactNames returns the names of all facts in the order of every verdict.
func FactNames() []string { return slices.Clone(factNames) }

// AuthorityLine is what every verdict says about authority.
const AuthorityLine = "not assessable offline"

// Fact is one line of a verdict.
type Fact struct {
	Name   string `json:"name"` // one of [FactNames]
	State  State  `json:"state"`
	By     string `json:"by,omitempty"`     // attested: the key's name, or its fingerprint
	Role   string `json:"role,omitempty"`   // attested: the role it spoke in
	Reason string `json:"reason,omitempty"` // why not better; may stand beside any state but proven and attested
	Detail string `json:"detail,omitempty"` // what is known, as in "tenant acme, source infra.events"
	// Lapsed: well attested but no longer current, because the artifact expired
	// or was superseded: see [Verdict.RequireCurrent]. Of the key: the policy that
	// admits it is past its date, and there may be a newer one.
	Lapsed bool `json:"lapsed,omitzero"`
}

// String gives the state with its reason or voucher: "attested(ingest-eu, manifest)",
// "unverifiable(no policy)", "proven". What comes from a statement is [Printable].
func (f Fact) String() string {
	switch {
	case f.State == Attested && f.By != "":
		return fmt.Sprintf("%s(%s, %s)", f.State, Printable(f.By), Printable(f.Role))
	case f.Reason != "":
		return fmt.Sprintf("%s(%s)", f.State, Printable(f.Reason))
	}
	return string(f.State)
}

// Verdict is the outcome of a verification: one fact for each of [FactNames], in
// that order. Whoever was allowed to read the bytes is not among them. The zero
// Verdict claims nothing and must be made with [NewVerdict] before use.
type Verdict struct {
	Facts []Fact
	unmet []string // requirements that the facts do not meet
}

// NewVerdict returns a verdict in which nothing is claimed.
func NewVerdict() *Verdict {
	v := &Verdict{Facts: make([]Fact, len(factNames))}
	for i, name := range factNames {
		v.Facts[i] = Fact{Name: name, State: NotClaimed}
	}
	return v
}

// Set puts facts in their places. A fact that stands as MISMATCH stays one: a
// later check cannot take back what an earlier one contradicted. Set panics on
// a name that is not in [FactNames], which is a slip of the caller.
func (v *Verdict) Set(facts ...Fact) {
	for _, f := range facts {
		i := slices.Index(factNames, f.Name)
		if i < 0 {
			panic("manifest: no fact is called " + strconv.Quote(f.Name))
		}
		if v.Facts[i].State != Mismatch {
			v.Facts[i] = f
		}
	}
}

// Fact returns the fact of that name and whether there is one.
func (v *Verdict) Fact(name string) (Fact, bool) {
	i := slices.Index(factNames, name)
	if i < 0 {
		return Fact{}, false
	}
	return v.Facts[i], true
}

// RequireProven makes less than proven for the fact an exit of 2. It fails for a
// name that no fact has.
func (v *Verdict) RequireProven(name string) error {
	f, ok := v.Fact(name)
	if !ok {
		return fmt.Errorf("no fact is called %s; there are %s", quote(name), strings.Join(factNames, ", "))
	}
	if f.State != Proven {
		v.unmet = append(v.unmet, fmt.Sprintf("%s is %s, not proven", name, f.State))
	}
	return nil
}

// RequireCurrent makes an artifact that expired or was superseded an exit of 2.
// Call it after the facts are set.
func (v *Verdict) RequireCurrent() {
	for _, name := range []string{FactExpiry, FactSupersession} {
		if f, _ := v.Fact(name); f.Lapsed {
			v.unmet = append(v.unmet, Printable(f.Detail))
		}
	}
}

// Exit is the exit status of a program that prints the verdict: 3 when anything
// is a MISMATCH, else 2 when anything is unverifiable or a requirement is not
// met, else 0.
func (v *Verdict) Exit() int {
	switch {
	case len(v.facts(Mismatch)) > 0:
		return 3
	case len(v.facts(Unverifiable)) > 0 || len(v.unmet) > 0:
		return 2
	}
	return 0
}

// WriteTable writes the facts as aligned text, the line about authority and the
// closing sentence. What a statement says is [Printable], so that it cannot
// paint the reader's terminal.
func (v *Verdict) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	nameWidth, stateWidth := len("authority"), 0
	for _, f := range v.Facts {
		nameWidth = max(nameWidth, len(f.Name))
		stateWidth = max(stateWidth, utf8.RuneCountInString(f.String()))
	}
	for _, f := range v.Facts {
		state := f.String()
		fmt.Fprintf(&b, "%-*s  %s", nameWidth, f.Name, state)
		if f.Detail != "" {
			fmt.Fprintf(&b, "%*s  %s", stateWidth-utf8.RuneCountInString(state), "", Printable(f.Detail))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%-*s  %s\n%s\n", nameWidth, "authority", AuthorityLine, v.Sentence())
	_, err := w.Write(b.Bytes())
	return err
}

// maxField is the longest text of a fact in JSON, in characters.
const maxField = 2000

// MarshalJSON writes the verdict as one JSON object with the members facts (in
// their order), authority, exit and sentence; exit and sentence take the
// requirements into account. By, role, reason and detail are what the fact holds,
// of more than 2000 characters the first and "… and N more". Characters that
// [Printable] would escape as not printable stand as \uXXXX in the text.
//
// The encoder of go-json-experiment/json writes those characters out again unless
// it has the option jsontext.PreserveRawStrings.
func (v Verdict) MarshalJSON() ([]byte, error) {
	facts := slices.Clone(v.Facts)
	for i := range facts {
		for _, field := range []*string{&facts[i].By, &facts[i].Role, &facts[i].Reason, &facts[i].Detail} {
			*field = cut(*field, maxField)
		}
	}
	b, err := json.Marshal(struct {
		Facts     []Fact `json:"facts"`
		Authority string `json:"authority"`
		Exit      int    `json:"exit"`
		Sentence  string `json:"sentence"`
	}{facts, AuthorityLine, v.Exit(), v.Sentence()}, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, &Error{Op: "encode verdict", Err: err}
	}
	return EscapeJSON(b), nil
}

// EscapeJSON writes the characters of a JSON text that [Printable] would escape as
// not printable as \uXXXX. The text must have no white space outside its strings:
// then such a character can only stand in one, and the value stays the same.
func EscapeJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, r := range string(b) {
		switch {
		case shows(r):
			out = utf8.AppendRune(out, r)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}
