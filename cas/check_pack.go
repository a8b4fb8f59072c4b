package cas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"leafproof/merkle"
)

// repairPack writes a damaged pack anew when its footer can be found: what is
// before and behind the runs follows from it. It takes runs as they are when the
// pack would be passed over otherwise: a damaged one then harms only what is in
// it.
func (s *Store) repairPack(ctx context.Context, name Name) (string, error) {
	o, err := OpenObject(ctx, s.b, name)
	if err != nil {
		return "", unlessDamage(err)
	}
	defer o.Close()
	_, _, whyBad := readFooter(o, o.Size(), name.ID)
	footer, start, err := salvageFooter(o, name.ID)
	if err != nil || footer == nil {
		return "", err
	}
	runs, keys, err := parseFooter(footer, start)
	if err != nil {
		return "", nil // a pack of another version
	}
	stage, err := NewStage(ctx, s.b, name.Tenant)
	if err != nil {
		return "", err
	}
	defer stage.Discard()
	w := io.NewOffsetWriter(stage, 0)
	header := binary.LittleEndian.AppendUint64([]byte(packMagic), packVersion)
	if _, err := w.Write(header); err != nil {
		return "", err
	}
	lost := make(map[int]bool)
	for i, run := range runs {
		stored := make([]byte, run.stored)
		if err := readFullAt(o, stored, run.offset); err != nil {
			if !errors.Is(err, errShort) {
				return "", err
			}
			clear(stored)
		}
		if merkle.Sum(stored) != run.sum {
			lost[i] = true
		}
		for _, p := range [][]byte{run.header(), stored} {
			if _, err := w.Write(p); err != nil {
				return "", err
			}
		}
	}
	if len(lost) > 0 && whyBad == nil || len(lost) == len(runs) {
		return "", nil // nothing is gained
	}
	for _, p := range [][]byte{footer, packTrailer(start, footer, name.ID)} {
		if _, err := w.Write(p); err != nil {
			return "", err
		}
	}
	size := start + int64(len(footer)) + packTrailerSize
	err = s.settle(ctx, nil, name, stage, size, func(o Object) (bool, error) {
		return sameBytes(ctx, o, size, io.NewSectionReader(stage, 0, size))
	})
	if err != nil {
		return "", err
	}
	gone := 0
	for _, k := range keys {
		if lost[int(k.run)] {
			gone++
		}
	}
	if gone > 0 {
		return fmt.Sprintf("written anew; of its %d blobs, %d are lost", len(keys), gone), nil
	}
	return "written anew from its runs and its footer", nil
}

func packTrailer(start int64, footer []byte, id merkle.Root) []byte {
	p := make([]byte, 0, packTrailerSize)
	p = binary.LittleEndian.AppendUint64(p, uint64(start))
	p = binary.LittleEndian.AppendUint64(p, uint64(len(footer)))
	p = append(p, id[:]...)
	return append(p, packEnd...)
}

// salvageFooter looks for the footer that has this ID in a pack whose ends may
// be damaged: where the trailer says, and behind the last run that follows from
// the first by the runs' own headers. It returns nil when it is at neither.
func salvageFooter(o Object, id merkle.Root) ([]byte, int64, error) {
	size := o.Size()
	if size > maxPack {
		return nil, 0, nil
	}
	var starts []int64
	if size >= packTrailerSize {
		var trailer [packTrailerSize]byte
		if err := readFullAt(o, trailer[:], size-packTrailerSize); err != nil {
			return nil, 0, unlessDamage(err)
		}
		starts = append(starts, int64(binary.LittleEndian.Uint64(trailer[:])))
	}
	at := int64(packHeaderSize)
	for {
		starts = append(starts, at)
		var h [runHeaderSize]byte
		if at > size-runHeaderSize || readFullAt(o, h[:], at) != nil {
			break
		}
		stored := int64(binary.LittleEndian.Uint32(h[8:]))
		if stored > size-at-runHeaderSize {
			break
		}
		at += runHeaderSize + stored
	}
	for i := len(starts) - 1; i >= 0; i-- { // the likely ones are at both ends
		if footer, err := footerAt(o, starts[i], id); footer != nil || err != nil {
			return footer, starts[i], err
		}
	}
	return nil, 0, nil
}

// footerAt returns the footer at start if it has this ID.
func footerAt(o Object, start int64, id merkle.Root) ([]byte, error) {
	if start < packHeaderSize || start > o.Size()-8 {
		return nil, nil
	}
	var counts [8]byte
	if err := readFullAt(o, counts[:], start); err != nil {
		return nil, unlessDamage(err)
	}
	n := 8 + runEntrySize*int64(binary.LittleEndian.Uint32(counts[:])) + keyEntrySize*int64(binary.LittleEndian.Uint32(counts[4:]))
	if n > o.Size()-start {
		return nil, nil
	}
	footer := make([]byte, n)
	if err := readFullAt(o, footer, start); err != nil {
		return nil, unlessDamage(err)
	}
	if merkle.Sum(footer) != id {
		return nil, nil
	}
	return footer, nil
}
