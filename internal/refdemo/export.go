// Package refdemo plays the status report through: an export of work items is kept
// out of the model's view, filtered there, and handed to another tool.
package refdemo

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// The export of the story: 2.1 MB, of which 148 items are open.
const (
	Rows = 9760
	Open = 148
)

// Export makes a JSON document with an array of work items, the same for the same
// seed. As many of them are open, in proportion, as in that of the story.
func Export(rows int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	open := make([]bool, rows)
	for i := range (rows*Open + Rows - 1) / Rows {
		open[i] = true
	}
	r.Shuffle(rows, func(i, j int) { open[i], open[j] = open[j], open[i] })
	owners := []string{"ada", "grace", "edsger", "barbara", "tony", "leslie"}
	verbs := []string{"Repair", "Replace", "Measure", "Document", "Remove", "Test"}
	things := []string{"the intake valve", "the billing export", "the search index", "the on-call rota", "the cold store", "the audit trail"}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"project":"Northwind","exported_at":"2026-11-30T06:00:00Z","items":[`)
	for i := range rows {
		status := []string{"closed", "closed", "in review", "rejected"}[r.IntN(4)]
		if open[i] {
			status = "open"
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"ticket":%d,"title":"%s %s","status":"%s","owner":"%s","estimate":%d.%d,"note":"Opened by %s after check %08x; the limit is <%d & it was \u00e9valu\u00e9."}`,
			i+1, 7911860366400000+r.Int64N(90000), verbs[r.IntN(len(verbs))], things[r.IntN(len(things))], status,
			owners[r.IntN(len(owners))], r.IntN(40), r.IntN(10), owners[r.IntN(len(owners))], r.Uint32(), r.IntN(900))
	}
	b.WriteString("]}\n")
	return b.Bytes()
}
