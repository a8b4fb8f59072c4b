// An MCP server on standard input and output, made with the TypeScript SDK, whose
// tools know of no references: make_image returns an image of so many bytes, digest
// the SHA-256 of what it is given in base64. It needs the packages of package.json.

import { createHash } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const server = new Server({ name: "images", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [
    { name: "make_image", inputSchema: { type: "object", properties: { bytes: { type: "integer" } }, required: ["bytes"] } },
    { name: "digest", inputSchema: { type: "object", properties: { data: { type: "string" } }, required: ["data"] } },
  ],
}));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
  if (params.name === "make_image") {
    const data = Buffer.alloc(params.arguments.bytes, "0123456789abcde\x00\xff");
    return { content: [{ type: "image", data: data.toString("base64"), mimeType: "image/png" }] };
  }
  const digest = createHash("sha256").update(Buffer.from(params.arguments.data, "base64")).digest("hex");
  return { content: [{ type: "text", text: digest }] };
});
// The SDK's own bound, 10 MiB, is less than an image of 10 MB in base64.
await server.connect(new StdioServerTransport(process.stdin, process.stdout, { maxBufferSize: 64 << 20 }));
