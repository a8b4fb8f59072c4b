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
