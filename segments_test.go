package leafproof

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leafproof/internal/catalogue"
	"leafproof/manifest"
)

// TestSegments: the log is closed in segments as it grows, each signed and in the
// commit log; whoever changes a record afterwards is found out.
func TestSegments(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "store")
	if err := Init(ctx, dir); err != nil {
		t.Fatal(err)
	}
	s := must(Open(ctx, dir))
	defer s.Close()
	note := func(n int) {
		for range n {
			d := catalogue.Disclosure{At: time.Now(), Principal: "alice", Purpose: "p\n1 2", Action: "read", Tenant: "local", ArtifactID: "art_1", Epoch: 3}
			if err := s.audit.note(ctx, d, Shown{Facts: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	note(segmentRecords - 1)
	if err := s.audit.flush(ctx); err != nil {
		t.Fatal(err)
	}
	if list := must(s.AuditSegments(ctx, Owner)); len(list) != 0 {
		t.Fatalf("closed too early: %+v", list)
	}
	note(2)
	if err := s.audit.flush(ctx); err != nil {
		t.Fatal(err)
	}
	note(3)
	for range 2 { // the second time there is nothing to close
		if err := s.CloseAudit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	list := must(s.AuditSegments(ctx, Owner))
	if len(list) != 2 || list[0].Records != segmentRecords+1 || list[1].Records != 3 || list[1].First != segmentRecords+2 {
		t.Fatalf("segments: %+v", list)
	}
	for _, seg := range list {
		if seg.Problem != "" || !seg.Signed {
			t.Errorf("segment %d: signed %t, %s", seg.Number, seg.Signed, seg.Problem)
		}
	}
	logged := 0
	for _, l := range must(s.catalogue.Leaves(ctx, 0, 100)) {
		if l.Kind == segmentKind {
			logged++
		}
	}
	if logged != 2 {
		t.Errorf("%d segments are in the commit log", logged)
	}
	if _, err := s.AuditSegments(ctx, Caller{Principal: "alice"}); CodeOf(err) != CodeAccessRevoked {
		t.Errorf("alice looks at the log: %v", err)
	}

	db := must(sql.Open("sqlite", filepath.Join(dir, catalogueFile)))
	defer db.Close()
	db.SetMaxOpenConns(1) // which has the temporary table
	for name, test := range map[string]struct{ do, undo, says string }{
		"a name":         {`UPDATE disclosures SET principal = 'bob' WHERE seq = 5`, `UPDATE disclosures SET principal = 'alice' WHERE seq = 5`, "not those that were closed"},
		"an epoch":       {`UPDATE disclosures SET epoch = 4 WHERE seq = 1003`, `UPDATE disclosures SET epoch = 3 WHERE seq = 1003`, "not those that were closed"},
		"two fields":     {`UPDATE disclosures SET tenant = 'loca', artifact_id = 'lart_1' WHERE seq = 5`, `UPDATE disclosures SET tenant = 'local', artifact_id = 'art_1' WHERE seq = 5`, "not those that were closed"},
		"a record less":  {`UPDATE disclosures SET seq = 99999 WHERE seq = 5`, `UPDATE disclosures SET seq = 5 WHERE seq = 99999`, "there are 1000"},
		"a statement":    {`UPDATE audit_segments SET envelope = (SELECT envelope FROM audit_segments WHERE number = 2) WHERE number = 1`, "", "about another"},
		"another digest": {`UPDATE audit_segments SET digest = zeroblob(32) WHERE number = 1`, "", "not those that were closed"},
	} {
		if _, err := db.Exec(`CREATE TEMP TABLE IF NOT EXISTS kept AS SELECT * FROM audit_segments`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(test.do); err != nil {
			t.Fatal(err)
		}
		bad := ""
		for _, seg := range must(s.AuditSegments(ctx, Owner)) {
			bad += seg.Problem
		}
		if !strings.Contains(bad, test.says) {
			t.Errorf("%s: the problem is %q, want %q", name, bad, test.says)
		}
		undo := test.undo
		if undo == "" {
			undo = `DELETE FROM audit_segments; INSERT INTO audit_segments SELECT * FROM kept`
		}
		if _, err := db.Exec(undo); err != nil {
			t.Fatal(err)
		}
	}
	for _, seg := range must(s.AuditSegments(ctx, Owner)) {
		if seg.Problem != "" {
			t.Fatalf("what was undone is still a problem: %s", seg.Problem)
		}
	}
	// Statements are held to their form.
	seg := must(s.catalogue.LastSegment(ctx))
	env := must(manifest.ParseEnvelope(seg.Envelope))
	payload := string(must(env.PayloadBytes()))
	for name, change := range map[string][2]string{
		"another number": {`"number":2`, `"number":3`}, "no digest": {`"digest":"`, `"digest":"x`}, "another member": {`"first":`, `"frist":`},
		"another type": {"audit-segment/v1", "audit-segment/v2"}, "first without one before": {`"number":2`, `"number":1`}, "more records than numbers": {`"records":3`, `"records":4`},
	} {
		bad := strings.Replace(payload, change[0], change[1], 1)
		if _, err := manifest.ParseSegment([]byte(bad)); err == nil || bad == payload {
			t.Errorf("%s: it parses", name)
		}
	}
}

// broken is a log that cannot be written while on.
type broken struct {
	catalogue.Audit
	on bool
}

var errLog = errors.New("the log is full")

func (b *broken) Disclose(ctx context.Context, list []catalogue.Disclosure) error {
	if b.on {
		return errLog
	}
	return b.Audit.Disclose(ctx, list)
}

// TestAuditBroken: where the log cannot be written, others than the owner are shown
// nothing; what waited is entered when it can be.
func TestAuditBroken(t *testing.T) {
	ctx := t.Context()
	s := granting(t, catalogue.NewMemory())
	log := &broken{Audit: s.catalogue, on: true}
	s.audit.log = log
	give(t, s, Owner, GrantSpec{Principal: "alice", Action: "read", Pattern: "acme"})
	permit := func(who Principal) error {
		r := Request{Principal: who, Tenant: "acme", Artifact: "art_1", Action: "read"}
		return s.disclosed(ctx, must(s.gate.Disclose(ctx, r)), "acme", "art_1", Shown{Facts: true})
	}
	if err := permit("owner"); err != nil { // it waits
		t.Errorf("the owner: %v", err)
	}
	if err := s.audit.flush(ctx); !errors.Is(err, errLog) {
		t.Errorf("flush: %v", err)
	}
	if err := permit("owner"); err != nil {
		t.Errorf("the owner after a failure: %v", err)
	}
	if err := permit("alice"); CodeOf(err) != CodeAuthorityUnavailable {
		t.Errorf("alice after a failure: %v", err)
	}
	log.on = false
	if err := permit("alice"); err != nil {
		t.Errorf("alice when it can be written again: %v", err)
	}
	if got := must(s.catalogue.Disclosures(ctx, catalogue.Asked{ArtifactID: "art_1", Limit: 10})); len(got) != 4 {
		t.Errorf("%d records were entered", len(got))
	}
	log.on = true
	if err := s.disclosed(ctx, must(s.gate.Disclose(ctx, Request{Principal: "alice", Tenant: "acme", Artifact: "art_1", Action: "read"})), "acme", "art_1",
		Shown{Export: true}); CodeOf(err) != CodeAuthorityUnavailable {
		t.Errorf("a proof while the log cannot be written: %v", err)
	}
	log.on = false
}
