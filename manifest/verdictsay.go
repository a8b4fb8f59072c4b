package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// plain says what each fact is about, for a reader who never heard of any of it.
// A signature, its key and its scope are what makes a voucher one: they are
// spoken of only where they fail.
var plain = map[string]string{
	FactBytes:         "the bytes",
	FactLength:        "the length of the whole",
	FactSignature:     "the signature",
	FactKey:           "the signer's right to speak",
	FactScope:         "the owner",
	FactCommit:        "the date of filing",
	FactSelector:      "the place they were taken from",
	FactAnswer:        "how complete the answer is",
	FactIndex:         "the honesty of the index",
	FactCapture:       "how complete the recording is",
	FactSource:        "the source",
	FactTimes:         "the dates of the record",
	FactExpiry:        "the date until which it is offered",
	FactSupersession:  "any replacement",
	FactRecordNumbers: "the numbers of the records",
	FactScan:          "how far the search went",
}

// Sentence is the verdict in one plain sentence, for a reader who knows none of
// the table's words: it says what anybody can check, who vouches for what, what
// is not said, and that nobody's right to the bytes was judged. It begins with
// "Verified: ", "Not verified: " or "Refused: ".
func (v *Verdict) Sentence() string {
	const closing = "whether anybody was allowed to have these bytes cannot be judged offline"
	if bad := v.facts(Mismatch); len(bad) > 0 {
		var parts []string
		for _, f := range bad {
			part := plain[f.Name]
			if f.Reason != "" {
				part += " (" + Printable(f.Reason) + ")"
			}
			parts = append(parts, part)
		}
		return "Refused: do not rely on this, for the evidence contradicts " + list(parts) + "."
	}
	var parts []string
	for _, open := range grouped(v.facts(Unverifiable), func(f Fact) string { return f.Reason }) {
		part := list(phrases(open)) + " cannot be judged"
		if why := open[0].Reason; why != "" {
			part += " (" + Printable(why) + ")"
		}
		parts = append(parts, part)
	}
	parts = append(parts, v.unmet...)
	begin := "Verified: "
	if len(parts) > 0 {
		begin = "Not verified: "
	}
	if proven := v.facts(Proven); len(proven) > 0 {
		record := "the signed record"
		if f, _ := v.Fact(FactSignature); f.State != Attested {
			record = "a record that anybody may have made"
		}
		parts = append(parts, "anybody can check by calculation, against "+record+", "+list(phrases(proven)))
	}
	parts = append(parts, v.vouched()...)
	if silent := v.facts(NotClaimed); len(silent) > 0 {
		parts = append(parts, "nothing is said about "+or(phrases(silent)))
	}
	return begin + strings.Join(append(parts, closing), "; ") + "."
}

// vouched says for whose word the attested facts stand, and which of them are
// over by now.
func (v *Verdict) vouched() []string {
	var parts []string
	attested := v.facts(Attested)
	for _, facts := range grouped(attested, func(f Fact) string { return f.By }) {
		who := Printable(facts[0].By)
		if who == "" {
			who = "somebody"
		}
		if strings.HasPrefix(who, "SHA256:") {
			who = "the holder of the key " + who
		}
		words := slices.DeleteFunc(facts, func(f Fact) bool { return f.Name == FactSignature || f.Name == FactKey })
		if len(words) == 0 {
			parts = append(parts, who+" signed the record, and your policy accepts the signature")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s vouches, with a signature that your policy accepts, for %s", who, list(phrases(words))))
	}
	for _, f := range attested {
		if f.Lapsed && f.Name == FactKey {
			parts = append(parts, "the policy is past its date, so ask for a newer one")
		} else if f.Lapsed && !slices.Contains(v.unmet, Printable(f.Detail)) {
			parts = append(parts, "it is no longer current: "+Printable(f.Detail))
		}
	}
	return parts
}

func (v *Verdict) facts(s State) []Fact {
	var facts []Fact
	for _, f := range v.Facts {
		if f.State == s {
			facts = append(facts, f)
		}
	}
	return facts
}

// grouped divides facts by a key, in the order of the first of each.
func grouped(facts []Fact, key func(Fact) string) [][]Fact {
	var groups [][]Fact
	places := map[string]int{}
	for _, f := range facts {
		i, ok := places[key(f)]
		if !ok {
			i = len(groups)
			places[key(f)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func phrases(facts []Fact) []string {
	out := make([]string, len(facts))
	for i, f := range facts {
		out[i] = plain[f.Name]
		if f.Name == FactCapture && f.State == Attested {
			// A voucher for "unknown" must not read as one for completeness.
			status, _, _ := strings.Cut(f.Detail, ",")
			out[i] += " (" + Printable(status) + ")"
		}
	}
	return out
}

func list(words []string) string { return joined(words, " and ") }

func or(words []string) string { return joined(words, " or ") }

func joined(words []string, last string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + last + words[len(words)-1]
}
