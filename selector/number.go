package selector

import (
	"bytes"
	"strconv"
)

// decimal is an exact number: ±0.d₁d₂… × 10^exp, without leading or trailing
// zeros among the digits. Zero has no digits and is not negative.
type decimal struct {
	neg    bool
	digits []byte
	exp    int64
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

// equal reports whether two numbers are the same value.
func (d decimal) equal(o decimal) bool {
	return d.neg == o.neg && d.exp == o.exp && bytes.Equal(d.digits, o.digits)
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
