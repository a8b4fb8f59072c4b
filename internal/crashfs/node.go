package crashfs

import (
	"io/fs"
	"maps"
	"slices"
	"time"
)

// pageSize is the part of a file that is kept or lost as one.
const pageSize = 4096

// page is never changed once two contents may hold it; nil is zeros.
type page [pageSize]byte

// content are the bytes of a file. Those of the last page beyond size are zero.
type content struct {
	size  int64
	pages []*page
}

// page returns page i, nil beyond the end.
func (c content) page(i int) *page {
	if i >= len(c.pages) {
		return nil
	}
	return c.pages[i]
}

// pagesFor is the number of pages that hold size bytes.
func pagesFor(size int64) int { return int((size + pageSize - 1) / pageSize) }

// cut ends the content at size.
func (c content) cut(size int64) content {
	n := pagesFor(size)
	c.pages = slices.Clone(c.pages[:min(n, len(c.pages))])
	for len(c.pages) < n {
		c.pages = append(c.pages, nil)
	}
	if tail := size % pageSize; tail != 0 && c.pages[n-1] != nil {
		last := *c.pages[n-1]
		clear(last[tail:])
		if last != *c.pages[n-1] { // else it stays the same page
			c.pages[n-1] = &last
		}
	}
	c.size = size
	return c
}

// node is a file or a directory.
type node struct {
	id    uint64
	mode  fs.FileMode
	mtime time.Time

	// Of a file:
	data content       // what programs see
	own  []bool        // the pages of data that nothing else holds
	disk content       // what the last flush kept
	lost map[int]*page // what a failed flush gave up

	// Of a directory:
	names   map[string]*node // what programs see
	durable map[string]*node // what the last flush kept
	changes []change         // since then, the oldest first
}

// change is what a crash keeps or loses of a directory as one.
type change struct {
	id      uint64
	entries []entry
}

// entry gives a name to a node; a nil node takes it away.
type entry struct {
	name string
	node *node
}

func (f *FS) number() uint64 {
	f.last++
	return f.last
}

func (f *FS) newNode(mode fs.FileMode) *node {
	n := &node{id: f.number(), mode: mode, mtime: time.Now()}
	if mode.IsDir() {
		n.names, n.durable = map[string]*node{}, map[string]*node{}
	}
	return n
}

func (n *node) isDir() bool { return n.mode.IsDir() }

// apply makes the entries in a directory's table.
func (c change) apply(table map[string]*node) {
	for _, e := range c.entries {
		if e.node == nil {
			delete(table, e.name)
		} else {
			table[e.name] = e.node
		}
	}
}

// set changes a directory.
func (n *node) set(id uint64, entries ...entry) {
	c := change{id, entries}
	c.apply(n.names)
	n.changes = append(n.changes, c)
	n.mtime = time.Now()
}

// share makes sure that no page of data is changed in place any more.
func (n *node) share() { clear(n.own) }

// readAt copies to p what the file has from off on, and returns how much.
func (n *node) readAt(p []byte, off int64) int {
	p = p[:max(0, min(int64(len(p)), n.data.size-off))]
	for done := 0; done < len(p); {
		at := off + int64(done)
		i, from := int(at/pageSize), int(at%pageSize)
		part := p[done:min(len(p), done+pageSize-from)]
		if pg := n.data.pages[i]; pg != nil {
			copy(part, pg[from:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	return len(p)
}

func (n *node) writeAt(p []byte, off int64) {
	n.grow(max(n.data.size, off+int64(len(p))))
	for done := 0; done < len(p); {
		at := off + int64(done)
		i := int(at / pageSize)
		if !n.own[i] {
			fresh := new(page)
			if old := n.data.pages[i]; old != nil {
				*fresh = *old
			}
			n.data.pages[i], n.own[i] = fresh, true
		}
		done += copy(n.data.pages[i][at%pageSize:], p[done:])
	}
	n.mtime = time.Now()
}

func (n *node) grow(size int64) {
	for len(n.data.pages) < pagesFor(size) {
		n.data.pages = append(n.data.pages, nil)
		n.own = append(n.own, false)
	}
	n.data.size = size
}

func (n *node) truncate(size int64) {
	if size >= n.data.size {
		n.grow(size)
		return
	}
	n.data = n.data.cut(size)
	n.own = make([]bool, len(n.data.pages))
	n.mtime = time.Now()
}

// sync makes durable what programs see, except what a failed flush gave up.
func (n *node) sync() {
	if n.isDir() {
		for _, c := range n.changes {
			c.apply(n.durable)
		}
		n.changes = nil
		return
	}
	n.disk = n.onDisk(n.data.size, func(int) bool { return true })
	n.share()
}

// giveUp is what a failed flush does.
func (n *node) giveUp() {
	for i, pg := range n.data.pages {
		if pg != nil && pg != n.disk.page(i) {
			if n.lost == nil {
				n.lost = make(map[int]*page)
			}
			n.lost[i] = pg
		}
	}
	n.share()
}

// onDisk is what the disk has of a file when it comes to this size and the
// chosen ones of the changed pages reach it.
func (n *node) onDisk(size int64, chosen func(i int) bool) content {
	c := content{n.data.size, make([]*page, pagesFor(size))}
	for i := range c.pages {
		seen, old := n.data.page(i), n.disk.page(i)
		c.pages[i] = old
		if seen != old && (seen == nil || n.lost[i] != seen) && chosen(i) {
			c.pages[i] = seen
		}
	}
	return c.cut(size)
}

// copyTable clones a directory's table, with the copies of its nodes.
func copyTable(table map[string]*node, of func(*node) *node) map[string]*node {
	out := maps.Clone(table)
	for name, n := range out {
		out[name] = of(n)
	}
	return out
}

func (n *node) info(name string) fs.FileInfo {
	return info{name: name, size: n.data.size, mode: n.mode, mtime: n.mtime}
}

// info implements [fs.FileInfo].
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.mtime }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
