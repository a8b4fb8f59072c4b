package selector

import (
	"encoding/binary"
	"io"
	"math"

	"leafproof/merkle"
)

// The record map lpr1. All integers are little-endian or minimal uvarints.
//
//	leaf 0, the header            leaf 1…, a page
//	  0  magic "LFPRMAP1"           0  number of its first record, u64
//	  8  root of the source         8  where the record before ends, u64
//	 40  size of the source, u64   16  count of its records, u16
//	 48  layout digest             18  used bytes of entries, u16
//	 80  records, u64              20  per record: uvarint gap from the end of
//	 88  pages, u64                    the record before, uvarint length
//	 96  zeros to 1024                 zeros to 1024
//
// A record goes into the open page if its entry fits, otherwise it begins the
// next page. The gap is at least 1 except before record 0, and in the format
// concat, where a record that is not empty may touch the one before.
const (
	mapMagic  = "LFPRMAP1"
	mapPage   = merkle.LeafSize
	pageHead  = 20
	pageRoom  = mapPage - pageHead
	mapBuffer = 64 // pages held before they are written
)

// mapWriter writes a record map from spans in ascending order.
type mapWriter struct {
	out     io.WriterAt
	buf     []byte // whole pages, then the open one
	page    []byte // the open page's entries and head, within buf
	used    int    // bytes of entries in the open page
	count   int
	written int64 // pages written
	pages   int64 // closed, written or not
	records int64
	end     int64 // of the last record
}

func newMapWriter(out io.WriterAt) *mapWriter {
	return &mapWriter{out: out, buf: make([]byte, 0, mapBuffer*mapPage)}
}

// add lists the next record.
func (w *mapWriter) add(s Span) error {
	var entry [2 * binary.MaxVarintLen64]byte
	n := binary.PutUvarint(entry[:], uint64(s.Start-w.end))
	n += binary.PutUvarint(entry[n:], uint64(s.Len()))
	if w.page != nil && w.used+n > pageRoom {
		if err := w.closePage(); err != nil {
			return err
		}
	}
	if w.page == nil {
		w.buf = append(w.buf, make([]byte, mapPage)...)
		w.page = w.buf[len(w.buf)-mapPage:]
		w.used, w.count = 0, 0
		binary.LittleEndian.PutUint64(w.page, uint64(w.records))
		binary.LittleEndian.PutUint64(w.page[8:], uint64(w.end))
	}
	copy(w.page[pageHead+w.used:], entry[:n])
	w.used += n
	w.count++
	w.records++
	w.end = s.End
	return nil
}

func (w *mapWriter) closePage() error {
	binary.LittleEndian.PutUint16(w.page[16:], uint16(w.count))
	binary.LittleEndian.PutUint16(w.page[18:], uint16(w.used))
	w.page = nil
	w.pages++
	if len(w.buf) < mapBuffer*mapPage {
		return nil
	}
	return w.flush()
}

func (w *mapWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.out.WriteAt(w.buf, (1+w.written)*mapPage); err != nil {
		return err
	}
	w.written += int64(len(w.buf) / mapPage)
	w.buf = w.buf[:0]
	return nil
}

// finish writes what is left and the header.
func (w *mapWriter) finish(root merkle.Root, size int64, l Layout) (MapInfo, error) {
	if w.page != nil {
		if err := w.closePage(); err != nil {
			return MapInfo{}, err
		}
	}
	if err := w.flush(); err != nil {
		return MapInfo{}, err
	}
	h := mapHeader(root, size, l.Digest(), w.records, w.pages)
	if _, err := w.out.WriteAt(h[:], 0); err != nil {
		return MapInfo{}, err
	}
	return MapInfo{Size: (1 + w.pages) * mapPage, Records: w.records}, nil
}

// mapHeader encodes leaf 0.
func mapHeader(root merkle.Root, size int64, layout [32]byte, records, pages int64) (h [mapPage]byte) {
	copy(h[:], mapMagic)
	copy(h[8:], root[:])
	binary.LittleEndian.PutUint64(h[40:], uint64(size))
	copy(h[48:], layout[:])
	binary.LittleEndian.PutUint64(h[80:], uint64(records))
	binary.LittleEndian.PutUint64(h[88:], uint64(pages))
	return h
}

// maxMapRecords keeps every computation on record numbers and map sizes in range.
const maxMapRecords = math.MaxInt64 / mapPage / 2
