package tlog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leafproof/manifest"
	"leafproof/manifest/tlog"
	"leafproof/merkle"

	"golang.org/x/mod/sumdb/note"
	xtlog "golang.org/x/mod/sumdb/tlog"
)

func TestLeaf(t *testing.T) {
	l := tlog.LeafOf("manifest", []byte("{}"))
	want := "leafproof leaf v1\nmanifest\n" + merkle.Sum([]byte("{}")).String() + "\n"
	if string(l.Data()) != want {
		t.Errorf("data %q, want %q", l.Data(), want)
	}
	if got, err := tlog.ParseLeaf(l.Data()); err != nil || got != l {
		t.Errorf("parsed %v, %v", got, err)
	}
	for name, data := range map[string]string{
		"empty":       "",
		"no digest":   "leafproof leaf v1\nmanifest\n",
		"upper case":  strings.ToUpper(want),
		"no kind":     strings.Replace(want, "manifest", "", 1),
		"kind":        strings.Replace(want, "manifest", "mani fest", 1),
		"long kind":   strings.Replace(want, "manifest", strings.Repeat("m", 33), 1),
		"more":        want + "\n",
		"no end":      want[:len(want)-1],
		"version 2":   strings.Replace(want, "v1", "v2", 1),
		"short":       want[:len(want)-3] + "\n",
		"huge":        want + strings.Repeat("x", 1<<20),
		"hex of caps": want[:len(want)-65] + strings.ToUpper(want[len(want)-65:]),
	} {
		if _, err := tlog.ParseLeaf([]byte(data)); !errors.Is(err, tlog.ErrMalformed) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	for predicate, kind := range map[string]string{
		manifest.PredicateManifest: "manifest", manifest.PredicateTombstone: "tombstone", manifest.PredicateAudit: "audit",
		manifest.PredicateReceipt: "", "urn:x-leafproof:manifest/v2": "", "": "",
	} {
		if got := tlog.KindOf(predicate); got != kind {
			t.Errorf("KindOf(%s) = %q, want %q", predicate, got, kind)
		}
	}
}

// TestVectors holds the formats to files that others made.
func TestVectors(t *testing.T) {
	text := vector(t, "trust/generated/manifest.tlog-proof")
	p, err := tlog.ParseProof(text)
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != string(text) || p.Index != 6 || p.Checkpoint.Size != 11 || p.Checkpoint.Origin != "log.holdfast.example/acme" {
		t.Errorf("read as\n%s", p)
	}
	key, err := manifest.ParseVerifierKey(strings.TrimSpace(string(vector(t, "trust/generated/vkey.txt"))))
	if err != nil {
		t.Fatal(err)
	}
	if at, err := p.Checkpoint.SignedBy(key); err != nil || !at.IsZero() {
		t.Errorf("signed at %v, %v", at, err)
	}
	h := xtlog.RecordHash(vector(t, "trust/generated/pae.bin"))
	if err := xtlog.CheckRecord(p.Path, p.Checkpoint.Size, p.Checkpoint.Root, p.Index, h); err != nil {
		t.Error(err)
	}
	if err := p.Check(tlog.LeafOf("manifest", []byte("another"))); !errors.Is(err, tlog.ErrInclusion) {
		t.Errorf("another leaf: %v", err)
	}
	// The example of C2SP tlog-cosignature.
	const example = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n" +
		"— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n" +
		"— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
	c, err := tlog.ParseCheckpoint([]byte(example))
	if err != nil || c.String() != example || c.Size != 20852163 || len(c.Signatures) != 2 || len(c.Signatures[1].Sig) != 72 {
		t.Errorf("%v: read as\n%s", err, c)
	}
}

// TestCheckpointByNote holds what is signed here to x/mod's note.
func TestCheckpointByNote(t *testing.T) {
	l := newLog(7)
	c := l.checkpoint(7, noon)
	key := logKey("log", origin)
	verifier, err := note.NewVerifier(key.String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open([]byte(c.String()), note.VerifierList(verifier))
	if err != nil || n.Text != c.Text() || len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 1 {
		t.Errorf("note.Open: %v, %+v", err, n)
	}
	again, err := tlog.ParseCheckpoint([]byte(c.String()))
	if err != nil || again.String() != c.String() {
		t.Errorf("parsed: %v\n%s", err, again)
	}
	if at, err := again.SignedBy(key); err != nil || !at.Equal(noon) {
		t.Errorf("signed at %v, %v", at, err)
	}
	if _, err := again.SignedBy(logKey("thief", origin)); !errors.Is(err, tlog.ErrUnsigned) {
		t.Errorf("another key: %v", err)
	}
	if _, err := again.SignedBy(logKey("log", "leafproof/st_other")); !errors.Is(err, tlog.ErrUnsigned) {
		t.Errorf("another log: %v", err)
	}
	w, _ := testKey("w1")
	cosigned, err := c.Cosign("w1.example", noon.Add(90*1e9), w)
	if err != nil {
		t.Fatal(err)
	}
	c = c.With(cosigned, cosigned)
	if at, err := c.SignedBy(witnessKey("w1")); err != nil || len(c.Signatures) != 3 || !at.Equal(noon.Add(90*1e9)) {
		t.Errorf("witnessed at %v, %v, %d signatures", at, err, len(c.Signatures))
	}
	for i := range c.Signatures {
		for at := range c.Signatures[i].Sig {
			bad := c
			bad.Signatures = slices.Clone(c.Signatures)
			bad.Signatures[i].Sig = slices.Clone(c.Signatures[i].Sig)
			bad.Signatures[i].Sig[at] ^= 1
			k := key
			if i == 2 {
				k = witnessKey("w1")
			}
			if _, err := bad.SignedBy(k); !errors.Is(err, tlog.ErrSignature) {
				t.Fatalf("signature %d, byte %d: %v", i, at, err)
			}
		}
	}
	key2, _ := testKey("log")
	if _, err := tlog.NewCheckpoint("cosignature/v1", 0, xtlog.Hash{}, noon, key2); !errors.Is(err, tlog.ErrMalformed) {
		t.Errorf("a log that could sign cosignatures: %v", err)
	}
}

func TestParseCheckpointRefuses(t *testing.T) {
	good := newLog(3).checkpoint(3, noon).String()
	lines := strings.SplitAfter(good, "\n")
	many := good + strings.Repeat(lines[4], tlog.MaxSignatures)
	for name, test := range map[string]struct {
		text string
		err  error
	}{
		"empty":            {"", tlog.ErrMalformed},
		"no signature":     {lines[0] + lines[1] + lines[2] + "\n", tlog.ErrMalformed},
		"no empty line":    {strings.Replace(good, "\n\n", "\n", 1), tlog.ErrMalformed},
		"two empty lines":  {strings.Replace(good, "\n\n", "\n\n\n", 1), tlog.ErrMalformed},
		"no origin":        {good[len(lines[0])-1:], tlog.ErrMalformed},
		"size 03":          {strings.Replace(good, "\n3\n", "\n03\n", 1), tlog.ErrMalformed},
		"size +3":          {strings.Replace(good, "\n3\n", "\n+3\n", 1), tlog.ErrMalformed},
		"size -3":          {strings.Replace(good, "\n3\n", "\n-3\n", 1), tlog.ErrMalformed},
		"size 2^63":        {strings.Replace(good, "\n3\n", "\n9223372036854775808\n", 1), tlog.ErrMalformed},
		"size 2^62":        {strings.Replace(good, "\n3\n", "\n4611686018427387904\n", 1), tlog.ErrMalformed},
		"short root":       {strings.Replace(good, lines[2], "AAAA\n", 1), tlog.ErrMalformed},
		"root's last bits": {strings.Replace(good, "=\n\n", "F\n\n", 1), tlog.ErrMalformed},
		"carriage return":  {strings.ReplaceAll(good, "\n", "\r\n"), tlog.ErrMalformed},
		"tab":              {strings.Replace(good, "\n3\n", "\n3\t\n", 1), tlog.ErrMalformed},
		"not UTF-8":        {"\xff" + good, tlog.ErrMalformed},
		"no end":           {good[:len(good)-1], tlog.ErrMalformed},
		"more":             {good + "x", tlog.ErrMalformed},
		"hyphen":           {strings.Replace(good, "— ", "- ", 1), tlog.ErrMalformed},
		"key with plus":    {strings.Replace(good, "— leafproof", "— leaf+proof", 1), tlog.ErrMalformed},
		"no key":           {strings.Replace(good, "— leafproof/st_test", "— ", 1), tlog.ErrMalformed},
		"signature alone":  {good + "— w AAAA\n", tlog.ErrMalformed},
		"many signatures":  {many, tlog.ErrTooLarge},
		"huge":             {good + strings.Repeat(lines[4], 2000), tlog.ErrTooLarge},
		"long origin":      {strings.Repeat("x", 256) + good, tlog.ErrMalformed},
		"many lines":       {strings.Replace(good, "\n\n", "\n"+strings.Repeat("x\n", 17)+"\n", 1), tlog.ErrMalformed},
	} {
		if _, err := tlog.ParseCheckpoint([]byte(test.text)); !errors.Is(err, test.err) {
			t.Errorf("%s: error = %v, want %v", name, err, test.err)
		}
	}
	if c, err := tlog.ParseCheckpoint([]byte(strings.Replace(good, "\n\n", "\nan extension\n\n", 1))); err != nil || len(c.Extension) != 1 {
		t.Errorf("an extension: %v", err)
	} else if _, err := c.SignedBy(logKey("log", origin)); !errors.Is(err, tlog.ErrSignature) {
		t.Errorf("an extension that nobody signed: %v", err)
	}
}

// TestProofs holds roots and proofs of every tree of up to 40 leaves to the
// definition, and to x/mod's own checks.
func TestProofs(t *testing.T) {
	const most = 40
	l := newLog(most)
	data := l.data()
	for size := int64(1); size <= most; size++ {
		if root := l.root(size); [32]byte(root) != slowRoot(data[:size]) {
			t.Fatalf("root of %d: %v", size, root)
		}
		for index := range size {
			p := l.prove(index, size)
			if err := p.Check(l.leaves[index]); err != nil {
				t.Fatalf("%d of %d: %v", index, size, err)
			}
			if err := xtlog.CheckRecord(p.Path, size, l.root(size), index, xtlog.RecordHash(data[index])); err != nil {
				t.Fatalf("x/mod: %d of %d: %v", index, size, err)
			}
		}
		for older := int64(0); older <= size; older++ {
			path, err := tlog.ProveTree(older, size, l.stored)
			if err != nil {
				t.Fatal(err)
			}
			if err := tlog.Consistent(l.checkpoint(older, noon), l.checkpoint(size, noon), path); err != nil {
				t.Fatalf("%d and %d: %v", older, size, err)
			}
		}
	}
}

// TestProofRefuses: whatever is wrong, a proof proves nothing.
func TestProofRefuses(t *testing.T) {
	l := newLog(11)
	good := l.prove(6, 11)
	removed, swapped, altered := &testLog{}, newLog(0), newLog(0)
	for i, leaf := range l.leaves {
		if i != 3 {
			removed.add(leaf)
		}
		swapped.add(l.leaves[[]int{0, 1, 2, 3, 4, 6, 5, 7, 8, 9, 10}[i]])
		if i == 6 {
			leaf.Kind = "tombstone"
		}
		altered.add(leaf)
	}
	at := func(change func(*tlog.Proof)) tlog.Proof {
		p := good
		p.Path = slices.Clone(good.Path)
		change(&p)
		return p
	}
	for name, p := range map[string]tlog.Proof{
		"another index":     at(func(p *tlog.Proof) { p.Index = 5 }),
		"index behind":      at(func(p *tlog.Proof) { p.Index = 11 }),
		"another size":      at(func(p *tlog.Proof) { p.Checkpoint.Size = 17 }),
		"smaller size":      at(func(p *tlog.Proof) { p.Checkpoint.Size = 7 }),
		"another root":      at(func(p *tlog.Proof) { p.Checkpoint.Root[0] ^= 1 }),
		"a hash less":       at(func(p *tlog.Proof) { p.Path = p.Path[1:] }),
		"a hash more":       at(func(p *tlog.Proof) { p.Path = append(p.Path, p.Path[0]) }),
		"hashes swapped":    at(func(p *tlog.Proof) { p.Path[0], p.Path[1] = p.Path[1], p.Path[0] }),
		"no hash":           at(func(p *tlog.Proof) { p.Path = nil }),
		"leaf removed":      at(func(p *tlog.Proof) { p.Checkpoint = removed.checkpoint(10, noon) }),
		"leaves reordered":  at(func(p *tlog.Proof) { p.Checkpoint = swapped.checkpoint(11, noon) }),
		"leaf altered":      at(func(p *tlog.Proof) { p.Checkpoint = altered.checkpoint(11, noon) }),
		"node as leaf":      {Index: 0, Path: []tlog.Hash{l.prove(2, 4).Path[1]}, Checkpoint: l.checkpoint(2, noon)},
		"the next one's":    l.prove(7, 11),
		"of a smaller tree": at(func(p *tlog.Proof) { p.Path = l.prove(6, 9).Path }),
	} {
		if err := p.Check(l.leaves[6]); !errors.Is(err, tlog.ErrInclusion) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	path, err := tlog.ProveTree(6, 11, l.stored)
	if err != nil {
		t.Fatal(err)
	}
	old, now := l.checkpoint(6, noon), l.checkpoint(11, noon)
	elsewhere := now
	elsewhere.Origin = "leafproof/st_other"
	for name, test := range map[string]struct {
		older, newer tlog.Checkpoint
		path         []tlog.Hash
		err          error
	}{
		"leaf removed":      {old, removed.checkpoint(10, noon), path, tlog.ErrConsistency},
		"leaf altered":      {altered.checkpoint(11, noon), now, nil, tlog.ErrFork},
		"leaves reordered":  {swapped.checkpoint(6, noon), now, path, tlog.ErrConsistency},
		"other way round":   {now, old, path, tlog.ErrConsistency},
		"another log":       {old, elsewhere, path, tlog.ErrOrigin},
		"a hash less":       {old, now, path[1:], tlog.ErrConsistency},
		"a hash more":       {old, now, append(slices.Clone(path), path[0]), tlog.ErrConsistency},
		"proof of nothing":  {l.checkpoint(0, noon), now, path, tlog.ErrConsistency},
		"no empty tree":     {tlog.Checkpoint{Origin: origin}, now, nil, tlog.ErrFork},
		"proof of the same": {now, now, path, tlog.ErrConsistency},
	} {
		if err := tlog.Consistent(test.older, test.newer, test.path); !errors.Is(err, test.err) {
			t.Errorf("%s: error = %v, want %v", name, err, test.err)
		}
	}
}

func TestParseProofRefuses(t *testing.T) {
	p := newLog(5).prove(2, 5)
	good := p.String()
	if again, err := tlog.ParseProof([]byte(good)); err != nil || again.String() != good {
		t.Fatalf("%v\n%s", err, good)
	}
	p.Extra = []byte{}
	if again, err := tlog.ParseProof([]byte(p.String())); err != nil || again.String() != p.String() {
		t.Errorf("empty extra data: %v", err)
	}
	line := p.Path[0].String() + "\n"
	for name, text := range map[string]string{
		"empty":           "",
		"head alone":      "c2sp.org/tlog-proof@v1\n",
		"version 2":       strings.Replace(good, "@v1", "@v2", 1),
		"no index":        strings.Replace(good, "index 2\n", "", 1),
		"index 02":        strings.Replace(good, "index 2", "index 02", 1),
		"index -1":        strings.Replace(good, "index 2", "index -1", 1),
		"extra behind":    strings.Replace(good, "index 2\n", "index 2\nextra AAAA\n", 1),
		"extra twice":     strings.Replace(good, "index 2\n", "extra AAAA\nextra AAAA\nindex 2\n", 1),
		"extra alone":     strings.Replace(good, "index 2\n", "extra AAAA\n", 1),
		"a short hash":    strings.Replace(good, line, line[4:], 1),
		"64 hashes":       strings.Replace(good, line, strings.Repeat(line, 64), 1),
		"carriage return": strings.Replace(good, line, p.Path[0].String()+"\r\n", 1),
		"more":            good + "\n",
		"huge":            strings.Replace(good, "index 2\n", "extra "+strings.Repeat("AAAA", 100_000)+"\nindex 2\n", 1),
		"extra too large": strings.Replace(good, "index 2\n", "extra "+strings.Repeat("AAAA", 8_000)+"\nindex 2\n", 1),
	} {
		if _, err := tlog.ParseProof([]byte(text)); !errors.Is(err, tlog.ErrMalformed) && !errors.Is(err, tlog.ErrTooLarge) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}
