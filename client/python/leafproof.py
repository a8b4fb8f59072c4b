"""A client of Leafproof that trusts no server, in one file, with Python's standard library alone.

    c = leafproof.Client("http://127.0.0.1:7117", token="lpt_…")
    a = c.put(b"hello", facts={"artifact_ref": {"tool_call_id": "call-1"}})
    assert a.get() == b"hello"

An artifact's id follows from the signed facts, the BLAKE3 root of its bytes among them.
So whoever has an id has what the bytes must be: open() checks that the manifest is the
one that the id was made from, and get(), read() and stream() hand on no byte that was
not verified against that root. With keys=[…] the Ed25519 signature of the manifest is
checked too, and a manifest that none of those keys signed is refused.

What is not checked here: trust policies with roles, times and thresholds, the commit
log, the proofs of record numbers and of query answers. The Go client, `leafproof verify`
and cmd/leafproof-verify check those. Rows of a query are the server's word unless
verify=True, which holds each to the proven bytes at its place; that none is missing
stays the server's word. Artifact.facts says of each fact how it is known.

BLAKE3 is computed in Python, many lanes at a time in large integers: some 25 MB/s on one
core for content, and 1 ms or so for a small read. With the module `blake3` installed,
whole content is hashed by that instead, at the speed of the network.

AsyncClient has the same methods as coroutines; each runs the synchronous one in a thread
(asyncio.to_thread), so what it saves is your event loop, not threads.

Harness is the reference layer for a harness of your own: see its docstring.

Python 3.9 or newer.
"""

import asyncio
import base64
import functools
import hashlib
import http.client
import io
import json
import os
import random
import re
import socket
import ssl
import struct
import tempfile
import time
import urllib.parse

try:
    import blake3 as _blake3  # optional: pip install blake3
except ImportError:
    _blake3 = None

__all__ = ["Client", "AsyncClient", "Artifact", "Answer", "Row", "Blob", "Harness", "Error", "VerificationError", "blake3", "slice_bytes", "verify_bundle"]

LEAF, GROUP = 1024, 16
_MAX_JSON, _MAX_MANIFEST, _MAX_PROBLEM, _MAX_LINE = 64 << 20, 2 << 20, 64 << 10, 256 << 20
_MAX_INPUT = 128 << 20  # of a call: a server resolves at most 16 MiB, of which each byte may be an escape
_BATCH = 1 << 20  # bytes that are verified together before they are handed on
_ID = re.compile(r"art_[a-z2-7]{32}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")


class Error(Exception):
    """What failed. code is as in "ref_not_found"; retryable: the same may succeed later;
    action is fix_call, refetch, wait, defer or stop; at is what it is about; status is
    that of the answer, or 0. result is what a model reads of it, in runs."""

    def __init__(self, code, message="", retryable=False, action="stop", at="", status=0, result=None):
        super().__init__("%s: %s" % (code, message) if message else code)
        self.code, self.message, self.retryable, self.action = code, message, retryable, action
        self.at, self.status, self.result = at, status, result


class VerificationError(Error):
    """An answer that was not taken. kind is mismatch, truncated, extended, size, range,
    artifact, altered, untrusted, unverified, row, redirect, too_large or protocol."""

    def __init__(self, kind, message="", at=""):
        code = {"altered": "ref_altered", "untrusted": "untrusted", "unverified": "unverified", "truncated": "unreachable",
                "range": "protocol", "redirect": "protocol", "too_large": "protocol", "protocol": "protocol"}.get(kind, "integrity_failed")
        wait = kind == "truncated"
        super().__init__(code, "%s: %s" % (kind, message), wait, "wait" if wait else "stop", at)
        self.kind = kind


# BLAKE3, section 2 of its paper. A value of many lanes is one integer, in which each lane
# is a word of 32 bits in 64 bits of room: sums do not reach the next lane, and what a
# rotation leaves there is masked off.

_IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
_START, _END, _PARENT, _ROOT, _CONTEXT, _MATERIAL = 1, 2, 4, 8, 32, 64


def _unroll():
    """The compression function, cut to its first eight words, without its loops."""
    lanes = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
    permutation, order = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8), list(range(16))
    code = ["def compress(h, m, v12, v13, v14, v15, one, mask):", " v0, v1, v2, v3, v4, v5, v6, v7 = h",
            " v8, v9, v10, v11 = one * %d, one * %d, one * %d, one * %d" % _IV[:4], " (%s) = m" % ", ".join("m%d" % i for i in range(16))]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(lanes):
            for word, r1, r2 in ((order[2 * i], 16, 12), (order[2 * i + 1], 8, 7)):
                code.append(" v%d = (v%d + v%d + m%d) & mask" % (a, a, b, word))
                code.append(" x = v%d ^ v%d; v%d = (x >> %d | x << %d) & mask" % (d, a, d, r1, 32 - r1))
                code.append(" v%d = (v%d + v%d) & mask" % (c, c, d))
                code.append(" x = v%d ^ v%d; v%d = (x >> %d | x << %d) & mask" % (b, c, b, r2, 32 - r2))
        order = [order[i] for i in permutation]
    code.append(" return " + ", ".join("v%d ^ v%d" % (i, i + 8) for i in range(8)))
    space = {}
    exec("\n".join(code), space)
    return space["compress"]


_compress = _unroll()


def _lanes(data, at, step, n):
    """The little-endian words at data[at + i*step], one in each of n lanes."""
    b = bytearray(8 * n)
    for k in range(4):
        b[k::8] = data[at + k:at + k + step * (n - 1) + 1:step]
    return int.from_bytes(b, "little")


def _values(h, n):
    """The chaining values of n lanes, 32 bytes each."""
    out = bytearray(32 * n)
    for w in range(8):
        b = h[w].to_bytes(8 * n, "little")
        for k in range(4):
            out[4 * w + k::32] = b[k::8]
    return bytes(out)


@functools.lru_cache(maxsize=64)
def _ones(n):
    one = int.from_bytes(b"\1\0\0\0\0\0\0\0" * n, "little")
    return one, one * 0xFFFFFFFF


def _leaf_values(data, numbers):
    """The values of whole leaves that are not the root; numbers has theirs."""
    n = len(numbers)
    one, mask = _ones(n)
    low = int.from_bytes(struct.pack("<%dQ" % n, *(x & 0xFFFFFFFF for x in numbers)), "little")
    high = int.from_bytes(struct.pack("<%dQ" % n, *(x >> 32 for x in numbers)), "little")
    h = [one * x for x in _IV]
    for block in range(16):
        m = [_lanes(data, block * 64 + 4 * w, LEAF, n) for w in range(16)]
        flags = (_START if block == 0 else 0) | (_END if block == 15 else 0)
        h = _compress(h, m, low, high, one * 64, one * flags, one, mask)
    return _values(h, n)


def _parent_values(pairs):
    """The values of parents that are not the root; pairs has 64 bytes of each."""
    n = len(pairs) // 64
    one, mask = _ones(n)
    m = [_lanes(pairs, 4 * w, 64, n) for w in range(16)]
    return _values(_compress([one * x for x in _IV], m, 0, 0, one * 64, one * _PARENT, one, mask), n)


