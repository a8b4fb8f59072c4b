package selector

import (
	"encoding/binary"
	"io"

	"leafproof/merkle"
)

// indexBuffer is how many pages are held before they are written.
const indexBuffer = 32

// indexWriter writes an index from entries in ascending order. An entry that it
// has just been given it passes over.
type indexWriter struct {
	out  io.WriterAt
	head indexHead // entries, distinct, pages and tail grow

	buf     []byte // closed pages, then the open one
	written int64  // pages written
	open    bool
	body    []byte // used bytes of the open page but for its last group
	group   []byte // of the last group: shared and suffix
	posts   []byte // its records
	count   uint64 // and how many they are
	last    int64  // the latest record
	key     []byte // the latest key
	rank    int64  // of the open page's first entry
}

func newIndexWriter(out io.WriterAt, root merkle.Root, size int64, spec [32]byte, records int64) *indexWriter {
	return &indexWriter{out: out, head: indexHead{root: root, size: size, spec: spec, records: records}}
}

// used is how many bytes of the open page are taken.
func (w *indexWriter) used() int {
	n := len(w.body)
	if w.count > 0 {
		n += len(w.group) + uvarintLen(w.count) + len(w.posts)
	}
	return n
}

// add takes the next entry.
func (w *indexWriter) add(key []byte, rec int64) error {
	same := w.head.entries > 0 && string(key) == string(w.key)
	if same && w.open {
		d := uint64(rec - w.last - 1)
		if rec == w.last {
			return nil
		}
		if w.used()+uvarintLen(d)+uvarintLen(w.count+1)-uvarintLen(w.count) <= indexRoom {
			w.posts = binary.AppendUvarint(w.posts, d)
			w.took(rec, 1)
			return nil
		}
	}
	shared := len(key)
	if !same {
		shared = commonPrefix(key, w.key)
	}
	suffix := key[shared:]
	takes := uvarintLen(uint64(shared)) + uvarintLen(uint64(len(suffix))) + len(suffix) + 1 + uvarintLen(uint64(rec))
	if w.open && (same || w.used()+takes > indexRoom) {
		if err := w.closePage(); err != nil {
			return err
		}
	}
	if !w.open {
		w.open, w.rank = true, w.head.entries
		w.body = append(binary.AppendUvarint(w.body[:0], uint64(len(w.key))), w.key...)
	}
	w.closeGroup()
	w.group = binary.AppendUvarint(w.group[:0], uint64(shared))
	w.group = append(binary.AppendUvarint(w.group, uint64(len(suffix))), suffix...)
	w.posts = binary.AppendUvarint(w.posts[:0], uint64(rec))
	w.count = 0
	if !same {
		w.key = append(w.key[:0], key...)
		w.head.distinct++
	}
	w.took(rec, 1)
	return nil
}

// took counts an entry.
func (w *indexWriter) took(rec int64, n uint64) {
	w.count += n
	w.last = rec
	w.head.entries++
	if KeyDetermined(w.key) {
		w.head.tail = w.head.entries
	}
}

func (w *indexWriter) closeGroup() {
	if w.count > 0 {
		w.body = append(w.body, w.group...)
		w.body = append(binary.AppendUvarint(w.body, w.count), w.posts...)
		w.count = 0
	}
}

func (w *indexWriter) closePage() error {
	w.closeGroup()
	n := len(w.buf)
	w.buf = append(w.buf, make([]byte, indexPageSize)...)
	p := w.buf[n:]
	binary.LittleEndian.PutUint64(p, uint64(w.head.pages))
	binary.LittleEndian.PutUint64(p[8:], uint64(w.rank))
	binary.LittleEndian.PutUint16(p[16:], uint16(len(w.body)))
	copy(p[indexFront:], w.body)
	w.head.pages++
	w.open = false
	if len(w.buf) < indexBuffer*indexPageSize {
		return nil
	}
	return w.flush()
}

func (w *indexWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.out.WriteAt(w.buf, (1+w.written)*indexPageSize)
	w.written += int64(len(w.buf) / indexPageSize)
	w.buf = w.buf[:0]
	return err
}

// finish writes what is left and the header.
func (w *indexWriter) finish() (IndexInfo, error) {
	if w.open {
		if err := w.closePage(); err != nil {
			return IndexInfo{}, err
		}
	}
	if err := w.flush(); err != nil {
		return IndexInfo{}, err
	}
	h := &w.head
	if _, err := w.out.WriteAt(h.encode(), 0); err != nil {
		return IndexInfo{}, err
	}
	return h.info(), nil
}

// commonPrefix is how many bytes two keys begin with alike.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// IndexInfo describes an index that was just written.
type IndexInfo struct {
	Size         int64 // bytes of the index
	Entries      int64
	Distinct     int64 // keys
	Undetermined int64 // entries of the tail
}
