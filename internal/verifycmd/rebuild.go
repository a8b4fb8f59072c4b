package verifycmd

import (
	"fmt"
	"os"

	"leafproof/manifest/bundle"
	"leafproof/selector"
)

// rebuildFrom opens a file with the artifact's bytes, to make an index again from,
// and returns what to call when that is done. What is built stands in files that
// have no name.
func rebuildFrom(name string) (*bundle.Rebuild, func(), error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	files := []*os.File{f}
	done := func() {
		for _, f := range files {
			f.Close()
		}
	}
	return &bundle.Rebuild{Data: f, Size: fi.Size(), Room: func() (selector.Spill, error) {
		room, err := os.CreateTemp("", "leafproof-rebuild-*")
		if err != nil {
			return nil, err
		}
		files = append(files, room)
		return room, os.Remove(room.Name())
	}}, done, nil
}
