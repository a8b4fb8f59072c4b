package cas_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"leafproof/cas"
	"leafproof/merkle"
)

const (
	childEnv  = "LEAFPROOF_CAS_CHILD"
	childSeed = "LEAFPROOF_CAS_SEED"
)

// childBlobs is what the child with this seed puts; some are other children's
// too.
func childBlobs(seed int) [][]byte {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	var blobs [][]byte
	for range 40 {
		blobs = append(blobs, random(uint64(rng.IntN(60)), sizes[rng.IntN(len(sizes))]))
	}
	return blobs
}

// TestProcesses lets several processes put into one store at once, and kills
// some in the middle. What a process reported as put is there; the store
// opens; the rest can be put.
func TestProcesses(t *testing.T) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(t, dir)
		return
	}
	dir := t.TempDir()
	const processes = 4
	reported := make(chan merkle.Root, 1000)
	done := make(chan error, processes)
	for seed := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$", "-test.v")
		cmd.Env = append(os.Environ(), childEnv+"="+dir, fmt.Sprintf("%s=%d", childSeed, seed))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killed := seed%2 == 1
		if killed {
			time.AfterFunc(time.Duration(seed)*60*time.Millisecond, func() { cmd.Process.Kill() })
		}
		go func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				if hex, ok := strings.CutPrefix(lines.Text(), "put "); ok {
					if root, err := merkle.ParseRoot(hex); err == nil {
						reported <- root
					}
				}
			}
			err := cmd.Wait()
			if killed {
				err = nil
			}
			done <- err
		}()
	}
	for range processes {
		if err := <-done; err != nil {
			t.Errorf("child: %v", err)
		}
	}
	close(reported)

	blobs := make(map[merkle.Root][]byte)
	for seed := range processes {
		for _, data := range childBlobs(seed) {
			blobs[merkle.Sum(data)] = data
		}
	}
	s := onDisk(t, dir)
	n := 0
	for root := range reported {
		n++
		if err := read(t, s, blobs[root]); err != nil {
			t.Errorf("a blob that was reported as put: %v", err)
		}
	}
	if n < 80 {
		t.Errorf("only %d blobs were reported", n)
	}
	for _, data := range blobs {
		put(t, s, data, cas.Auto)
		if err := read(t, onDisk(t, dir), data); err != nil {
			t.Error(err)
		}
	}
	if damaged := s.Damaged(); len(damaged) != 0 {
		t.Errorf("Damaged = %v", damaged)
	}
}

func child(t *testing.T, dir string) {
	var seed int
	fmt.Sscan(os.Getenv(childSeed), &seed)
	s := onDisk(t, dir)
	for _, data := range childBlobs(seed) {
		info, err := s.Put(t.Context(), tenant, bytes.NewReader(data), cas.Auto)
		if err != nil {
			t.Fatal(err)
		}
		if err := read(t, s, data); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nput %s\n", info.Root)
	}
}
