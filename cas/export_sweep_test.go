package cas

import (
	"bytes"

	"leafproof/merkle"
)

// PackKeys returns the lengths of the blobs in a pack.
func PackKeys(p []byte, id merkle.Root) (map[merkle.Root]int, error) {
	_, keys, err := readFooter(bytes.NewReader(p), int64(len(p)), id)
	out := make(map[merkle.Root]int)
	for _, k := range keys {
		out[k.root] = int(k.length)
	}
	return out, err
}
