package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// Options say what [Run] measures.
type Options struct {
	Dir    string // an empty folder on the disk to be measured; what Run makes there stays
	Size   int64  // bytes of each of the two files that are put, at least 1 MiB
	Rounds int    // how often each thing is done; the fastest counts
}

// A Figure is how long one thing took, and the same done by somebody else.
type Figure struct {
	Case        string  `json:"case"`
	Bytes       int64   `json:"bytes"` // that went in or came out
	Seconds     float64 `json:"seconds"`
	Peer        string  `json:"peer,omitempty"` // absent: nobody does it, or not on this machine
	PeerSeconds float64 `json:"peer_seconds,omitempty"`
	Ratio       float64 `json:"ratio,omitempty"` // Seconds / PeerSeconds: below 1 is faster than the peer
	Note        string  `json:"note,omitempty"`
}

// Run does what a user does with a store, beside what he would do without one, in
// turn and on one machine: a file of noise and one of events are put, read, filtered
// and proven. Each figure goes to emit when it is there. All answers are held to what
// is in the files, so that nothing is fast by being wrong.
func Run(ctx context.Context, o Options, emit func(Figure) error) error {
	if o.Size < 1<<20 || o.Rounds < 1 {
		return fmt.Errorf("bench: %d bytes in %d rounds: at least 1 MiB and one", o.Size, o.Rounds)
	}
	r := &runner{ctx: ctx, o: o, emit: emit, noise: filepath.Join(o.Dir, "noise"), events: filepath.Join(o.Dir, "events.ndjson"), copied: filepath.Join(o.Dir, "copy")}
	if err := r.files(); err != nil {
		return err
	}
	for _, step := range []func() error{r.root, r.put, r.read, r.random, r.snapshots, r.filter, r.excerpt} {
		if err := step(); err != nil {
			return errors.Join(err, r.close())
		}
	}
	return r.close()
}

// runner is a run on its way.
type runner struct {
	ctx  context.Context
	o    Options
	emit func(Figure) error

	noise, events, copied string // files
	rows, open            int    // of events, and those with the status open
	store                 *leafproof.Store
	dir                   string // of store
	noiseID, eventsID     string
}

func (r *runner) close() error {
	if r.store == nil {
		return nil
	}
	s := r.store
	r.store = nil
	return s.Close()
}

// files makes the files that are put.
func (r *runner) files() error {
	if err := write(r.noise, func(w io.Writer) error {
		var seed [32]byte
		_, err := io.CopyN(w, rand.NewChaCha8(seed), r.o.Size)
		return err
	}); err != nil {
		return err
	}
	r.rows = int(r.o.Size / 340)
	return write(r.events, func(w io.Writer) error {
		_, err := Events(w, 1, r.rows, nil)
		return err
	})
}

func write(name string, f func(io.Writer) error) error {
	w, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f(w), w.Sync(), w.Close())
}

// copy is what put stands beside: the same bytes in another file, flushed.
func (r *runner) copy(from string) func() error {
	return func() error {
		src, err := os.Open(from)
		if err != nil {
			return err
		}
		defer src.Close()
		return write(r.copied, func(w io.Writer) error {
			_, err := io.Copy(w, src)
			return err
		})
	}
}

// program runs another program over a file; nil where the machine lacks it.
func (r *runner) program(name string, args ...string) func() error {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	return func() error { return exec.CommandContext(r.ctx, path, args...).Run() }
}

// beside does two things in turn, and tells what the fastest of each took. before
// (nil: nothing) runs ahead of each of ours, and is not counted.
func (r *runner) beside(f Figure, before, ours, theirs func() error) error {
	took := func(best float64, do func() error) (float64, error) {
		begin := time.Now()
		err := do()
		return min(best, time.Since(begin).Seconds()), err
	}
	own, peer := 1e9, 1e9
	for range r.o.Rounds {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		var err error
		if before != nil {
			err = before()
		}
		if err == nil {
			own, err = took(own, ours)
		}
		if err == nil && theirs != nil {
			peer, err = took(peer, theirs)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Case, err)
		}
	}
	f.Seconds = own
	if theirs == nil {
		f.Peer = ""
	} else {
		f.PeerSeconds, f.Ratio = peer, own/peer
	}
	return r.emit(f)
}

