package ref

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"leafproof/internal/flock"
	"leafproof/merkle"
)

// File is a [Transcript] in a file: a line for each entry, flushed to the disk before
// Append returns. A process that is killed loses no entry that it was told of. One File
// at a time has a transcript open, in this process or another.
type File struct {
	log
	writing sync.Mutex // held by who appends, also while nobody else has to wait for the disk
	f       *os.File
	spans   []span // of the lines, without their ends
	end     int64
	closed  bool
	broken  error // why nothing can be added any more
}

type span struct{ off, len int64 }

const contextRun = "leafproof 2026 transcript-name v1"

// TranscriptName is the name of a run's transcript in a folder of them: it follows from
// the run's id, and has none of its characters.
func TranscriptName(run string) string {
	sum := merkle.DeriveKey(contextRun, []byte(run))
	return "run-" + hex.EncodeToString(sum[:20]) + ".jsonl"
}

// ErrInUse is a transcript that another has open.
var ErrInUse = flock.ErrHeld

// OpenTranscript opens the transcript of a run in a folder, and begins it where there is
// none. The folder must exist. run is data: any string of at most 1,024 bytes. A line
// that was not written to its end is cut off: nobody was told of it; one that lacks
// nothing but its line end is given it. It fails with
// [ErrInUse] while another has it open, and with [ErrTranscript] where the file is
// damaged or another's.
func OpenTranscript(dir, run string) (*File, error) {
	if len(run) > maxKey {
		return nil, fail(ErrEntry, fmt.Sprintf("a run's id of %d bytes: at most %d", len(run), maxKey))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(TranscriptName(run), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	t := &File{log: newLog(run), f: f}
	t.line = t.readLine
	if err := t.open(root); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// open locks the file and reads it.
func (t *File) open(root *os.Root) error {
	if err := flock.Open(t.f); err != nil {
		return err
	}
	want := header(t.run)
	in := bufio.NewReaderSize(io.NewSectionReader(t.f, 0, 1<<62), 64<<10)
	line, err := readLine(in)
	switch {
	case errors.Is(err, io.EOF) && bytes.HasPrefix(want, line):
		return t.begin(root, want)
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case !bytes.Equal(line, want):
		return fail(ErrTranscript, "it is no transcript of version 1 of this run")
	}
	t.end, err = t.read(in, int64(len(line)), func(line []byte, off int64) {
		t.spans = append(t.spans, span{off, int64(len(line))})
	})
	if err != nil {
		return err
	}
	size, err := t.f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if n := len(t.spans); n > 0 && t.end == t.spans[n-1].off+t.spans[n-1].len { // the last line has no end
		if _, err := t.f.WriteAt([]byte("\n"), t.end); err != nil {
			return err
		}
		t.end++
		return t.f.Sync()
	}
	if size == t.end {
		return nil
	}
	if err := t.f.Truncate(t.end); err != nil {
		return err
	}
	return t.f.Sync()
}

// begin writes the header: the file, then its name in the folder, are flushed.
func (t *File) begin(root *os.Root, head []byte) error {
	if err := t.f.Truncate(0); err != nil {
		return err
	}
	if _, err := t.f.WriteAt(head, 0); err != nil {
		return err
	}
	if err := t.f.Sync(); err != nil {
		return err
	}
	t.end = int64(len(head))
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (t *File) readLine(seq uint64) ([]byte, error) {
	if t.closed {
		return nil, os.ErrClosed
	}
	s := t.spans[seq-1]
	line := make([]byte, s.len)
	_, err := t.f.ReadAt(line, s.off)
	return line, err
}

// Append adds an entry; see [Transcript]. After an error of the disk nothing can be
// added until the transcript is opened again: what is on the disk is not known.
func (t *File) Append(ctx context.Context, e Entry) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	switch {
	case t.closed:
		return 0, os.ErrClosed
	case t.broken != nil:
		return 0, t.broken
	}
	t.mu.RLock()
	c, line, err := t.next(&e)
	t.mu.RUnlock()
	if err != nil {
		return 0, err
	}
	_, err = t.f.WriteAt(append(line, '\n'), t.end)
	if err == nil {
		err = t.f.Sync()
	}
	if err != nil {
		t.broken = fmt.Errorf("the transcript took no entry since an error of the disk: %w", err)
		return 0, errors.Join(err, t.f.Truncate(t.end)) // where that fails, opening it cuts it off or takes it in
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, span{t.end, int64(len(line))})
	t.end += int64(len(line)) + 1
	return t.add(e, c), nil
}

// Close ends the use of the transcript.
func (t *File) Close() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return t.f.Close()
}
