#!/usr/bin/env python3
"""Verify an excerpt of a blob against its BLAKE3 root, with nothing but Python.

usage: verify.py [--bao] [-o OUT] ROOT FILE [A:B]
       verify.py --bundle STATEMENT [-o OUT] FILE.proof

ROOT is the root in 64 lower-case hexadecimal digits, as b3sum prints it. FILE
(- is standard input) is a detached slice file, which begins with "lps1", or else
a Bao slice of the bytes A:B, as `bao slice` and `leafproof slice --bao` write
it; --bao says so for the one blob size in 2^32 whose slices begin with "lps1"
too. With A:B a detached slice file must hold exactly the leaves of those bytes.

-o writes the verified bytes to OUT (- is standard output), once all of them are
verified: those in A:B, or without it all leaves that the file was made for.

--bundle checks the excerpt in a bundle against STATEMENT, a file with the signed
statement that somebody's signature was found to cover: docs/VERIFY.md has the
lines for that. It looks at no signature itself, and takes nothing on trust from
the bundle. -o writes what was claimed: byte ranges, or records and the value at a
pointer, each of these with a newline behind it; of the answer to a query that asks
for a value at the path of an index, the records, and that there are no others: of
other queries nothing. Of a value whose document is not
in the bundle it proves the bytes and says that the place is not shown.

exit status: 0 verified; 3 it does not match the root or is malformed; 64 usage;
1 a file cannot be read or written.

This is a second implementation, from the descriptions of BLAKE3, Bao, lps1, lpr1
and the bundle alone. It is slow (about half a megabyte a second), holds in memory
what it verifies, and is meant to be read.
"""

import base64
import io
import json
import sys

LEAF = 1024
GROUP = 16  # leaves

sys.setrecursionlimit(max(4000, sys.getrecursionlimit()))  # a record may be nested 512 deep

# BLAKE3, from section 2 of its paper.

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
      0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
LANES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
MASK = 0xFFFFFFFF


