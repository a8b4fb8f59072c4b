package leafproof_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"testing/iotest"

	"leafproof"
)

// A put with a name that is cut goes on in another process, and ends like one
// that was not. What is left of it in between is no artifact.
func TestPutResume(t *testing.T) {
	records := bytes.Buffer{}
	for i := range 20_000 {
		fmt.Fprintf(&records, "{\"i\":%d,\"text\":\"some text\"}\n", i)
	}
	noise := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 255, 254, 9, 8}, 50_000)
	for name, data := range map[string][]byte{"records": records.Bytes(), "opaque": noise, "small": []byte("abc")} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t)
			cut := errors.New("cut")
			o := leafproof.PutOptions{Resume: "mine"}
			for _, n := range []int{len(data) / 2, len(data) * 2 / 3} {
				r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(cut))
				if _, err := s.Put(t.Context(), r, o); !errors.Is(err, cut) {
					t.Fatalf("a put that was cut: %v", err)
				}
				left, _ := filepath.Glob(filepath.Join(dir, "objects", "*", "tmp", ".upl-*.data"))
				if len(left) != 1 {
					t.Fatalf("%q is kept", left)
				}
				s.Close()
				s = openStore(t, dir)
			}
			id := put(t, s, data, o, leafproof.Facts{})
			if got := read(t, s, id, leafproof.Selector{}); !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d read", len(got), len(data))
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "objects", "*", "tmp", "*")); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}
