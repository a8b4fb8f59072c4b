package ref

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// log is a transcript over lines that are kept somewhere.
type log struct {
	limits Limits
	mu     sync.RWMutex
	named  *namedParts
	run    string
	chains []chain                          // that of the header, then one of each entry
	line   func(seq uint64) ([]byte, error) // without its end; for an entry that there is
}

// next makes the line of an entry, without its end. The caller holds mu, to read at
// least, and lets nobody else append.
func (l *log) next(e *Entry) (chain, []byte, error) {
	if err := l.named.settle(e, l.limits); err != nil {
		return chain{}, nil, err
	}
	body := appendEntry(nil, l.named.len()+1, *e)
	if len(body)+chainTail >= maxLine {
		return chain{}, nil, fail(ErrEntry, "an entry of more than 256 MiB")
	}
	c, line := l.last().appendChain(body)
	return c, line, nil
}

func (l *log) last() chain { return l.chains[len(l.chains)-1] }

// add takes in an entry whose line is kept.
func (l *log) add(e Entry, c chain) uint64 {
	l.named.add(e)
	l.chains = append(l.chains, c)
	return l.named.len()
}

// Run is the run that the transcript is of.
func (l *log) Run() string { return l.run }

// take takes in a line that somebody wrote, and returns its entry.
func (l *log) take(line []byte) error {
	due := l.named.len() + 1
	c, body, ok := l.last().cutChain(line)
	if !ok {
		return damaged(due, errChain)
	}
	seq, e, err := parseEntry(append(body[:len(body):len(body)], '}'))
	if err == nil && seq != due {
		err = fmt.Errorf("it says seq %d", seq)
	}
	if err == nil {
		err = l.named.settle(&e, Limits{Parse: 64})
	}
	if err != nil {
		return damaged(due, err)
	}
	l.add(e, c)
	return nil
}

var errChain = errors.New("it does not follow from the lines before it")

func damaged(seq uint64, cause error) error {
	return &Error{
		At: fmt.Sprintf("entry %d", seq), Err: ErrTranscript,
		Detail: "the transcript is damaged here", Cause: cause,
	}
}

// Len returns the number of entries.
func (l *log) Len() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.named.len()
}

// Entry returns an entry; see [Transcript].
func (l *log) Entry(ctx context.Context, seq uint64) (Entry, error) {
	if err := ctx.Err(); err != nil {
		return Entry{}, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.entry(seq)
}

func (l *log) entry(seq uint64) (Entry, error) {
	if seq == 0 || seq > l.named.len() {
		return Entry{}, fail(ErrNotFound, "no such message")
	}
	line, err := l.line(seq)
	if err != nil {
		return Entry{}, damaged(seq, err)
	}
	_, body, ok := l.chains[seq-1].cutChain(line)
	if !ok {
		return Entry{}, damaged(seq, errChain)
	}
	got, e, err := parseEntry(append(body[:len(body):len(body)], '}'))
	if err == nil && got != seq {
		err = fmt.Errorf("it says seq %d", got)
	}
	if err != nil {
		return Entry{}, damaged(seq, err)
	}
	return e, nil
}

// Shown returns the part that a model means; see [Transcript].
func (l *log) Shown(ctx context.Context, seq *uint64, part uint64) (uint64, Part, error) {
	if err := ctx.Err(); err != nil {
		return 0, Part{}, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, err := l.named.find(seq, part)
	if err != nil {
		return 0, Part{}, err
	}
	e, err := l.entry(at)
	if err != nil {
		return 0, Part{}, err
	}
	return at, e.Parts[part], nil
}

// ShownKey returns the marker of a key; see [Transcript].
func (l *log) ShownKey(ctx context.Context, key string) (Marker, error) {
	if err := ctx.Err(); err != nil {
		return Marker{}, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.named.key(key)
}

func newLog(run string) log {
	return log{limits: DefaultLimits, named: newNamed(), run: run, chains: []chain{chain{}.next(header(run))}}
}

// Memory is a [Transcript] that ends with the process.
type Memory struct {
	log
	lines [][]byte
}

// NewMemory returns an empty transcript of a run.
func NewMemory(run string) *Memory {
	m := &Memory{log: newLog(run)}
	m.line = func(seq uint64) ([]byte, error) { return m.lines[seq-1], nil }
	return m
}

// Append adds an entry; see [Transcript].
func (m *Memory) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c, line, err := m.next(&e)
	if err != nil {
		return 0, err
	}
	m.lines = append(m.lines, line)
	return m.add(e, c), nil
}

// ReadTranscript reads a transcript file, of which nothing is changed. A last line
// that was not written to its end is left out.
func ReadTranscript(r io.Reader) (*Memory, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	line, err := readLine(in)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	run, err := parseHeader(line)
	if err != nil {
		return nil, err
	}
	m := NewMemory(run)
	_, err = m.read(in, int64(len(line)), func(line []byte, _ int64) {
		m.lines = append(m.lines, bytes.Clone(line))
	})
	return m, err
}

// header is the first line of a transcript file.
func header(run string) []byte {
	line := appendString([]byte(`{"format":"leafproof transcript","version":1,"run":`), run)
	return append(line, '}', '\n')
}

func parseHeader(line []byte) (run string, err error) {
	err = members(bytes.TrimSuffix(line, []byte("\n")), func(name string, v []byte) error {
		if name == "run" {
			run, err = text(v)
			return err
		}
		return nil
	})
	if err != nil || !bytes.Equal(line, header(run)) {
		return "", &Error{Err: ErrTranscript, Detail: "it is no transcript of version 1", Cause: err}
	}
	return run, nil
}

// read takes in the lines behind the header and returns how many bytes of the file are
// good: behind them stands at most a line that was not written to its end. One that
// lacks its line end alone, as an editor may leave it, is good: its seq was told.
func (l *log) read(in *bufio.Reader, good int64, each func(line []byte, off int64)) (int64, error) {
	for {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF): // torn, or empty
			if len(line) > 0 && l.take(line) == nil {
				each(line, good)
				good += int64(len(line))
			}
			return good, nil
		case err != nil:
			return good, err
		}
		bare := line[:len(line)-1]
		err = l.take(bare)
		if err != nil && bytes.IndexByte(line, 0) >= 0 {
			// A page that the crash of a machine left unwritten: nobody was told of the line.
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				return good, nil
			}
		}
		if err != nil {
			return good, err
		}
		each(bare, good)
		good += int64(len(line))
	}
}

// readLine reads a line with its end; [io.EOF] comes with one that has none.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := in.ReadSlice('\n')
		if len(line)+len(piece) > maxLine {
			return nil, fail(ErrTranscript, "a line of more than 256 MiB")
		}
		line = append(line, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