def compress(h, block, counter, flags):
    """The compression function, cut to its first eight words."""
    padded = block + bytes(64 - len(block))
    m = [int.from_bytes(padded[i:i + 4], "little") for i in range(0, 64, 4)]
    v = list(h) + list(IV[:4]) + [counter & MASK, counter >> 32, len(block), flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(LANES):
            for word, r1, r2 in ((m[2 * i], 16, 12), (m[2 * i + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & MASK
                x = v[d] ^ v[a]
                v[d] = (x >> r1 | x << (32 - r1)) & MASK
                v[c] = (v[c] + v[d]) & MASK
                x = v[b] ^ v[c]
                v[b] = (x >> r2 | x << (32 - r2)) & MASK
        m = [m[i] for i in PERMUTATION]
    return [v[i] ^ v[i + 8] for i in range(8)]


def value_bytes(words):
    return b"".join(w.to_bytes(4, "little") for w in words)


def parent_value(both, root, key=IV, mode=0):
    """The value of a parent: both is the 64 bytes of its children's values."""
    return value_bytes(compress(key, both, 0, PARENT | mode | (ROOT if root else 0)))


def leaf_value(data, number, root, key=IV, mode=0):
    h, start = key, CHUNK_START
    while len(data) > 64:
        h = compress(h, data[:64], number, mode | start)
        data, start = data[64:], 0
    return value_bytes(compress(h, data, number, mode | start | CHUNK_END | (ROOT if root else 0)))


def left_leaves(n):
    """Of n > 1 leaves the left child has the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)


def subtree_value(data, first, root, key=IV, mode=0):
    """The value of the subtree of the bytes data, whose first leaf has a number."""
    n = leaf_count(len(data))
    if n == 1:
        return leaf_value(data, first, root, key, mode)
    left = left_leaves(n)
    return parent_value(subtree_value(data[:left * LEAF], first, False, key, mode)
                        + subtree_value(data[left * LEAF:], first + left, False, key, mode), root, key, mode)


# Excerpts.

class Refused(Exception):
    """The file does not prove what it should."""


def leaf_count(size):
    return max(1, -(-size // LEAF))


def leaves_of(size, start, end):
    """The leaves of the bytes start:end, as one half-open range."""
    last = leaf_count(size) - 1
    first = min(start // LEAF, last)
    if start == end:
        return first, first + 1
    return first, max(first, min((end - 1) // LEAF, last)) + 1


class Reader:
    """The bytes of the file, with an end that is an error."""

    def __init__(self, f):
        self.f = f

    def take(self, n):
        data = self.f.read(n)
        if len(data) != n:
            raise Refused("it is truncated")
        return data

    def varint(self):
        """A minimal little-endian base-128 number below 2^63."""
        n = shift = 0
        while True:
            c = self.take(1)[0]
            n |= (c & 0x7F) << shift
            if c < 0x80:
                break
            shift += 7
            if shift > 56:
                raise Refused("a number is too large")
        if c == 0 and shift > 0:
            raise Refused("a number is not in its shortest form")
        return n

    def size(self):
        n = int.from_bytes(self.take(8), "little")
        if n >= 1 << 63:
            raise Refused("the length is no length")
        return n


def read_slice_head(r):
    """The head of a detached slice file after its magic: size, ranges, set."""
    flags = r.take(1)[0]
    if flags > 1:
        raise Refused("its flags are not of this version")
    count = r.varint()
    if not 1 <= count <= 1 << 20:
        raise Refused("it has no range, or too many")
    ranges, end = [], 0
    for i in range(count):
        gap, length = r.varint(), r.varint()
        if i > 0 and gap == 0:
            raise Refused("two of its ranges touch")
        start = end + gap
        end = start + length + 1
        ranges.append((start, end))
    size = r.size()
    leaves = leaf_count(size)
    if end > leaves:
        raise Refused("a range ends past the last leaf")
    selected = list(ranges)
    if flags == 1:
        if end == leaves:
            raise Refused("its flags add the last leaf, which its ranges contain")
        if end == leaves - 1:
            selected[-1] = (selected[-1][0], leaves)
        else:
            selected.append((leaves - 1, leaves))
    return size, ranges, selected


class Walk:
    """One pre-order walk over a proof. pieces are (offset, verified bytes)."""

    def __init__(self, r, root, size, selected, unit):
        self.r, self.size, self.selected, self.unit = r, size, selected, unit
        self.pieces = []
        self.proven = False
        self.subtree(0, leaf_count(size), root, True, 0)

    def subtree(self, lo, hi, want, is_root, at):
        """Check the leaves lo:hi. Ranges before number at end before lo."""
        while at < len(self.selected) and self.selected[at][1] <= lo:
            at += 1
        if at == len(self.selected) or self.selected[at][0] >= hi:
            return
        start, end = self.selected[at]
        if hi - lo <= self.unit and start <= lo and hi <= end:
            offset = lo * LEAF
            data = self.r.take(min(hi * LEAF, self.size) - offset)
            if subtree_value(data, lo, is_root) != want:
                raise Refused("the %d bytes at %d do not match the root" % (len(data), offset))
            self.pieces.append((offset, data))
            self.proven = self.proven or hi == leaf_count(self.size)
            return
        both = self.r.take(64)
        if parent_value(both, is_root) != want:
            raise Refused("a node above byte %d does not match the root" % (lo * LEAF))
        mid = lo + left_leaves(hi - lo)
        self.subtree(lo, mid, both[:32], False, at)
        self.subtree(mid, hi, both[32:], False, at)


def verify(f, root, wanted, force_bao):
    """Return the verified bytes wanted, the size, whether it is proven."""
    r = Reader(f)
    head = r.take(4)
    if head == b"lps1" and not force_bao:
        size, ranges, selected = read_slice_head(r)
        if wanted is not None and ranges != [leaves_of(size, *wanted)]:
            raise Refused("it holds the leaves %s, not those of the bytes %d:%d"
                          % (" ".join("%d:%d" % x for x in ranges), *wanted))
        unit = GROUP
    elif wanted is None:
        usage("a Bao slice does not say which bytes it holds: give A:B")
    else:
        size = int.from_bytes(head + r.take(4), "little")
        if size >= 1 << 63:
            raise Refused("the length is no length")
        ranges = selected = [leaves_of(size, *wanted)]
        unit = 1
    walk = Walk(r, root, size, selected, unit)
    if f.read(1):
        raise Refused("bytes follow its end")
    # A last leaf that only proves the size comes after all that was asked for.
    start, end = wanted if wanted is not None else (0, ranges[-1][1] * LEAF)
    out = [data[max(start - offset, 0):max(end - offset, 0)] for offset, data in walk.pieces]
    return b"".join(out), size, walk.proven


# Bundles.

def parse(data, what):
    """The JSON value in data, which has no name twice in one object."""
    def members(pairs):
        if len(dict(pairs)) != len(pairs):
            raise Refused("%s has a name twice" % what)
        return dict(pairs)
    try:
        return json.loads(data, object_pairs_hook=members)
    except (ValueError, RecursionError) as e:
        raise Refused("%s is not JSON: %s" % (what, e))


def plain(text):
    """Whether a text is one that may be signed, or spelled in a header."""
    return not set(text) & set("\x7f\u2028\u2029")


def prove(section, root, size, selected):
    """Return {leaf: verified bytes} of a body over the leaves selected."""
    r = Reader(io.BytesIO(section))
    if r.size() != size:
        raise Refused("a section is about a blob of another size")
    ends = [n for r in selected for n in r]
    if not selected or any(len(r) != 2 for r in selected) or any(type(n) is not int for n in ends) or any(a >= b for a, b in zip([-1] + ends, ends)) or ends[-1] > leaf_count(size):
        raise Refused("a section selects leaves that there are not, or not in order")
    walk = Walk(r, root, size, selected, GROUP)
    if r.f.read(1):
        raise Refused("bytes follow the end of a section")
    return {(offset + i) // LEAF: data[i:i + LEAF]
            for offset, data in walk.pieces for i in range(0, len(data), LEAF)}


def cover(size, ranges):
    """The leaves of byte ranges in ascending order, as ranges that do not touch."""
    out = []
    for a, b in ranges:
        first, end = leaves_of(size, a, b)
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((first, end))
    return out


def span_bytes(leaves, a, b):
    """The bytes a:b out of verified leaves."""
    data = b"".join(leaves[n] for n in range(a // LEAF, -(-b // LEAF)))
    return data[a % LEAF:a % LEAF + b - a]


class Map:
    """The pages of a record map, verified: which bytes each record is."""

    def __init__(self, leaves, first, root, size, records):
        head = leaves[0]
        number = lambda at, n=8: int.from_bytes(head[at:at + n], "little")
        if head[:8] != b"LFPRMAP1" or head[8:40] != root or number(40) != size or number(80) != records:
            raise Refused("the record map is of another artifact")
        self.spans, self.pages = {}, []
        page, following = first, None
        while page in leaves:
            following = self.page(leaves[page], following)
            page += 1

    def page(self, data, following):
        r = Reader(io.BytesIO(data[20:]))
        number, end = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")
        if following is not None and following != (number, end):
            raise Refused("two pages of the record map do not continue each other")
        for _ in range(int.from_bytes(data[16:18], "little")):
            start = end + r.varint()
            end = start + r.varint()
            self.spans[number] = (start, end)
            number += 1
        self.pages.append(range(int.from_bytes(data[:8], "little"), number))
        return number, end


class Pointer:
    """Where the value at a JSON Pointer stands in a document, in bytes."""

    def __init__(self, document, pointer):
        pointer.encode()  # a lone surrogate has no spelling in it
        if pointer and pointer[0] != "/" or "~" in pointer.replace("~0", "").replace("~1", ""):
            raise Refused("%r is not a JSON Pointer" % pointer)
        self.text = document.decode("latin-1")  # one character is one byte
        self.tokens = [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]
        self.decoder = json.JSONDecoder(parse_constant=self.constant)
        self.found = None
        begin = self.space(3 if document[:3] == b"\xef\xbb\xbf" else 0)
        try:
            if self.space(self.value(begin, 0)) != len(self.text):
                raise Refused("the document is not one JSON value")
        except (ValueError, IndexError, RecursionError) as e:
            raise Refused("the document is not JSON: %s" % e)
        if self.found is None:
            raise Refused("nothing stands at %s" % pointer)

    @staticmethod
    def constant(name):
        raise ValueError("%s is no JSON value" % name)

    @staticmethod
    def name(raw):
        """The name that raw spells; None for bytes that are no text: no token is it."""
        try:
            return json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError:
            return None

    def space(self, at):
        while at < len(self.text) and self.text[at] in " \t\n\r":
            at += 1
        return at

    def value(self, at, depth):
        """Read the value at a place, depth tokens into the pointer; give its end."""
        end = self.decoder.raw_decode(self.text, at)[1]
        if depth == len(self.tokens):
            self.found = (at, end)
        elif self.text[at] in "[{":
            self.inside(at, depth)
        return end

    def inside(self, at, depth):
        token, array = self.tokens[depth], self.text[at] == "["
        index = seen = 0
        at = self.space(at + 1)
        while self.text[at] not in "]}":
            hit = array and token == str(index)
            if not array:
                start, at = at, self.decoder.raw_decode(self.text, at)[1]
                hit = self.name(self.text[start:at].encode("latin-1")) == token
                at = self.space(self.space(at) + 1)
            seen += hit
            if seen > 1:
                raise Refused("the name %s stands twice" % token)
            at = self.value(at, depth + 1) if hit else self.decoder.raw_decode(self.text, at)[1]
            at = self.space(at)
            at, index = self.space(at + (self.text[at] == ",")), index + 1


def verify_bundle(f, payload):
    """Return what the bundle proves of the signed statement: claim, bytes, place."""
    statement = parse(payload, "the statement")
    if (statement.get("_type"), statement.get("predicateType")) != \
            ("https://in-toto.io/Statement/v1", "urn:x-leafproof:manifest/v1"):
        raise Refused("the statement is no manifest")
    said = statement["predicate"]
    size, root = said["bytes"]["size"], bytes.fromhex(said["bytes"]["root"])
    first, line = f.readline(86), f.readline((4 << 20) + 1)
    if first[:20] != b"leafproof bundle v1 " or len(first) != 85 or first[20:-1].lower().strip(b"0123456789abcdef") or first != first.lower():
        raise Refused("it is no bundle")
    header = parse(line, "the header")
    spelled = lambda v: json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if (spelled(header) + "\n").encode() != line or not plain(line.decode()) or \
            sorted(set(header) - {"commit", "receipt", "index"}) != ["claims", "manifest", "ref", "ssh"]:
        raise Refused("its header is not in its one spelling")
    if header["manifest"]["payload"] != base64.b64encode(payload).decode():
        raise Refused("the bundle is about another statement")
    if spelled(header["ref"]) != spelled(said["artifact_ref"]):
        raise Refused("its reference is not the signed one")
    if len(header["claims"]) != 1:
        raise Refused("it has not exactly one claim")
    claim = header["claims"][0]
    sections, kind = claim["sections"], claim["kind"]
    body = {}
    for name in ("header", "pages", "undetermined", "map", "proof", "document", "records"):
        if name in sections:
            n = sections[name]["length"]
            if type(n) is not int or n < 0:
                raise Refused("a length that is none")
            body[name] = Reader(f).take(n)
    if f.read(1) or set(body) != set(sections):
        raise Refused("bytes follow its sections")
    if kind == "query":
        return verify_query(claim, body, said, root, size)
    members = {"bytes": "kind ranges sections size", "records": "kind range sections", "pointer": "kind pointer ranges sections size"}.get(kind, "")
    parts = {"bytes": [{"proof"}], "records": [{"map", "proof"}], "pointer": [{"proof"}, {"document"}]}.get(kind, [])
    if sorted(claim) != members.split() or set(body) not in parts:
        raise Refused("its claim is of no known kind, or has other members")
    if any(sorted(x) != ["leaves", "length"][name != "map":] for name, x in sections.items()):
        raise Refused("a section has other members than its leaves and its length")
    numbers = [n for r in claim.get("ranges") or [claim["range"]] for n in r] + [claim.get("size", 0)]
    if any(type(n) is not int for n in numbers):
        raise Refused("a number of its claim is none")
    if kind != "records" and claim["size"] != size:
        raise Refused("its claim is about another size")
    if kind == "records":
        return verify_records(claim, body, said, root, size)
    ranges = [tuple(r) for r in claim["ranges"]]
    if any(not 0 <= a <= b <= size for a, b in ranges) or \
            any(x[1] >= y[0] for x, y in zip(ranges, ranges[1:])):
        raise Refused("its ranges are not sorted, apart and inside the artifact")
    if kind == "bytes":
        leaves = prove(body["proof"], root, size, cover(size, ranges))
        text = "bytes " + ", ".join("%d:%d" % r for r in ranges)
        return text, b"".join(span_bytes(leaves, a, b) for a, b in ranges), "proven"
    if len(ranges) != 1:
        raise Refused("a value stands in one place")
    (a, b), = ranges
    text = "pointer %r at bytes %d:%d" % (claim["pointer"], a, b)
    if "document" not in body:
        leaves = prove(body["proof"], root, size, cover(size, ranges))
        return text, span_bytes(leaves, a, b) + b"\n", "not shown"
    leaves = prove(body["document"], root, size, [(0, leaf_count(size))])
    if Pointer(span_bytes(leaves, 0, size), claim["pointer"]).found != (a, b):
        raise Refused("another value stands at %s" % claim["pointer"])
    return text, span_bytes(leaves, a, b) + b"\n", "proven"


def verify_records(claim, body, said, root, size):
    records, (a, b) = said["records"], claim["range"]
    if not 0 <= a < b <= records["count"]:
        raise Refused("it claims records that there are not")
    chosen = [tuple(r) for r in claim["sections"]["map"]["leaves"]]
    pages = prove(body["map"], bytes.fromhex(records["map"]["root"]), records["map"]["size"], chosen)
    first = min((n for n in pages if n), default=1)
    held = Map(pages, first, root, size, records["count"])
    spans = held.spans
    if len(held.pages) != len(pages) - 1 or any(page.stop <= a or b <= page.start for page in held.pages):
        raise Refused("a page of the record map is not needed")
    try:
        wanted = [spans[n] for n in range(a, b)]
    except KeyError as e:
        raise Refused("its pages do not hold record %s" % e)
    leaves = prove(body["proof"], root, size, cover(size, wanted))
    out = b"".join(span_bytes(leaves, x, y) + b"\n" for x, y in wanted)
    return "records %d:%d" % (a, b), out, "as far as the signer's word counts"


# Queries: the records where one value stands at one path, and that there are no others.

PAGE = 4  # leaves
MISSING, UNDETERMINED = b"\x10", b"\xe0"


Num, Members = type("Num", (str,), {}), type("Members", (list,), {})  # a number as it is written; members of an object


def number_key(text, limits):  # the typed key (lpk1) of a number; None beyond the limits
    sign, digits, exp = decimal(text)
    if not digits:
        return b"\x40\x80"
    if len(digits) > limits["digits"] or abs(exp) > limits["exponent"]:
        return None
    tail = (exp + (1 << 63)).to_bytes(8, "big") + bytes(int(d) + 1 for d in digits) + b"\0"
    return b"\x40\x40" + bytes(255 - c for c in tail) if sign else b"\x40\xc0" + tail


def number_text(text):  # the one spelling of a number in a query
    sign, digits, exp = decimal(text)
    n = len(digits)
    if not n or not -6 < exp <= 21:
        return "%s%se%d" % (sign, digits, exp - n) if n else "0"
    return sign + (digits.ljust(exp, "0") if exp >= n else "%s.%s" % (digits[:exp], digits[exp:]) if exp > 0 else "0." + "0" * -exp + digits)


def decimal(text):  # its sign, digits and exponent: 0.d1d2... x 10^exponent
    mantissa, _, e = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    power = e.lstrip("+-").lstrip("0")[:16] or "0"
    exp = int("-" + power if e[:1] == "-" else power) + len(digits) - len(fraction)
    return text[:1].strip("0123456789"), digits.rstrip("0"), exp


def value_key(v, limits={"digits": 1024, "exponent": 1000000}):  # the typed key of a value; None for one that cannot be told
    if isinstance(v, Num):
        return number_key(v, limits)
    if not isinstance(v, str):
        return {None: b"\x20", True: b"\x31", False: b"\x30"}[v] if not isinstance(v, list) else b"\x70" if isinstance(v, Members) else b"\x60"
    try:
        data = v.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return b"\x50" + data[:96].replace(b"\0", b"\0\xff") + (b"\0\0" if len(data) <= 96 else b"\0\1" + subtree_value(data, 0, True))


def record_key(data, tokens, limits):  # the key of the value at a path of a record
    deep = lambda v: 1 + max([deep(x[1] if isinstance(v, Members) else x) for x in v], default=0) if isinstance(v, list) else 0
    try:
        v = json.loads(data.decode(), object_pairs_hook=Members, parse_int=Num, parse_float=Num, parse_constant=Pointer.constant)
        if len(data) > limits["record"] or deep(v) > limits["depth"]:
            return None
    except (ValueError, RecursionError):
        return None
    for token in tokens:
        found = []
        if isinstance(v, Members):
            found = [value for name, value in v if name == token]
        elif isinstance(v, list) and token.isascii() and token.isdigit() and str(int(token[:18])) == token:
            found = v[int(token):][:1]
        if len(found) != 1:
            return None if found else MISSING
        v = found[0]
    return value_key(v, limits)


class Index:
    """The pages of an index, verified, in their order: which records have a key."""
    def __init__(self, head, said, about, key):
        number = lambda at: int.from_bytes(head[at:at + 8], "little")
        self.records, self.entries, distinct, self.pages, self.tail = map(number, range(80, 120, 8))
        if head[:8] != b"LFPINDX1" or head[8:40].hex() != said["bytes"]["root"] or number(40) != said["bytes"]["size"]:
            raise Refused("the index is of another artifact")
        if head[48:80].hex() != about["spec_digest"] or about["size"] != (self.pages + 1) * PAGE * LEAF or \
                [self.records, self.entries, distinct, self.entries - self.tail] != \
                [said["records"]["count"], self.records] + [about[x] for x in ("distinct", "undetermined")]:
            raise Refused("the header of the index and its statement differ")
        self.key, self.found, self.tailed, self.behind = key, set(), set(), None

    def page(self, n, data):  # returns the last key of the page before, and its own
        r, first, used = Reader(io.BytesIO(data[20:])), int.from_bytes(data[8:16], "little"), int.from_bytes(data[16:18], "little")
        before = now = r.take(r.varint())
        if int.from_bytes(data[:8], "little") != n or data[18:20] != b"\0\0" or data[20 + used:].strip(b"\0") or \
                (n == 0) != (before == b"") or self.behind not in (None, (n, first, before)) or n == 0 < first:
            raise Refused("page %d of the index does not stand in its place" % n)
        rank = first
        while r.f.tell() < used:
            key, record = now[:r.varint()], -1
            key += r.take(r.varint())
            if key < now or key == now and (now != before or not n):
                raise Refused("the keys of page %d are not in order" % n)
            for _ in range(r.varint()):
                record, rank = record + 1 + r.varint(), rank + 1
                if record >= self.records or (key >= UNDETERMINED) != (rank > self.tail):
                    raise Refused("the entries of page %d contradict the header" % n)
                if key == self.key or key >= UNDETERMINED:
                    (self.found if key == self.key else self.tailed).add(record)
            now = key
        if r.f.tell() != used or rank == first or (n == self.pages - 1) != (rank == self.entries):
            raise Refused("page %d of the index does not end in its place" % n)
        self.behind = n + 1, rank, now
        return before, now


def index_spec(records, path, redactions):  # the rules that follow from the manifest
    limits = {name: records["limits"][name] for name in ("depth", "digits", "exponent", "record")}
    spec = {"dialect": None, "format": records["format"], "keys": "lpk1", "limits": limits, "path": path, "pointer": records["pointer"], "redactions": redactions}
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    context = subtree_value(b"leafproof 2026 index-spec v1", 0, True, IV, 32)
    return subtree_value(text, 0, True, [int.from_bytes(context[i:i + 4], "little") for i in range(0, 32, 4)], 64).hex(), spec


def verify_query(claim, body, said, root, size):
    """Return what a claim proves whose condition is that a value stands at a pointer."""
    records, named, sections, where = said["records"], claim["index"], claim["sections"], claim["query"]["where"]
    path, ours = named["path"], {"at": records["pointer"], "engine": "1", "format": records["format"], "order": ["document"], "where": where}
    same = lambda a, b: json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    if not same([claim["query"], sorted(claim), sorted(named)], [ours, ["index", "kind", "query", "sections"], ["path", "root", "size"]]) or \
            where[:-1] != ["eq", path] or path[:1].strip("/") or "~" in path.replace("~0", "").replace("~1", "") or \
            records["format"] not in ("json", "ndjson", "concat") or said["artifact_ref"]["completeness"]["redactions"]:
        raise Refused("this program checks only that a value stands at the path of an index, of JSON records without redactions")
    values = {"s": str, "n": Num, "x": lambda h: bytes.fromhex(h).decode(), "true": lambda: True, "false": lambda: False, "null": lambda: None}
    value = values[where[2][0]](*where[2][1:])
    key, text = value_key(value), isinstance(value, str) and not isinstance(value, Num)
    if where[2][1:] != ([number_text(value)] if isinstance(value, Num) else [] if not text else [value] if plain(value) else [value.encode().hex()]) or \
            text and plain(value) != (where[2][0] == "s") or key is None:
        raise Refused("the literal is not in its one spelling")
    about = [x for x in said["indexes"] or [] if all(x[k] == named[k] for k in ("path", "root", "size"))]
    if len(about) != 1 or index_spec(records, path, []) != (about[0]["spec_digest"], about[0]["spec"]):
        raise Refused("the statement names no such index, or one by other rules")
    if any(sorted(s) != ["leaves", "length"][name == "records":] for name, s in sections.items()) or not same(sections["header"]["leaves"], [[0, 1]]) or \
            {"proof", "document"} & set(body):
        raise Refused("the sections are not those of an answer")
    of_index = lambda name, leaves: prove(body[name], bytes.fromhex(named["root"]), named["size"], leaves)
    index, n = Index(of_index("header", [(0, 1)])[0], said, about[0], key), -1
    for name in ("pages", "undetermined"):
        (a, b), = sections[name]["leaves"] if name in body else [(0, 0)]
        first = a // PAGE - 1
        if a % PAGE or b % PAGE or name in body and not n < first < b // PAGE - 1 <= index.pages:
            raise Refused("the sections of the index are not pages in order")
        leaves, index.behind = of_index(name, [(a, b)]) if name in body else {}, index.behind if first == n + 1 else None
        for n in range(first, b // PAGE - 1) if name in body else ():
            before, last = index.page(n, b"".join(leaves[PAGE * (n + 1) + i] for i in range(PAGE)))
            if n < index.pages - 1 and last < key if name == "pages" else last < UNDETERMINED:
                raise Refused("page %d of the index is not needed" % n)
            if name == "pages" and (n == first > 0 and before >= key or n < b // PAGE - 2 and last > key or n == b // PAGE - 2 < index.pages - 1 and last <= key):
                raise Refused("the pages do not begin in front of the value and end behind it")
        if name == "pages" and (n < 0) != (index.pages == 0):
            raise Refused("no page of the index is shown")
    if len(index.tailed) != index.entries - index.tail:
        raise Refused("not all records that cannot be told are shown")
    wanted, out, spans, leaves = sorted(index.found | index.tailed), [], {}, {}
    if {"map", "records"} & set(body) != ({"map", "records"} if wanted else set()):
        raise Refused("records are shown, and must not be, or the other way round")
    if wanted:
        pages = prove(body["map"], bytes.fromhex(records["map"]["root"]), records["map"]["size"], [tuple(x) for x in sections["map"]["leaves"]])
        for p in pages:
            if p and (p == 1 or p - 1 not in pages):
                part = Map(pages, p, root, size, records["count"])
                spans.update(part.spans)
                if any(not any(r in page for r in wanted) for page in part.pages):
                    raise Refused("a page of the record map is not needed")
        leaves = prove(body["records"], root, size, cover(size, [spans[r] for r in wanted]))
    tokens = [t.replace("~1", "/").replace("~0", "~") for t in path.split("/")[1:]]
    for r in wanted:
        data = span_bytes(leaves, *spans[r])
        if record_key(data, tokens, records["limits"]) != (key if r in index.found else None):
            raise Refused("record %d stands in the index under a value that it does not have" % r)
        out += [data + b"\n"] if r in index.found else []
    return "query %s: %d of %d records, %d undecidable," % (json.dumps(where[1:]), len(out), records["count"], len(index.tailed)), b"".join(out), "as far as the signer's word counts"


# The command.

def usage(why):
    sys.stderr.write("verify.py: %s\nusage: verify.py [--bao] [-o OUT] ROOT FILE [A:B]\n"
                     "       verify.py --bundle STATEMENT [-o OUT] FILE.proof\n" % why)
    sys.exit(64)


def parse_args(args):
    out, force_bao, statement, rest = None, False, None, []
    args = list(args)
    while args:
        arg = args.pop(0)
        if arg in ("-o", "--bundle"):
            if not args:
                usage("%s needs a file" % arg)
            if arg == "-o":
                out = args.pop(0)
            else:
                statement = args.pop(0)
        elif arg == "--bao":
            force_bao = True
        elif arg in ("-h", "--help"):
            sys.stdout.write(__doc__)
            sys.exit(0)
        elif arg.startswith("-") and arg != "-":
            usage("unknown option %s" % arg)
        else:
            rest.append(arg)
    if statement is not None:
        if force_bao or len(rest) != 1:
            usage("--bundle needs one bundle and nothing else")
        return statement, rest[0], None, out, None
    if len(rest) not in (2, 3):
        usage("a root and a file are needed")
    if len(rest[0]) != 64 or set(rest[0]) - set("0123456789abcdef"):
        usage("%r is not a root" % rest[0])
    wanted = None
    if len(rest) == 3:
        a, colon, b = rest[2].partition(":")
        if not (colon and a.isascii() and a.isdigit() and b.isascii() and b.isdigit()) or int(a) > int(b):
            usage("%r is not a range A:B" % rest[2])
        wanted = int(a), int(b)
    return bytes.fromhex(rest[0]), rest[1], wanted, out, force_bao


def main(args):
    root, name, wanted, out, force_bao = parse_args(args)
    try:
        if force_bao is None:
            with open(root, "rb") as s, open(name, "rb") as f:
                claim, data, place = verify_bundle(f, s.read())
        elif name == "-":
            data, size, proven = verify(sys.stdin.buffer, root, wanted, force_bao)
        else:
            with open(name, "rb") as f:
                data, size, proven = verify(f, root, wanted, force_bao)
    except Refused as e:
        sys.stderr.write("verify.py: %s: refused: %s\n" % (name, e))
        return 3
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        if force_bao is not None:
            raise
        sys.stderr.write("verify.py: %s: refused: it is not spelled as a bundle: %r\n" % (name, e))
        return 3
    except OSError as e:
        sys.stderr.write("verify.py: %s: %s\n" % (name, e.strerror or e))
        return 1
    try:
        if out == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif out is not None:
            with open(out, "wb") as f:
                f.write(data)
        report = sys.stderr if out == "-" else sys.stdout
        if force_bao is None:
            report.write("%s verified: %d bytes; place %s\n" % (claim, len(data), place))
        else:
            report.write("%d bytes verified; size %d, %s\n"
                         % (len(data), size, "proven" if proven else "not proven"))
        report.flush()
    except OSError as e:
        sys.stderr.write("verify.py: %s: %s\n" % (out or "standard output", e.strerror or e))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
