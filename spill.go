package leafproof

import (
	"errors"
	"io"
	"os"
)

// spillMemory is how many bytes a spillFile keeps in memory.
const spillMemory = 1 << 20

// A spillFile is room for something made piece by piece and read afterwards: in
// memory while it is small, then in a temporary file, which has no name where the
// system allows that, so that nothing of it outlives the process. The zero value
// is empty.
type spillFile struct {
	mem   []byte
	file  *os.File
	named bool // file still has its name
}

// WriteAt writes p at off.
func (s *spillFile) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if s.file == nil && end <= spillMemory {
		if n := int(end) - len(s.mem); n > 0 {
			s.mem = append(s.mem, make([]byte, n)...)
		}
		return copy(s.mem[off:], p), nil
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "leafproof-spill-*")
		if err != nil {
			return 0, err
		}
		s.file, s.named = f, os.Remove(f.Name()) != nil
		if _, err := f.WriteAt(s.mem, 0); err != nil {
			return 0, err
		}
		s.mem = nil
	}
	return s.file.WriteAt(p, off)
}

// ReadAt reads what was written at off.
func (s *spillFile) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, off)
	}
	if off >= int64(len(s.mem)) {
		return 0, io.EOF
	}
	n := copy(p, s.mem[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close gives the room back.
func (s *spillFile) Close() error {
	s.mem = nil
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.file.Name()))
	}
	return err
}