func (r *runner) root() error {
	return r.beside(Figure{Case: "root of a file", Bytes: r.o.Size, Peer: "b3sum"}, nil, func() error {
		f, err := os.Open(r.noise)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = merkle.BuildAt(r.ctx, f, r.o.Size, nil)
		return err
	}, r.program("b3sum", r.noise))
}

// fresh opens a store with nothing in it: a second put of the same bytes would store
// nothing.
func (r *runner) fresh() error {
	if err := r.close(); err != nil {
		return err
	}
	if r.dir != "" {
		if err := os.RemoveAll(r.dir); err != nil {
			return err
		}
	}
	r.dir = filepath.Join(r.o.Dir, "store")
	err := leafproof.Init(r.ctx, r.dir)
	if err == nil {
		r.store, err = leafproof.Open(r.ctx, r.dir)
	}
	return err
}

// keep puts a file, and returns the artifact's id.
func (r *runner) keep(name string, o leafproof.PutOptions) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	d, err := r.store.Put(r.ctx, f, o)
	if err != nil {
		return "", err
	}
	ref, err := r.store.Publish(r.ctx, d, leafproof.Facts{})
	return ref.ArtifactID, err
}

func (r *runner) put() error {
	return r.beside(Figure{Case: "put noise, durable", Bytes: r.o.Size, Peer: "copy and fsync"}, r.fresh, func() (err error) {
		r.noiseID, err = r.keep(r.noise, leafproof.PutOptions{Records: "none"})
		return err
	}, r.copy(r.noise))
}

func (r *runner) read() error {
	return r.beside(Figure{Case: "read it, verified", Bytes: r.o.Size, Peer: "plain read"}, nil, func() error {
		n := counter(0)
		_, err := r.store.Read(r.ctx, leafproof.Owner, r.noiseID, leafproof.Selector{}, &n)
		if err == nil && int64(n) != r.o.Size {
			err = fmt.Errorf("%d bytes came, of %d", n, r.o.Size)
		}
		return err
	}, func() error {
		f, err := os.Open(r.noise)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f})
		return err
	})
}

// counter is how many bytes were written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (r *runner) random() error {
	const n, reads = 64 << 10, 200
	at := func(rng *rand.Rand) int64 { return rng.Int64N(r.o.Size - n) }
	return r.beside(Figure{Case: fmt.Sprintf("%d reads of 64 KiB", reads), Bytes: reads * n, Peer: "pread"}, nil, func() error {
		c, err := r.store.Content(r.ctx, leafproof.Owner, r.noiseID)
		if err != nil {
			return err
		}
		defer c.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		for range reads {
			off := at(rng)
			if err := c.Write(r.ctx, merkle.Range{Start: off, End: off + n}, io.Discard, nil); err != nil {
				return err
			}
		}
		return nil
	}, func() error {
		f, err := os.Open(r.noise)
		if err != nil {
			return err
		}
		defer f.Close()
		rng, buf := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
		for range reads {
			if _, err := f.ReadAt(buf, at(rng)); err != nil {
				return err
			}
		}
		return nil
	})
}

// snapshots puts the events, and the same with one row of a hundred edited.
func (r *runner) snapshots() error {
	edited := r.events + ".edited"
	if err := write(edited, func(w io.Writer) error {
		_, err := Events(w, 1, r.rows, func(row int) bool { return row%100 == 37 })
		return err
	}); err != nil {
		return err
	}
	size := func() (n int64) {
		_ = filepath.WalkDir(filepath.Join(r.dir, "objects"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					n += info.Size()
				}
			}
			return nil
		})
		return n
	}
	once := *r // each of these is stored once: there is no second round
	once.o.Rounds = 1
	defer func() { r.eventsID = once.eventsID }()
	for _, c := range []struct{ what, file string }{{"put events, durable", r.events}, {"the same, 1% edited", edited}} {
		info, err := os.Stat(c.file)
		if err != nil {
			return err
		}
		f, before := Figure{Case: c.what, Bytes: info.Size(), Peer: "copy and fsync"}, size()
		emit := r.emit
		once.emit = func(f Figure) error {
			f.Note = fmt.Sprintf("%.1f%% of it on disk", 100*float64(size()-before)/float64(f.Bytes))
			return emit(f)
		}
		if err := once.beside(f, nil, func() error {
			id, err := once.keep(c.file, leafproof.PutOptions{Name: c.file})
			if c.file == r.events {
				once.eventsID = id
			}
			return err
		}, r.copy(c.file)); err != nil {
			return err
		}
	}
	return nil
}

