package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// RefDiff returns where a presented reference differs from the signed one, as
// sorted RFC 6901 pointers such as /scope/tenant_id; none when they are the same
// byte for byte. A list of another length is named as a whole. A presented
// reference that has no canonical form differs as a whole, at "".
func RefDiff(presented, signed ArtifactRef) []string {
	a, errA := Canonical(presented)
	b, errB := Canonical(signed)
	if errA != nil || errB != nil {
		return []string{""}
	}
	return diffJSON(a, b)
}

// CheckRef is [RefDiff] as an error: it wraps [ErrRefAltered] and its At is the
// first path that differs.
func CheckRef(presented, signed ArtifactRef) error {
	diff := RefDiff(presented, signed)
	if len(diff) == 0 {
		return nil
	}
	return &Error{
		Op: "compare references", At: diff[0],
		Err: fmt.Errorf("%w: it differs from the signed one at %s", ErrRefAltered, strings.Join(diff, ", ")),
	}
}

// diffJSON compares two canonical documents.
func diffJSON(a, b []byte) []string {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return []string{""}
	}
	var paths []string
	diffValues(x, y, "", &paths)
	slices.Sort(paths)
	return paths
}

func diffValues(x, y any, path string, paths *[]string) {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok {
			break
		}
		for name, value := range x {
			other, ok := y[name]
			if !ok {
				*paths = append(*paths, path+"/"+escapePointer(name))
				continue
			}
			diffValues(value, other, path+"/"+escapePointer(name), paths)
		}
		for name := range y {
			if _, ok := x[name]; !ok {
				*paths = append(*paths, path+"/"+escapePointer(name))
			}
		}
		return
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			diffValues(x[i], y[i], path+"/"+strconv.Itoa(i), paths)
		}
		return
	default:
		if !isContainer(y) && x == y {
			return
		}
	}
	*paths = append(*paths, path)
}

// isContainer guards the comparison of interfaces, which panics on maps and slices.
func isContainer(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
