// Verify an excerpt of a blob against its BLAKE3 root, with nothing but JavaScript, in a browser or under Node:
//
//   verify(root, file, options) → {size, sizeProven, ranges, data}, or an Error that says why not
//
// root is the root in 64 lower-case hexadecimal digits. file, a Uint8Array, is a detached slice file, which begins with
// "lps1"; with the option bytes: [a, b] it must hold exactly the leaves of the bytes a to b. With the option bao: [a, b]
// it is the Bao slice of those bytes. In the answer size, a bigint, is the blob's length: a claim unless sizeProven.
// ranges are the leaves asked for, as [start, end); data is the bytes a to b, or else all of those leaves.
// It is written from the descriptions of BLAKE3, Bao and lps1 alone.

const LEAF = 1024, GROUP = 16; // bytes; leaves
const refuse = (why) => { throw new Error(why); };

// BLAKE3, from section 2 of its paper. A chaining value is an Int32Array of 8 words.
const IV = Int32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const ROUNDS = [[...PERMUTATION.keys()]]; // which message word comes when
while (ROUNDS.length < 7) ROUNDS.push(PERMUTATION.map((i) => ROUNDS.at(-1)[i]));
const CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8;
const m = new Int32Array(16), v = new Int32Array(16); // the block and the state of the compression under way

function mix(a, b, c, d, x, y) {
  v[a] += v[b] + x; v[d] ^= v[a]; v[d] = v[d] >>> 16 | v[d] << 16;
  v[c] += v[d]; v[b] ^= v[c]; v[b] = v[b] >>> 12 | v[b] << 20;
  v[a] += v[b] + y; v[d] ^= v[a]; v[d] = v[d] >>> 8 | v[d] << 24;
  v[c] += v[d]; v[b] ^= v[c]; v[b] = v[b] >>> 7 | v[b] << 25;
}

