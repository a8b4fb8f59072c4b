package bench

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
)

// Events writes incident events as NDJSON, rows of some 340 bytes: what a
// monitoring source answers a tool with. The same seed gives the same bytes, for
// ever: figures are compared across versions of this project.
//
// Row i depends on the seed and i alone, and edit, which may be nil, says which
// rows were touched since: those have another status, assignee, time of update
// and note, as after an hour of work on an incident.
func Events(w io.Writer, seed uint64, rows int, edit func(row int) bool) (int64, error) {
	var done int64
	buf := make([]byte, 0, 128<<10)
	for row := range rows {
		buf = appendEvent(buf, seed, row, false)
		if edit != nil && edit(row) {
			buf = buf[:lastLine(buf)]
			buf = appendEvent(buf, seed, row, true)
		}
		if len(buf) > 120<<10 || row == rows-1 {
			n, err := w.Write(buf)
			done += int64(n)
			if err != nil {
				return done, err
			}
			buf = buf[:0]
		}
	}
	return done, nil
}

// lastLine returns where the last line of p begins.
func lastLine(p []byte) int {
	for i := len(p) - 2; i >= 0; i-- {
		if p[i] == '\n' {
			return i + 1
		}
	}
	return 0
}

var (
	regions    = []string{"eu-west-1", "eu-central-1", "us-east-1", "us-west-2", "ap-south-1", "ap-northeast-1", "sa-east-1"}
	services   = []string{"checkout", "payments", "ledger", "search", "auth", "catalog", "mailer", "webhooks", "billing", "inventory", "gateway", "scheduler"}
	severities = []string{"sev1", "sev2", "sev3", "sev4", "sev5"}
	statuses   = []string{"open", "acknowledged", "mitigated", "resolved", "closed"}
	signals    = []string{"latency p99 above objective", "error ratio above budget", "queue depth growing", "replica lag", "certificate expires soon", "disk nearly full", "pod restarts", "connection pool exhausted"}
)

func pick(rng *rand.Rand, from []string) string { return from[rng.IntN(len(from))] }

// appendEvent appends the line of one row.
func appendEvent(p []byte, seed uint64, row int, edited bool) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(row)))
	minute := row / 4 // four events a minute
	id, trace := rng.Uint64(), rng.Uint64()
	service, region, signal := pick(rng, services), pick(rng, regions), pick(rng, signals)
	severity, status := pick(rng, severities), pick(rng, statuses)
	host, value, threshold, owner := rng.IntN(400), rng.Float64()*1000, 50*(1+rng.IntN(10)), rng.IntN(60)
	second, updated, note := rng.IntN(60), minute+rng.IntN(240), fmt.Sprintf("%s on %s", signal, service)
	if edited {
		status, owner, updated = pick(rng, statuses), rng.IntN(60), updated+60
		note += fmt.Sprintf(", handed over to %s", pick(rng, services))
	}
	return fmt.Appendf(p, `{"id":"inc-%08d-%06x","at":"%sT%02d:%02d:%02dZ","updated":"%sT%02d:%02d:00Z","service":"%s","region":"%s",`+
		`"host":"%s-%03d.%s.internal","severity":"%s","status":"%s","assignee":"user%02d@example.org","metric":{"value":%.3f,"threshold":%d},`+
		`"trace":"%016x","note":"%s"}`+"\n",
		row, id&0xffffff, day(minute), minute/60%24, minute%60, second, day(updated), updated/60%24, updated%60, service, region,
		service, host, region, severity, status, owner, value, threshold, trace, note)
}

// day spells the day of a minute since the year 2026 began, all months having 28.
func day(minute int) string {
	d := minute / (24 * 60)
	return fmt.Sprintf("%04d-%02d-%02d", 2026+d/336, 1+d/28%12, 1+d%28)
}

// Incidents writes records of some 540 bytes, up to size bytes of them, as
// NDJSON or as one JSON array, and returns how many have the status open at
// their top. With body each has some so many bytes of prose besides: with 100 a
// GiB is 1.64 million of them. It is made to mislead: a quarter has another status nested before
// its own, a tenth quotes one in a message, and a tenth of the open ones spells
// it with an escape.
func Incidents(w io.Writer, seed uint64, size int64, array bool, body int) (open int, err error) {
	out := bufio.NewWriterSize(w, 256<<10)
	rng := rand.New(rand.NewPCG(seed, seed))
	var p []byte
	for i, done := 0, int64(0); done < size; i++ {
		p = p[:0]
		switch {
		case array && i == 0:
			p = append(p, '[')
		case array:
			p = append(p, ",\n"...)
		}
		status, before, note := `"`+pick(rng, statuses[1:])+`"`, "resolved", "nearly full"
		if i%25 == 7 {
			status = `"open"`
			open++
			if i%250 == 7 {
				status = `"\u006fpen"`
			}
		}
		if i%4 == 1 {
			before = "open"
		}
		if i%10 == 3 {
			note = `said \"status\":\"open\" to the pager`
		}
		service, region := pick(rng, services), pick(rng, regions)
		p = fmt.Appendf(p, `{"id":"inc-%08d-%06x","at":"%sT%02d:%02d:%02dZ","service":"%s","region":"%s","host":"%s-%03d.%s.internal","severity":"%s",`+
			`"previous":{"status":"%s","by":"user%02d@example.org"},"status":%s,"metric":{"value":%.3f,"threshold":%d},"seq":%d,"tags":["prod","tier%d"],`+
			`"labels":{"team":"sre-%d","zone":"z-%d"},"message":"%s: %s, value %d above threshold %d on the volume of writer %d","trace":"%016x%016x","note":"%016x"}`,
			i, rng.IntN(1<<24), day(i/4), i/240%24, i/4%60, rng.IntN(60), service, region, service, rng.IntN(400), region, pick(rng, severities),
			before, rng.IntN(60), status, rng.Float64()*1000, 50*(1+rng.IntN(10)), 1<<53+1+int64(i), rng.IntN(4),
			rng.IntN(60), rng.IntN(9), pick(rng, signals), note, rng.IntN(1000), rng.IntN(1000), rng.IntN(100), rng.Uint64(), rng.Uint64(), rng.Uint64())
		if body > 0 {
			p = appendProse(append(p[:len(p)-1], `,"body":"`...), seed, i, body)
			p = append(p, `"}`...)
		}
		if !array {
			p = append(p, '\n')
		}
		done += int64(len(p))
		if _, err := out.Write(p); err != nil {
			return open, err
		}
	}
	if array {
		if _, err := out.WriteString("]\n"); err != nil {
			return open, err
		}
	}
	return open, out.Flush()
}

var prose = []string{"the", "volume", "of", "writer", "was", "seen", "to", "grow", "while", "a", "restart", "held", "its", "lease", "and", "no", "replica", "took", "over", "before", "alarms", "ended"}

// appendProse appends words, of some n bytes, that depend on the seed and row alone.
func appendProse(p []byte, seed uint64, row, n int) []byte {
	rng := rand.New(rand.NewPCG(seed+1, uint64(row)))
	for end := len(p) + n; ; p = append(p, ' ') {
		if p = append(p, pick(rng, prose)...); len(p) >= end {
			return p
		}
	}
}
