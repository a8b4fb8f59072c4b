package selector

import (
	"bytes"
	"cmp"
	"strconv"
)

// decimal is an exact number: ±0.d₁d₂… × 10^exp, without leading or trailing
// zeros among the digits. Zero has no digits and is not negative.
type decimal struct {
	neg    bool
	digits []byte
	exp    int64
}

// numberEnd returns where the number that begins at i ends, as the grammar of
// RFC 8259 section 6 has it; where it is none, the place of the fault and false.
func numberEnd[T string | []byte](s T, i int) (int, bool) {
	digits := func() bool {
		begin := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i > begin
	}
	if i < len(s) && s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return i, false
	}
	if i < len(s) && s[i] == '.' {
		if i++; !digits() {
			return i, false
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		if i++; i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		ok := digits()
		return i, ok
	}
	return i, true
}

// parseDecimal reads a JSON number. ok is false where it is beyond the limits.
// scratch lends room for the digits and may be nil.
func parseDecimal(raw, scratch []byte, l Limits) (d decimal, ok bool) {
	if len(raw) > 0 && raw[0] == '-' {
		d.neg, raw = true, raw[1:]
	}
	var e int64
	for i, c := range raw {
		if c|0x20 == 'e' {
			e, raw = parseExponent(raw[i+1:]), raw[:i]
			break
		}
	}
	digits := scratch[:0]
	point := int64(len(raw))
	if i := bytes.IndexByte(raw, '.'); i >= 0 {
		point = int64(i)
		digits = append(append(digits, raw[:i]...), raw[i+1:]...)
	} else {
		digits = append(digits, raw...)
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
		point--
	}
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		return decimal{}, true
	}
	d.digits, d.exp = digits, point+e
	ok = int64(len(digits)) <= l.Digits && d.exp <= l.Exponent && d.exp >= -l.Exponent
	return d, ok
}

// parseExponent reads what follows the e. Beyond ±10^15 it stops counting: no
// record is long enough for its digits to bring such a number back into range.
func parseExponent(p []byte) int64 {
	neg := false
	if len(p) > 0 && (p[0] == '+' || p[0] == '-') {
		neg, p = p[0] == '-', p[1:]
	}
	var e int64
	for _, c := range p {
		if e = e*10 + int64(c-'0'); e > 1e15 {
			e = 1e15
		}
	}
	if neg {
		return -e
	}
	return e
}

// small returns a number that is an integer of up to 18 digits.
func (d decimal) small() (n int64, ok bool) {
	if d.exp < int64(len(d.digits)) || d.exp > 18 {
		return 0, len(d.digits) == 0
	}
	for i := range d.exp {
		n *= 10
		if i < int64(len(d.digits)) {
			n += int64(d.digits[i] - '0')
		}
	}
	if d.neg {
		n = -n
	}
	return n, true
}

// smallNumber reads a JSON number that is written as an integer of up to 18
// digits, at the beginning of raw.
func smallNumber(raw []byte) (n int64, ok bool) {
	i := 0
	if raw[0] == '-' {
		i = 1
	}
	begin := i
	for i < len(raw) && raw[i]-'0' <= 9 {
		n = n*10 + int64(raw[i]-'0')
		if i++; i-begin > 18 {
			return 0, false
		}
	}
	if i == begin || i < len(raw) && !scalarEnd[raw[i]] {
		return 0, false
	}
	if begin == 1 {
		n = -n
	}
	return n, true
}

// equal reports whether two numbers are the same value.
func (d decimal) equal(o decimal) bool {
	return d.neg == o.neg && d.exp == o.exp && bytes.Equal(d.digits, o.digits)
}

// compare orders two numbers by value: -1, 0 or 1.
func (d decimal) compare(o decimal) int {
	switch {
	case d.sign() != o.sign():
		return cmp.Compare(d.sign(), o.sign())
	case d.sign() < 0:
		d, o = o, d
	}
	if c := cmp.Compare(d.exp, o.exp); c != 0 {
		return c
	}
	return bytes.Compare(d.digits, o.digits) // without trailing zeros, so a prefix is less
}

func (d decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.neg:
		return -1
	}
	return 1
}

// String returns the one spelling of the number in a normalised query: plain
// where that needs at most 21 digits and no more than six zeros after the
// point, otherwise an integer without trailing zeros, e and the exponent.
func (d decimal) String() string {
	if len(d.digits) == 0 {
		return "0"
	}
	sign := ""
	if d.neg {
		sign = "-"
	}
	digits := string(d.digits)
	n := int64(len(digits))
	zeros := func(n int64) string { return string(bytes.Repeat([]byte("0"), int(n))) }
	switch {
	case d.exp >= n && d.exp <= 21:
		return sign + digits + zeros(d.exp-n)
	case d.exp > 0 && d.exp < n:
		return sign + digits[:d.exp] + "." + digits[d.exp:]
	case d.exp <= 0 && d.exp > -6:
		return sign + "0." + zeros(-d.exp) + digits
	}
	return sign + digits + "e" + strconv.FormatInt(d.exp-n, 10)
}
