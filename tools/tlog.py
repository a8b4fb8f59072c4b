"""Check a proof of commitment (C2SP tlog-proof) with nothing but Python.

    tlog.py PROOF KIND PAYLOAD-DIGEST      a statement is in the tree of the proof's checkpoint
    tlog.py DIR                            the tiles and entries of an exported log have the checkpoint's root

PAYLOAD-DIGEST is what b3sum prints for the signed payload. It computes the trees
of RFC 6962 section 2.1; the checkpoint's signature it does not check: that is one
line of any Ed25519 tool over the three lines of the note.
"""
import base64, hashlib, os, sys

def sha(b): return hashlib.sha256(b).digest()
def leaf(data): return sha(b"\0" + data)
def node(left, right): return sha(b"\1" + left + right)

def mth(hashes):
    """The root of a list of leaf hashes."""
    if len(hashes) < 2: return hashes[0] if hashes else sha(b"")
    k = 1
    while 2 * k < len(hashes): k *= 2
    return node(mth(hashes[:k]), mth(hashes[k:]))

def climb(h, index, size, path):
    """The root that a path leads to from a leaf, by section 2.1.1."""
    if size == 1 or not path: return h if size == 1 and not path else None
    k = 1
    while 2 * k < size: k *= 2
    if index < k:
        below = climb(h, index, k, path[:-1])
        return below and node(below, path[-1])
    below = climb(h, index - k, size - k, path[:-1])
    return below and node(path[-1], below)

def checkpoint(note):
    origin, size, root = note.split("\n\n")[0].split("\n")[:3]
    return origin, int(size), base64.b64decode(root, validate=True)

def entries(folder, size):
    for n in range(0, size, 256):
        name, rest, width = "%03d" % (n // 256 % 1000), n // 256 // 1000, min(256, size - n)
        while rest: name, rest = "x%03d/%s" % (rest % 1000, name), rest // 1000
        data = open(os.path.join(folder, "tile/entries", name + (".p/%d" % width if width < 256 else "")), "rb").read()
        for _ in range(width):
            end = 2 + int.from_bytes(data[:2], "big")
            yield data[2:end]
            data = data[end:]

if len(sys.argv) == 4:
    head, note = open(sys.argv[1], encoding="utf-8").read().split("\n\n", 1)
    lines = [line for line in head.split("\n")[1:] if not line.startswith("extra ")]
    origin, size, root = checkpoint(note)
    index, path = int(lines[0].split(" ")[1]), [base64.b64decode(x, validate=True) for x in lines[1:]]
    data = "leafproof leaf v1\n%s\n%s\n" % tuple(sys.argv[2:4])
    good = index < size and climb(leaf(data.encode()), index, size, path) == root
    print(("leaf %d of %d in %s" if good else "NOT leaf %d of %d in %s") % (index, size, origin))
else:
    origin, size, root = checkpoint(open(os.path.join(sys.argv[1], "checkpoint"), encoding="utf-8").read())
    good = mth([leaf(e) for e in entries(sys.argv[1], size)]) == root
    print(("%d leaves of %s" if good else "NOT the %d leaves of %s") % (size, origin))
sys.exit(0 if good else 3)
