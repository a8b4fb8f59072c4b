package ref

import "strconv"

// A Marker stands in a stored result where bytes stood: it says where they went. No
// model reads it; see [Marker.ForModel].
type Marker struct {
	Key        string // agent/<agent>/<key>; what the caller named is escaped in it
	ArtifactID string
	Size       int64 // bytes
	MediaType  string
}

// A ModelMarker is what a model reads where bytes stood: how much there is of what
// kind, and an address. It has no key, digest, path or tenant.
type ModelMarker struct {
	Seq, Part uint64
	Field     string // where in the part it stands; "" where it is the part
	Size      int64
	MediaType string
}

// maxMediaType is the longest media type that a model is shown.
const maxMediaType = 64

// plainMedia stands for media types that a model is not shown.
const plainMedia = "application/octet-stream"

// ForModel is the one way from a stored marker, which stands in field of a part, to
// what a model reads of it.
func (m Marker) ForModel(seq, part uint64, field string) ModelMarker {
	media := m.MediaType
	if !isMediaType(media) {
		media = plainMedia
	}
	return ModelMarker{Seq: seq, Part: part, Field: field, Size: m.Size, MediaType: media}
}

// isMediaType reports a media type that a model may read: at most 64 characters of
// what media types are written with. What a producer wrote there is no place for text.
func isMediaType(s string) bool {
	if s == "" || len(s) > maxMediaType {
		return false
	}
	slash := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '/':
			slash++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '+', c == '-', c == '_', c == ';', c == '=', c == ' ':
		default:
			return false
		}
	}
	return slash == 1
}

// Append appends the marker as JSON:
//
//	{"opaque":true,"value":{"$ref":{"type":"Message","seq":42,"part":0}},"size":2214731,"format":{"mediaType":"application/json"}}
//
// It has 100 bytes and the digits of seq, part and size, the media type, and where it
// does not stand for the whole part, the member "field" behind "part".
func (m ModelMarker) Append(dst []byte) []byte {
	dst = append(dst, `{"opaque":true,"value":`...)
	dst = Append(dst, Message{Seq: &m.Seq, Part: m.Part, Field: m.Field})
	dst = strconv.AppendInt(append(dst, `,"size":`...), m.Size, 10)
	dst = appendString(append(dst, `,"format":{"mediaType":`...), m.MediaType)
	return append(dst, '}', '}')
}
