package cas

import (
	"context"
	"iter"

	"leafproof/merkle"
)

// Blob is a small blob with its bytes, which have this root.
type Blob struct {
	Root  merkle.Root
	Bytes []byte
}

// Blobs yields the blobs of a tenant with at most limit bytes that begin as
// begins likes, each with its verified bytes, in no order and some more than
// once. It asks no index: it takes whatever sound bytes the packs and blob
// objects hold, and passes over what is damaged or cannot be read. A yielded
// error is that of a listing or of ctx, and the last. Chunked blobs are not
// among them.
func (s *Store) Blobs(ctx context.Context, tenant Tenant, limit int64, begins func(head []byte) bool) iter.Seq2[Blob, error] {
	return func(yield func(Blob, error) bool) {
		for _, kind := range []Kind{KindPack, KindBlob} {
			for name, err := range s.b.List(ctx, tenant, kind, nil) {
				if err != nil {
					yield(Blob{}, err)
					return
				}
				o, err := OpenObject(ctx, s.b, name)
				if err != nil {
					continue
				}
				more := true
				if kind == KindPack {
					more = packBlobs(o, name, limit, begins, yield)
				} else {
					more = wholeBlob(o, name, limit, begins, yield)
				}
				o.Close()
				if !more {
					return
				}
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Blob{}, err)
		}
	}
}

// packBlobs yields from a pack, also from one that readers pass over because its
// ends are damaged.
func packBlobs(o Object, name Name, limit int64, begins func([]byte) bool, yield func(Blob, error) bool) bool {
	footer, start, err := salvageFooter(o, name.ID)
	if err != nil || footer == nil {
		return true
	}
	runs, keys, err := parseFooter(footer, start)
	if err != nil {
		return true
	}
	for i, run := range runs {
		stored := make([]byte, run.stored)
		if readFullAt(o, stored, run.offset) != nil {
			continue
		}
		raw, err := run.decode(stored)
		if err != nil {
			continue
		}
		for _, k := range keys { // few runs a pack, and no second copy of the keys
			if k.run != uint32(i) || int64(k.length) > limit {
				continue
			}
			p := raw[k.off : k.off+k.length]
			if begins(p) && merkle.Sum(p) == k.root && !yield(Blob{k.root, p}, nil) {
				return false
			}
		}
	}
	return true
}

func wholeBlob(o Object, name Name, limit int64, begins func([]byte) bool, yield func(Blob, error) bool) bool {
	if o.Size() > limit {
		return true
	}
	head := make([]byte, min(o.Size(), 512))
	if readFullAt(o, head, 0) != nil || !begins(head) {
		return true
	}
	p := make([]byte, o.Size())
	if readFullAt(o, p, 0) != nil || merkle.Sum(p) != name.ID {
		return true
	}
	return yield(Blob{name.ID, p}, nil)
}
