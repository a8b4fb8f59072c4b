"""Tests of leafproof.py against a server: LEAFPROOF_URL, of the tokens LEAFPROOF_TOKEN and
LEAFPROOF_READER (who gets no proofs), with the key LEAFPROOF_KEY, an OpenSSH line."""

import asyncio
import http.client
import http.server
import io
import json
import os
import random
import re
import socketserver
import threading
import unittest
import urllib.parse

import leafproof
from leafproof import Client, Error, VerificationError

URL, TOKEN, READER, KEY = (os.environ.get("LEAFPROOF_" + n, "") for n in ("URL", "TOKEN", "READER", "KEY"))
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"
LINES = b"".join(b'{"n":%d,"status":"%s"}\n' % (i, (b"open", b"shut", b"new")[i % 3]) for i in range(90))


def noise(n, seed=1):
    return random.Random(seed).getrandbits(8 * n).to_bytes(n, "little") if n else b""


class Twins(unittest.TestCase):
    def test_blake3_against_known_values(self):
        # b3sum prints these.
        for data, want in ((b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
                           (b"abc", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85")):
            self.assertEqual(leafproof.blake3(data).hex(), want)

    def test_blake3_however_it_is_cut(self):
        for n in (1, 1024, 1025, 16384, 16385, 100_000, 1 << 20, (1 << 20) + 1, 2_500_000):
            data, h = noise(n), leafproof._Hash()
            for at in range(0, n, 77_777):
                h.update(data[at:at + 77_777])
            self.assertEqual(h.digest(), leafproof._subtree(data, 0, True), n)

    def test_ed25519(self):
        # RFC 8032, section 7.1, test 2.
        public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
        sig = bytes.fromhex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
        check = leafproof._Ed25519.verify
        self.assertTrue(check(public, b"\x72", sig))
        self.assertFalse(check(public, b"\x73", sig))
        self.assertFalse(check(public, b"\x72", sig[:32] + (int.from_bytes(sig[32:], "little") + leafproof._Ed25519.L).to_bytes(32, "little")))
        self.assertFalse(check(bytes([1]) + bytes(31), b"\x72", bytes([1]) + bytes(63)))  # small order


class Honest(unittest.TestCase):
    def setUp(self):
        self.c = Client(URL, TOKEN, keys=[KEY])
        self.addCleanup(self.c.close)

    def test_round_trip(self):
        for n in (0, 1, 1024, 1025, 16 << 10, 40_000, 1_100_001):
            data = noise(n)
            a = self.c.put(io.BytesIO(data) if n % 2 else data)
            self.assertEqual((a.size, a.root), (n, leafproof.blake3(data)))
            self.assertEqual(self.c.get(a.id), data)
            self.assertTrue(a.facts["signature"].startswith("attested("))
            for start, end in ((0, 1), (n // 3, n // 2), (max(0, n - 5), n), (n, n), (0, n)):
                self.assertEqual(a.read(start, end), data[start:end])
            reader = Client(URL, READER)
            self.assertEqual(reader.get(a.id), data)
            self.assertEqual(reader.open(a.id).read(n // 3, n // 2), data[n // 3:n // 2])
            reader.close()

    def test_facts_and_proof(self):
        facts = {"artifact_ref": {"tool_call_id": "c-1", "completeness": {"coverage": {"region": "eu"}}}, "lineage": {"producer": {"tool": "t"}}}
        a = self.c.put(LINES, facts, records="ndjson", media_type="application/x-ndjson")
        self.assertEqual(a.ref["tool_call_id"], "c-1")
        self.assertEqual(self.c.open(a.ref).ref, a.ref)
        with self.assertRaises(VerificationError) as e:
            self.c.open(dict(a.ref, tool_call_id="c-2"))
        self.assertEqual((e.exception.kind, e.exception.at, e.exception.code), ("altered", "/tool_call_id", "ref_altered"))
        file, data = a.prove(100, 200)
        self.assertEqual(data, LINES[100:200])
        for at in range(0, len(file), 97):
            with self.assertRaises(VerificationError):
                leafproof.verify_bundle(file[:at] + bytes([file[at] ^ 1]) + file[at + 1:])

    def test_query(self):
        a = self.c.put(LINES, records="ndjson")
        for verify in (False, True):
            rows = a.query('@.status == "open"', verify=verify)
            self.assertEqual([r["record"] for r in rows], list(range(0, 90, 3)))
            self.assertEqual(rows.facts["matched"], 30)
            self.assertTrue(all(r.proven == verify for r in rows))
        self.assertEqual(rows[1].bytes, b'{"n":3,"status":"open"}')
        self.assertEqual(a.query(count=True).facts["matched"], 90)
        page = a.query(limit=7)
        self.assertEqual(len(page) + len(a.query(limit=100, cursor=page.facts["cursor"])), 90)
        self.assertEqual(a.derive('@.status == "open"').predicate["records"]["count"], 30)

    def test_put_with_indexes(self):
        for index in ("/status", ["/status", "/n"], ["$.status"]):
            a = self.c.put(LINES, records="ndjson", index=index)
            self.assertEqual(len(a.predicate["indexes"]), 2 if len(index) == 2 else 1)
        with self.assertRaises(Error) as e:
            self.c.put(LINES, records="none", index="/n")
        self.assertEqual(e.exception.code, "selector_invalid")

    def test_leave_names_and_errors(self):
        a = self.c.put(b"x", {"artifact_ref": {"completeness": {"coverage": {"region": "eu"}}}})
        self.assertIn(a.id, [e["artifact_id"] for e in self.c.list()])
        self.assertEqual(self.c.set_name("py", a.id)["artifact_id"], self.c.name("py")["artifact_id"])
        g = self.c.grant("bob", "prove", "acme/*/" + a.id)
        self.assertGreaterEqual(len(self.c.grants()), 8)
        self.c.revoke(g["id"])
        self.assertEqual(self.c.assess(a.id, require=["region=eu"])["decision"], "admit")
        self.c.delete(a.id, "done")
        with self.assertRaises(Error) as e:
            self.c.open(a.id)
        self.assertEqual((e.exception.code, e.exception.status, e.exception.retryable), ("artifact_deleted", 410, False))
        for bad in ("art_" + "a" * 32, "../x"):
            with self.assertRaises(Error) as e:
                self.c.open(bad)
            self.assertEqual(e.exception.code, "ref_not_found")
        for address in ("http://example.com", "ftp://x", "", "http://a:b@localhost"):
            with self.assertRaises(ValueError):
                Client(address, "token")

    def test_keys(self):
        a = self.c.put(b"signed")
        with self.assertRaises(VerificationError) as e:
            Client(URL, TOKEN, keys=[OTHER]).open(a.id)
        self.assertEqual(e.exception.kind, "untrusted")
        seen = []
        b = Client(URL, TOKEN, check_signature=lambda *x: seen.append(x) or True).open(a.id)
        self.assertTrue(b.facts["signature"].startswith("attested("))
        self.assertEqual(len(seen[0][2]), 64)
        self.assertEqual(Client(URL, TOKEN).open(a.id).facts["signature"], "unverifiable(no key)")

    def test_with_a_module_that_hashes(self):
        # The module blake3 has this interface; here our own hash stands behind it.
        class Module:
            blake3 = leafproof._Hash
        leafproof._blake3 = Module
        self.addCleanup(setattr, leafproof, "_blake3", None)
        data = noise(30_000)
        a = self.c.put(data)
        self.assertEqual(a.get(), data)
        self.assertEqual(a.read(5, 2000), data[5:2000])
        liar = Liar(lambda at, body, head: body and (body[:-1] + b"?" if "/content" in at else body))
        self.addCleanup(liar.server_close)
        self.addCleanup(liar.shutdown)
        with self.assertRaises(VerificationError) as e:
            Client(liar.url, TOKEN, retries=0).get(a.id)
        self.assertEqual(e.exception.kind, "mismatch")

    def test_async(self):
        async def run():
            c = leafproof.AsyncClient(URL, TOKEN)
            data = noise(50_000)
            a = await c.put(data)
            self.assertEqual(await a.get(), data)
            self.assertEqual(b"".join([p async for p in a.stream(10, 20_000)]), data[10:20_000])
            both = await asyncio.gather(c.get(a.id), c.get(a.id))
            self.assertEqual(both, [data, data])
            self.assertIn(a.id, [e["artifact_id"] async for e in c.list()])
            c.close()
        asyncio.run(run())


class Liar(http.server.ThreadingHTTPServer):
    """Hands on to the true server, and alters what it answers."""

    daemon_threads = True

    def __init__(self, alter):
        self.alter = alter
        super().__init__(("127.0.0.1", 0), Lie)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]


class Lie(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        u = urllib.parse.urlsplit(URL)
        c = http.client.HTTPConnection(u.hostname, u.port)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k not in ("Host", "Content-Length")}
        path = self.server.alter(self.path, None, None) or self.path
        c.request(self.command, path, body, headers)
        r = c.getresponse()
        answer, head = r.read(), {k: v for k, v in r.headers.items() if k not in ("Transfer-Encoding", "Content-Length", "Connection", "Date")}
        c.close()
        out = self.server.alter(self.path, answer, head) if r.status < 300 else answer
        self.send_response_only(head.pop("status", r.status))
        for k, v in head.items():
            self.send_header(k, v)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(out)
        self.close_connection = True

    do_POST = do_PUT = do_GET

    def log_message(self, *args):
        pass


class Hostile(unittest.TestCase):
    def refused(self, kind, act, alter):
        """act must be refused by its kind, whoever asks."""
        s = Liar(alter)
        try:
            for token in (TOKEN, READER):
                c = Client(s.url, token, keys=[KEY], retries=0)
                with self.assertRaises(VerificationError, msg=kind) as e:
                    act(c, token)
                kinds = kind if isinstance(kind, tuple) else (kind,)
                self.assertIn(e.exception.kind, kinds, e.exception)
        finally:
            s.shutdown()
            s.server_close()

    def test_content(self):
        true = Client(URL, TOKEN)
        data = noise(60_000)
        a, other = true.put(data), true.put(noise(60_000, 2))

        def get(c, _):
            got = io.BytesIO()
            try:
                c.open(a.id).get(got)
            finally:
                self.assertTrue(data.startswith(got.getvalue()), "wrong bytes were handed on")

        def of(path, f):
            def alter(at, body, head):
                return body if "/content" not in at else body and f(body, head)
            return alter

        def flip(at):
            return lambda b, h: b[:at] + bytes([b[at] ^ 1]) + b[at + 1:]

        def swap(at, body, head):
            if body is None:
                return at.replace(a.id, other.id) if "/content" in at else None
            return body
        for kind, f in (("mismatch", flip(700)), ("mismatch", flip(40_000)), ("truncated", lambda b, h: b[:-1]), ("truncated", lambda b, h: b[:5000]),
                        ("extended", lambda b, h: b + b"x"), ("extended", lambda b, h: b + b), ("redirect", lambda b, h: h.update(status=302, Location="http://127.0.0.1:1") or b""),
                        ("protocol", lambda b, h: h.update(status=299) or b)):
            with self.subTest(kind):
                self.refused(kind, get, of("/content", f))
        self.refused(("artifact", "mismatch"), get, swap)
        self.refused(("protocol", "artifact", "mismatch", "size"), get, of("/content", lambda b, h: h.update({"Content-Encoding": "gzip"}) or b))
        true.close()

    def test_manifest(self):
        true = Client(URL, TOKEN)
        a, other = true.put(noise(5000)), true.put(noise(5000, 2))

        def altered(f):
            def alter(at, body, head):
                return body and (f(body) if at.endswith("/manifest") else body)
            return alter

        def swap(at, body, head):
            return at.replace(a.id, other.id) if body is None else body

        def more(body):  # another payload under the same signatures
            o = json.loads(body)
            st = json.loads(leafproof._b64(o["manifest"]["payload"]))
            st["predicate"]["issuer"]["id"] = "somebody"
            o["manifest"]["payload"] = leafproof.base64.b64encode(leafproof._canonical(st)).decode()
            return json.dumps(o).encode()

        def size(body):
            o = json.loads(body)
            st = json.loads(leafproof._b64(o["manifest"]["payload"]))
            st["predicate"]["bytes"]["size"] -= 1
            o["manifest"]["payload"] = leafproof.base64.b64encode(leafproof._canonical(st)).decode()
            return json.dumps(o).encode()
        act = lambda c, _: c.open(a.id)
        for kind, alter in (("artifact", swap), ("mismatch", altered(more)), ("mismatch", altered(size)), ("protocol", altered(lambda b: b[:100])),
                            ("protocol", altered(lambda b: b"[" * 100_000)), ("too_large", altered(lambda b: b" " * (3 << 20)))):
            with self.subTest(kind):
                self.refused(kind, act, alter)
        true.close()

    def test_query(self):
        true = Client(URL, TOKEN)
        a = true.put(LINES, records="ndjson")

        def rows(c, token):
            if token == READER:  # may not ask
                raise VerificationError(self.kind)
            c.open(a.id).query('@.status == "open"', verify=True)
        for kind, f in (("row", lambda b: b.replace(b'"open"', b'"opEn"', 1)), ("row", lambda b: b.replace(b'"n":0,', b'"n":false,', 1)),
                        ("row", lambda b: b.replace(b'"n":3,', b'"n":3.0,', 1)), ("row", lambda b: b.replace(b'"span":[0,', b'"span":[false,', 1)),
                        ("protocol", lambda b: b.replace(b'"n":3,', b'"n":NaN,', 1)), ("row", lambda b: b.replace(b'{"record":3,', b'{"record":3000,', 1)),
                        ("row", lambda b: b[b.index(b"\n") + 1:]), ("truncated", lambda b: b[:b.rindex(b'{"answer"')]), ("truncated", lambda b: b[:100]),
                        ("extended", lambda b: b + b"{}\n"), ("altered", lambda b: b.replace(b'"capture_completeness":{"status":"unknown"', b'"capture_completeness":{"status":"complete"'))):
            with self.subTest(kind):
                self.kind = kind
                self.refused(kind, rows, lambda at, body, head, f=f: body and (f(body) if at.endswith("/query") else body))
        true.close()

    def test_order(self):
        true = Client(URL, TOKEN)
        a = true.put(LINES, records="ndjson")
        s = Liar(lambda at, body, head: body and (re.sub(rb"\A([^\n]*\n)[^\n]*\n", rb"\1\1", body) if at.endswith("/query") else body))
        with self.assertRaises(VerificationError) as e:
            Client(s.url, TOKEN, retries=0).open(a.id).query(order_by=["/n:desc"], verify=True)
        self.assertEqual(e.exception.kind, "row")
        s.shutdown()
        s.server_close()
        true.close()

    def test_proof(self):
        true = Client(URL, TOKEN)
        data = noise(5000)
        a, twin = true.put(data), true.put(data)

        def prove(c, token):
            if token == READER:  # may not ask
                raise VerificationError(self.kind)
            c.open(a.id).prove(10, 20)

        def resigned(body):
            header = json.loads(body.split(b"\n", 2)[1])
            sig = header["manifest"]["signatures"][0]
            sig["sig"] = ("B" if sig["sig"][0] == "A" else "A") + sig["sig"][1:]
            rest = leafproof._canonical(header) + b"\n" + body.split(b"\n", 2)[2]
            return b"leafproof bundle v1 " + leafproof.blake3(rest).hex().encode() + b"\n" + rest

        def altered(f):
            return lambda at, body, head: body and (f(body) if at.endswith("/prove") else body)

        def swap(at, body, head):
            return at.replace(a.id, twin.id) if body is None and at.endswith("/prove") else body
        for kind, alter in (("mismatch", altered(resigned)), ("artifact", swap), ("protocol", altered(lambda b: b[:-1])), ("protocol", altered(lambda b: b + b"x"))):
            with self.subTest(kind):
                self.kind = kind
                self.refused(kind, prove, alter)
        true.close()

    def test_lazy(self):
        said = []

        def cut(at, body, head):
            if body and "/calls/" in at:
                head["Content-Length"] = str(len(body))
                return body[:-7]
            return body
        for alter in (lambda at, body, head: body, cut):
            s = Liar(alter)
            h = leafproof.Harness(Client(s.url, TOKEN, retries=0), "lazy")

            @h.tool("source", "Gives a text.", {"type": "object", "properties": {}})
            def source():
                return leafproof.Blob(b"a text that is read later", "text/plain")

            @h.tool("sink", "Takes one.", {"type": "object", "properties": {"data": {"type": "string"}}}, lazy=["data"])
            def sink(data):
                said.append(data.read(1000))
            h.begin()
            view = h.call("1", "source", {})
            view = h.call("2", "sink", {"data": view["content"]["value"]})
            self.assertEqual(view["is_error"], alter is cut)
            s.shutdown()
            s.server_close()
        self.assertEqual(said, [b"a text that is read later"])

    def test_put(self):
        for kind, f in (("mismatch", lambda b: b.replace(b'"content_hash":"blake3:', b'"content_hash":"blake3:0', 1)), ("protocol", lambda b: b"{}")):
            self.refused(kind, lambda c, _: c.put(b"some bytes"), lambda at, body, head, f=f: body and (f(body) if at.startswith("/v1/artifacts?") else body))

    def test_nobody_answers(self):
        for address in ("unix:/nowhere/at/all", "http://127.0.0.1:1"):
            with self.assertRaisesRegex(Error, "unreachable: " + address):
                Client(address, TOKEN, retries=0).open("art_" + "a" * 32)

    def test_token_goes_nowhere_else(self):
        stolen = []

        class Thief(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                stolen.append(self.headers)
        thief = socketserver.TCPServer(("127.0.0.1", 0), Thief)
        threading.Thread(target=thief.serve_forever, args=(0.02,), daemon=True).start()
        to = "http://127.0.0.1:%d/" % thief.server_address[1]
        id = Client(URL, TOKEN).put(b"x").id
        self.refused("redirect", lambda c, _: c.open(id), lambda at, body, head: body and (head.update(status=307, Location=to) or b""))
        thief.shutdown()
        thief.server_close()
        self.assertEqual(stolen, [])


if __name__ == "__main__":
    unittest.main(warnings="ignore")