function compress(h, counter, length, flags) { // the block in m, to the first eight words
  v.set(h);
  v.set([IV[0], IV[1], IV[2], IV[3], counter, Math.floor(counter / 2 ** 32), length, flags], 8); // each modulo 2^32
  for (const s of ROUNDS) {
    for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
    for (let i = 0; i < 4; i++) mix(i, 4 + (i + 1 & 3), 8 + (i + 2 & 3), 12 + (i + 3 & 3), m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
  }
  return Int32Array.from(IV, (_, i) => v[i] ^ v[i + 8]);
}

// load puts little-endian bytes into words and zeros after them.
const load = (words, bytes) => bytes.reduce((w, b, i) => { w[i >> 2] |= b << 8 * (i & 3); return w; }, words.fill(0));
const parentValue = (left, right, root) => { m.set(left); m.set(right, 8); return compress(IV, 0, 64, PARENT | root); };
const leftOf = (n) => n <= 2 ? 1 : 2 * leftOf(Math.ceil(n / 2)); // the largest power of two below n, of n > 1 leaves

function subtreeValue(bytes, first, root) { // of the leaves in bytes, the first of which has this number
  if (bytes.length > LEAF) {
    const n = leftOf(Math.ceil(bytes.length / LEAF)), left = subtreeValue(bytes.subarray(0, n * LEAF), first, 0);
    return parentValue(left, subtreeValue(bytes.subarray(n * LEAF), first + n, 0), root);
  }
  for (let h = IV, at = 0, flags = CHUNK_START; ; at += 64, flags = 0) {
    const block = bytes.subarray(at, at + 64), last = at + 64 >= bytes.length;
    load(m, block);
    h = compress(h, first, block.length, last ? flags | CHUNK_END | root : flags);
    if (last) return h;
  }
}

// A size is below 2^63 and so a bigint. There are at most 2^53 leaves, which a number counts exactly; a leaf number from
// there on, rounded or not, is no safe integer.
export function verify(rootHex, file, { bao, bytes } = {}) {
  if (!/^[0-9a-f]{64}$/.test(rootHex)) refuse("that is no root");
  const wanted = (bao ?? bytes)?.map(BigInt);
  if (wanted && !(wanted.length === 2 && wanted[0] >= 0n && wanted[0] <= wanted[1])) refuse("that is no range");
  let pos = 0, at = 0, added = 0, ranges = [], end = 0;
  const take = (n) => file.length - pos < n ? refuse("it is truncated") : file.subarray(pos, pos += n);
  const varint = (n = 0, i = 0) => { // at most 9 bytes, in the shortest form
    const c = take(1)[0];
    n += (c & 0x7f) * 2 ** (7 * i);
    if (c >= 0x80 && i < 8) return varint(n, i + 1);
    if (c >= 0x80 || (c === 0 && i > 0)) refuse("a number is too large or not in its shortest form");
    return n;
  };
  if (!bao) {
    if (String.fromCharCode(...take(4)) !== "lps1") refuse("it does not begin with lps1");
    added = take(1)[0]; // the last leaf, to prove the size
    if (added > 1) refuse("its flags are not of this version");
    const count = varint();
    if (count < 1 || count > 2 ** 20) refuse("it has no range, or too many");
    for (let i = 0; i < count; i++) {
      const gap = varint(), last = end + gap + varint();
      if (i > 0 && gap === 0) refuse("two of its ranges touch");
      if (!Number.isSafeInteger(last)) refuse("a range ends past every leaf");
      ranges.push([end + gap, end = last + 1]);
    }
  }
  const size = take(8).reduceRight((n, c) => n << 8n | BigInt(c), 0n);
  if (size >> 63n) refuse("the length is no length");
  const leaves = size ? Number((size - 1n) / 1024n) + 1 : 1, lastLength = size ? Number((size - 1n) % 1024n) + 1 : 0;
  const first = wanted && Math.min(Number(wanted[0] / 1024n), leaves - 1);
  const holds = wanted && [first, Math.min(Math.max(first, Number((wanted[1] - 1n) / 1024n)), leaves - 1) + 1];
  if (bao) ranges = [holds];
  if (end > leaves) refuse("a range ends past the last leaf");
  if (holds && String(ranges) !== String(holds)) refuse(`it holds the leaves ${ranges.join(" ")}, not ${holds}`);
  if (added && end === leaves) refuse("its flags add the last leaf, which its ranges contain");
  const from = end === leaves - 1 ? ranges.at(-1)[0] : leaves - 1; // the added leaf may join the last range
  const selected = added ? [...ranges.filter((r) => r[0] < from), [from, leaves]] : ranges;
  const pieces = [], unit = bao ? 1 : GROUP;
  const subtree = (lo, hi, want, root) => { // checks the leaves lo to hi; they come in order
    while (at < selected.length && selected[at][1] <= lo) at++;
    if (at === selected.length || selected[at][0] >= hi) return;
    const check = (got) => got.every((w, i) => w === want[i]) || refuse(`leaf ${lo} or a node above it is not the root's`);
    if (hi - lo <= unit && selected[at][0] <= lo && hi <= selected[at][1]) {
      pieces.push(take((hi - lo - 1) * LEAF + (hi === leaves ? lastLength : LEAF)));
      return check(subtreeValue(pieces.at(-1), lo, root));
    }
    const both = load(new Int32Array(16), take(64)), left = both.subarray(0, 8), right = both.subarray(8);
    check(parentValue(left, right, root));
    subtree(lo, lo + leftOf(hi - lo), left, 0);
    subtree(lo + leftOf(hi - lo), hi, right, 0);
  };
  subtree(0, leaves, load(new Int32Array(8), rootHex.match(/../g).map((x) => parseInt(x, 16))), ROOT);
  if (pos < file.length) refuse("bytes follow its end");
  let n = 0, data = new Uint8Array(file.length); // more than the pieces
  for (const p of pieces) data.set(p, (n += p.length) - p.length);
  data = data.subarray(0, added ? n - lastLength : n);
  if (wanted) data = data.subarray(...wanted.map((x) => Number(x - BigInt(first) * 1024n)));
  return { size, sizeProven: selected.at(-1)[1] === leaves, ranges, data };
}

// verifyQuery(statement, bundle) → {where, rows, records, undecidable}, or an Error: that rows are all records in which one value
// stands at one path. statement, a Uint8Array, is the signed statement that somebody's signature was found to cover, bundle the
// .proof file, an answer to @.field == value of JSON records. records counts all. It looks at no signature.
const join = (...parts) => { let n = 0; const out = new Uint8Array(parts.reduce((k, p) => k + p.length, 0)); for (const p of parts) out.set(p, (n += p.length) - p.length); return out; };
const hex = (bytes) => Array.from(bytes, (c) => c.toString(16).padStart(2, "0")).join(""), unhex = (s) => Uint8Array.from(s.match(/../g) ?? [], (x) => parseInt(x, 16));
const sum = (bytes) => new Uint8Array(subtreeValue(bytes, 0, ROOT).buffer);
const compare = (a, b) => { for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] - b[i]; return a.length - b.length; };
const utf8 = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
const plain = (s) => s.isWellFormed() && !/[\x7f\u2028\u2029]/.test(s); // as a signed text may be
const has = (v, names) => String(Object.keys(v)) === names || refuse(`it does not have the members ${names}`);
const varint = (n) => n < 128 ? [n] : [n % 128 + 128, ...varint(Math.floor(n / 128))];

