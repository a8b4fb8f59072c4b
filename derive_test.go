package leafproof_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/merkle"
)

// Case 35: a derived artifact has its own id, hash, coverage and lineage; the input is
// unchanged; what it was made of can be made again.
func TestDerive(t *testing.T) {
	s, _ := newStore(t)
	ctx, owner := t.Context(), leafproof.Owner
	data := "[ {\"s\":\"open\",\"n\":1,\n \"t\":[1,2]},\n{\"s\":\"shut\",\"n\":2},{\"s\":\"open\",\"n\":3.0,\"e\":\"x\\ny\"},{\"s\":\"open\",\"s\":\"open\",\"n\":4} ]"
	observed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	expires := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	id := put(t, s, []byte(data), leafproof.PutOptions{Records: "json"}, leafproof.Facts{
		RunID: "run-1", SourceID: "infra", SnapshotID: "v7", ObservedAt: observed, Coverage: map[string]any{"region": "eu-west"},
		Redactions: []manifest.Redaction{{Path: "/e", Reason: "privacy", Records: new(int64(1))}}, ExpiresAt: expires,
	})
	before, err := s.Resolve(ctx, owner, id)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Derive(ctx, owner, id, leafproof.Derivation{Where: `@.s == "open"`})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(read(t, s, d.Ref.ArtifactID, leafproof.Selector{})), "{\"s\":\"open\",\"n\":1,  \"t\":[1,2]}\n{\"s\":\"open\",\"n\":3.0,\"e\":\"x\\ny\"}\n"; got != want {
		t.Errorf("it has %q, want %q", got, want)
	}
	st, err := s.Resolve(ctx, owner, d.Ref.ArtifactID)
	if err != nil {
		t.Fatal(err)
	}
	p, ref := st.Manifest.Predicate, st.Ref
	in := p.Lineage.Inputs
	if ref.ArtifactID == id || ref.ContentHash == before.Ref.ContentHash || p.Lineage.Kind != "transform" || len(in) != 1 ||
		in[0].ArtifactID != id || in[0].ContentHash != before.Ref.ContentHash || in[0].ManifestID != before.ManifestID || in[0].SelectorDigest == nil || in[0].Role != "source" ||
		p.Lineage.Transform.ID != "leafproof.query.v1" || p.Lineage.Transform.SpecDigest != merkle.Sum(d.Spec).String() || !p.Lineage.Transform.Deterministic {
		t.Errorf("lineage %+v of %+v", p.Lineage, ref)
	}
	c := ref.Completeness
	if c.Status != "partial" || fmt.Sprint(c.Coverage) != `map[derived_where:[@.s == "open"] region:eu-west]` || *c.Records != 2 || len(c.Omissions) != 1 ||
		c.Omissions[0].Reason != "undecidable" || len(c.Redactions) != 1 || c.Redactions[0].Path != "/e" || c.Redactions[0].Records != nil {
		t.Errorf("completeness %+v", c)
	}
	if ref.SourceVersion != before.Ref.SourceVersion && (*ref.SourceVersion.ObservedAt != *before.Ref.SourceVersion.ObservedAt || *ref.SourceVersion.SnapshotID != "v7") ||
		*ref.Scope.RunID != "run-1" || *ref.ExpiresAt != manifest.FormatTime(expires) {
		t.Errorf("the reference is %+v", ref)
	}
	if d.Answer.Undecidable != 1 || *d.Answer.Matched != 2 {
		t.Errorf("the answer is %+v", d.Answer)
	}
	if after, err := s.Resolve(ctx, owner, id); err != nil || after.ManifestID != before.ManifestID || string(read(t, s, id, leafproof.Selector{})) != data {
		t.Errorf("the input changed: %+v, %v", after, err)
	}
	same, err := s.Derive(ctx, owner, id, leafproof.Derivation{Where: `(@.s=='open')`})
	if err != nil || same.Ref.ContentHash != d.Ref.ContentHash || !bytes.Equal(same.Spec, d.Spec) || same.Ref.ArtifactID == d.Ref.ArtifactID {
		t.Errorf("made again: %+v, %v", same, err)
	}
	// Of a derived one another: conditions and redactions add up.
	cut, err := s.Derive(ctx, owner, d.Ref.ArtifactID, leafproof.Derivation{Where: `@.n >= 1`, Select: []leafproof.Column{{Path: "/n"}, {Name: "text", Path: "/e"}, {Name: "all", Path: "$.t[*]"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(read(t, s, cut.Ref.ArtifactID, leafproof.Selector{})), "{\"n\":1,\"all\":[1,2]}\n{\"n\":3.0,\"text\":\"x\\ny\",\"all\":[]}\n"; got != want {
		t.Errorf("it has %q, want %q", got, want)
	}
	c = cut.Ref.Completeness
	if got := fmt.Sprint(c.Coverage); got != `map[derived_select:[[n=/n text=/e all=$.t[*]]] derived_where:[@.s == "open" @.n >= 1] region:eu-west]` ||
		len(c.Redactions) != 2 || c.Redactions[0].Path != "/text" || c.Redactions[1].Path != "/all" {
		t.Errorf("coverage %s, redactions %+v", got, c.Redactions)
	}
}

func TestDeriveFormats(t *testing.T) {
	s, _ := newStore(t)
	for name, test := range map[string]struct {
		data string
		o    leafproof.PutOptions
		d    leafproof.Derivation
		want string
		code leafproof.Code
	}{
		"ndjson":     {"{\"a\":1}\n\n{\"a\":2}\r\n", leafproof.PutOptions{}, leafproof.Derivation{Where: "@.a == 2"}, "{\"a\":2}\n", ""},
		"none match": {"{\"a\":1}\n", leafproof.PutOptions{}, leafproof.Derivation{Where: "@.a == 2"}, "", ""},
		"concat":     {"{\"a\":\n1}{\"a\":2}", leafproof.PutOptions{Records: "concat"}, leafproof.Derivation{Where: "@.a == 1"}, "{\"a\": 1}\n", ""},
		"csv": {
			"id;\"a;b\"\n1;\"x\"\"y\nz\"\n2;q\n",
			leafproof.PutOptions{Records: "csv", CSV: leafproof.CSV{Delimiter: new(";")}},
			leafproof.Derivation{Where: "@.id == \"1\""},
			"id;\"a;b\"\n1;\"x\"\"y\nz\"\n", "",
		},
		"csv columns": {
			"id,name\n1,\"x,y\"\n2,z\n",
			leafproof.PutOptions{Records: "csv"},
			leafproof.Derivation{Select: []leafproof.Column{{Path: "/name"}, {Name: "no", Path: "/id"}}},
			"name,no\n\"x,y\",1\nz,2\n", "",
		},
		"text":           {"one\ntwo\n", leafproof.PutOptions{Records: "text"}, leafproof.Derivation{Where: `search(@, "w")`}, "two\n", ""},
		"text parts":     {"one\n", leafproof.PutOptions{Records: "text"}, leafproof.Derivation{Select: []leafproof.Column{{Name: "x", Path: ""}}}, "", leafproof.CodeSelectorInvalid},
		"all of it":      {"{}\n", leafproof.PutOptions{}, leafproof.Derivation{}, "", leafproof.CodeSelectorInvalid},
		"no condition":   {"{}\n", leafproof.PutOptions{}, leafproof.Derivation{Where: "@.a =="}, "", leafproof.CodeSelectorInvalid},
		"names twice":    {"{}\n", leafproof.PutOptions{}, leafproof.Derivation{Select: []leafproof.Column{{Path: "/a"}, {Path: "/b/a"}}}, "", leafproof.CodeSelectorInvalid},
		"no name":        {"{}\n", leafproof.PutOptions{}, leafproof.Derivation{Select: []leafproof.Column{{Path: ""}}}, "", leafproof.CodeSelectorInvalid},
		"no records":     {"\x00", leafproof.PutOptions{Records: "none"}, leafproof.Derivation{Where: "@.a"}, "", leafproof.CodeNotRecords},
		"two expiries":   {"{}\n", leafproof.PutOptions{}, leafproof.Derivation{Where: "@.a", ExpiresIn: 1, ExpiresAt: time.Now()}, "", leafproof.CodeSelectorInvalid},
		"a JSON pointer": {"{\"a\":{\"b/c\":[7]}}\n", leafproof.PutOptions{}, leafproof.Derivation{Select: []leafproof.Column{{Path: "/a/b~1c"}}}, "{\"b/c\":[7]}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.o.Records == "" {
				test.o.Records = "ndjson"
			}
			id := put(t, s, []byte(test.data), test.o, leafproof.Facts{})
			d, err := s.Derive(t.Context(), leafproof.Owner, id, test.d)
			if test.code != "" {
				if leafproof.CodeOf(err) != test.code {
					t.Errorf("error %v, want %s", err, test.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(read(t, s, d.Ref.ArtifactID, leafproof.Selector{})); got != test.want {
				t.Errorf("it has %q, want %q", got, test.want)
			}
		})
	}
}

// Who may read may not derive. An interrupted derivation leaves nothing, and one
// that outlives its input is refused.
func TestDeriveRefuses(t *testing.T) {
	s, _ := newStore(t, leafproof.WithAuthority(reader{}))
	id := put(t, s, []byte("{\"a\":1}\n"), leafproof.PutOptions{Records: "ndjson"}, leafproof.Facts{ExpiresIn: time.Hour})
	d := leafproof.Derivation{Where: "@.a == 1"}
	if _, err := s.Derive(t.Context(), asReader, id, d); leafproof.CodeOf(err) != leafproof.CodeRefNotFound {
		t.Errorf("a reader derived: %v", err)
	}
	if _, err := s.Read(t.Context(), asReader, id, leafproof.Selector{}, io.Discard); err != nil {
		t.Errorf("he may read: %v", err)
	}
	d.ExpiresIn = 2 * time.Hour
	if _, err := s.Derive(t.Context(), leafproof.Owner, id, d); leafproof.CodeOf(err) != leafproof.CodeSelectorInvalid {
		t.Errorf("it outlives its input: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d.ExpiresIn, d.Progress = 0, func(int64) { stop() }
	if _, err := s.Derive(ctx, leafproof.Owner, id, d); err == nil {
		t.Error("an interrupted one succeeded")
	}
	list, _, err := s.List(t.Context(), leafproof.Owner, "", 0, 10)
	if err != nil || len(list) != 1 {
		t.Errorf("there are %v, %v", list, err)
	}
}

// What a derivation has is what a query shows, also of rows that are larger than any
// buffer.
func TestDeriveIsTheQuery(t *testing.T) {
	s, _ := newStore(t)
	r := rand.New(rand.NewPCG(5, 8))
	var json, csv bytes.Buffer
	json.WriteString("[")
	csv.WriteString("n,text\n")
	for n := range 400 {
		text := strings.Repeat("x", r.IntN(40))
		switch r.IntN(60) {
		case 0:
			text = strings.Repeat("y", 300<<10+r.IntN(9))
		case 1:
			text = strings.Repeat("z", 256<<10-r.IntN(64))
		}
		if n > 0 {
			json.WriteString(",")
		}
		fmt.Fprintf(&json, "{\n\t\"n\": %d,\r\n\"text\":\"%s\"}", n%7, text)
		fmt.Fprintf(&csv, "%d,\"%s\"\n", n%7, text)
	}
	json.WriteString("]")
	for format, data := range map[string][]byte{"json": json.Bytes(), "csv": csv.Bytes()} {
		id := put(t, s, data, leafproof.PutOptions{Records: format}, leafproof.Facts{})
		for _, where := range []string{`@.n >= 3`, `@.n == 3`, `@.n == 9`} {
			if format == "csv" {
				where = where[:len(where)-1] + strconv.Quote(where[len(where)-1:]) // its values are strings
			}
			want := map[string]string{"json": "", "csv": "n,text\n"}[format]
			if _, err := s.Query(t.Context(), leafproof.Owner, id, leafproof.Query{Where: where}, func(r leafproof.Row) error {
				row := string(r.Bytes)
				if format == "json" {
					row = strings.NewReplacer("\n", " ", "\r", " ").Replace(row)
				}
				want += row + "\n"
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			d, err := s.Derive(t.Context(), leafproof.Owner, id, leafproof.Derivation{Where: where})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(read(t, s, d.Ref.ArtifactID, leafproof.Selector{})); got != want {
				t.Errorf("%s, %s: %d bytes, want %d", format, where, len(got), len(want))
			}
			// Made again of the derived one it is the same bytes.
			again, err := s.Derive(t.Context(), leafproof.Owner, d.Ref.ArtifactID, leafproof.Derivation{Where: where})
			if err != nil || again.Ref.ContentHash != d.Ref.ContentHash {
				t.Errorf("%s, %s: made again %v, %v", format, where, again, err)
			}
		}
	}
}
