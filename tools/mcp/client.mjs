// Ask a leafproof MCP server through the TypeScript SDK's own client:
//
//   node client.mjs stdio PROGRAM ARG…        the server on standard input and output
//   node client.mjs http URL TOKEN            the server of leafproof serve
//
// It puts, looks, reads by tool and as a resource, queries and lists, and exits 0 if
// every answer is what it must be; the client checks each against the tool's own
// output schema besides. It needs the packages of package.json.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [how, where, ...rest] = process.argv.slice(2);
const transport =
  how === "http"
    ? new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } } })
    : new StdioClientTransport({ command: where, args: rest, env: process.env, stderr: "inherit" });
const client = new Client({ name: "leafproof-check", version: "1" });
await client.connect(transport);

async function call(name, args, failed = false) {
  const res = await client.callTool({ name, arguments: args });
  assert.equal(res.isError ?? false, failed, JSON.stringify(res.content));
  assert.deepEqual(JSON.parse(res.content[0].text), res.structuredContent, "text and structured content");
  assert.equal(res.structuredContent.data_only, true);
  return res.structuredContent;
}

const { tools } = await client.listTools();
assert.deepEqual(tools.map((t) => t.name), ["artifact_list", "artifact_put", "artifact_query", "artifact_read", "artifact_stat", "artifact_verify"]);

// One MiB of text in which characters of all lengths stand.
const rows = [];
for (let i = 0, size = 0; size < 1 << 20; i++) {
  rows.push(JSON.stringify({ i, s: "aé€𝄞".repeat(1 + (i % 50)), n: 13911860366432393n.toString() }));
  size += Buffer.byteLength(rows.at(-1)) + 1;
}
const text = rows.join("\n") + "\n";
const made = await call("artifact_put", { content: text, media_type: "application/x-ndjson", source_id: "check", coverage: { region: "eu" } });
const id = made.artifact_id;
assert.deepEqual(made.reference, { $ref: { type: "Blob", key: id } });
assert.equal(made.size, Buffer.byteLength(text));

const stat = await call("artifact_stat", { artifact_id: made.reference });
assert.equal(stat.format.records.count, rows.length);

let byTool = "";
for (let offset = 0; offset !== null; ) {
  const page = await call("artifact_read", { artifact_id: id, offset, length: 65536 });
  byTool += page.content;
  offset = page.next_offset;
}
assert.equal(byTool, text, "the pages of the tool");

let byResource = "";
for (let uri = `leafproof://artifact/${id}`; uri; ) {
  const { contents } = await client.readResource({ uri });
  byResource += contents[0].text;
  uri = contents[0]._meta["io.leafproof/next"];
}
assert.equal(byResource, text, "the pages of the resource");

let found = [];
for (let cursor; ; ) {
  const page = await call("artifact_query", { artifact_id: id, where: "@.i >= 10 && @.i < 200", limit: 70, ...(cursor && { cursor }) });
  found.push(...page.rows.map((r) => r.value.i));
  if (page.more !== "yes") break;
  cursor = page.cursor;
}
assert.deepEqual(found, [...Array(190).keys()].map((i) => i + 10));

const long = await call("artifact_read", { artifact_id: id, preview: true });
assert.ok(JSON.stringify(long.preview).length <= 6200);
const bin = await call("artifact_put", { content: Buffer.from([0, 1, 255, 254]).toString("base64"), encoding: "base64", media_type: "image/png" });
assert.equal((await client.readResource({ uri: bin.resource })).contents[0].blob, "AAH//g==");

const list = await call("artifact_list", { limit: 100 });
assert.ok(list.artifacts.some((a) => a.artifact_id === id));
assert.ok((await client.listResources()).resources.some((r) => r.uri === `leafproof://artifact/${id}`));

const none = "art_" + "a".repeat(32);
assert.equal((await call("artifact_read", { artifact_id: none }, true)).code, "ref_not_found");
assert.equal((await call("artifact_read", { artifact_id: id, offset: "x" }, true)).code, "request_invalid");
assert.equal((await call("artifact_read", { artifact_id: JSON.stringify(made.reference) }, true)).code, "ref_stringified");
await assert.rejects(client.readResource({ uri: `leafproof://artifact/${none}` }), (e) => e.code === -32602);
await assert.rejects(client.request({ method: "prompts/list" }, { parse: (x) => x }), (e) => e.code === -32601);

await client.close();
console.log("ok");
