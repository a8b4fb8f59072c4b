package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leafproof"
	"leafproof/internal/verifycmd"
	"leafproof/merkle"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a minute what this is for, on a throw-away store",
		Long:  "Play an incident through: a snapshot is kept, a later one does not replace it, a query says what it searched,\nan excerpt verifies offline until one bit of it is changed, and so does the proof that there was no critical event. Everything happens in a temporary folder.",
		Args:  args(0, 0),
	}
	cmd.AddCommand(demoRefsCommand())
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := os.MkdirTemp("", "leafproof-demo-*")
		if err != nil {
			return err
		}
		d := demo{ctx: cmd.Context(), dir: dir, out: cmd.OutOrStdout()}
		if *asJSON {
			d.out = io.Discard
		}
		if err := errors.Join(d.run(), os.RemoveAll(dir)); err != nil || !*asJSON {
			return err
		}
		return printJSON(cmd.OutOrStdout(), map[string][]string{"shown": d.titles})
	}
	return cmd
}

// demo plays the incident of an agent that asks for events, acts on them, and is
// audited afterwards.
type demo struct {
	ctx   context.Context
	dir   string
	out   io.Writer
	store *leafproof.Store

	titles []string
}

const demoEvents = 12840

func (d *demo) run() error {
	storeDir := filepath.Join(d.dir, "store")
	if err := leafproof.Init(d.ctx, storeDir); err != nil {
		return err
	}
	var err error
	if d.store, err = leafproof.Open(d.ctx, storeDir); err != nil {
		return err
	}
	defer d.store.Close()

	a, b := demoSnapshot(1, true), demoSnapshot(2, false)
	idA, err := d.snapshot("A", "snap-0410", a, "04:10")
	if err != nil {
		return err
	}
	idB, err := d.snapshot("B", "snap-0440", b, "04:40")
	if err != nil {
		return err
	}
	if err := d.pinned(idA, a, idB, b); err != nil {
		return err
	}
	if err := d.query(idA); err != nil {
		return err
	}
	proof := filepath.Join(d.dir, "excerpt.proof")
	if err := d.excerpt(idA, a, proof, storeDir); err != nil {
		return err
	}
	if err := d.tamper(proof, storeDir); err != nil {
		return err
	}
	return d.absence(idB, storeDir)
}

// title begins a step.
func (d *demo) title(format string, args ...any) {
	d.titles = append(d.titles, fmt.Sprintf(format, args...))
	fmt.Fprintf(d.out, "\n%d. %s\n\n", len(d.titles), d.titles[len(d.titles)-1])
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, "   "+format+"\n", args...) }

func (d *demo) snapshot(name, snapshot string, events []byte, at string) (string, error) {
	observed, err := time.Parse(time.RFC3339, "2026-11-06T"+at+":00Z")
	if err != nil {
		return "", err
	}
	d.title("A tool returns snapshot %s of the incident events. The bytes stay here; the model gets a reference.", name)
	draft, err := d.store.Put(d.ctx, bytes.NewReader(events), leafproof.PutOptions{Name: "events.ndjson", Indexes: []string{"/severity"}})
	if err != nil {
		return "", err
	}
	ref, err := d.store.Publish(d.ctx, draft, leafproof.Facts{
		SourceID: "infra.incident-events", SnapshotID: snapshot, ObservedAt: observed, RunID: "run-7", ToolCallID: "call_incident_042",
		Coverage: map[string]any{"region": "eu-west", "window": "04:00 to " + at},
	})
	if err != nil {
		return "", err
	}
	d.say("leafproof put events.ndjson --index /severity --source infra.incident-events --snapshot %s --coverage region=eu-west …", snapshot)
	d.say("  %d bytes, %d records  →  %s", len(events), *ref.Completeness.Records, ref.ArtifactID)
	if name == "A" {
		d.say("  passed through the model, these bytes would cost about %d tokens; the reference costs about 20.", len(events)/4)
	}
	return ref.ArtifactID, nil
}

func (d *demo) pinned(idA string, a []byte, idB string, b []byte) error {
	d.title("The same source gave something newer. The first reference still means the first bytes.")
	for _, s := range []struct {
		name, id string
		want     []byte
	}{{"A", idA, a}, {"B", idB, b}} {
		var got bytes.Buffer
		if _, err := d.store.Read(d.ctx, leafproof.Owner, s.id, leafproof.Selector{}, &got); err != nil {
			return err
		}
		if !bytes.Equal(got.Bytes(), s.want) {
			return fmt.Errorf("snapshot %s came back altered", s.name)
		}
		d.say("leafproof read %s | cmp - snapshot-%s   identical, %d bytes verified", s.id, s.name, got.Len())
	}
	return nil
}

