package selector

import (
	"bytes"
	"encoding/json"
)

// maxSpec is the longest spec that is read, in bytes: a csv header has so many names.
const maxSpec = 1 << 20

// ParseIndexSpec reads the spec of an index, as [IndexSpec] writes it and in no other
// spelling. It fails with ErrSelector.
func ParseIndexSpec(text []byte) (l Layout, p *KeyPath, redactions []string, err error) {
	bad := func(format string, args ...any) (Layout, *KeyPath, []string, error) {
		return Layout{}, nil, nil, fail("spec", -1, ErrSelector, format, args...)
	}
	if len(text) > maxSpec {
		return bad("longer than %d bytes", maxSpec)
	}
	var spec struct {
		Dialect    *Dialect `json:"dialect"`
		Format     string   `json:"format"`
		Keys       string   `json:"keys"`
		Limits     Limits   `json:"limits"`
		Path       string   `json:"path"`
		Pointer    string   `json:"pointer"`
		Redactions []string `json:"redactions"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return bad("not the spec of an index: %v", err)
	}
	if spec.Keys != KeyVersion {
		return bad("keys of the kind %s; this program makes %s", cut(spec.Keys), KeyVersion)
	}
	l = Layout{Format: spec.Format, Pointer: spec.Pointer, Limits: spec.Limits}
	if spec.Dialect != nil {
		l.Dialect = *spec.Dialect
	}
	if p, err = ParseKeyPath(spec.Path); err != nil {
		return Layout{}, nil, nil, err
	}
	again, err := IndexSpec(l, p, spec.Redactions)
	if err != nil {
		return Layout{}, nil, nil, err
	}
	if !bytes.Equal(again, text) {
		return bad("not in its one spelling: that is %s", cut(string(again)))
	}
	return l, p, spec.Redactions, nil
}
