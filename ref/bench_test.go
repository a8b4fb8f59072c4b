package ref_test

import (
	"bytes"
	"fmt"
	"testing"

	"leafproof/ref"
)

// BenchmarkRecipe resolves the 148 open rows of a document of 2.1 MB, as the tool that
// uses them would have it: through the gate, with every byte verified. records=own has
// the rows as the artifact's records; records=none reads the document and looks through
// it.
func BenchmarkRecipe(b *testing.B) {
	for name, facts := range map[string]string{"own": `{"records":{"format":"json","pointer":"/items"}}`, "none": `{}`} {
		b.Run("records="+name, func(b *testing.B) {
			r := newRun(b)
			doc, open := export(1036)
			pad := (2214731 - len(doc)) / 1036
			doc = bytes.ReplaceAll(doc, []byte(`"text":"`), fmt.Appendf(nil, `"text":"%0*d`, pad, 7))
			m := r.put(doc, ref.New{MediaType: "application/json", Facts: []byte(facts)})
			rows := r.query(at(r.blob(m), ""), m.ArtifactID, "/items", openFilter)
			input := `{"rows":` + message(rows, "value") + `}`
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				got, err := r.args(input)
				if err != nil {
					b.Fatal(err)
				}
				if n := bytes.Count(got.Args, []byte(`"open"`)); n != len(open) {
					b.Fatalf("%d rows", n)
				}
			}
			b.ReportMetric(float64(len(doc)), "document-bytes")
		})
	}
}

// BenchmarkMessage resolves one value of the transcript.
func BenchmarkMessage(b *testing.B) {
	r := newRun(b)
	seq := r.append(tool(`{"result":{"value":[1,2,3]}}`))
	input := `{"x":` + message(seq, "result.value") + `}`
	for b.Loop() {
		if _, err := r.args(input); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend adds an entry of 6 KB; dir=disk flushes it.
func BenchmarkAppend(b *testing.B) {
	entry := tool(`"` + string(bytes.Repeat([]byte("x"), 6000)) + `"`)
	b.Run("dir=disk", func(b *testing.B) {
		f := openFile(b, b.TempDir(), "run")
		for b.Loop() {
			if _, err := f.Append(b.Context(), entry); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("dir=memory", func(b *testing.B) {
		m := ref.NewMemory("run")
		for b.Loop() {
			if _, err := m.Append(b.Context(), entry); err != nil {
				b.Fatal(err)
			}
		}
	})
}
