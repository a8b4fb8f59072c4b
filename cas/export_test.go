package cas

import "leafproof/merkle"

// The pack's inside, for tests in cas_test.

// SealPack returns a pack of these blobs.
func SealPack(blobs ...[]byte) (merkle.Root, []byte) {
	var w packWriter
	for _, p := range blobs {
		w.add(merkle.Sum(p), p)
	}
	id, size, parts := w.seal()
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	if int64(len(out)) != size {
		panic("seal states another size than it has")
	}
	return id, out
}

// ParsePackFooter returns the blobs' places in a footer that passes.
func ParsePackFooter(p []byte, limit int64) (map[merkle.Root][2]int64, error) {
	runs, keys, err := parseFooter(p, limit)
	if err != nil {
		return nil, err
	}
	out := make(map[merkle.Root][2]int64)
	for _, k := range locate(runs, keys) {
		out[k.root] = [2]int64{int64(k.at) + int64(k.off), int64(k.length)}
	}
	return out, nil
}