// prove gives the leaves that a section proves: a body behind the head of a detached slice.
function prove(rootHex, size, leaves, body) {
  if (!leaves.every((r) => r.length === 2 && r.every((n) => Number.isSafeInteger(n) && n >= 0))) refuse("a section's leaves are no leaves");
  const head = leaves.flatMap(([a, b], i) => [...varint(a - (i ? leaves[i - 1][1] : 0)), ...varint(b - a - 1)]);
  const got = verify(rootHex, join([0x6c, 0x70, 0x73, 0x31, 0], varint(leaves.length), head, body)), out = new Map();
  // What was read back must be what was claimed: ranges out of order have no such spelling, and would be read as others.
  if (got.size !== BigInt(size) || String(got.ranges) !== String(leaves)) refuse("a section is about a blob of another size, or its leaves are not in order");
  let at = 0;
  for (const [a, b] of leaves) for (let n = a; n < b; n++, at += LEAF) out.set(n, got.data.subarray(at, at + LEAF));
  return out;
}

const TOKEN = /[ \t\n\r]*(?:([[\]{}:,])|("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;

// exact parses JSON: a number is {number: its text}, an object {members: [name, value]…}, as they stand there.
function exact(text, deepest) {
  TOKEN.lastIndex = 0;
  const next = () => TOKEN.exec(text) ?? refuse("no JSON");
  const value = ([, mark, string, number, word], depth) => {
    if (string || number || word) return number ? { number } : JSON.parse(string ?? word);
    if (!"[{".includes(mark) || depth === deepest) refuse("no JSON, or nested too deep");
    const list = [], end = mark === "[" ? "]" : "}";
    for (let t = next(); t[1] !== end; t = next()) {
      if (list.length && (t[1] !== "," || !(t = next()))) refuse("no JSON");
      if (mark === "{" && (!t[2] || next()[1] !== ":")) refuse("no JSON");
      list.push(mark === "[" ? value(t, depth + 1) : [JSON.parse(t[2]), value(next(), depth + 1)]);
    }
    return mark === "[" ? list : { members: list };
  };
  const v = value(next(), 0); return /^[ \t\n\r]*$/.test(text.slice(TOKEN.lastIndex)) ? v : refuse("no JSON");
}

function decimal(text) { // its sign, digits and exponent: 0.d₁d₂… × 10^exponent
  const [, sign, whole, fraction = "", e = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text), digits = (whole + fraction).replace(/^0+/, "");
  return [sign, digits.replace(/0+$/, ""), Math.max(-1e15, Math.min(1e15, Number(e))) + digits.length - fraction.length];
}
function numberText(text) { // the one spelling of a number in a query
  const [sign, d, e] = decimal(text), n = d.length;
  if (!n || e > 21 || e < -5) return n ? `${sign}${d}e${e - n}` : "0";
  return sign + (e >= n ? d.padEnd(e, "0") : e > 0 ? `${d.slice(0, e)}.${d.slice(e)}` : `0.${"0".repeat(-e)}${d}`);
}
function numberKey(text, limits) { // lpk1; null beyond the limits
  const [sign, kept, exponent] = decimal(text);
  if (!kept) return [0x40, 0x80];
  if (kept.length > limits.digits || Math.abs(exponent) > limits.exponent) return null;
  const big = (i) => Number(BigInt(exponent) + 2n ** 63n >> BigInt(56 - 8 * i) & 255n), tail = [...[...Array(8).keys()].map(big), ...Array.from(kept, (d) => Number(d) + 1), 0];
  return sign ? [0x40, 0x40, ...tail.map((c) => 255 - c)] : [0x40, 0xc0, ...tail];
}
function stringKey(s) { // null for a lone surrogate
  const bytes = new TextEncoder().encode(s), escaped = Array.from(bytes.subarray(0, 96)).flatMap((c) => c ? [c] : [0, 255]);
  return s.isWellFormed() ? [0x50, ...escaped, 0, ...(bytes.length <= 96 ? [0] : [1, ...sum(bytes)])] : null;
}
// recordKey is the key of the value at a path of a record; null: it cannot be told.
function recordKey(bytes, tokens, limits) {
  let v; try { v = bytes.length > limits.record ? refuse("too long") : exact(utf8(bytes), limits.depth); } catch { return null; }
  for (const t of tokens) {
    const element = /^(0|[1-9]\d*)$/.test(t) && Array.isArray(v) && Number(t) < v.length ? [v[Number(t)]] : [];
    const found = v?.members ? v.members.filter(([name]) => name === t).map(([, x]) => x) : element;
    if (found.length !== 1) return found.length ? null : [0x10];
    v = found[0];
  }
  return typeof v === "string" ? stringKey(v) : v?.number ? numberKey(v.number, limits) : Array.isArray(v) ? [0x60] : v === null ? [0x20] : v === true ? [0x31] : v === false ? [0x30] : [0x70];
}

// canonical writes what JSON.parse gave, integers and no other numbers in it, with its names in order.
const canonical = (v) => Array.isArray(v) ? `[${v.map(canonical)}]` : v && typeof v === "object"
  ? `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`)}}` : JSON.stringify(v);

export function verifyQuery(statement, file) {
  const said = JSON.parse(utf8(statement)), { bytes, records, indexes, artifact_ref: ref } = said.predicate;
  if (said._type !== "https://in-toto.io/Statement/v1" || said.predicateType !== "urn:x-leafproof:manifest/v1") refuse("the statement is no manifest");
  const line1 = file.indexOf(10) + 1, line2 = file.indexOf(10, line1) + 1, line = utf8(file.subarray(line1, line2 - 1)), header = JSON.parse(line), { commit, receipt, ...rest } = header;
  if (!/^leafproof bundle v1 [0-9a-f]{64}\n$/.test(utf8(file.subarray(0, line1))) || canonical(header) !== line || !plain(line)) refuse("it is not spelled as a bundle");
  if (header.manifest.payload !== btoa(Array.from(statement, (c) => String.fromCharCode(c)).join(""))) refuse("the bundle is about another statement");
  const [claim, more] = header.claims, { query, index: named, sections } = claim, { where } = query, path = named.path;
  if (more || canonical(header.ref) !== canonical(ref)) refuse("its reference is not the signed one, or there is another claim");
  has(rest, "claims,manifest,ref,ssh"); has(claim, "index,kind,query,sections"); has(named, "path,root,size");
  const [kind, text] = where[2], ours = { at: records.pointer, engine: "1", format: records.format, order: ["document"], where: ["eq", path, where[2]] };
  if (claim.kind !== "query" || canonical(query) !== canonical(ours) || !/^(\/([^~]|~[01])*)?$/s.test(path) || !["json", "ndjson", "concat"].includes(records.format) || ref.completeness.redactions?.length) refuse("it is not the answer to @.field == value of JSON records");
  const word = { null: 0x20, false: 0x30, true: 0x31 }[kind], x = kind === "x" && utf8(unhex(text)), most = { digits: 1024, exponent: 1e6 };
  const spelled = kind === "n" ? ["n", numberText(text)] : kind === "s" && plain(text) ? ["s", text] : x && !plain(x) ? ["x", hex(new TextEncoder().encode(x))] : [kind];
  const key = (kind === "n" ? numberKey(text, most) : kind === "s" || x ? stringKey(x || text) : typeof kind === "string" && Number.isInteger(word) && [word]) || refuse("no literal");
  if (canonical(spelled) !== canonical(where[2])) refuse("a literal is not in its one spelling");
  const about = indexes.find((x) => x.path === path && x.root === named.root && x.size === named.size) ?? refuse("the statement names no such index");
  if (canonical({ dialect: null, format: records.format, keys: "lpk1", limits: records.limits, path, pointer: records.pointer, redactions: [] }) !== canonical(about.spec)) refuse("the index is made by other rules");
  let at = line2, found = new Set(), tailed = new Set(), n = -1, behind = null; const body = {}; // n: the page before; behind: what must follow it
  for (const name of ["header", "pages", "undetermined", "map", "records"]) if (sections[name]) {
    has(sections[name], name === "records" ? "length" : "leaves,length");
    body[name] = Number.isSafeInteger(sections[name].length) && sections[name].length >= 0 ? file.subarray(at, at += sections[name].length) : refuse("a length that is none");
  }
  if (at !== file.length || Object.keys(sections).some((k) => !body[k]) || String(sections.header.leaves) !== "0,1") refuse("bytes follow its sections, or are missing");
  const u64 = (b, i) => Number(new DataView(b.buffer, b.byteOffset).getBigUint64(i, true)), ofIndex = (name, leaves) => prove(named.root, named.size, leaves, body[name]);
  const head = ofIndex("header", [[0, 1]]).get(0), [all, entries, distinct, pages, tail] = [80, 88, 96, 104, 112].map((i) => u64(head, i));
  if (utf8(head.subarray(0, 8)) !== "LFPINDX1" || hex(head.subarray(8, 40)) !== bytes.root || u64(head, 40) !== bytes.size || hex(head.subarray(48, 80)) !== about.spec_digest
    || all !== records.count || entries !== all || distinct !== about.distinct || entries - tail !== about.undetermined || named.size !== 4096 * (pages + 1)) refuse("the header of the index and its statement differ");
  const page = (data) => { // reads page n and returns the last key of the page before, and its own
    const used = data[16] + 256 * data[17], first = u64(data, 8);
    let rank = first, i = 20;
    const number = (v = 0, m = 1) => { const c = i < 20 + used ? data[i++] : refuse("a number is cut off"); return c < 128 ? v + c * m : number(v + (c - 128) * m, m * 128); };
    const take = (k) => [...data.subarray(i, i += k)], before = take(number());
    if (u64(data, 0) !== n || data[18] || data[19] || data.subarray(20 + used).some((c) => c) || (n === 0) !== !before.length || (n === 0 && first)
      || (behind && (behind[0] !== n || behind[1] !== first || compare(behind[2], before)))) refuse(`page ${n} of the index does not stand in its place`);
    let now = before;
    while (i < 20 + used) {
      const shared = now.slice(0, number()), next = [...shared, ...take(number())], order = compare(next, now);
      if (order < 0 || (order === 0 && (rank !== first || !n))) refuse(`the keys of page ${n} are not in order`);
      for (let k = number(), r = -1; k > 0; k--, rank++) {
        r += 1 + number();
        if (r >= all || next[0] >= 0xe0 !== rank >= tail) refuse(`the entries of page ${n} contradict the header`);
        if (next[0] >= 0xe0) tailed.add(r); else if (!compare(next, key)) found.add(r);
      }
      now = next;
    }
    if (i !== 20 + used || rank === first || (n === pages - 1) !== (rank === entries)) refuse(`page ${n} of the index does not end in its place`);
    return [before, (behind = [n + 1, rank, now])[2]];
  };
  if (!body.pages !== !pages) refuse("no page of the index is shown");
  for (const name of ["pages", "undetermined"].filter((k) => body[k])) {
    const [[a, b]] = sections[name].leaves, first = a / 4 - 1, end = b / 4 - 1, leaves = ofIndex(name, sections[name].leaves);
    if (sections[name].leaves.length > 1 || a % 4 || b % 4 || first <= n || first >= end || end > pages) refuse("the sections of the index are not pages in order");
    if (first !== n + 1) behind = null;
    for (n = first; n < end; n++) {
      const [before, last] = page(join(...[4, 5, 6, 7].map((k) => leaves.get(4 * n + k))));
      if (name === "pages" ? n < pages - 1 && compare(last, key) < 0 || n < end - 1 && compare(last, key) > 0 : last[0] < 0xe0) refuse(`page ${n} of the index is not needed`);
      if (name === "pages" && ((n === first && n && compare(before, key) >= 0) || (n === end - 1 && end < pages && compare(last, key) <= 0))) refuse("the pages do not begin in front of the value and end behind it");
    }
    n = end - 1;
  }
  if (tailed.size !== entries - tail) refuse("not all records that cannot be told are shown");
  const wanted = [...found, ...[...tailed].filter((r) => !found.has(r))].sort((a, b) => a - b), spans = new Map(), rows = [];
  if (!wanted.length !== !body.map || !body.map !== !body.records || body.map && sections.map.leaves[0][0]) refuse("records are shown, and must not be, or the other way round");
  if (wanted.length) {
    for (const [leaf, data] of prove(records.map.root, records.map.size, sections.map.leaves, body.map)) {
      let i = 20, r = u64(data, 0), end = u64(data, 8);
      const number = (v = 0, m = 1, c = data[i++]) => c < 128 ? v + c * m : number(v + (c - 128) * m, m * 128);
      if (leaf) for (let k = data[16] + 256 * data[17]; k > 0; k--) { const from = end + number(); spans.set(r++, [from, end = from + number()]); }
      if (leaf && !wanted.some((w) => w >= u64(data, 0) && w < r)) refuse(`leaf ${leaf} of the record map is not needed`);
      if (!leaf && (utf8(data.subarray(0, 8)) !== "LFPRMAP1" || hex(data.subarray(8, 40)) !== bytes.root || u64(data, 80) !== records.count)) refuse("the record map is of another artifact");
    }
    const cover = [], last = Math.max(0, Math.ceil(bytes.size / LEAF) - 1);
    for (const r of wanted) {
      const [from, end] = spans.get(r) ?? refuse(`record ${r} stands on no page of the map`), a = Math.min(Math.floor(from / LEAF), last), b = Math.max(a, Math.min(Math.floor((end - 1) / LEAF), last)) + 1;
      if (cover.length && a <= cover.at(-1)[1]) cover.at(-1)[1] = Math.max(cover.at(-1)[1], b); else cover.push([a, b]);
    }
    const leaves = prove(bytes.root, bytes.size, cover, body.records), tokens = path.split("/").slice(1).map((t) => t.replaceAll("~1", "/").replaceAll("~0", "~"));
    for (const r of wanted) {
      const [from, end] = spans.get(r), a = Math.floor(from / LEAF), parts = Array.from({ length: Math.ceil(end / LEAF) - a }, (_, k) => leaves.get(a + k));
      const data = join(...parts).subarray(from - a * LEAF, end - a * LEAF), got = recordKey(data, tokens, records.limits);
      if (found.has(r) ? got === null || compare(got, key) : got !== null) refuse(`record ${r} stands in the index under a value that it does not have`);
      if (found.has(r)) rows.push(data);
    }
  }
  return { where, rows, records: records.count, undecidable: tailed.size };
}

const USAGE = `usage: node verify.mjs [--bao] [-o OUT] ROOT FILE [A:B]
FILE (- is standard input) is a slice file, or the Bao slice of the bytes A:B; --bao: the latter, whatever it begins with.
-o writes the verified bytes to OUT (- is standard output), once all of them are verified.
exit status: 0 verified; 3 it does not match the root or is malformed; 64 usage; 1 a file cannot be read or written.`;

async function command() {
  const fs = await import("node:fs"), { parseArgs } = await import("node:util"), url = await import("node:url");
  const main = process.argv[1], self = url.fileURLToPath(import.meta.url);
  if (main !== self && !(fs.existsSync(main) && fs.realpathSync(main) === self)) return; // it is imported
  let code = 64; // of the step under way
  try {
    const options = { help: { type: "boolean", short: "h" }, bao: { type: "boolean" }, out: { type: "string", short: "o" } };
    const { values: { help, bao, out }, positionals: [root, name, range, more] } = parseArgs({ options, allowPositionals: true });
    if (help) return console.log(USAGE);
    const wanted = /^(\d+):(\d+)$/.exec(range)?.slice(1).map(BigInt);
    if (!/^[0-9a-f]{64}$/.test(root) || !name || more) refuse("a root and a file are needed");
    if (range !== undefined && !(wanted?.[0] <= wanted?.[1])) refuse(`${range} is not a range A:B`);
    code = 1;
    const file = fs.readFileSync(name === "-" ? 0 : name);
    const isBao = bao || (file.length >= 4 && file.toString("latin1", 0, 4) !== "lps1");
    code = isBao && !wanted ? 64 : 3;
    if (code === 64) refuse("a Bao slice does not say what it holds: give A:B");
    const { data, size, sizeProven } = verify(root, file, { [isBao ? "bao" : "bytes"]: wanted });
    code = 1;
    if (out !== undefined) fs.writeFileSync(out === "-" ? 1 : out, data);
    fs.writeFileSync(out === "-" ? 2 : 1, `${data.length} bytes verified; size ${size}, ${sizeProven ? "" : "not "}proven\n`);
  } catch (e) {
    console.error(`verify.mjs: ${code === 3 ? "refused: " : ""}${e.message}${code === 64 ? `\n${USAGE}` : ""}`);
    process.exitCode = code;
  }
}
if (typeof process === "object" && process.versions?.node && process.argv[1]) command();
