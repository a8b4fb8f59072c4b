package bundle

import (
	"bytes"
	"fmt"
	"io"

	"leafproof/manifest"
	"leafproof/merkle"
	"leafproof/selector"
)

// takeDigest makes the checker digest what it gives out.
func (c *checker) takeDigest() {
	c.given = merkle.NewBuilder(nil)
	if c.out == nil {
		c.out = c.given
		return
	}
	c.out = io.MultiWriter(c.given, c.out)
}

// checkReceipt judges the receipt in the bundle and holds it to the claim: it must
// have been given for this part of this artifact, at this place, and for these very
// bytes, or it is a MISMATCH of the fact scan. It vouches for the place of a value
// whose document is not here, if it says where that is.
func (c *checker) checkReceipt(claim Claim, env manifest.Envelope, o Options) error {
	const at = "header/receipt"
	r, scan, err := manifest.VerifyReceipt(env, c.m, o.Policy, o.At)
	if err != nil {
		return &Error{At: at, Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
	}
	switch {
	case r == nil:
	case claim.Kind == KindQuery && c.res.Answer == nil:
		scan = manifest.Fact{Name: manifest.FactScan, State: manifest.Unverifiable, Reason: "the answer does not hold"}
	case claim.Kind != KindQuery && len(c.res.Shown) == 0:
		scan = manifest.Fact{Name: manifest.FactScan, State: manifest.Unverifiable, Reason: "the bytes do not hold"}
	default:
		why, err := c.another(claim, r)
		if err != nil {
			return &Error{At: at, Err: fmt.Errorf("%w: %w", ErrMalformed, err)}
		}
		if why != "" {
			scan = manifest.Fact{Name: manifest.FactScan, State: manifest.Mismatch, Reason: why}
		}
	}
	c.v.Set(scan)
	if scan.State == manifest.Attested {
		c.res.Receipt = r
	}
	place, _ := c.v.Fact(manifest.FactSelector)
	if claim.Kind != KindPointer || place.State != manifest.Unverifiable {
		return nil
	}
	switch scan.State {
	case manifest.Attested:
		if r.Result.Span == nil {
			place.Reason = "the receipt does not say at which bytes the value stands"
			break
		}
		place.State, place.Reason, place.By, place.Role = scan.State, "", scan.By, scan.Role
	case manifest.Mismatch:
		place.Reason = "the receipt is not of this read"
	default:
		place.Reason = scan.Reason
	}
	c.v.Set(place)
	return nil
}

// another says why a receipt is not of this claim; "" where it is.
func (c *checker) another(claim Claim, r *manifest.Receipt) (string, error) {
	asked, err := manifest.Canonical(r.Request.Selector)
	if err != nil {
		return "", err
	}
	if want := normalised(claim); !bytes.Equal(asked, want) {
		return fmt.Sprintf("the receipt is for %s, the claim is %s", asked, claim), nil
	}
	if r.Request.Action != "prove" {
		return fmt.Sprintf("the receipt is for a %s, which made no bundle", r.Request.Action), nil
	}
	if s := r.Result.Span; s != nil && (claim.Kind != KindPointer || *s != claim.Ranges[0]) {
		return fmt.Sprintf("the receipt is for the value at bytes %d:%d", s[0], s[1]), nil
	}
	if claim.Kind == KindQuery {
		if why := c.anotherAnswer(claim, r); why != "" {
			return why, nil
		}
	}
	size := c.given.Size()
	digest, err := c.given.Seal()
	switch {
	case err != nil:
		return "", err
	case r.Result.Bytes != size || r.Result.Digest != digest.String():
		return fmt.Sprintf("the receipt is for %d other bytes", r.Result.Bytes), nil
	}
	return "", nil
}

// normalised is the claim as a receipt spells what was asked; nil where it has no
// such spelling.
func normalised(c Claim) []byte {
	switch {
	case c.Kind == KindQuery:
		return c.normalisedQuery()
	case c.Kind == KindPointer:
		return selector.PointerSelector(*c.Pointer)
	case c.Kind == KindRecords:
		return selector.RangeSelector("records", c.Range[0], c.Range[1])
	case len(c.Ranges) == 1:
		return selector.RangeSelector("bytes", c.Ranges[0][0], c.Ranges[0][1])
	}
	return nil
}
