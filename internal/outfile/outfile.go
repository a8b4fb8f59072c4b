// Package outfile writes the files that a command's -o names: whole or not at all.
//
// What is written goes into a temporary file first; [File.Publish] gives it its
// name. A name that stands for something else than a file (a pipe, a terminal,
// /dev/null) is written to at Publish instead of being replaced, and "-" is
// standard output. It does not sync: these are answers, not stored objects.
package outfile

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A File takes bytes until it is published or discarded.
type File struct {
	tmp    *os.File
	target string    // the file to become; "" where there is a stream
	stream io.Writer // what to copy to at Publish
	device string    // what to open and copy to at Publish
}

// Create begins a file that is to stand at name. stdout is what "-" means.
func Create(name string, stdout io.Writer) (*File, error) {
	f := &File{}
	dir := os.TempDir()
	if name == "-" {
		f.stream = stdout
	} else {
		target, err := resolve(name)
		if err != nil {
			return nil, err
		}
		fi, err := os.Stat(target)
		switch {
		case err == nil && fi.IsDir():
			return nil, &fs.PathError{Op: "write", Path: name, Err: errors.New("is a directory")}
		case err == nil && !fi.Mode().IsRegular():
			f.device = target
		case err == nil || errors.Is(err, fs.ErrNotExist):
			f.target, dir = target, filepath.Dir(target)
		default:
			return nil, err
		}
	}
	// Not os.CreateTemp, whose 0600 would stay: 0666 lets the umask decide.
	var err error
	f.tmp, err = os.OpenFile(filepath.Join(dir, ".leafproof-"+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, f.named("create", err)
	}
	return f, nil
}

// resolve follows the symbolic links of name, so that the file behind them is
// replaced and not the link. A name that leads nowhere stays as it is.
func resolve(name string) (string, error) {
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	return target, err
}

// named is an error about the temporary file in terms of the one that was asked
// for: whoever did knows nothing of the other.
func (f *File) named(op string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok && f.target != "" {
		return &fs.PathError{Op: op, Path: f.target, Err: pe.Err}
	}
	return err
}

// Write adds to the file.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.tmp.Write(p)
	if err != nil {
		err = f.named("write", err)
	}
	return n, err
}

// Publish gives the file its name, or hands its bytes to the stream or device
// that the name stands for. It ends the File.
func (f *File) Publish() error {
	defer f.Discard()
	if f.target != "" {
		if fi, err := os.Stat(f.target); err == nil {
			// Replacing a file keeps its mode, as writing to it would.
			if err := f.tmp.Chmod(fi.Mode().Perm()); err != nil {
				return err
			}
		}
		if err := f.tmp.Close(); err != nil {
			return f.named("write", err)
		}
		return os.Rename(f.tmp.Name(), f.target)
	}
	if _, err := f.tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if f.stream != nil {
		_, err := io.Copy(f.stream, f.tmp)
		return err
	}
	w, err := os.OpenFile(f.device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f.tmp)
	return errors.Join(err, w.Close())
}

// Discard drops what was written. After Publish it does nothing.
func (f *File) Discard() {
	f.tmp.Close()
	os.Remove(f.tmp.Name()) // gone after a rename
}

// Write writes a whole file with write, or leaves what stood there.
func Write(name string, stdout io.Writer, write func(io.Writer) error) error {
	f, err := Create(name, stdout)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	return f.Publish()
}
