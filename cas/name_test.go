package cas_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"leafproof/cas"
	"leafproof/merkle"
)

// wantLocal is the folder of the tenant "local".
const wantLocal = "f16d1325272d397761e272155943fe70"

const goodName = "d4d8a2ba5a1a3a1f7a1d0d2b3c4d5e6f/blob/ab/" +
	"ab00000000000000000000000000000000000000000000000000000000000001-0000000a"

func TestParseName(t *testing.T) {
	for name, test := range map[string]struct {
		in string
		ok bool
	}{
		"good":              {goodName, true},
		"pack":              {strings.Replace(goodName, "blob", "pack", 1), true},
		"outboard":          {strings.Replace(goodName, "blob", "obao", 1), true},
		"highest gen":       {strings.Replace(goodName, "0000000a", "ffffffff", 1), true},
		"empty":             {"", false},
		"unknown kind":      {strings.Replace(goodName, "blob", "blah", 1), false},
		"kind by number":    {strings.Replace(goodName, "blob", "kind0", 1), false},
		"upper case ID":     {strings.Replace(goodName, "ab00", "AB00", 1), false},
		"upper case tenant": {strings.ToUpper(goodName[:32]) + goodName[32:], false},
		"upper case gen":    {strings.Replace(goodName, "0000000a", "0000000A", 1), false},
		"signed gen":        {strings.Replace(goodName, "0000000a", "+000000a", 1), false},
		"short gen":         {goodName[:len(goodName)-1], false},
		"long gen":          {goodName + "0", false},
		"no hyphen":         {strings.Replace(goodName, "-", "_", 1), false},
		"wrong fan-out":     {strings.Replace(goodName, "/ab/", "/ac/", 1), false},
		"parent folder":     {strings.Replace(goodName, "/ab/", "/../", 1), false},
		"leading slash":     {"/" + goodName, false},
		"trailing slash":    {goodName + "/", false},
		"short tenant":      {goodName[1:], false},
		"not hex":           {strings.Replace(goodName, "d4d8", "g4d8", 1), false},
		"backslashes":       {strings.ReplaceAll(goodName, "/", `\`), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cas.ParseName(test.in)
			if test.ok {
				if err != nil || got.String() != test.in {
					t.Errorf("ParseName(%q) = %v, %v", test.in, got, err)
				}
				return
			}
			if !errors.Is(err, cas.ErrName) || got != (cas.Name{}) {
				t.Errorf("ParseName(%q) = %v, %v; want ErrName", test.in, got, err)
			}
		})
	}
}

// The order of names is the order of their spellings.
func TestNameOrder(t *testing.T) {
	var names []cas.Name
	for _, tenant := range []string{"a", "b"} {
		for _, kind := range []cas.Kind{cas.KindPack, cas.KindBlob, cas.KindOutboard} {
			for _, id := range []string{"x", "y", "z"} {
				for _, gen := range []uint32{0, 2, 10, 255, 256, math.MaxUint32} {
					names = append(names, cas.Name{Tenant: cas.TenantOf(tenant), Kind: kind, ID: merkle.Sum([]byte(id)), Gen: gen})
				}
			}
		}
	}
	// Kinds are compared by number, which is not their spellings' order, so
	// each kind by itself, as List has it.
	for _, kind := range []cas.Kind{cas.KindPack, cas.KindBlob, cas.KindOutboard} {
		one := slices.DeleteFunc(slices.Clone(names), func(n cas.Name) bool { return n.Kind != kind })
		slices.SortFunc(one, cas.Name.Compare)
		if !slices.IsSortedFunc(one, func(a, b cas.Name) int { return strings.Compare(a.String(), b.String()) }) {
			t.Errorf("kind %v: the two orders differ", kind)
		}
	}
}

func TestTenantOf(t *testing.T) {
	// From BLAKE3's derive-key mode, by `printf local | b3sum --derive-key
	// 'leafproof 2026 cas tenant v1'`: a store on disk depends on it.
	if got := cas.TenantOf("local").String(); got != wantLocal {
		t.Errorf("TenantOf(local) = %s, want %s", got, wantLocal)
	}
	if cas.TenantOf("a") == cas.TenantOf("b") {
		t.Error("two labels, one tenant")
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(goodName)
	f.Add("")
	f.Add(strings.Replace(goodName, "/ab/", "/../", 1))
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := cas.ParseName(s); err == nil && n.String() != s {
			t.Errorf("ParseName(%q) = %v", s, n)
		}
	})
}