func (d *demo) query(id string) error {
	d.title("Which events are critical? The answer says what it searched, so that nothing found means something.")
	for _, severity := range []string{"critical", "catastrophic"} {
		where := fmt.Sprintf(`@.severity == "%s"`, severity)
		shown := 0
		answer, err := d.store.Query(d.ctx, leafproof.Owner, id, leafproof.Query{Where: where}, func(r leafproof.Row) error {
			if shown++; shown == 1 {
				d.say("leafproof query %s --where '%s'", id, where)
			}
			if shown <= 2 {
				d.say("  record %d: %s", r.Record, clip(string(r.Bytes), 96))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if shown == 0 {
			d.say("leafproof query %s --where '%s'", id, where)
		}
		d.say("  → %s", answer.Conclusion)
		d.say("")
	}
	return nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

func (d *demo) excerpt(id string, events []byte, proof, storeDir string) error {
	d.title("An auditor gets ten records in one file, and checks them with no network and no store.")
	var buf bytes.Buffer
	sel := leafproof.Selector{Records: &merkle.Range{Start: 6400, End: 6410}}
	claim, err := d.store.Prove(d.ctx, leafproof.Owner, id, sel, &buf)
	if err != nil {
		return err
	}
	if err := os.WriteFile(proof, buf.Bytes(), 0o600); err != nil {
		return err
	}
	d.say("leafproof read %s --records 6400:6410 -o excerpt.proof     %s: %d bytes, of an artifact of %d", id, claim, buf.Len(), len(events))
	d.say("leafproof verify excerpt.proof --policy trust.policy")
	code, text, err := d.verify(proof, storeDir)
	if err != nil {
		return err
	}
	d.indent(text)
	if code != 0 {
		return fmt.Errorf("the excerpt did not verify: exit %d", code)
	}
	d.say("exit 0. Nobody had to trust the store for a byte of it; for when and how it was captured, one trusts the key.")
	return nil
}

func (d *demo) tamper(proof, storeDir string) error {
	d.title("Somebody changes one bit of it, and repairs the checksum in its first line.")
	b, err := os.ReadFile(proof)
	if err != nil {
		return err
	}
	flipped := len(b) - 300
	b[flipped] ^= 1
	end := bytes.IndexByte(b, '\n')
	first := strings.Fields(string(b[:end]))
	first[len(first)-1] = merkle.Sum(b[end+1:]).String()
	b = append([]byte(strings.Join(first, " ")), b[end:]...)
	if err := os.WriteFile(proof, b, 0o600); err != nil {
		return err
	}
	code, text, err := d.verify(proof, storeDir)
	if err == nil {
		d.indent(firstLine(text, "bytes "))
	}
	if code != exitMismatch {
		return fmt.Errorf("an altered excerpt was not refused: exit %d", code)
	}
	d.say("exit 3. The excerpt is refused: not repaired, not shortened, not believed.")
	return nil
}

func firstLine(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) && strings.Contains(line, "MISMATCH") {
			return line
		}
	}
	return text
}

func (d *demo) verify(proof, storeDir string) (int, string, error) {
	var out bytes.Buffer
	code, err := verifycmd.Run(verifycmd.Options{File: proof, Policy: leafproof.PolicyPath(storeDir)}, &out, &out)
	return code, out.String(), err
}

func (d *demo) indent(text string) {
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		d.say("  %s", sc.Text())
	}
}

// demoSnapshot makes an event file like an incident tool's, the same on every run.
func demoSnapshot(seed uint64, critical bool) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	services := []string{"checkout", "search", "ledger", "mail", "auth", "media"}
	severities := []string{"info", "info", "info", "info", "warning", "warning", "error"}
	var b bytes.Buffer
	start := time.Date(2026, 11, 6, 4, 0, 0, 0, time.UTC)
	for i := range demoEvents {
		severity := severities[r.IntN(len(severities))]
		if r.IntN(900) == 0 && critical {
			severity = "critical"
		}
		fmt.Fprintf(&b, `{"seq":%d,"ts":"%s","service":"%s","severity":"%s","latency_ms":%d,"trace":%d,"message":"request %08x took longer than its budget"}`+"\n",
			i, start.Add(time.Duration(i)*47*time.Millisecond).Format("2006-01-02T15:04:05.000Z"), services[r.IntN(len(services))], severity,
			r.IntN(4000), 13911860366430000+r.Int64N(10000), r.Uint32())
	}
	return b.Bytes()
}
