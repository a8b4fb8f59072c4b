package selector

import (
	"bytes"
	"slices"
)

// keySet is a set of determined typed keys: ranges that ascend, are not empty
// and do not touch. A set has one spelling.
type keySet []KeyRange

func everyKey() keySet { return keySet{Determined()} }

// keySets are two bounds for the keys of records outside the tail that a
// condition holds for.
type keySets struct {
	may  keySet // a record that matches or is undecidable has a key here
	must keySet // a record with a key here matches
}

// unknown is all that is known of a condition that does not ask for the path.
func unknown() keySets { return keySets{may: everyKey()} }

// exactly is a condition that matches the records of the keys alone.
func exactly(s keySet) keySets { return keySets{may: s, must: s} }

// keyRange is the set of one range; none where that is empty.
func keyRange(from, to []byte) keySet {
	if bytes.Compare(from, to) >= 0 {
		return nil
	}
	return keySet{{From: from, To: to}}
}

// oneKey is the set of one key: no key is the beginning of another.
func oneKey(key []byte) keySet { return keySet{{From: key, To: behind(key)}} }

// behind is the first byte string behind a key.
func behind(key []byte) []byte { return append(bytes.Clone(key), 0) }

// classes is the set of the keys with a first byte from a to in front of b.
func classes(a, b byte) keySet { return keySet{{From: []byte{a}, To: []byte{b}}} }

func (s keySet) equal(o keySet) bool {
	return slices.EqualFunc(s, o, func(a, b KeyRange) bool { return bytes.Equal(a.From, b.From) && bytes.Equal(a.To, b.To) })
}

func (s keySet) has(key []byte) bool {
	i, found := slices.BinarySearchFunc(s, key, func(r KeyRange, key []byte) int { return bytes.Compare(r.From, key) })
	if found {
		return true
	}
	return i > 0 && bytes.Compare(key, s[i-1].To) < 0
}

// canonical reports whether ranges are a set as they stand.
func (s keySet) canonical() bool {
	at := []byte{KeyMissing}
	for i, r := range s {
		if c := bytes.Compare(at, r.From); c > 0 || c == 0 && i > 0 || bytes.Compare(r.From, r.To) >= 0 {
			return false
		}
		at = r.To
	}
	return len(s) == 0 || bytes.Compare(at, []byte{KeyRedacted}) <= 0
}

// within reports whether all keys of s are in o.
func (s keySet) within(o keySet) bool {
	for _, r := range s {
		i, found := slices.BinarySearchFunc(o, r.From, func(x KeyRange, key []byte) int { return bytes.Compare(x.From, key) })
		if !found {
			i--
		}
		if i < 0 || bytes.Compare(r.To, o[i].To) > 0 {
			return false
		}
	}
	return true
}

// not is the set of the other determined keys.
func (s keySet) not() keySet {
	all := Determined()
	var out keySet
	for _, r := range s {
		out = append(out, keyRange(all.From, r.From)...)
		all.From = r.To
	}
	return append(out, keyRange(all.From, all.To)...)
}

// anyOf is the set of the keys of any of the sets.
func anyOf(sets ...keySet) keySet {
	if len(sets) == 1 {
		return sets[0]
	}
	var all keySet
	for _, s := range sets {
		all = append(all, s...)
	}
	slices.SortFunc(all, func(a, b KeyRange) int { return bytes.Compare(a.From, b.From) })
	var out keySet
	for _, r := range all {
		if n := len(out); n > 0 && bytes.Compare(r.From, out[n-1].To) <= 0 {
			if bytes.Compare(r.To, out[n-1].To) > 0 {
				out[n-1].To = r.To
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// allOf is the set of the keys of all of the sets.
func allOf(sets ...keySet) keySet {
	others := make([]keySet, len(sets))
	for i, s := range sets {
		others[i] = s.not()
	}
	return anyOf(others...).not()
}

// breadth orders sets by how much they are likely to hold, where only one of
// several can be had: first single keys, then ranges within a class, then whole
// classes; what is left is decided by their bytes.
func breadth(a, b keySet) int {
	rank := func(s keySet) (n int) {
		for _, r := range s {
			switch {
			case bytes.Equal(r.To, behind(r.From)):
				n++
			case len(r.From) > 1 || len(r.To) > 1:
				n += 1 << 10
			default:
				n += 1 << 20
			}
		}
		return n
	}
	if c := compareInt(int64(rank(a)), int64(rank(b))); c != 0 {
		return c
	}
	return slices.CompareFunc(a, b, func(x, y KeyRange) int {
		if c := bytes.Compare(x.From, y.From); c != 0 {
			return c
		}
		return bytes.Compare(x.To, y.To)
	})
}
