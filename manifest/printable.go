package manifest

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPrintable = 200 // characters that Printable returns at most
	maxMarks     = 3   // combining marks on one letter; more of them paint over other lines
	countRoom    = 24  // characters for "… and 1234567 more"
)

// Printable makes foreign text safe to show in a line of a terminal or a log: it
// can neither act on the terminal nor push the text around it out of place.
// What does not show is escaped as in Go (\n, \x1b, \u202e; \xff where it is not
// UTF-8): control and format characters, those that turn the direction of the
// text, spaces other than U+0020, letters without a shape, and more than three
// combining marks on a letter. Several spaces become one, and those at either end
// are dropped. At most 200 characters are returned; longer text is cut and ends
// in "… and N more", N being the characters of s that are left out. A backslash
// stands as it is, so the result is to be read and not to be decoded. What
// Printable returned it returns again unchanged.
func Printable(s string) string {
	s = strings.Trim(s, " ")
	var b strings.Builder
	width, room, roomAt := 0, 0, 0 // room: the output, roomAt: the input up to which a count still fits
	marks, space := maxMarks, false
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		piece := s[i : i+n]
		if unicode.IsMark(r) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == ' ' && space:
			piece = ""
		case r == utf8.RuneError && n == 1:
			piece = fmt.Sprintf(`\x%02x`, s[i])
		case !shows(r) || marks > maxMarks:
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		space = r == ' '
		width += utf8.RuneCountInString(piece)
		if width > maxPrintable {
			return fmt.Sprintf("%s… and %d more", b.String()[:room], utf8.RuneCountInString(s[roomAt:]))
		}
		b.WriteString(piece)
		i += n
		if width <= maxPrintable-countRoom {
			room, roomAt = b.Len(), i
		}
	}
	return b.String()
}

// shows says whether a rune puts one visible mark, or one plain space, on a screen.
func shows(r rune) bool {
	return unicode.IsPrint(r) && r != '\u2800' && // the braille pattern without dots
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// cut is the first characters of s, at most most and the count of the rest.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := 0
	for i := range s {
		if n == most {
			return fmt.Sprintf("%s… and %d more", s[:i], utf8.RuneCountInString(s[i:]))
		}
		n++
	}
	return s
}

// quote shows foreign text in an error: in quotes, escaped and not too long.
func quote(s string) string { return strconv.Quote(cut(s, 100)) }
