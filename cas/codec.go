package cas

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// How the bytes of a run are stored.
const (
	codecRaw  = 0 // as they are
	codecZstd = 1 // one zstd frame, shorter than the raw bytes
)

// maxRun bounds the raw bytes of a run that is compressed: what decoding one may
// take, whatever its frame declares.
const maxRun = maxChunk

// encodeMore is what a codec adds at most to a run that it cannot compress, and
// more than a decoder writes behind the bytes of one when it may: it then takes a
// sixth less time.
const encodeMore = 64

// The zstd codecs of this process. Both are safe for concurrent use, keep their
// tables, and run on the goroutine of the caller. The frames have no checksum of
// their own: runs and chunks have digests.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithWindowSize(maxRun),
			zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // an option is out of its range
		}
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil,
			zstd.WithDecoderMaxMemory(maxRun), zstd.WithDecoderMaxWindow(maxRun), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err)
		}
		return d
	})
)

// encodeRun returns the codec and the bytes to store for a run: raw itself where
// compressing does not save a sixteenth of it, else bytes appended to room, which
// should have none.
func encodeRun(raw, room []byte) (uint32, []byte) {
	if len(raw) > maxRun || !worthEncoding(raw, room) {
		return codecRaw, raw
	}
	if p := zstdEncoder().EncodeAll(raw, room); len(p) <= len(raw)-len(raw)/16 && len(p) < len(raw) {
		return codecZstd, p
	}
	return codecRaw, raw
}

// probeSize is how much of a run that looks like noise is compressed to see
// whether the rest is worth it.
const probeSize = 8 << 10

// worthEncoding reports whether to try to compress a run. It spares what cannot
// be compressed, being compressed or encrypted already, most of the time: where
// all bytes are equally frequent in a sample, only a repetition could save
// something, and the first probeSize bytes must have one. The answer depends on
// the run alone, so that the same blob always gives the same packs.
func worthEncoding(raw, room []byte) bool {
	if len(raw) < 4*probeSize {
		return true
	}
	const pieces, piece = 4, 1 << 10
	var counts [256]int
	for i := range pieces {
		at := i * (len(raw) - piece) / (pieces - 1)
		for _, b := range raw[at : at+piece] {
			counts[b]++
		}
	}
	// Of noise this statistic is 255 ± 23; of text it is some 20,000.
	const each = pieces * piece / 256
	chi := 0
	for _, n := range counts {
		chi += (n - each) * (n - each)
	}
	if chi > 400*each {
		return true
	}
	p := zstdEncoder().EncodeAll(raw[:probeSize], room)
	return len(p) <= probeSize-probeSize/16
}

// decodeRun returns the raw bytes of a run, exactly as many as its pack says.
// Anything else is errPack. It takes no more memory than that, and at most
// maxRun, whatever the stored bytes declare, and encodeMore; room may be given for
// it.
func decodeRun(codec, raw uint32, stored, room []byte) ([]byte, error) {
	switch {
	case codec == codecRaw && raw == uint32(len(stored)):
		return stored, nil
	case codec != codecZstd || raw > maxRun:
		return nil, fmt.Errorf("%w: a run of codec %d with %d raw bytes", errPack, codec, raw)
	}
	if cap(room) < int(raw)+encodeMore {
		room = make([]byte, 0, raw+encodeMore)
	}
	p, err := zstdDecoder().DecodeAll(stored, room[:0:raw+encodeMore])
	if err == nil && len(p) != int(raw) {
		err = fmt.Errorf("%d bytes, not %d", len(p), raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a compressed run: %w", errPack, err)
	}
	return p, nil
}

// readRun returns the raw bytes of the compressed run that a blob lies in.
func (x *packs) readRun(ctx context.Context, name Name, p place) ([]byte, error) {
	if p.raw > maxRun || p.stored > p.raw || uint64(p.off)+uint64(p.length) > uint64(p.raw) {
		return nil, fmt.Errorf("%w: a run or a blob in it larger than can be", errPack)
	}
	stored, err := x.readRange(ctx, name, int64(p.at), p.stored)
	if err != nil {
		return nil, err
	}
	return decodeRun(p.codec, p.raw, stored, nil)
}
