package ref

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"leafproof/merkle"
)

// maxLine is the longest line of a transcript.
const maxLine = 256 << 20

// chain is what a line of a transcript ends with: it depends on that line and all
// lines before it.
type chain [16]byte

// next is the chain after a line whose text before its last member is body.
func (c chain) next(body []byte) chain {
	sum := merkle.DeriveKey(contextChain, append(c[:], body...))
	return chain(sum[:16])
}

const contextChain = "leafproof 2026 transcript-chain v1"

// appendChain ends a line.
func (c chain) appendChain(line []byte) (chain, []byte) {
	c = c.next(line)
	line = append(line, `,"chain":"`...)
	return c, append(hex.AppendEncode(line, c[:]), '"', '}')
}

// chainTail is how many bytes of a line the chain takes.
const chainTail = len(`,"chain":"`) + 32 + len(`"}`)

// cutChain returns the text that the chain is over, where the line ends with the chain
// that is due.
func (c chain) cutChain(line []byte) (chain, []byte, bool) {
	if len(line) < chainTail {
		return c, nil, false
	}
	body := line[:len(line)-chainTail]
	next, want := c.appendChain(bytes.Clone(body))
	return next, body, bytes.Equal(line, want)
}

// appendEntry appends an entry as one line without its chain and end: members in the
// order of docs/FORMAT.md, those that say nothing left out.
func appendEntry(dst []byte, seq uint64, e Entry) []byte {
	dst = strconv.AppendUint(append(dst, `{"seq":`...), seq, 10)
	dst = strconv.AppendUint(append(dst, `,"turn":`...), e.Turn, 10)
	dst = appendMember(dst, "role", e.Role)
	dst = appendNumber(appendNumber(dst, "fork", e.Fork), "compact", e.Compact)
	if len(e.Parts) > 0 {
		dst = append(dst, `,"parts":[`...)
		for i, p := range e.Parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.appendTo(dst)
		}
		dst = append(dst, ']')
	}
	if len(e.Shows) > 0 {
		dst = append(dst, `,"shows":[`...)
		for i, p := range e.Shows {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(append(dst, '['), p.Seq, 10)
			dst = append(strconv.AppendUint(append(dst, ','), p.Part, 10), ']')
		}
		dst = append(dst, ']')
	}
	if len(e.Keys) > 0 {
		dst = append(dst, `,"keys":[`...)
		for i, m := range e.Keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.appendTo(dst)
		}
		dst = append(dst, ']')
	}
	return dst
}

func appendNumber(dst []byte, name string, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendUint(append(append(append(dst, ',', '"'), name...), '"', ':'), n, 10)
}

// appendTo writes a part. A value that has line ends goes as a string of its text, so
// that it keeps its bytes and the entry its one line.
func (p Part) appendTo(dst []byte) []byte {
	if bytes.ContainsAny(p.Value, "\r\n") {
		dst = appendString(append(dst, `{"text":`...), string(p.Value))
	} else {
		dst = append(append(dst, `{"value":`...), p.Value...)
	}
	if len(p.Slots) > 0 {
		dst = append(dst, `,"slots":[`...)
		for i, s := range p.Slots {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(append(dst, `{"field":`...), s.Field)
			if s.Marker != nil {
				dst = s.Marker.appendTo(append(dst, `,"marker":`...))
			} else {
				dst = Append(append(dst, `,"recipe":`...), s.Recipe)
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if p.Hidden {
		dst = append(dst, `,"hidden":true`...)
	}
	dst = appendMember(appendMember(dst, "tool", p.Tool), "call_id", p.CallID)
	return append(dst, '}')
}

// appendTo writes the stored form of a marker.
func (m Marker) appendTo(dst []byte) []byte {
	dst = appendString(append(dst, `{"key":`...), m.Key)
	dst = appendString(append(dst, `,"artifact_id":`...), m.ArtifactID)
	dst = strconv.AppendInt(append(dst, `,"size":`...), m.Size, 10)
	dst = appendString(append(dst, `,"media_type":`...), m.MediaType)
	return append(dst, '}')
}

// parseEntry reads a line that appendEntry wrote, with its closing brace.
func parseEntry(line []byte) (seq uint64, e Entry, err error) {
	err = members(line, func(name string, v []byte) (err error) {
		switch name {
		case "seq":
			seq, err = integer(v)
		case "turn":
			e.Turn, err = integer(v)
		case "role":
			e.Role, err = text(v)
		case "fork":
			e.Fork, err = integer(v)
		case "compact":
			e.Compact, err = integer(v)
		case "parts":
			err = elements(v, func(v []byte) error {
				p, err := parsePart(v)
				e.Parts = append(e.Parts, p)
				return err
			})
		case "shows":
			err = elements(v, func(v []byte) error {
				p, err := parsePlace(v)
				e.Shows = append(e.Shows, p)
				return err
			})
		case "keys":
			err = elements(v, func(v []byte) error {
				m, err := parseMarker(v)
				e.Keys = append(e.Keys, m)
				return err
			})
		default:
			err = fmt.Errorf("an entry has no member %s", clip(name))
		}
		return err
	})
	return seq, e, err
}

func parsePlace(v []byte) (p Place, err error) {
	var n []uint64
	err = elements(v, func(v []byte) error {
		i, err := integer(v)
		n = append(n, i)
		return err
	})
	if err == nil && len(n) != 2 {
		err = errKind
	}
	if err != nil {
		return p, err
	}
	return Place{Seq: n[0], Part: n[1]}, nil
}

func parsePart(v []byte) (p Part, err error) {
	err = members(v, func(name string, v []byte) (err error) {
		switch name {
		case "value":
			p.Value = json.RawMessage(v)
		case "text":
			var s string
			s, err = text(v)
			p.Value = json.RawMessage(s)
		case "slots":
			err = elements(v, func(v []byte) error {
				s, err := parseSlot(v)
				p.Slots = append(p.Slots, s)
				return err
			})
		case "hidden":
			p.Hidden = string(v) == "true"
		case "tool":
			p.Tool, err = text(v)
		case "call_id":
			p.CallID, err = text(v)
		default:
			err = fmt.Errorf("a part has no member %s", clip(name))
		}
		return err
	})
	return p, err
}

func parseSlot(v []byte) (s Slot, err error) {
	err = members(v, func(name string, v []byte) (err error) {
		switch name {
		case "field":
			s.Field, err = text(v)
		case "marker":
			var m Marker
			m, err = parseMarker(v)
			s.Marker = &m
		case "recipe":
			inner, is, e := Detect(v)
			if err = e; err == nil && !is {
				err = errKind
			}
			if err == nil {
				s.Recipe, err = ParseServer(inner, Limits{Parse: 64}) // what was kept once is read
			}
		default:
			err = fmt.Errorf("a slot has no member %s", clip(name))
		}
		return err
	})
	return s, err
}

func parseMarker(v []byte) (m Marker, err error) {
	err = members(v, func(name string, v []byte) (err error) {
		var n uint64
		switch name {
		case "key":
			m.Key, err = text(v)
		case "artifact_id":
			m.ArtifactID, err = text(v)
		case "size":
			n, err = integer(v)
			m.Size = int64(n)
		case "media_type":
			m.MediaType, err = text(v)
		default:
			err = fmt.Errorf("a marker has no member %s", clip(name))
		}
		return err
	})
	return m, err
}
