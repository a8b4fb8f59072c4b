package leafproof_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"leafproof"
)

// Every code has a status of its own choosing: one that was forgotten would be a
// failure of the server.
func TestHTTPStatusOfEveryCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Code") || len(spec.Values) != 1 {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		n++
		status := (&leafproof.Error{Code: leafproof.Code(code)}).HTTPStatus()
		if status < 200 || status == 500 && code != "internal" {
			t.Errorf("%s has the status %d", code, status)
		}
		return true
	})
	if n < 20 {
		t.Fatalf("only %d codes were found", n)
	}
	if got := (&leafproof.Error{Code: leafproof.CodeInternal, Retryable: true}).HTTPStatus(); got != 503 {
		t.Errorf("an internal error that passes has the status %d", got)
	}
}
