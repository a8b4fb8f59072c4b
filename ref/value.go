package ref

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"leafproof/selector"
)

// value reads what stands at a place, as a JSON value of at most so many bytes, in
// the form in which the tool takes it.
func (r *Resolver) value(ctx context.Context, p *place, most int64, as form) ([]byte, *selector.Answer, error) {
	out, answer, err := r.read(ctx, p, most, as)
	if gone(err) && p.derived {
		err = stale(p.path, err)
	}
	if err != nil {
		return nil, nil, sourceError(err)
	}
	if as == asString && len(out) > 0 && out[0] != '"' {
		out = appendString(nil, string(out))
	}
	return out, answer, nil
}

func (r *Resolver) read(ctx context.Context, p *place, most int64, as form) ([]byte, *selector.Answer, error) {
	switch {
	case p.filter != nil:
		rows := rowList{most: most}
		array := *p
		array.filter = nil
		answer, err := r.query(ctx, &array, "", Query{Where: *p.filter}, rows.add)
		if err == nil && answer.Stop != selector.StopComplete {
			err = fmt.Errorf("%w: the scan of the rows stopped: %s", ErrIncomplete, answer.Stop)
		}
		if err != nil {
			return nil, nil, err
		}
		return rows.end(), answer, nil
	case p.value != nil:
		v, err := pointed(ctx, p.value, p.path)
		if err == nil && int64(len(v)) > most {
			err = tooLarge(most)
		}
		return v, nil, err
	case p.derived:
		v, answer, err := r.document(ctx, p, p.path, most)
		if err == nil && !isJSON(v) {
			err = fail(ErrTypeMismatch, "what stands at the path is no JSON value")
		}
		return v, answer, err
	}
	return r.whole(ctx, p, most, as)
}

// pointed is the value at a pointer of a value in memory.
func pointed(ctx context.Context, doc []byte, path string) ([]byte, error) {
	if path == "" {
		return doc, nil
	}
	at, err := selector.FindPointer(ctx, bytes.NewReader(doc), int64(len(doc)), path)
	if err != nil {
		return nil, err
	}
	return doc[at.Start:at.End], nil
}

// document reads the value at a pointer of an artifact.
func (r *Resolver) document(ctx context.Context, p *place, path string, most int64) ([]byte, *selector.Answer, error) {
	out := bounded{most: most + 1} // a newline comes behind it
	if p.info != nil && p.info.Size <= most {
		out.Grow(int(p.info.Size) + bytes.MinRead)
	}
	answer, err := r.source.Read(ctx, p.id, Selection{Pointer: &path}, &out)
	if err != nil {
		return nil, nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), answer, nil
}

// whole reads all of an artifact: JSON as the value that it is, text as a string. Other
// bytes are no JSON value, so only a tool that says contentEncoding base64 gets them.
func (r *Resolver) whole(ctx context.Context, p *place, most int64, as form) ([]byte, *selector.Answer, error) {
	info, err := r.stat(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if info.Size > most {
		return nil, nil, tooLarge(most)
	}
	out := bounded{most: most}
	out.Grow(int(info.Size))
	answer, err := r.source.Read(ctx, p.id, Selection{}, &out)
	if err != nil {
		return nil, nil, err
	}
	b := out.Bytes()
	switch kind := kindOf(info); {
	case as == asBase64, as == asString && (kind == kindBytes || !utf8.Valid(b)):
		b = appendString(nil, base64.StdEncoding.EncodeToString(b))
	case as == asString:
		b = appendString(make([]byte, 0, len(b)+len(b)/16+2), string(b))
	case kind == kindJSON:
		if b = bytes.TrimSpace(b); !isJSON(b) {
			return nil, nil, fail(ErrTypeMismatch, "the stored bytes say that they are JSON, and are not")
		}
	case kind == kindText && utf8.Valid(b):
		b = appendString(make([]byte, 0, len(b)+len(b)/16+2), string(b))
	default:
		return nil, nil, fail(ErrTypeMismatch, fmt.Sprintf("the reference is to %d bytes that are no JSON and no text: a tool gets them where the parameter is lazy, or a string with contentEncoding base64", info.Size))
	}
	if int64(len(b)) > most {
		return nil, nil, tooLarge(most)
	}
	return b, answer, nil
}

const (
	kindBytes = iota
	kindText
	kindJSON
)

// kindOf says what the bytes of an artifact are to a tool.
func kindOf(info *Info) int {
	media, _, err := mime.ParseMediaType(info.MediaType)
	if err != nil {
		media = ""
	}
	switch {
	case info.Format == selector.FormatJSON, media == "application/json", strings.HasSuffix(media, "+json"):
		return kindJSON
	case info.Format != "" && info.Format != selector.FormatBytes,
		strings.HasPrefix(media, "text/"), media == "application/x-ndjson", media == "application/x-json-stream",
		media == "application/xml", strings.HasSuffix(media, "+xml"), media == "application/yaml":
		return kindText
	}
	return kindBytes
}

// isJSON reports one JSON value. That no name stands twice is for the schema to demand.
func isJSON(v []byte) bool {
	return len(v) > 0 && jsontext.Value(v).IsValid(jsontext.AllowDuplicateNames(true))
}

// settle reads a place, so that something can be looked for in it.
func (r *Resolver) settle(ctx context.Context, p *place) error {
	v, _, err := r.value(ctx, p, r.limits.Bytes, asValue)
	if err != nil {
		return err
	}
	p.value, p.path, p.filter = v, "", nil
	return nil
}

// rowList makes an array of rows, each as it stands.
type rowList struct {
	out  []byte
	most int64
}

func (l *rowList) add(row Row) error {
	if int64(len(l.out)+len(row.Bytes)+2) > l.most {
		return tooLarge(l.most)
	}
	c := byte(',')
	if len(l.out) == 0 {
		c = '['
	}
	l.out = append(l.out, c)
	if row.JSON {
		l.out = append(l.out, row.Bytes...)
	} else {
		l.out = appendString(l.out, string(row.Bytes))
	}
	return nil
}

func (l *rowList) end() []byte {
	if len(l.out) == 0 {
		l.out = append(l.out, '[')
	}
	return append(l.out, ']')
}
