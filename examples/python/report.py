"""A harness in 30 lines: an export of some megabytes is filtered and handed to a tool that
makes a report, and the model reads markers and a preview.

    leafproof demo refs -o items.json    # an export
    leafproof serve --ephemeral          # prints the socket and a token
    LEAFPROOF_URL=unix:/… LEAFPROOF_TOKEN=lpt_… python3 examples/python/report.py items.json
"""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import leafproof

h = leafproof.Harness(leafproof.Client(os.environ["LEAFPROOF_URL"], os.environ["LEAFPROOF_TOKEN"]), "reporter")


@h.tool("export_items", "Export all work items of the project.", {"type": "object", "properties": {}})
def export_items():
    return leafproof.Blob(open(sys.argv[1], "rb"), "application/json")


@h.tool("generate_pdf", "Make a report of rows.", {
    "type": "object", "required": ["title", "rows"],
    "properties": {"title": {"type": "string"}, "rows": {"type": "array", "items": {"type": "object"}}}}, raw=True)
def generate_pdf(text):
    pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else os.devnull).write_bytes(text)  # what the tool was given
    rows = json.loads(text)["rows"]
    page = "".join("(%d %s) Tj T* " % (r["id"], r["title"]) for r in rows)
    return leafproof.Blob(("%PDF-1.4\n" + page + "\n%%EOF\n").encode(), "application/pdf")


def model(seen):
    """Stands in for a language model: it reads what was shown, and writes the next call."""
    said = [v["content"] for v in seen if "tool" in v]
    if not said:
        return "export_items", {}
    if len(said) == 1:  # "value" is a reference to the document
        return "query_json", {"source": said[0]["value"], "path": "/items", "filter": {"field": "/status", "equals": "open"}}
    if len(said) == 2:  # and here one to the rows
        return "generate_pdf", {"title": "Status report: %d open items" % said[1]["matched"], "rows": said[1]["value"]}
    return None


h.begin()
seen = [h.message("user", "Which items are open? I need them as a PDF.")]
while call := model(seen):
    seen.append(h.call("call-%d" % len(seen), *call))
    if seen[-1]["is_error"]:
        sys.exit(json.dumps(seen[-1]["content"]))
json.dump({"protocol": h.protocol, "tools": h.tools, "seen": seen}, sys.stdout, ensure_ascii=False)
