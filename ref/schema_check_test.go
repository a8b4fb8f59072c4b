package ref_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"leafproof/ref"
)

func TestCompiled(t *testing.T) {
	const schema = `{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":{"type":"number"}}},"source":{"type":"string"}},"required":["rows"],"additionalProperties":false}`
	for name, test := range map[string]struct {
		in   string
		lazy []string
		err  error
		says string
	}{
		"good":           {`{"rows":[{"id":1}]}`, nil, nil, ""},
		"a type":         {`{"rows":[{"id":1},{"id":"s3cr3t"}]}`, nil, ref.ErrTypeMismatch, "/rows/1/id: got string, want integer"},
		"a hidden name":  {`{"rows":[{"id":1,"s3cr3t":"s3cr3t"}]}`, nil, ref.ErrTypeMismatch, "/rows/0/*: got string, want number"},
		"missing":        {`{}`, nil, ref.ErrTypeMismatch, `missing "rows"`},
		"too much":       {`{"rows":[],"s3cr3t":1}`, nil, ref.ErrTypeMismatch, "members that are not allowed: 1"},
		"no JSON":        {`{"rows":[`, nil, ref.ErrTypeMismatch, "cannot be judged"},
		"twice":          {`{"rows":[],"rows":[]}`, nil, ref.ErrTypeMismatch, "cannot be judged"},
		"left":           {`{"rows":[],"source":{"$ref":{"type":"Message","part":0}}}`, []string{"source"}, nil, ""},
		"left, not lazy": {`{"rows":[],"source":{"$ref":{"type":"Message","part":0}}}`, nil, ref.ErrTypeMismatch, "/source: got object, want string"},
		"lazy, inline":   {`{"rows":[],"source":"x"}`, []string{"source"}, nil, ""},
		"lazy, a number": {`{"rows":[],"source":7}`, []string{"source"}, ref.ErrTypeMismatch, "/source: "},
		"lazy, an impostor": {
			`{"rows":[],"source":{"$ref":{},"more":1}}`,
			[]string{"source"},
			ref.ErrTypeMismatch, "/source: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ref.CompileSchema([]byte(schema), test.lazy...)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Check(t.Context(), []byte(test.in))
			if !errors.Is(err, test.err) {
				t.Fatalf("Check = %v, want %v", err, test.err)
			}
			if err != nil && (!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "s3cr3t")) {
				t.Errorf("Check = %v, want %q", err, test.says)
			}
		})
	}
}

func TestCompileSchemaRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		lazy []string
	}{
		"no JSON":   {`{`, nil},
		"no schema": {`{"type":"frob"}`, nil},
		"a page":    {`{"$ref":"https://x.test/"}`, nil},
		"a list":    {`[]`, nil},
		"not there": {`{"properties":{}}`, []string{"a"}},
	} {
		if c, err := ref.CompileSchema([]byte(test.in), test.lazy...); !errors.Is(err, ref.ErrSchema) || c != nil {
			t.Errorf("%s: CompileSchema = %v, %v", name, c, err)
		}
	}
}

// TestCheckLong: a resolved value may be far longer than what a model writes.
func TestCheckLong(t *testing.T) {
	c, err := ref.CompileSchema([]byte(`{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"},"status":{"enum":["open","closed"]}},"required":["id"]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, `,{"id":%d,"status":"open","title":"%0100d"}`, i, i)
	}
	long := `{"rows":[` + b.String()[1:] + `]}`
	if err := c.Check(t.Context(), []byte(long)); err != nil {
		t.Errorf("Check of %d bytes = %v", len(long), err)
	}
	if err := c.Check(t.Context(), make([]byte, ref.MaxInput+1)); !errors.Is(err, ref.ErrTooLarge) {
		t.Errorf("Check of too much = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Check(ctx, []byte(long)); !errors.Is(err, context.Canceled) {
		t.Errorf("Check for nobody = %v", err)
	}
}

// TestCompiledTogether: one compiled schema serves many calls at once.
func TestCompiledTogether(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c, err := ref.CompileSchema([]byte(`{"properties":{"a":{"type":"integer"}}}`))
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				in, want := `{"a":1}`, error(nil)
				if i%2 == 0 {
					in, want = `{"a":"x"}`, ref.ErrTypeMismatch
				}
				if err := c.Check(t.Context(), []byte(in)); !errors.Is(err, want) {
					t.Errorf("Check(%s) = %v", in, err)
				}
			}
		})
	}
	wg.Wait()
}