def _words(b):
    return struct.unpack("<%dI" % (len(b) // 4), b)


def _leaf_value(data, number, flags, key=_IV):
    h, start = key, _START
    for at in range(0, max(len(data), 1), 64):
        block = data[at:at + 64]
        last = at + 64 >= len(data)
        f = flags & ~_ROOT | start | ((_END | flags & _ROOT) if last else 0)
        h = _compress(h, _words(block + bytes(64 - len(block))), number & 0xFFFFFFFF, number >> 32, len(block), f, 1, 0xFFFFFFFF)
        start = 0
    return struct.pack("<8I", *h)


def _parent_value(pair, flags, key=_IV):
    return struct.pack("<8I", *_compress(key, _words(pair), 0, 0, 64, flags | _PARENT, 1, 0xFFFFFFFF))


def _left(n):
    """Of n > 1 leaves the left child has the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)


def _leaf_count(size):
    return max(1, -(-size // LEAF))


def _subtree(data, first, root=False):
    """The value of the subtree of some bytes, whose first leaf has a number."""
    n, whole = _leaf_count(len(data)), len(data) // LEAF
    if n == 1:
        return _leaf_value(data, first, _ROOT if root else 0)
    row = _leaf_values(data[:whole * LEAF], range(first, first + whole))
    values = [row[32 * i:32 * i + 32] for i in range(whole)]
    if whole < n:
        values.append(_leaf_value(data[whole * LEAF:], first + whole, 0))
    # Neighbours are joined row by row: one that is left over moves up, as BLAKE3's tree
    # has it, since all complete subtrees stand to its left.
    while len(values) > 2:
        pairs = b"".join(values[:len(values) & ~1])
        up = _parent_values(pairs)
        values = [up[i:i + 32] for i in range(0, len(up), 32)] + values[len(values) & ~1:]
    return _parent_value(values[0] + values[1], _ROOT if root else 0)


class _Hash:
    """BLAKE3 of what is written to it, without the extension module."""

    def __init__(self):
        self.size, self.rest, self.stack = 0, bytearray(), []  # of (leaves, value)

    def update(self, data):
        self.size += len(data)
        self.rest += data
        while len(self.rest) > _BATCH:
            self._push(bytes(self.rest[:_BATCH]))
            del self.rest[:_BATCH]

    def _push(self, data):
        n, first = _BATCH // LEAF, sum(x[0] for x in self.stack)
        value = _subtree(data, first)
        while self.stack and self.stack[-1][0] == n:
            value = _parent_value(self.stack.pop()[1] + value, 0)
            n *= 2
        self.stack.append((n, value))

    def digest(self):
        first = sum(x[0] for x in self.stack)
        value = _subtree(bytes(self.rest), first, not self.stack)
        for i in range(len(self.stack) - 1, -1, -1):
            value = _parent_value(self.stack[i][1] + value, 0 if i else _ROOT)
        return value

    def hexdigest(self):
        return self.digest().hex()


def _hasher():
    return _blake3.blake3() if _blake3 else _Hash()


def blake3(data):
    """BLAKE3 of some bytes, as 32 bytes: what b3sum prints."""
    h = _hasher()
    h.update(data)
    return h.digest()


def _derive(context, data):
    """BLAKE3's key derivation, of at most a few megabytes."""
    def tree(data, flags, key):
        def value(lo, hi, root):
            if hi - lo == 1:
                return _leaf_value(data[lo * LEAF:hi * LEAF], lo, flags | (_ROOT if root else 0), key)
            mid = lo + _left(hi - lo)
            return _parent_value(value(lo, mid, False) + value(mid, hi, False), flags | (_ROOT if root else 0), key)
        return value(0, _leaf_count(len(data)), True)
    return tree(data, _MATERIAL, _words(tree(context.encode(), _CONTEXT, _IV)))


# Slices (lps1): the bytes of some leaves, and the values of the tree beside them.


def _leaves_of(size, start, end):
    last = _leaf_count(size) - 1
    first = min(start // LEAF, last)
    return (first, first + 1) if start == end else (first, max(first, min((end - 1) // LEAF, last)) + 1)


def _body_plan(size, selected):
    """What a body of some ranges of leaves has, in order: (lo, hi, raw, depth)."""
    stack = [(0, _leaf_count(size), 0)]
    while stack:
        lo, hi, at = stack.pop()
        while at < len(selected) and selected[at][1] <= lo:
            at += 1
        if at == len(selected) or selected[at][0] >= hi:
            continue
        raw = hi - lo <= GROUP and selected[at][0] <= lo and hi <= selected[at][1]
        yield lo, hi, raw
        if not raw:
            mid = lo + _left(hi - lo)
            stack.append((mid, hi, at))
            stack.append((lo, mid, at))


class _Batch:
    """Parts of a body that are verified together before any of them counts."""

    def __init__(self, size):
        self.size, self.groups, self.parents, self.bytes = size, [], [], 0

    def check(self):
        for pair, want, root in self.parents:
            if root and _parent_value(pair, _ROOT) != want:
                raise VerificationError("mismatch", "the top of the tree")
        rest = [x for x in self.parents if not x[2]]
        if rest and _parent_values(b"".join(x[0] for x in rest)) != b"".join(x[1] for x in rest):
            raise VerificationError("mismatch", "a node of the tree")
        whole = [g for g in self.groups if len(g[1]) == GROUP * LEAF and not g[3]]
        if whole:
            data = b"".join(g[1] for g in whole)
            row = _leaf_values(data, [lo + i for lo, _, _, _ in whole for i in range(GROUP)])
            for _ in range(4):
                row = _parent_values(row)
            for i, (lo, _, want, _) in enumerate(whole):
                if row[32 * i:32 * i + 32] != want:
                    raise VerificationError("mismatch", "the bytes from %d on" % (lo * LEAF))
        for lo, data, want, root in self.groups:
            if (len(data) != GROUP * LEAF or root) and _subtree(data, lo, root) != want:
                raise VerificationError("mismatch", "the bytes from %d on" % (lo * LEAF))
        return [(lo * LEAF, data) for lo, data, _, _ in self.groups]


def _verified(take, root, size, selected):
    """Yield (offset, verified bytes) of a body; take(n) reads n bytes of it."""
    batch, wants = _Batch(size), {(0, _leaf_count(size)): root}
    for lo, hi, raw in _body_plan(size, selected):
        want, top = wants.pop((lo, hi)), lo == 0 and hi == _leaf_count(size)
        if raw:
            data = take(min(hi * LEAF, size) - lo * LEAF)
            batch.groups.append((lo, data, want, top))
            batch.bytes += len(data)
        else:
            pair = take(64)
            batch.parents.append((pair, want, top))
            mid = lo + _left(hi - lo)
            wants[(lo, mid)], wants[(mid, hi)] = pair[:32], pair[32:]
            batch.bytes += 64
        if batch.bytes >= _BATCH:
            yield from batch.check()
            batch = _Batch(size)
    yield from batch.check()


def _uvarint(take):
    value = shift = 0
    while True:
        c = take(1)[0]
        value |= (c & 0x7F) << shift
        if c < 0x80:
            if c == 0 and shift or value >= 1 << 63:
                raise VerificationError("protocol", "a number is not in its shortest form")
            return value
        shift += 7
        if shift > 62:
            raise VerificationError("protocol", "a number is too large")


def slice_bytes(take, root, size, start, end):
    """Yield the verified bytes start:end of a detached slice file about a blob whose root
    and size are known; the file holds these leaves and the last. take(n) reads n bytes."""
    if take(4) != b"lps1":
        raise VerificationError("protocol", "not a slice")
    flags = take(1)[0]
    ranges, at = [], 0
    n = _uvarint(take)
    if flags & ~1 or not 0 < n <= 4:
        raise VerificationError("range", "the proof is of other leaves than were asked for")
    for _ in range(n):
        first = at + _uvarint(take)
        at = first + _uvarint(take) + 1
        ranges.append((first, at))
    told = int.from_bytes(take(8), "little")
    if told != size:
        raise VerificationError("size", "the proof is of %d bytes, and %d were signed" % (told, size))
    wanted, last = _leaves_of(size, start, end), _leaf_count(size)
    if ranges != [wanted] or bool(flags & 1) == (wanted[1] == last):
        raise VerificationError("range", "the proof is of the leaves %r, and %r were asked for" % (ranges, wanted))
    selected = [wanted] if wanted[1] == last else ([(wanted[0], last)] if wanted[1] == last - 1 else [wanted, (last - 1, last)])
    for offset, data in _verified(take, root, size, selected):
        a, b = max(start - offset, 0), min(end - offset, len(data))
        if a < b:
            yield data[a:b]


# Manifests.


def _parse(text, what, most=_MAX_JSON):
    """A JSON value without a name twice in one object."""
    def members(pairs):
        out = dict(pairs)
        if len(out) != len(pairs):
            raise VerificationError("protocol", "%s has a name twice" % what)
        return out
    if len(text) > most:
        raise VerificationError("too_large", "%s of more than %d bytes" % (what, most))
    try:
        return json.loads(text, object_pairs_hook=members, parse_constant=_no_number)
    except (ValueError, RecursionError) as e:
        raise VerificationError("protocol", "%s is not JSON: %s" % (what, e)) from None


def _no_number(name):
    raise ValueError("%s is no number" % name)


def _same(a, b):
    """Whether two values are one in JSON, in which true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and a == b


def _canonical(v):
    return json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _base32(b):
    return base64.b32encode(b).decode().lower().rstrip("=")[:32]


def _b64(text):
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise VerificationError("protocol", "that is no base64") from None


class _Ed25519:
    """Verifying signatures (RFC 8032), in a few milliseconds. Nothing here is secret."""

    p, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, 2**255 - 21, 2**255 - 19) % (2**255 - 19)

    @classmethod
    def point(cls, b):
        y, sign = int.from_bytes(b, "little") & (1 << 255) - 1, b[31] >> 7
        if y >= cls.p:
            return None
        x2 = (y * y - 1) * pow(cls.d * y * y + 1, cls.p - 2, cls.p) % cls.p
        x = pow(x2, (cls.p + 3) // 8, cls.p)
        if (x * x - x2) % cls.p:
            x = x * pow(2, (cls.p - 1) // 4, cls.p) % cls.p
        if (x * x - x2) % cls.p or not x and sign:
            return None
        x = x if x & 1 == sign else cls.p - x
        return x, y, 1, x * y % cls.p

    @classmethod
    def add(cls, P, Q):
        p = cls.p
        a, b = (P[1] - P[0]) * (Q[1] - Q[0]) % p, (P[1] + P[0]) * (Q[1] + Q[0]) % p
        c, e = 2 * P[3] * Q[3] * cls.d % p, 2 * P[2] * Q[2] % p
        E, F, G, H = b - a, e - c, e + c, b + a
        return E * F % p, G * H % p, F * G % p, E * H % p

    @classmethod
    def mul(cls, s, P):
        Q = (0, 1, 1, 0)
        while s:
            if s & 1:
                Q = cls.add(Q, P)
            P = cls.add(P, P)
            s >>= 1
        return Q

    @classmethod
    def same(cls, P, Q):
        return (P[0] * Q[2] - Q[0] * P[2]) % cls.p == 0 and (P[1] * Q[2] - Q[1] * P[2]) % cls.p == 0

    @classmethod
    def verify(cls, public, message, signature):
        if len(signature) != 64 or len(public) != 32:
            return False
        A, R, s = cls.point(public), cls.point(signature[:32]), int.from_bytes(signature[32:], "little")
        if A is None or R is None or s >= cls.L or cls.same(cls.mul(8, A), (0, 1, 1, 0)):
            return False
        k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % cls.L
        by = 4 * pow(5, cls.p - 2, cls.p) % cls.p
        B = cls.point(by.to_bytes(32, "little"))
        return cls.same(cls.mul(s, B), cls.add(R, cls.mul(k, A)))


def _key(line):
    """(fingerprint, 32 bytes) of an OpenSSH public-key line."""
    parts = line.split()
    blob = base64.b64decode(parts[1]) if len(parts) > 1 and parts[0] == "ssh-ed25519" else b""
    if len(blob) != 51 or not blob.startswith(b"\0\0\0\x0bssh-ed25519\0\0\0\x20"):
        raise ValueError("not an OpenSSH line of an Ed25519 key: %r" % line)
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("="), blob[19:]


def _manifest(text, artifact_id, keys, check_signature):
    """(predicate, manifest_id, facts, payload) of a manifest that is the one of an id."""
    outer = _parse(text, "the manifest", _MAX_MANIFEST)
    try:
        envelope = outer["manifest"]
        payload, signatures = _b64(envelope["payload"]), [(s["keyid"], _b64(s["sig"])) for s in envelope["signatures"]]
        if envelope["payloadType"] != "application/vnd.in-toto+json" or not 0 < len(signatures) <= 16:
            raise VerificationError("protocol", "the envelope is of another kind")
        statement = _parse(payload, "the statement", 1 << 20)
        if _canonical(statement) != payload:
            raise VerificationError("protocol", "the statement is not in its canonical form")
        p = statement["predicate"]
        if (statement["_type"], statement["predicateType"]) != ("https://in-toto.io/Statement/v1", "urn:x-leafproof:manifest/v1"):
            raise VerificationError("protocol", "the statement is no manifest")
        core = {k: v for k, v in p.items() if k not in ("indexes", "issuer", "issued_at")}
        core["artifact_ref"] = {k: v for k, v in p["artifact_ref"].items() if k != "artifact_id"}
        made = "art_" + _base32(_derive("leafproof 2026 artifact-id v1", _canonical(core)))
        told, size, root = p["artifact_ref"]["artifact_id"], p["bytes"]["size"], p["bytes"]["root"]
        subject = statement["subject"]
        digests = {"blake3": root, **p["bytes"]["also"]}
        if made != told:
            raise VerificationError("mismatch", "the id does not follow from the facts", artifact_id)
        if told != artifact_id:
            raise VerificationError("artifact", "the manifest is that of " + told, artifact_id)
        if len(subject) != 1 or subject[0] != {"name": told, "digest": digests} or p["artifact_ref"]["content_hash"] != "blake3:" + root:
            raise VerificationError("mismatch", "the digests contradict each other", artifact_id)
        if type(size) is not int or size < 0 or not re.match(r"[0-9a-f]{64}\Z", root):
            raise VerificationError("protocol", "the manifest has no size or root", artifact_id)
        issuer = p["issuer"]["key_id"]
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise VerificationError("protocol", "the manifest lacks what it must have: %r" % e, artifact_id) from None
    message = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(payload) + payload
    facts = {"signature": "unverifiable(no key)"}
    if keys or check_signature:
        facts["signature"] = _signed(signatures, issuer, message, keys, check_signature, artifact_id)
    for name in ("capture", "source", "times"):
        facts[name] = facts["signature"]
    return p, "mf_" + _base32(_derive("leafproof 2026 manifest-id v1", payload)), facts, payload


def _signed(signatures, issuer, message, keys, check_signature, artifact_id):
    """Who vouches for a message: the issuer it names must have signed it."""
    for keyid, sig in signatures:
        if keyid in keys:
            if not _Ed25519.verify(keys[keyid], message, sig):
                raise VerificationError("mismatch", "the signature by %s does not verify" % keyid, artifact_id)
        elif not check_signature or not check_signature(message, keyid, sig):
            continue
        if keyid == issuer:
            return "attested(%s)" % keyid
    raise VerificationError("untrusted", "none of the keys vouches for it", artifact_id)


def verify_bundle(data, payload=None):
    """Verify a .proof file with a bytes claim. Returns (ranges, bytes, predicate). payload
    is the signed statement that it must be about; with None its own is taken, which
    then vouches for nothing."""
    try:
        first, _, rest = data.partition(b"\n")
        line, _, body = rest.partition(b"\n")
        if first != b"leafproof bundle v1 " + blake3(rest).hex().encode() or len(line) > 4 << 20:
            raise VerificationError("protocol", "not a bundle, or a damaged one")
        header = _parse(line, "the header")
        if _canonical(header) != line:
            raise VerificationError("protocol", "the header is not in its canonical form")
        said = _b64(header["manifest"]["payload"])
        if payload is not None and said != payload:
            raise VerificationError("artifact", "the bundle is about another statement")
        p = _parse(said, "the statement")["predicate"]
        if header["ref"] != p["artifact_ref"]:
            raise VerificationError("altered", "its reference is not the signed one")
        (claim,) = header["claims"]
        size, root = p["bytes"]["size"], bytes.fromhex(p["bytes"]["root"])
        if claim["kind"] != "bytes":
            raise VerificationError("unverified", "a claim of the kind %r is not checked here" % claim["kind"])
        ranges = [tuple(r) for r in claim["ranges"]]
        if claim["size"] != size:
            raise VerificationError("size", "its claim is about another size")
        if not ranges or any(not 0 <= a <= b <= size for a, b in ranges) or any(x[1] >= y[0] for x, y in zip(ranges, ranges[1:])):
            raise VerificationError("protocol", "its ranges are not sorted, apart and inside the artifact")
        selected = []
        for a, b in ranges:
            lo, hi = _leaves_of(size, a, b)
            if selected and lo <= selected[-1][1]:
                selected[-1] = (selected[-1][0], max(selected[-1][1], hi))
            else:
                selected.append((lo, hi))
        section = claim["sections"]["proof"]["length"]
        if set(claim["sections"]) != {"proof"} or section != len(body):
            raise VerificationError("extended" if section < len(body) else "truncated", "its section has another length")
        take = _taker(io.BytesIO(body))
        if int.from_bytes(take(8), "little") != size:
            raise VerificationError("size", "its section is about another size")
        out = {r: bytearray() for r in ranges}
        for offset, piece in _verified(take, root, size, selected):
            for a, b in ranges:
                out[(a, b)] += piece[max(a - offset, 0):max(min(b - offset, len(piece)), 0)]
        if take.__self__.f.read(1):
            raise VerificationError("extended", "bytes follow its proof")
        return ranges, b"".join(bytes(out[r]) for r in ranges), p
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise VerificationError("protocol", "it is not spelled as a bundle: %r" % e) from None


class _Taker:
    def __init__(self, f):
        self.f = f

    def take(self, n):
        out = self.f.read(n)
        while len(out) < n:
            more = self.f.read(n - len(out))
            if not more:
                raise VerificationError("truncated", "the answer ended within the proof")
            out += more
        return out


def _taker(f):
    return _Taker(f).take


# Asking.


class _Socket(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class _Answer:
    """An answer whose body is read as it comes; its connection is kept when it ended well."""

    def __init__(self, client, connection, response):
        self.client, self.connection, self.response = client, connection, response
        self.status, self.headers = response.status, response.headers

    def read(self, n=-1):
        try:
            return self.response.read() if n < 0 else self.response.read(n)
        except http.client.IncompleteRead:
            raise VerificationError("truncated", "the connection ended within the answer") from None
        except (OSError, http.client.HTTPException) as e:
            raise _unreachable(e) from None

    def read1(self, n):
        try:
            return self.response.read1(n)
        except http.client.IncompleteRead:
            raise VerificationError("truncated", "the connection ended within the answer") from None
        except (OSError, http.client.HTTPException) as e:
            raise _unreachable(e) from None

    def bounded(self, most):
        b = self.read(most + 1)
        while len(b) <= most:
            more = self.read(most + 1 - len(b))
            if not more:
                break
            b += more
        if len(b) > most:
            raise VerificationError("too_large", "an answer of more than %d bytes" % most)
        length = self.headers.get("Content-Length")
        if length is not None and self.response.length not in (0, None):  # what http.client still waits for
            raise VerificationError("truncated", "%d of %s bytes came" % (len(b), length))
        return b

    def trailer(self):
        return self.response.headers

    def media(self, want):
        got = (self.headers.get("Content-Type") or "").partition(";")[0].strip()
        if got != want or self.headers.get("Content-Encoding"):
            raise VerificationError("protocol", "%r came, and %s was asked for" % (got[:100], want))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.response.isclosed() and not self.response.will_close and exc[0] is None:
            self.client._idle.append(self.connection)
        else:
            self.connection.close()


class _Body(io.RawIOBase):
    """The body of an answer as a file, whose end is an error where it is not all."""

    def __init__(self, answer):
        self._answer = answer

    def readable(self):
        return True

    def readinto(self, room):
        b = self._answer.read(len(room))
        room[:len(b)] = b
        if not b and room and self._answer.response.length not in (0, None):
            raise VerificationError("truncated", "the connection ended within the answer")
        return len(b)


def _unreachable(e, address=""):
    why = str(e) or type(e).__name__
    return Error("unreachable", address and "%s: %s" % (address, why) or why, not isinstance(e, ssl.SSLCertVerificationError), "wait")


def _printable(s):
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(s)[:200])


class Client:
    """Asks the server at address: http://host:port, https://host:port or unix:/path.

    keys are OpenSSH public-key lines (`leafproof key export`); with them, or with
    check_signature(message, keyid, signature) -> bool, a manifest that none of them
    vouches for is refused. A token goes over plain HTTP to the loopback alone, unless
    plaintext=True. Redirects are never followed. Only what the server calls retryable,
    or what can be asked twice, is asked again. Safe to use from several threads."""

    def __init__(self, address, token=None, *, purpose=None, keys=(), check_signature=None, context=None, retries=3, timeout=60, plaintext=False):
        u = urllib.parse.urlsplit(address)
        self._unix = u.path if u.scheme == "unix" else None
        if not (self._unix and not u.netloc or u.scheme in ("http", "https") and u.hostname and u.path in ("", "/") and not u.query and "@" not in u.netloc):
            raise ValueError("%r is no address: http://HOST:PORT, https://HOST:PORT or unix:/PATH" % address)
        loopback = u.hostname == "localhost" or u.hostname and re.match(r"(127\.\d+\.\d+\.\d+|::1)\Z", u.hostname)
        if u.scheme == "http" and token and not loopback and not plaintext:
            raise ValueError("a token would pass in clear text to %s: use https, or plaintext=True" % u.hostname)
        if re.search(r"[\r\n\0]", (token or "") + (purpose or "")):
            raise ValueError("a token or purpose with a line end in it")
        self._url, self._context, self._retries, self._timeout = u, context, retries, timeout
        if u.scheme == "https" and context is None:
            self._context = ssl.create_default_context()
        self._head = {"User-Agent": "leafproof-python", "Accept-Encoding": "identity"}
        if token:
            self._head["Authorization"] = "Bearer " + token
        if purpose:
            self._head["Leafproof-Purpose"] = purpose
        self._keys, self._check, self._idle = dict(_key(k) for k in keys), check_signature, []

    def close(self):
        while self._idle:
            self._idle.pop().close()

    def _connect(self):
        if self._unix:
            return _Socket(self._unix, self._timeout)
        host, port = self._url.hostname, self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _once(self, method, path, body, headers, want, kept):
        connection = self._idle.pop() if kept and self._idle else self._connect()
        try:
            headers = {**self._head, **headers}
            try:
                connection.request(method, path, body, headers, encode_chunked="Transfer-Encoding" in headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # a server that refuses a body may have said why
            response = connection.getresponse()
        except http.client.LineTooLong:
            connection.close()
            raise VerificationError("too_large", "a line of the header") from None
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            if "header" in str(e):
                raise VerificationError("too_large", str(e)) from None
            raise _unreachable(e, urllib.parse.urlunsplit(self._url)) from None
        except BaseException:
            connection.close()
            raise
        answer = _Answer(self, connection, response)
        if response.status in want:
            return answer
        with answer:
            raise self._problem(answer)

    @staticmethod
    def _problem(answer):
        status = answer.status
        if 300 <= status < 400:
            return VerificationError("redirect", "the server sends elsewhere, which is not followed")
        if status < 400:
            return VerificationError("protocol", "the status %d is none that is answered here" % status)
        try:
            answer.media("application/problem+json")
            p = _parse(answer.bounded(_MAX_PROBLEM), "the problem")
            code, action = p["code"], p.get("action", "stop")
            if not re.match(r"[a-z_]{1,64}\Z", code) or not re.match(r"[a-z_]{1,64}\Z", action):
                raise TypeError
        except (KeyError, TypeError, AttributeError, Error):
            between = status in (502, 503, 504)
            e = Error("unreachable" if between else "protocol", "status %d, with no reason that can be read" % status, between, "wait" if between else "stop", "", status)
        else:
            e = Error(code, _printable(p.get("detail", "")), p.get("retryable") is True, action, _printable(p.get("at", "")), status, p.get("result"))
        after = answer.headers.get("Retry-After", "")
        e.after = min(10, int(after[:9])) if re.match(r"[0-9]+\Z", after) else 0
        return e

    def _ask(self, method, path, body=None, headers=None, want=(200,), twice=True):
        """An answer. twice: it does no harm to ask again after a connection broke."""
        streamed = body is not None and not isinstance(body, bytes)
        kept, tries = not streamed and twice, 0
        while True:
            try:
                return self._once(method, path, body, headers or {}, want, kept)
            except Error as e:
                if kept and not e.status and e.code == "unreachable" and tries == 0 and e.retryable:
                    kept = False  # the server may have closed what was kept: that is no failure
                    continue
                if streamed or tries >= self._retries or not e.retryable or e.action != "wait" or not twice and not e.status:
                    raise
                time.sleep(max(getattr(e, "after", 0), min(2, 0.05 * 2**tries) * (0.5 + random.random())))
                tries += 1

    def _json(self, method, path, value=None, want=(200,), twice=True, most=_MAX_JSON):
        body = None if value is None else json.dumps(value).encode()
        with self._ask(method, path, body, {"Content-Type": "application/json"} if body else {}, want, twice) as answer:
            answer.media("application/json")
            return _parse(answer.bounded(most), "the answer", most)

    def _nothing(self, method, path):
        with self._ask(method, path, want=(204,)) as answer:
            answer.read()

    # Artifacts.

    def put(self, data, facts=None, *, media_type=None, records=None, filename=None, sha256=False, place=None, durability=None, index=()):
        """Store bytes, or what a file has, and return the Artifact. The reference and the
        manifest that come back must name the hash of what was sent, and say what facts
        say (the JSON of docs/FORMAT.md, "Facts in a file"). index are the paths of indexes
        to build, JSON Pointers or JSONPath, which the manifest must name."""
        digest, size = _hasher(), [0]

        def pieces(f):
            while True:
                b = f.read(1 << 18)
                if not b:
                    return
                digest.update(b)
                size[0] += len(b)
                yield b
        query = {"records": records, "filename": filename, "place": place, "durability": durability, "sha256": "true" if sha256 else None}
        index = [index] if isinstance(index, str) else list(index)
        path = "/v1/artifacts?" + urllib.parse.urlencode([(k, v) for k, v in query.items() if v] + [("index", p) for p in index])
        headers = {"Content-Type": media_type or "application/octet-stream"}
        if facts:
            headers["Leafproof-Manifest"] = base64.b64encode(json.dumps(facts).encode()).decode()
        if isinstance(data, (bytes, bytearray, memoryview)):
            body = bytes(data)
            digest.update(body)
            size[0] = len(body)
        else:
            body = pieces(data)
            headers["Transfer-Encoding"] = "chunked"
        with self._ask("PUT", path, body, headers, (201,), False) as answer:
            answer.media("application/json")
            ref = _parse(answer.bounded(_MAX_MANIFEST), "the reference")
        if not isinstance(ref, dict) or not _ID.match(str(ref.get("artifact_id"))):
            raise VerificationError("protocol", "the reference has no id")
        if ref.get("content_hash") != "blake3:" + digest.hexdigest():
            raise VerificationError("mismatch", "the reference names another hash than was sent", ref["artifact_id"])
        try:
            a = self.open(ref["artifact_id"])
        except Error as e:
            if e.code not in ("ref_not_found", "access_revoked"):
                raise
            raise VerificationError("unverified", "it was published, and its manifest is not shown", ref["artifact_id"]) from None
        if a.ref != ref:
            raise VerificationError("altered", "the reference is not the signed one", ref["artifact_id"])
        if a.size != size[0] or a.root.hex() != digest.hexdigest():
            raise VerificationError("mismatch", "the manifest is about other bytes than were sent", a.id)
        indexed = [x.get("path") for x in a.predicate.get("indexes") or ()]
        if any(p not in indexed for p in index if p[:1] == "/") or index and not indexed:  # JSONPath has other spellings
            raise VerificationError("altered", "the manifest names no such index", "/indexes")
        where = _differs(facts or {}, a.predicate, "")
        if where is not None:
            raise VerificationError("altered", "the manifest says another thing there than was stated", where)
        return a

    def open(self, artifact):
        """The Artifact of an id, or of a reference, whose manifest was verified."""
        ref = artifact if isinstance(artifact, dict) else None
        artifact = ref["artifact_id"] if ref else artifact
        if not _ID.match(artifact):
            raise Error("ref_not_found", "that is no id of an artifact", False, "fix_call", _printable(artifact))
        with self._ask("GET", "/v1/artifacts/%s/manifest" % artifact) as answer:
            answer.media("application/json")
            text = answer.bounded(_MAX_MANIFEST)
        a = Artifact(self, artifact, *_manifest(text, artifact, self._keys, self._check))
        if ref and ref != a.ref:
            names = sorted(k for k in set(ref) | set(a.ref) if ref.get(k) != a.ref.get(k))
            raise VerificationError("altered", "the reference differs from the signed one there", "/" + names[0])
        return a

    def get(self, artifact):
        """All bytes of an artifact, verified."""
        return self.open(artifact).get()

    def list(self, tenant=None):
        """Yield what stands in the listing. It is the server's word."""
        query = {"limit": "1000", **({"tenant": tenant} if tenant else {})}
        while True:
            page = self._json("GET", "/v1/artifacts?" + urllib.parse.urlencode(query))
            yield from page["artifacts"]
            following = page.get("next", "")
            if not following:
                return
            if following == query.get("cursor"):
                raise VerificationError("protocol", "a listing that does not go on")
            query["cursor"] = following

    def delete(self, artifact_id, reason="", cascade=False):
        query = urllib.parse.urlencode({**({"reason": reason} if reason else {}), **({"cascade": "true"} if cascade else {})})
        self._nothing("DELETE", _at(artifact_id) + ("?" + query if query else ""))

    def assess(self, artifact_id, **need):
        """Whether it serves as evidence: require=["region=eu"], optional=[…],
        max_age_seconds=N, as_of=TIME, actions=[…], ref={…}, deep=True."""
        out = self._json("POST", _at(artifact_id) + "/assess", need)
        if out.get("artifact_id") != artifact_id:
            raise VerificationError("artifact", "the assessment is of another one", artifact_id)
        return out

    # Leave and names.

    def grants(self, principal=None):
        return self._json("GET", "/v1/grants" + ("?" + urllib.parse.urlencode({"principal": principal}) if principal else ""))["grants"]

    def grant(self, principal, action, pattern, **more):
        return self._json("POST", "/v1/grants", {"principal": principal, "action": action, "pattern": pattern, **more}, (201,), False)

    def revoke(self, grant_id):
        if not re.match(r"gr_[a-z2-7]+\Z", grant_id):
            raise Error("ref_not_found", "that is no grant's id", False, "fix_call", _printable(grant_id))
        self._nothing("DELETE", "/v1/grants/" + grant_id)

    def name(self, name, seq=None):
        return self._json("GET", _name(name) + ("?seq=%d" % seq if seq else ""))

    def set_name(self, name, artifact_id, if_seq=None):
        return self._json("PUT", _name(name), {"artifact_id": artifact_id, **({} if if_seq is None else {"if_seq": if_seq})}, twice=False)


def _at(artifact_id):
    if not _ID.match(artifact_id):
        raise Error("ref_not_found", "that is no id of an artifact", False, "fix_call", _printable(artifact_id))
    return "/v1/artifacts/" + artifact_id


def _name(name):
    if not _NAME.match(name):
        raise Error("selector_invalid", "that is no name", False, "fix_call", _printable(name))
    return "/v1/names/" + name


def _differs(said, signed, at):
    """Where a value that was stated is not what was signed; None: it is."""
    if said is None or at in ("/records/format", "/records/pointer"):  # nothing, or a wish
        return None
    if isinstance(said, dict):
        for k, v in said.items():
            where = _differs(v, signed.get(k) if isinstance(signed, dict) else None, at + "/" + k)
            if where is not None:
                return where
        return None
    if isinstance(said, list):
        if not isinstance(signed, list) or len(said) != len(signed):
            return at if said or signed else None
        return next((w for w in (_differs(x, y, "%s/%d" % (at, i)) for i, (x, y) in enumerate(zip(said, signed))) if w is not None), None)
    if at == "/artifact_ref/expires_at":  # as finely as a store keeps it
        said, signed = re.sub(r"(\.\d{6})\d+Z", r"\1Z", str(said)), str(signed)
    return None if said == signed and isinstance(said, bool) == isinstance(signed, bool) else at


class Row(dict):
    """A row as it was sent: record, span, and value, text or selected. bytes are the
    record's; proven: they were found to stand at span."""

    bytes, proven = b"", False


class Answer(list):
    """The rows of a query; facts is what the server says was examined, error what cut the
    scan short (an Error, or None)."""

    facts, error = None, None


class Artifact:
    """An artifact whose manifest was verified. facts says how each fact is known."""

    def __init__(self, client, artifact_id, predicate, manifest_id, facts, payload):
        self._client, self.id, self.predicate, self.manifest_id = client, artifact_id, predicate, manifest_id
        self.ref, self.size, self.root = predicate["artifact_ref"], predicate["bytes"]["size"], bytes.fromhex(predicate["bytes"]["root"])
        self.facts, self._payload = facts, payload
        self._plain = False  # no proofs are shown to this principal

    def get(self, to=None):
        """All bytes, verified; with to, a binary file, they are written there instead."""
        if to is None:
            return b"".join(self.stream())
        for piece in self.stream():
            to.write(piece)
        return None

    def read(self, start=0, end=None):
        """The bytes start:end, verified, with the proof that they stand there."""
        return b"".join(self.stream(start, end))

    def stream(self, start=0, end=None):
        """Yield verified bytes as they come. Where the connection breaks it goes on behind
        the last that was yielded. Where no proofs are shown, all of the content is kept
        in a temporary file until its hash is right."""
        end = self.size if end is None else min(end, self.size)
        start = min(start, end)
        if start < 0 or start == end and self.size:
            if start < 0:
                raise ValueError("bytes from %d" % start)
            return
        whole = start == 0 and end == self.size
        if not self._plain and not (whole and _blake3):
            tries = 0
            while True:
                try:
                    for piece in self._slice(start, end):
                        start, tries = start + len(piece), 0
                        yield piece
                    return
                except Error as e:
                    if e.code in ("ref_not_found", "access_revoked") and tries == 0:
                        break
                    if tries >= self._client._retries or not e.retryable:
                        raise
                    if start == end and self.size:
                        return
                    tries += 1
                    time.sleep(0.05 * 2**tries)
            self._plain = True
        yield from self._whole(start, end)

    def _slice(self, start, end):
        headers = {"Accept": "application/vnd.leafproof.slice"}
        if start > 0 or end < self.size:
            headers["Range"] = "bytes=%d-%d" % (start, end - 1)
        with self._client._ask("GET", _at(self.id) + "/content", None, headers) as answer:
            answer.media("application/vnd.leafproof.slice")
            yield from slice_bytes(_taker(answer), self.root, self.size, start, end)
            if answer.read(1):
                raise VerificationError("extended", "the answer goes on behind the proof", self.id)

    def _whole(self, start, end):
        with tempfile.SpooledTemporaryFile(_BATCH) as kept, self._client._ask("GET", _at(self.id) + "/content", None, {"Accept": "*/*"}) as answer:
            tag, length = answer.headers.get("ETag"), answer.headers.get("Content-Length")
            if tag and tag != '"b3-%s"' % self.root.hex():
                raise VerificationError("artifact", "the content's tag is that of another", self.id)
            if length is not None and length != str(self.size):
                raise VerificationError("size", "%s bytes are announced, and %d were signed" % (length[:20], self.size), self.id)
            if answer.headers.get("Content-Encoding"):
                raise VerificationError("protocol", "nothing was asked for in another encoding", self.id)
            digest, n = _hasher(), 0
            while n <= self.size:
                piece = answer.read(min(1 << 18, self.size + 1 - n))
                if not piece:
                    break
                digest.update(piece)
                kept.write(piece)
                n += len(piece)
            if n != self.size:
                raise VerificationError("extended" if n > self.size else "truncated", "it has %d bytes" % self.size, self.id)
            if digest.digest() != self.root:
                raise VerificationError("mismatch", "the hash of the content is another", self.id)
            kept.seek(start)
            while start < end:
                piece = kept.read(min(1 << 18, end - start))
                start += len(piece)
                yield piece

    def prove(self, start, end):
        """A .proof file of the bytes start:end, verified: (file, bytes)."""
        text = json.dumps({"bytes": [start, end]}).encode()
        with self._client._ask("POST", _at(self.id) + "/prove", text, {"Content-Type": "application/json", "Accept": "application/vnd.leafproof.bundle"}) as answer:
            answer.media("application/vnd.leafproof.bundle")
            data = answer.bounded(2 * self.size + (8 << 20))
        ranges, out, _ = verify_bundle(data, self._payload)
        header = _parse(data.split(b"\n", 2)[1], "the header")
        _manifest(_canonical({"manifest": header["manifest"]}), self.id, self._client._keys, self._client._check)  # who vouches for it there
        if ranges != [(min(start, self.size), min(end, self.size))]:
            raise VerificationError("range", "the proof is of other bytes than were asked for", self.id)
        return data, out

    def query(self, where="", *, order_by=(), select=(), limit=0, cursor="", count=False, verify=False, **more):
        """The rows that match, as an Answer. With verify each row is held to the proven
        bytes at its place: its record number, and that none is missing, stay the server's
        word."""
        out = Answer()
        for row in self.rows(where, order_by=order_by, select=select, limit=limit, cursor=cursor, count=count, verify=verify, answer=out, **more):
            out.append(row)
        return out

    def rows(self, where="", *, order_by=(), select=(), limit=0, cursor="", count=False, verify=False, answer=None, **more):
        """query() that yields each row as it comes; answer, an Answer, gets the facts."""
        if verify and select:
            raise ValueError("rows that are verified are whole records")
        q = {"where": where, "order_by": list(order_by), "select": list(select), "limit": limit, "cursor": cursor, "count": count, **more}
        body = json.dumps({k: v for k, v in q.items() if v}).encode()
        records = (self.predicate["records"] or {}).get("count", 0)
        n, last, seen = 0, -1, set()
        with self._client._ask("POST", _at(self.id) + "/query", body, {"Content-Type": "application/json", "Accept": "application/x-ndjson"}) as got:
            got.media("application/x-ndjson")
            done = False
            for line in _lines(got):
                if done:
                    raise VerificationError("extended", "rows behind the answer", self.id)
                row = _parse(line, "a row", _MAX_LINE)
                if isinstance(row, dict) and "answer" in row:
                    facts, cut = self._about(row["answer"], n), row.get("error")
                    if answer is not None:
                        answer.facts = facts
                        answer.error = cut and Error(_printable(cut.get("code")), _printable(cut.get("detail")), cut.get("retryable") is True, _printable(cut.get("action")))
                    done = True
                    continue
                row = self._row(row, records)
                if not order_by and row["record"] <= last or limit and n >= limit or row["record"] in seen:
                    raise VerificationError("row", "a row too many, or out of order", self.id)
                if verify and order_by:
                    seen.add(row["record"])
                last, n = row["record"], n + 1
                if verify:
                    self._prove_row(row)
                yield row
        if not done:
            raise VerificationError("truncated", "no answer behind %d rows" % n, self.id)

    def _row(self, row, records):
        try:
            row = Row(row)
            record, (a, b) = row["record"], row["span"]
            if any(type(x) is not int for x in (record, a, b)) or not 0 <= record < records or not 0 <= a <= b <= self.size:
                raise VerificationError("row", "a row of a record that there is not", self.id)
            if "base64" in row:
                row.bytes = _b64(row["base64"])
            elif "text" in row:
                row.bytes = row["text"].encode()
            return row
        except (KeyError, TypeError, ValueError, AttributeError):
            raise VerificationError("row", "a row that is none", self.id) from None

    def _prove_row(self, row):
        data = self.read(*row["span"])
        value = _parse(data, "a record") if "value" in row else None
        if not _same(value, row["value"]) if "value" in row else data != row.bytes:
            raise VerificationError("row", "record %d is another one than the row says" % row["record"], self.id)
        row.bytes, row.proven = data, True

    def _about(self, answer, n):
        """Hold what an answer says of the artifact to the manifest."""
        try:
            if answer["artifact_id"] != self.id:
                raise VerificationError("artifact", "the answer is about another one", self.id)
            told, signed = answer["capture_completeness"], self.ref["completeness"]
            same = {"/manifest_id": answer["manifest_id"] == self.manifest_id, "/source_version": answer["source_version"] == self.ref["source_version"]}
            for name in ("status", "coverage", "records", "omissions", "redactions"):
                same["/capture_completeness/" + name] = (told[name] or None) == (signed[name] or None)
            for at, ok in same.items():
                if not ok:
                    raise VerificationError("altered", "the answer says another thing there than was signed", at)
            if answer["returned"] != n:
                raise VerificationError("row", "%d rows came, and the answer counts another number" % n, self.id)
        except (KeyError, TypeError) as e:
            raise VerificationError("protocol", "the answer lacks %r" % e, self.id) from None
        return answer

    def derive(self, where="", select=(), **more):
        """A new Artifact of the records that match, whose manifest names this one."""
        body = {"where": where, "select": [{"path": p} if isinstance(p, str) else p for p in select], **more}
        out = self._client._json("POST", _at(self.id) + "/derive", {k: v for k, v in body.items() if v}, (201,), False)
        made = self._client.open(out["ref"])
        inputs = made.predicate["lineage"]["inputs"]
        if len(inputs) != 1 or (inputs[0]["artifact_id"], inputs[0]["manifest_id"]) != (self.id, self.manifest_id):
            raise VerificationError("artifact", "it was not made of this one", made.id)
        return made


def _lines(answer):
    """The lines of a body, as they come."""
    parts, size = [], 0
    while True:
        piece = answer.read1(1 << 18)
        if not piece:
            if size:
                raise VerificationError("truncated", "the answer ended within a line")
            return
        first, *more = piece.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > _MAX_LINE:
            raise VerificationError("too_large", "a line of more than %d bytes" % _MAX_LINE)
        if more:
            yield b"".join(parts)
            yield from more[:-1]
            parts, size = [more[-1]], len(more[-1])


# The reference layer.


class Blob:
    """Bytes that a tool returns: they go into the store, whatever their size, and the
    model reads a marker. data is bytes or a binary file; records as for put."""

    def __init__(self, data, media_type="application/octet-stream", records=None, facts=None, filename=None):
        self.data, self.media_type, self.records, self.facts, self.filename = data, media_type, records, facts, filename


class Harness:
    """A run of an agent whose tools' results stay out of the model's view.

        h = Harness(client, "reporter")

        @h.tool("export", "Export all items.", {"type": "object", "properties": {}})
        def export():
            return Blob(open("items.json", "rb"), "application/json")

        h.begin()                       # h.protocol is for the system prompt, h.tools for the model
        h.message("user", "…")
        view = h.call("call-1", "export", {})     # what the model reads: view["content"]

    The model then calls read_json, query_json, read_text, read_records or stat, which run in
    the server, or one of your tools with {"$ref": …} in place of a value: the tool gets the
    value. A call that must not run, as one with a reference that this run never showed,
    gives a view with is_error, and the tool does not run.

    profile is anthropic, openai-strict, gemini or mcp. A tool declared with raw=True gets
    its input as one argument, the exact bytes of the JSON; one with lazy=["p"] gets a
    binary file for the parameter p, which reads from the server. run=… goes on with a run
    that was begun before: its references mean what they meant."""

    def __init__(self, client, agent, *, profile="anthropic", run=None, run_id=None, as_of=None):
        self._client, self.agent, self.profile, self.run, self.run_id, self._as_of = client, agent, profile, run, run_id, as_of
        self._tools, self.tools, self.protocol = {}, [], ""

    def tool(self, name, description, schema, *, lazy=(), require=(), raw=False):
        """A decorator: the function is the tool."""
        def keep(f):
            declared = {"name": name, "description": description, "schema": schema, "lazy": list(lazy), "require": list(require)}
            self._tools[name] = ({k: v for k, v in declared.items() if v or k == "schema"}, f, raw)
            return f
        return keep

    def begin(self):
        """Begin the run, or go on with it, with the tools as they are declared now."""
        tools = [t[0] for t in self._tools.values()]
        if self.run:
            state = self._client._json("POST", self._path("/schemas"), {"tools": tools})
        else:
            body = {"agent_id": self.agent, "profile": self.profile, "run_id": self.run_id, "as_of": self._as_of, "tools": tools}
            state = self._client._json("POST", "/v1/runs", {k: v for k, v in body.items() if v}, (201,), False)
        self.run, self.run_id, self.protocol = state["run"], state["run_id"], state["protocol"]
        self.tools = [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in state["tools"]]
        return self

    def _path(self, below):
        if not re.match(r"rn_[a-z2-7]{26}\Z", self.run or ""):
            raise Error("ref_not_found", "there is no run: begin() one", False, "fix_call")
        return "/v1/runs/" + self.run + below

    def message(self, role, text):
        """Record what no tool made; role is user, assistant or system."""
        return self._client._json("POST", self._path("/messages"), {"role": role, "text": text}, (201,), False)

    def call(self, call_id, tool, arguments):
        """Run a call as the model wrote it, arguments as JSON text or as a value, and
        return what the model reads: seq, part, is_error and content, a JSON value."""
        text = arguments.encode() if isinstance(arguments, str) else arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
        body = b'{"call_id":%s,"tool":%s,"input":%s}' % (json.dumps(call_id).encode(), json.dumps(tool).encode(), text)
        try:
            with self._client._ask("POST", self._path("/calls"), body, {"Content-Type": "application/json"}, twice=False) as answer:
                answer.media("application/json")
                text = answer.bounded(_MAX_INPUT)
        except Error as e:
            if e.result is None:
                raise
            return e.result
        out = _parse(text, "the call", _MAX_INPUT)
        if "result" in out:
            return out["result"]
        named = {"call": out["call"], "call_id": call_id, "tool": tool}
        _, function, raw = self._tools[tool]
        lazy = [self._lazy(p) for p in out.get("lazy") or []]
        try:
            if raw:
                value = function(_member(text, "input"))
            else:
                value = function(**{**out["input"], **{p: io.BufferedReader(_Body(answer)) for p, answer in lazy}})
        except Exception as e:
            return self._record(dict(named, error="%s: %s" % (type(e).__name__, e)))
        finally:
            for _, answer in lazy:
                answer.connection.close()
        if isinstance(value, Blob):
            return self._record_blob(named, value)
        blobs = []
        value = _without_blobs(value, "", blobs)
        return self._record(dict(named, value=value, **({"blobs": blobs} if blobs else {})))

    def _lazy(self, p):
        if not p["from"].startswith(self._path("/calls/")):
            raise VerificationError("protocol", "a parameter is read from elsewhere")
        return p["param"], self._client._ask("GET", p["from"])

    def _record(self, body):
        return self._view(json.dumps(body).encode(), {"Content-Type": "application/json"}, "")

    def _record_blob(self, named, blob):
        query = {**named, "records": blob.records, "filename": blob.filename}
        headers = {"Content-Type": blob.media_type}
        if blob.facts:
            headers["Leafproof-Manifest"] = base64.b64encode(json.dumps(blob.facts).encode()).decode()
        data = blob.data
        if not isinstance(data, bytes):
            data, headers["Transfer-Encoding"] = iter(lambda: blob.data.read(1 << 18), b""), "chunked"
        return self._view(data, headers, "?" + urllib.parse.urlencode({k: v for k, v in query.items() if v}))

    def _view(self, body, headers, query):
        try:
            with self._client._ask("POST", self._path("/results") + query, body, headers, (201,), False) as answer:
                answer.media("application/json")
                return _parse(answer.bounded(_MAX_JSON), "the view")
        except Error as e:
            if e.result is None:
                raise
            return e.result

    def retry(self, view):
        """Store a result that could not be stored when it came: view["retry"] names it."""
        return self._client._json("POST", self._path("/retries"), {"retry": view["retry"]}, (201,), False)

    def references(self):
        """All references of the run, and whether what they mean is still there."""
        return self._client._json("GET", self._path("/references"))["references"]


def _without_blobs(v, at, blobs):
    """A value with null where Blobs stand, which are listed with their places."""
    if isinstance(v, Blob):
        data = v.data if isinstance(v.data, bytes) else v.data.read()
        blobs.append({k: x for k, x in {"at": at, "media_type": v.media_type, "records": v.records, "base64": base64.b64encode(data).decode()}.items() if x})
        return None
    if isinstance(v, dict):
        return {k: _without_blobs(x, at + "/" + k.replace("~", "~0").replace("/", "~1"), blobs) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [_without_blobs(x, "%s/%d" % (at, i), blobs) for i, x in enumerate(v)]
    return v


def _member(text, name):
    """The exact bytes of a member of an object in JSON."""
    text, decoder = text.decode(), json.JSONDecoder()
    space = re.compile(r"[ \t\r\n]*")
    at = space.match(text, text.index("{") + 1).end()
    while text[at] == '"':
        key, at = decoder.raw_decode(text, at)
        at = space.match(text, text.index(":", at) + 1).end()
        start, at = at, decoder.raw_decode(text, at)[1]
        if key == name:
            return text[start:at].encode()
        at = space.match(text, at).end()
        if text[at] != ",":
            break
        at = space.match(text, at + 1).end()
    raise VerificationError("protocol", "the answer has no %s" % name)


# Asynchronous twins.


def _in_thread(method):
    @functools.wraps(method)
    async def twin(self, *args, **kw):
        out = await asyncio.to_thread(method, self._twin, *args, **kw)
        return AsyncArtifact(out) if isinstance(out, Artifact) else out
    return twin


def _steps(method):
    @functools.wraps(method)
    async def twin(self, *args, **kw):
        steps, end = iter(method(self._twin, *args, **kw)), object()
        while True:
            step = await asyncio.to_thread(next, steps, end)
            if step is end:
                return
            yield step
    return twin


class AsyncArtifact:
    """An Artifact whose methods are coroutines, each in a thread; stream() and rows() are
    asynchronous iterators."""

    def __init__(self, twin):
        self._twin = twin

    def __getattr__(self, name):
        return getattr(self._twin, name)

    get, read, prove, query, derive = (_in_thread(getattr(Artifact, n)) for n in ("get", "read", "prove", "query", "derive"))
    stream, rows = _steps(Artifact.stream), _steps(Artifact.rows)


class AsyncClient:
    """A Client whose methods are coroutines, each in a thread; list() is an asynchronous
    iterator."""

    def __init__(self, *args, **kw):
        self._twin = Client(*args, **kw)

    def close(self):
        self._twin.close()

    put, open, get, delete, assess = (_in_thread(getattr(Client, n)) for n in ("put", "open", "get", "delete", "assess"))
    grants, grant, revoke, name, set_name = (_in_thread(getattr(Client, n)) for n in ("grants", "grant", "revoke", "name", "set_name"))
    list = _steps(Client.list)
