package selector

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"leafproof/merkle"
)

// TestIndexGolden holds the bytes of an index and of its spec for ever: another
// implementation gets the same.
func TestIndexGolden(t *testing.T) {
	src := []byte(`{"s":"open","n":1}` + "\n" + `{"s":"open","n":1.0}` + "\n" + `{"s":"closed","n":-2e-3}` + "\n" + `{"n":null}` + "\n" + `{"s":1,"s":2}` + "\n" + "bad\n")
	got, infos, err := buildIndexes(t, IndexBuild{}, src, Layout{Format: FormatNDJSON}, "/s", "/n")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ root, page string }{
		{
			"484bf3ca1d1d0c965c80888c90fceab978ca5e04339faef22d708e1df321a40e",
			"0000000000000000" + "0000000000000000" + "2800" + "0000" + "00" +
				"00011001" + "03" + "000950636c6f7365640000" + "0102" + "01066f70656e0000" + "020000" + "0001e10104" + "0001e20105",
		},
		{
			"4354e33c4a4d9da0773426ca54515dc349e5039c8222eb3aa068c4989e4c7826",
			"0000000000000000" + "0000000000000000" + "3000" + "0000" + "00" +
				"00011001" + "04" + "00012001" + "03" + "000c40408000000000000001fcff" + "0102" + "010bc080000000000000010200" + "020000" + "0001e20105",
		},
	} {
		root := merkle.Sum(got[i]).String()
		page := hex.EncodeToString(bytes.TrimRight(got[i][indexPageSize:], "\x00"))
		if want.root != root || want.page != page || infos[i].Size != 2*indexPageSize {
			t.Errorf("%s: %s, want %s: %s", root, page, want.root, want.page)
		}
	}
	p, _ := ParseKeyPath("$.s")
	l := Layout{Format: FormatCSV, Dialect: Dialect{Delimiter: ";", Quote: `"`, Header: true, Columns: []string{"s", "ü"}}}
	spec, err := IndexSpec(l, p, []string{"/z", "/s", "/s", ""})
	if want := `{"dialect":{"columns":["s","ü"],"delimiter":";","header":true,"quote":"\""},"format":"csv","keys":"lpk1","limits":{"depth":512,"digits":1024,"exponent":1000000,"record":67108864},"path":"/s","pointer":"","redactions":["","/s"]}`; err != nil || string(spec) != want {
		t.Errorf("IndexSpec = %s, %v, want %s", spec, err, want)
	}
	if d := hex.EncodeToString(func() []byte { d := SpecDigest(spec); return d[:] }()); d != "e366015c2985ef726681695e52fec04ebe0e287a4351a56e8c5b313bb2580b9a" {
		t.Errorf("SpecDigest = %s", d)
	}
}

func TestParseIndexSpec(t *testing.T) {
	csv := Layout{Format: FormatCSV, Limits: Limits{Depth: 7}, Dialect: Dialect{Delimiter: ";", Quote: `"`, Header: true, Columns: []string{"s", "ü"}}}
	for _, c := range []struct {
		l    Layout
		path string
		red  []string
	}{
		{csv, "/ü", []string{"/ü"}},
		{Layout{Format: FormatJSON, Pointer: "/a~1b"}, `@.x["a b"][*][-1]["0"]`, nil},
		{Layout{Format: FormatNDJSON}, "/0/x~0", []string{"/0", "/0/x~0/y"}},
		{Layout{Format: FormatText}, "", nil},
		{Layout{Format: FormatConcat}, "$[*]", nil},
	} {
		p, err := ParseKeyPath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := IndexSpec(c.l, p, c.red)
		if err != nil {
			t.Fatal(err)
		}
		l, q, red, err := ParseIndexSpec(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		again, err := IndexSpec(l, q, red)
		if err != nil || !bytes.Equal(again, spec) || l.Digest() != c.l.Digest() || q.Canonical() != p.Canonical() || string(q.Normalised()) != string(p.Normalised()) {
			t.Errorf("%s comes back as %s, %v", spec, again, err)
		}
	}
	good := `{"dialect":null,"format":"ndjson","keys":"lpk1","limits":{"depth":512,"digits":1024,"exponent":1000000,"record":67108864},"path":"/s","pointer":"","redactions":[]}`
	for name, text := range map[string]string{
		"nothing":            "",
		"no object":          "[]",
		"behind it":          good + "{}",
		"a line end":         good + "\n",
		"a space":            strings.Replace(good, ":", ": ", 1),
		"another member":     strings.Replace(good, `"format"`, `"fmt":1,"format"`, 1),
		"other keys":         strings.Replace(good, "lpk1", "lpk2", 1),
		"another spelling":   strings.Replace(good, "/s", "$.s", 1),
		"a filter":           strings.Replace(good, "/s", "@[?@]", 1),
		"a limit too high":   strings.Replace(good, "512", "513", 1),
		"another redaction":  strings.Replace(good, "[]}", `["/t"]}`, 1),
		"a missing member":   strings.Replace(good, `"pointer":"",`, "", 1),
		"a dialect":          strings.Replace(good, "null", `{"columns":[],"delimiter":",","header":true,"quote":""}`, 1),
		"bytes":              strings.Replace(good, "ndjson", "bytes", 1),
		"an unknown format":  strings.Replace(good, "ndjson", "xml", 1),
		"a name in capitals": strings.Replace(good, `"path"`, `"PATH"`, 1),
	} {
		if _, p, _, err := ParseIndexSpec([]byte(text)); p != nil || !errors.Is(err, ErrSelector) && !errors.Is(err, ErrLayout) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIndexCanonical alters small indexes at random: what still passes for one is
// what the twin writes of its entries. So entries have one spelling only.
func TestIndexCanonical(t *testing.T) {
	path, err := ParseKeyPath("@.a[*]")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	passed := 0
	for range 12 {
		src := IndexSource{Size: 9, Records: 1 + rng.Int64N(400), Layout: Layout{Format: FormatNDJSON}}
		good, _ := writeIndex(t, src, path, randomEntries(rng, src.Records, false))
		spec, _ := IndexSpec(src.Layout, path, nil)
		for range 150 {
			b := bytes.Clone(good)
			for range 1 + rng.IntN(2) {
				at := 80 + rng.IntN(40)
				if rng.IntN(8) > 0 { // more often in the used bytes of a page
					page := indexPageSize * (1 + rng.IntN(len(b)/indexPageSize-1))
					at = page + rng.IntN(20+int(b[page+16])+int(b[page+17])<<8)
				}
				switch at = min(at, len(b)-1); rng.IntN(3) {
				case 0:
					b[at]++
				case 1:
					b[at] ^= 1 << rng.IntN(8)
				default:
					b[at] = byte(rng.IntN(256))
				}
			}
			x, err := OpenIndex(bytes.NewReader(b), int64(len(b)), path, src)
			if err == nil {
				err = x.Check(t.Context())
			}
			if err != nil {
				if !errors.Is(err, ErrIndex) {
					t.Fatal(err)
				}
				continue
			}
			var entries []KeyEntry
			for e, err := range x.Run(t.Context(), 0, x.Entries()) {
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, KeyEntry{bytes.Clone(e.Key), e.Record})
			}
			if !bytes.Equal(b, good) {
				passed++
				if want := naiveIndex(src.Root, src.Size, SpecDigest(spec), src.Records, entries); !bytes.Equal(b, want) {
					t.Fatalf("an index of %d bytes passes, and the twin writes its entries otherwise", len(b))
				}
			}
		}
	}
	if passed == 0 {
		t.Error("no altered index was one")
	}
}
