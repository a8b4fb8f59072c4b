package tlog

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a checkpoint. A signature of a kind that is not known here may
// have nearly 5 kB (C2SP signed-note), and a log may have many witnesses.
const (
	MaxCheckpoint = 128 << 10 // bytes of text
	MaxSignatures = 64        // lines
	maxLine       = 255       // bytes of the origin and of a key's name
	maxExtension  = 16        // lines
)

// Checkpoint is what a log says of itself: C2SP tlog-checkpoint, which is a C2SP
// signed-note. That it was parsed says nothing about who signed it: see
// [Checkpoint.SignedBy] and [Commit].
type Checkpoint struct {
	Origin     string   // the name of the log
	Size       int64    // leaves
	Root       Hash     // of the tree of that size
	Extension  []string // lines that this package writes none of, and does not read
	Signatures []Signature
}

// Signature is a line under a note. What Sig holds depends on the kind of key.
type Signature struct {
	Name string // of the key
	ID   uint32 // of the key, as in [manifest.VerifierKey.ID]
	Sig  []byte
}

const dash = "— " // U+2014 and a space

// Text is what the log signs: the note without its signatures.
func (c Checkpoint) Text() string {
	var b strings.Builder
	b.WriteString(c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n")
	for _, line := range c.Extension {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// String is the whole note, as [ParseCheckpoint] reads it.
func (c Checkpoint) String() string {
	var b strings.Builder
	b.WriteString(c.Text() + "\n")
	for _, s := range c.Signatures {
		b.WriteString(s.String())
	}
	return b.String()
}

// String is the line, with its end.
func (s Signature) String() string {
	return dash + s.Name + " " + base64.StdEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, s.ID), s.Sig...)) + "\n"
}

// ParseCheckpoint reads a checkpoint in its one spelling and checks its form, not
// its signatures. It has at least one.
func ParseCheckpoint(text []byte) (Checkpoint, error) {
	c, err := parseCheckpoint(text)
	if err != nil {
		return Checkpoint{}, &Error{Op: "parse checkpoint", Err: err}
	}
	return c, nil
}

func parseCheckpoint(text []byte) (c Checkpoint, err error) {
	if len(text) > MaxCheckpoint {
		return c, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), MaxCheckpoint)
	}
	if err := checkText(text); err != nil {
		return c, err
	}
	// The text has no empty line, so the first is also the last one.
	body, sigs, ok := strings.Cut(string(text), "\n\n")
	if !ok {
		return c, fmt.Errorf("%w: no empty line before signatures", ErrMalformed)
	}
	lines := strings.Split(body, "\n")
	if len(lines) < 3 || len(lines) > 3+maxExtension {
		return c, fmt.Errorf("%w: %d lines, not an origin, a size and a root", ErrMalformed, len(lines))
	}
	if lines[0] == "" || len(lines[0]) > maxLine {
		return c, fmt.Errorf("%w: an origin has 1 to %d bytes, not %d", ErrMalformed, maxLine, len(lines[0]))
	}
	c.Origin = lines[0]
	if c.Size, err = decimal(lines[1]); err != nil {
		return c, err
	}
	if c.Root, err = decodeHash(lines[2]); err != nil {
		return c, err
	}
	if len(lines) > 3 {
		c.Extension = lines[3:]
	}
	if c.Signatures, err = parseSignatures(sigs); err != nil {
		return c, err
	}
	if len(c.Signatures) == 0 {
		return c, fmt.Errorf("%w: no signature", ErrMalformed)
	}
	return c, nil
}

// checkText refuses what no signed note holds.
func checkText(text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("%w: not UTF-8 text", ErrMalformed)
	}
	for _, b := range text {
		if b < ' ' && b != '\n' {
			return fmt.Errorf("%w: a control character %#02x", ErrMalformed, b)
		}
	}
	return nil
}

// parseSignatures reads lines up to the end of the text.
func parseSignatures(text string) (list []Signature, err error) {
	for line := range strings.Lines(text) {
		if len(list) == MaxSignatures {
			return nil, fmt.Errorf("%w: more than %d signatures", ErrTooLarge, MaxSignatures)
		}
		s, err := parseSignature(line)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func parseSignature(line string) (s Signature, err error) {
	rest, ok := strings.CutPrefix(line, dash)
	rest, end := strings.CutSuffix(rest, "\n")
	name, blob, two := strings.Cut(rest, " ")
	if !ok || !end || !two {
		return s, fmt.Errorf("%w: %s is not a line of a signature", ErrMalformed, quote(line))
	}
	if !isKeyName(name) {
		return s, fmt.Errorf("%w: %s names no key", ErrMalformed, quote(name))
	}
	b, err := decodeBase64(blob)
	if err != nil {
		return s, err
	}
	if len(b) < 5 {
		return s, fmt.Errorf("%w: a signature of %d bytes with its key's id", ErrMalformed, len(b))
	}
	return Signature{name, binary.BigEndian.Uint32(b), b[4:]}, nil
}

// isKeyName reports whether s may name the key of a signed note.
func isKeyName(s string) bool {
	return s != "" && len(s) <= maxLine && !strings.ContainsRune(s, '+') && strings.IndexFunc(s, unicode.IsSpace) < 0
}