const openEvents = `@.status == "open"`

// count counts the open events, and says by what.
func (r *runner) count(basis string) error {
	a, err := r.store.Query(r.ctx, leafproof.Owner, r.eventsID, leafproof.Query{Where: openEvents, Count: true}, nil)
	switch {
	case err != nil:
		return err
	case a.Matched == nil || a.Basis != basis || r.open > 0 && *a.Matched != int64(r.open):
		return fmt.Errorf("a count by %s: %s", a.Basis, a.Conclusion)
	}
	r.open = int(*a.Matched)
	return nil
}

func (r *runner) filter() error {
	info, err := os.Stat(r.events)
	if err != nil {
		return err
	}
	scan := func() error { return r.count("scan") }
	if err := r.beside(Figure{Case: "filter events by a scan", Bytes: info.Size(), Peer: "jq"}, nil, scan,
		r.program("jq", "-c", `select(.status == "open")`, r.events)); err != nil {
		return err
	}
	begin := time.Now()
	index, err := r.store.AddIndex(r.ctx, leafproof.Owner, r.eventsID, "/status", leafproof.IndexOptions{})
	if err != nil {
		return err
	}
	took := Figure{Case: "index a field of them", Bytes: info.Size(), Seconds: time.Since(begin).Seconds(), Note: fmt.Sprintf("%.1f%% of them", 100*float64(index.Size)/float64(info.Size()))}
	if err := r.emit(took); err != nil {
		return err
	}
	if err := r.beside(Figure{Case: "count by the index", Bytes: index.Size, Peer: "reading them"}, nil,
		func() error { return r.count("index") }, func() error {
			_, err := r.store.Read(r.ctx, leafproof.Owner, r.eventsID, leafproof.Selector{}, io.Discard)
			return err
		}); err != nil {
		return err
	}
	return r.proof("that count", func(w io.Writer) error {
		_, err := r.store.ProveQuery(r.ctx, leafproof.Owner, r.eventsID, leafproof.Query{Where: openEvents, Count: true}, w)
		return err
	})
}

func (r *runner) excerpt() error {
	sel := leafproof.Selector{Bytes: &merkle.Range{Start: r.o.Size / 3, End: r.o.Size/3 + 512<<10}}
	return r.proof("512 KiB of noise", func(w io.Writer) error {
		_, err := r.store.Prove(r.ctx, leafproof.Owner, r.noiseID, sel, w)
		return err
	})
}

// proof makes a bundle, and verifies it as a stranger with the policy does.
func (r *runner) proof(what string, prove func(io.Writer) error) error {
	text, err := os.ReadFile(leafproof.PolicyPath(r.dir))
	if err != nil {
		return err
	}
	policy, err := manifest.ParsePolicy(text)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	best := 1e9
	for range r.o.Rounds {
		file.Reset()
		begin := time.Now()
		if err := prove(&file); err != nil {
			return err
		}
		best = min(best, time.Since(begin).Seconds())
	}
	if err := r.emit(Figure{Case: "prove " + what, Bytes: int64(file.Len()), Seconds: best}); err != nil {
		return err
	}
	return r.beside(Figure{Case: "verify it", Bytes: int64(file.Len())}, nil, func() error {
		res, err := bundle.Verify(bytes.NewReader(file.Bytes()), int64(file.Len()), bundle.Options{Policy: policy, At: time.Now()})
		if err == nil && res.Verdict.Exit() != 0 {
			err = errors.New(res.Verdict.Sentence())
		}
		return err
	}, nil)
}
