package selector

import (
	"context"
	"iter"
	"slices"
)

// KeyIndex is an index of a source's records over one path: entries of a typed
// key and a record, in the order of both, each once.
type KeyIndex interface {
	Path() *KeyPath
	Entries() int64
	Tail() int64 // the rank of the first entry whose key cannot be told
	// Rank returns how many entries stand in front of a key.
	Rank(ctx context.Context, key []byte) (int64, error)
	// Run yields the entries with the ranks from, …, to−1, each valid until the next.
	Run(ctx context.Context, from, to int64) iter.Seq2[KeyEntry, error]
}

// KeyEntry is an entry of an index.
type KeyEntry struct {
	Key    []byte
	Record int64
}

// How much an index must leave out to be of use. Measured on 227 MB of events in a
// store, two shared cores of a Xeon: with 1 record in 100 to examine, or 4, a query
// takes 0.3 to 0.7 times as long as a scan of whole blobs, with 1 in 10 0.6 to 0.9
// times, and from chunks, each of which is unpacked for one record as for all of
// its own, 1 in 10 takes about as long as the scan.
const (
	worthShare = 8 // no more than one record in so many is examined
	// walkShare: a row that is read from its own place costs some 40 µs, one that
	// is scanned and sorted with all others 1.4 µs.
	walkShare = 32
	worthFew  = 64 // so many cost nothing to speak of, with an index or without
	// maxCandidates bounds the list of records to examine, 8 bytes each.
	maxCandidates = 1 << 20
)

// Consult decides whether indexes of the source, each over one path, spare the
// task from examining every record, and if so has Run do that. rows says that
// the rows are wanted, not only their number. What Run then finds is the same as
// without: the rows and their order, how many match or are undecidable, where a
// page ends; only what is examined differs.
//
// Of an index that cannot be read it returns the error, and Run does without it.
func (t *Task) Consult(ctx context.Context, indexes []KeyIndex, rows bool) error {
	t.use = nil
	c := consulting{ctx: ctx, t: t, indexes: indexes, all: t.Map.Records()}
	if t.Whole || len(indexes) == 0 || c.all == 0 {
		return nil
	}
	use, err := c.best(rows)
	if err == nil && use != nil {
		err = c.collect(use)
	}
	if err != nil {
		return err
	}
	t.use = use
	return nil
}

// consulting looks for the use that has the fewest records examined.
type consulting struct {
	ctx     context.Context
	t       *Task
	indexes []KeyIndex
	all     int64
	access  []Access
	found   map[rankOf]int64 // ranks that were asked for
	err     error
}

// rankOf is a key of an index.
type rankOf struct {
	x   KeyIndex
	key string
}

// rank returns the rank of a key.
func (c *consulting) rank(x KeyIndex, key []byte) int64 {
	if c.err != nil {
		return 0
	}
	of := rankOf{x, string(key)}
	n, ok := c.found[of]
	if !ok {
		if n, c.err = x.Rank(c.ctx, key); c.found == nil {
			c.found = make(map[rankOf]int64)
		}
		c.found[of] = n
	}
	return n
}

func (c *consulting) best(rows bool) (*indexUse, error) {
	if t := c.t; !rows && len(t.Select) == 0 && t.Budget.Limit == 0 && t.Budget.ReturnBytes == 0 && t.From == (Position{}) {
		if use := c.exact(false); use != nil || c.err != nil {
			return use, c.err
		}
	}
	if rows && len(c.t.Order) > 0 && c.t.keys == nil && c.oneByOne() {
		if use := c.exact(true); use != nil || c.err != nil {
			return use, c.err
		}
	}
	if c.t.Where == nil {
		return nil, nil
	}
	var paths []*KeyPath
	for _, x := range c.indexes {
		paths = append(paths, x.Path())
	}
	total := int64(0)
	c.access = c.t.Where.Access(paths, func(i int, ranges []KeyRange) int64 {
		return entries(c.ranks(c.indexes[i], ranges)) + c.tail(c.indexes[i])
	})
	use := &indexUse{}
	for _, a := range c.access {
		x := c.indexes[slices.Index(paths, a.Path)]
		use.from = append(use.from, x)
		total += entries(c.ranks(x, a.Ranges)) + c.tail(x)
	}
	if c.err != nil || len(use.from) == 0 || !c.worth(total) {
		return nil, c.err
	}
	return use, nil
}

// worth reports whether to examine so many records costs less than a scan.
func (c *consulting) worth(records int64) bool {
	return records <= min(max(c.all/worthShare, worthFew), maxCandidates)
}

func (c *consulting) tail(x KeyIndex) int64 { return x.Entries() - x.Tail() }

// ranks returns the entries of an index that stand in ranges; a fault is kept in
// err.
func (c *consulting) ranks(x KeyIndex, ranges []KeyRange) []rankRun {
	var out []rankRun
	for _, k := range ranges {
		r := rankRun{c.rank(x, k.From), c.rank(x, k.To)}
		if c.err == nil && r.from < r.to {
			if n := len(out); n > 0 && out[n-1].to == r.from {
				out[n-1].to = r.to
				continue
			}
			out = append(out, r)
		}
	}
	return out
}

// exact returns the use of an index whose keys alone tell what matches, with one
// entry a record; with walk, of one that has the order asked for. nil: none.
func (c *consulting) exact(walk bool) *indexUse {
	var best *indexUse
	for _, x := range c.indexes {
		p := x.Path()
		if !p.Scalar() || walk && !p.Orders(c.t.Order) || best != nil && c.tail(x) >= c.tail(best.from[0]) {
			continue
		}
		if plan := p.Plan(c.t.Where); plan.Exact && c.worth(c.tail(x)) {
			best = &indexUse{from: []KeyIndex{x}, exact: true, walk: walk, runs: c.ranks(x, plan.Ranges)}
			if walk {
				best.desc = c.t.Order[0].desc
			}
		}
	}
	return best
}

// oneByOne reports whether the rows of a page are so few that to read each from
// its place costs less than to sort them all, and whether that can be done: what
// is selected of a row must be there to be told of every record.
func (c *consulting) oneByOne() bool {
	b := c.t.Budget
	few := b.Limit > 0 && b.Limit <= max(c.all/walkShare, worthFew) || b.ReturnBytes > 0 && b.ReturnBytes <= c.t.Map.head.size/walkShare
	for _, s := range c.t.Select {
		few = few && s.Singular() && c.t.Trust.Validated && c.t.Trust.Undecidable == 0
	}
	return few
}

// collect lists the records to examine.
func (c *consulting) collect(use *indexUse) error {
	take := func(x KeyIndex, r rankRun) {
		if c.err != nil {
			return
		}
		for e, err := range x.Run(c.ctx, r.from, r.to) {
			if err != nil {
				c.err = err
				return
			}
			use.records = append(use.records, e.Record)
		}
	}
	for i, x := range use.from {
		if !use.exact {
			for _, r := range c.ranks(x, c.access[i].Ranges) {
				take(x, r)
			}
		}
		take(x, rankRun{x.Tail(), x.Entries()})
	}
	slices.Sort(use.records)
	use.records = slices.Compact(use.records)
	if n := len(use.records); c.err == nil && n > 0 && (use.records[0] < 0 || use.records[n-1] >= c.all) {
		c.err = fail("index", -1, ErrRange, "record %d of %d", use.records[n-1], c.all)
	}
	return c.err
}
