package httpapi

import (
	"leafproof"
	"leafproof/manifest"
)

// pathSchemas are the parts of a path that vary.
var pathSchemas = map[string]object{
	"id":     {"type": "string", "pattern": "^art_[a-z2-7]{32}$"},
	"copy":   {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]*$"},
	"grant":  {"type": "string", "pattern": "^gr_[a-z2-7]+$"},
	"name":   {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"},
	"upload": {"type": "string", "pattern": "^up_[a-z2-7]{26}$"},
	"run":    {"type": "string", "pattern": "^rn_[a-z2-7]{26}$"},
	"call":   {"type": "string", "pattern": "^[a-z2-7]{20}$"},
	"param":  {"type": "string", "description": "the parameter's name in hex", "pattern": "^([0-9a-f]{2})+$"},
}

var headerTexts = map[string]string{
	"Location":             "where the artifact, grant or upload is",
	noteHeader:             "what a producer should hear of what was published; may stand several times",
	"ETag":                 `"b3-" and the BLAKE3 root of the whole content in hex; absent for who may read some records alone`,
	"Accept-Ranges":        "bytes",
	"Content-Range":        "which bytes of how many (RFC 9110)",
	"Repr-Digest":          "SHA-256 of the whole content (RFC 9530), where it was computed when it was put",
	"Content-Digest":       "SHA-256 of this body (RFC 9530), where Want-Content-Digest asked for it: in a trailer above 1 MiB",
	"Content-Disposition":  "attachment: what somebody put is shown by no browser",
	"Link":                 "the signed manifest that describes it",
	answerTrailer:          "a trailer: base64 of the answer and, if asked for, the receipt, as JSON",
	uploadOffset:           "how many bytes are here: where to go on",
	uploadComplete:         "?1 once the artifact is published, else ?0",
	uploadLength:           "how many bytes it will have, if that was said",
	uploadLimit:            "what the server takes: bytes, and seconds without a touch",
	"Leafproof-Request-Id": "the name of the request in the server's log",
}

var (
	text     = object{"type": "string"}
	whole    = object{"type": "integer", "format": "int64", "minimum": 0}
	yesNo    = object{"type": "boolean"}
	pageSize = object{"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
	boolItem = object{"type": "string", "enum": []string{"?0", "?1"}}

	inTenant = param{"tenant", "query", "the owner of the store may name a tenant; for others it is their own", text}
	paging   = []param{
		{"cursor", "query", "next of the page before", object{"type": "string", "pattern": "^[0-9]+$"}},
		{"limit", "query", "how many at most", pageSize},
	}
	bodyDigest = param{"Content-Digest", "header", "sha-256=:BASE64: or sha-512, of this body (RFC 9530): another body is refused before anything is published", text}
	reprDigest = param{"Repr-Digest", "header", "sha-256=:BASE64: of the artifact's bytes (RFC 9530): others are refused", text}

	puttingParams = []param{
		bodyDigest, reprDigest,
		{factsHeader, "header", "facts as leafproof put --manifest reads them: JSON in ASCII, or base64 of JSON", text},
		{"records", "query", "the record format: auto, ndjson, json, csv, text, concat or none", text},
		{"at", "query", "of json: the JSON Pointer of the array", text},
		{"sha256", "query", "compute the SHA-256 too", yesNo},
		{"place", "query", "how to store it", object{"type": "string", "enum": []string{"auto", "whole", "chunked", "packed"}}},
		{"durability", "query", "from when on it survives a crash", object{"type": "string", "enum": []string{"durable", "batch", "cache"}}},
		{"filename", "query", "a hint at the format", text},
		{"csv_delimiter", "query", "one ASCII character", text},
		{"csv_quote", "query", "one ASCII character, or nothing", text},
		{"csv_header", "query", "the first row names the columns", yesNo},
		{"index", "query", "build an index over the values at this path of the records, a JSON Pointer or JSONPath; may stand several times", object{"type": "array", "items": text, "maxItems": manifest.MaxIndexes}},
	}
	putOperation = operation{
		tag: "artifacts", summary: "Put an artifact",
		more: "The body is the artifact, streamed: any media type, which is recorded; application/octet-stream and what curl says by default are taken for none. " +
			"A multipart/form-data body has facts, arguments and content as parts, in that order. The tenant, and the run of a principal that is bound to one, are those of who puts.",
		params: puttingParams, bodies: []string{"*", "multipart/form-data"},
		answers: []reply{{201, "the ArtifactRef: what is named by it is durable and committed", manifest.ArtifactRef{}, nil, []string{"Location", noteHeader}}},
	}
	contentOperation = operation{
		tag: "answers", summary: "The bytes of an artifact",
		more: "Each byte is verified before it is sent, and leave is asked for again under way: an answer that is cut had to end. " +
			"Range gives one range of bytes, also of the end; several must touch. Accept: application/vnd.leafproof.slice gives a bare proof of the range, " +
			"application/vnd.leafproof.bundle a .proof file with manifest and claim, application/vnd.leafproof.bao a Bao slice: whole answers of status 200.",
		params: []param{
			{"Range", "header", "bytes=a-b, a- or -n", text},
			{"If-Range", "header", "the ETag", text},
			{"If-None-Match", "header", "the ETag", text},
			{"If-Match", "header", "the ETag", text},
			{"Want-Content-Digest", "header", "sha-256=1: the digest of this body (RFC 9530)", text},
		},
		answers: []reply{
			{200, "all of it, or a proof", nil, []string{"*", mediaSlice, mediaBundle, mediaBao}, []string{"ETag", "Accept-Ranges", "Repr-Digest", "Content-Digest", "Content-Disposition", "Link"}},
			{206, "the range", nil, []string{"*"}, []string{"ETag", "Accept-Ranges", "Content-Range", "Repr-Digest", "Content-Digest", "Content-Disposition"}},
			{304, "the caller has it", nil, nil, []string{"ETag", "Accept-Ranges", "Repr-Digest"}},
		},
	}
	uploadParams = []param{
		{uploadComplete, "header", "?1: this body is the last, publish the artifact", boolItem},
		{uploadLength, "header", "how many bytes it will have", whole},
	}
)

// operations describe the routes, by their names.
var operations = map[string]operation{
	"putArtifact":  putOperation,
	"postArtifact": putOperation,
	"listArtifacts": {
		tag: "artifacts", summary: "List the artifacts of a tenant", params: append(paging[:2:2], inTenant),
		answers: []reply{{200, "those that the caller may know of, in the order in which they were published", listing{}, nil, nil}},
	},
	"getArtifact": {
		tag: "artifacts", summary: "The ArtifactRef",
		answers: []reply{{200, "the ten fields", manifest.ArtifactRef{}, nil, nil}},
	},
	"deleteArtifact": {
		tag: "artifacts", summary: "End an artifact", params: []param{
			{"reason", "query", "why; it is shown to who asks for the artifact", object{"type": "string", "maxLength": 256}},
			{"cascade", "query", "end what was derived from it too", yesNo},
		},
		answers: []reply{{204, "it is ended, and a signed tombstone says so", nil, nil, nil}},
	},
	"getManifest": {
		tag: "answers", summary: "The signed manifest", more: "A DSSE envelope and an SSH signature of the same payload.",
		answers: []reply{{200, "the manifest with its signatures", signed{}, nil, nil}},
	},
	"getContent":  contentOperation,
	"headContent": headOf(contentOperation),
	"getLineage": {
		tag: "artifacts", summary: "What it was made from, and what takes its place",
		answers: []reply{{200, "its lineage, as far as the caller may know of the others", lineage{}, nil, nil}},
	},
	"listReceipts": {
		tag: "artifacts", summary: "What was signed about it since: receipts of reads, tombstone, deletions", params: paging,
		answers: []reply{{200, "statements in the order in which they were entered", statements{}, nil, nil}},
	},
	"listCopies": {
		tag: "artifacts", summary: "What was made of it", params: paging,
		answers: []reply{{200, "the inventory of derived copies", inventory{}, nil, nil}},
	},
	"registerCopy": {
		tag: "artifacts", summary: "Enter a copy into the inventory", body: newCopy{},
		answers: []reply{{201, "the copy", leafproof.Copy{}, nil, nil}},
	},
	"updateCopy": {
		tag: "artifacts", summary: "Say what became of a copy", body: changedCopy{},
		answers: []reply{{200, "the copy", leafproof.Copy{}, nil, nil}},
	},
	"readArtifact": {
		tag: "answers", summary: "Read a part: bytes, records or the value at a pointer",
		more:    "As JSON up to 1 MiB; with Accept: application/octet-stream as it stands, of any size, and the answer in a trailer.",
		body:    asked{},
		answers: []reply{{200, "the part, and what the answer rests on", part{}, []string{"application/octet-stream"}, []string{answerTrailer}}},
	},
	"queryArtifact": {
		tag: "answers", summary: "Filter the records",
		more: "As JSON one page: at most 10,000 rows and 1 MiB of records unless more is asked for, with a cursor to go on. With Accept: application/x-ndjson " +
			"a line for each row as it is found, and a last line {\"answer\":…}, with \"error\" where the scan did not reach its end; a body without that line was cut.",
		body: question{},
		answers: []reply{
			{200, "the rows, and what was examined", page{}, []string{mediaNDJSON}, nil},
			{206, "the scan was interrupted: the rows until then, what was examined, and why it ended", page{}, nil, nil},
		},
	},
	"proveArtifact": {
		tag: "answers", summary: "A proof of a part, or of the answer to a query, which verifies offline", body: provable{},
		more:    "That no record is missing in an answer is proven by an index of the artifact: without one that fits, it is selector_invalid.",
		answers: []reply{{200, "a .proof file", nil, []string{mediaBundle}, nil}},
	},
	"deriveArtifact": {
		tag: "answers", summary: "Make an artifact of some of the records", body: derivation{},
		answers: []reply{{201, "the new artifact", derived{}, nil, []string{"Location"}}},
	},
	"assessArtifact": {
		tag: "answers", summary: "Whether it serves as evidence", body: need{},
		answers: []reply{{200, "three verdicts and a decision", leafproof.Assessment{}, nil, nil}},
	},
	"listGrants": {
		tag: "leave", summary: "List grants", params: []param{{"principal", "query", "whose; the owner sees all, others their own", text}},
		answers: []reply{{200, "grants in the order in which they were given", grantList{}, nil, nil}},
	},
	"giveGrant": {
		tag: "leave", summary: "Give leave", body: newGrant{},
		answers: []reply{{201, "the grant", leafproof.Grant{}, nil, []string{"Location"}}},
	},
	"revokeGrant": {
		tag: "leave", summary: "Take leave back", more: "When this is answered, nothing is shown under it any more.",
		answers: []reply{{204, "it is revoked, with what rests on it", nil, nil, nil}},
	},
	"getName": {
		tag: "names", summary: "What a name points to", params: []param{{"seq", "query", "a version; the last if absent", whole}, inTenant},
		answers: []reply{{200, "the version", leafproof.NameVersion{}, nil, nil}},
	},
	"setName": {
		tag: "names", summary: "Let a name point to an artifact", body: newName{},
		answers: []reply{{200, "the new version", leafproof.NameVersion{}, nil, nil}},
	},
	"beginUpload": {
		tag: "uploads", summary: "Begin an upload", params: append(uploadParams[:2:2], puttingParams...), bodies: []string{"*"},
		more:    "draft-ietf-httpbis-resumable-upload. The body, if there is one, has the first bytes. Its media type, unless application/partial-upload, is the artifact's.",
		answers: []reply{{201, "the upload; with Upload-Complete: ?1 the ArtifactRef", beginning{}, nil, []string{"Location", noteHeader, uploadOffset, uploadComplete, uploadLimit}}},
	},
	"getUpload": {
		tag: "uploads", summary: "How far an upload came",
		answers: []reply{{200, "its state", uploadState{}, nil, []string{"Location", uploadOffset, uploadComplete, uploadLength, uploadLimit}}},
	},
	"headUpload": {
		tag: "uploads", summary: "How far an upload came",
		answers: []reply{{204, "its state, in headers", nil, nil, []string{"Location", uploadOffset, uploadComplete, uploadLength, uploadLimit}}},
	},
	"appendUpload": {
		tag: "uploads", summary: "Go on with an upload", bodies: []string{mediaPartial},
		params: append(uploadParams[:2:2], param{uploadOffset, "header", "where the body begins", whole}, bodyDigest, reprDigest),
		answers: []reply{
			{204, "it is kept", nil, nil, []string{uploadOffset, uploadComplete}},
			{201, "with Upload-Complete: ?1, the ArtifactRef", manifest.ArtifactRef{}, nil, []string{"Location", uploadOffset, uploadComplete, noteHeader}},
			{200, "it was complete already, and the caller may not know of the artifact", uploadState{}, nil, []string{"Location", uploadComplete}},
		},
	},
	"endUpload": {
		tag: "uploads", summary: "Give an upload up",
		answers: []reply{{204, "it is gone", nil, nil, nil}},
	},
	"beginRun": {
		tag: "runs", summary: "Begin a run: one agent's conversation with its model", body: newRun{},
		more:    "The run, with all that its model was shown, is kept: a reference means the same after a restart. It belongs to the principal that began it.",
		answers: []reply{{201, "the run, the paragraph for the system prompt, and the tools as the model is shown them", runState{}, nil, []string{"Location"}}},
	},
	"getRun": {
		tag: "runs", summary: "A run",
		answers: []reply{{200, "the run and its tools", runState{}, nil, nil}},
	},
	"setTools": {
		tag: "runs", summary: "Say which tools there are, and get their schemas as the model is shown them", body: toolSet{},
		more:    "In place of those that the run had. The same tools give the same bytes each time. Findings say what the provider has against a schema as its author wrote it.",
		answers: []reply{{200, "the run and its tools", runState{}, nil, nil}},
	},
	"callTool": {
		tag: "runs", summary: "Take a call of the model's", body: toolCall{},
		more: "References in the input become values, the value is held against the tool's own schema, and what it rests on against what the tool demands. " +
			"read_json, query_json, read_text, read_records and stat run here. Where the tool must not run, the problem has result, which the model reads.",
		answers: []reply{{200, "the input to run the tool with, or what the model reads", toolCalled{}, nil, nil}},
	},
	"readLazy": {
		tag: "runs", summary: "The value of a parameter that the tool reads by itself",
		answers: []reply{{200, "its bytes", nil, []string{"*"}, nil}},
	},
	"recordResult": {
		tag: "runs", summary: "Record what came of a call, and get what the model reads of it", body: toolResult{}, bodies: []string{"*"},
		more: "JSON, with blobs at their places; or, with call or tool in the query, a blob itself of any length; or multipart/form-data: the JSON as the part result, then a blob as a part " +
			"that is named by the JSON Pointer of its place. Every blob is stored and replaced by a reference. Where the store does not take it, nothing of it is in the problem, whose result the model reads and whose result.retry names it.",
		params: []param{
			{"call", "query", "the call, as /calls named it", text},
			{"call_id", "query", "the call's id, as the provider gave it", text},
			{"tool", "query", "the tool", text},
			{"records", "query", "the record format of the blob", text},
			{"filename", "query", "a hint at it", text},
			{factsHeader, "header", "facts of the blob", text},
			bodyDigest,
		},
		answers: []reply{{201, "what the model reads", toolView{}, nil, nil}},
	},
	"retryResult": {
		tag: "runs", summary: "Store a result that could not be stored when it came", body: retrying{},
		answers: []reply{{201, "what the model reads", toolView{}, nil, nil}},
	},
	"recordMessage": {
		tag: "runs", summary: "Record what no tool made", body: runMessage{},
		answers: []reply{{201, "what the model reads", toolView{}, nil, nil}},
	},
	"checkReferences": {
		tag: "runs", summary: "Which references of the run are alive", more: "Every byte behind them is read and verified.",
		answers: []reply{{200, "one for each", checkedRefs{}, nil, nil}},
	},
	"listAdmissions": {
		tag: "runs", summary: "What of the answers in a message the model was given",
		params:  []param{{"seq", "query", "the message", whole}},
		answers: []reply{{200, "one for each answer", admitted{}, nil, nil}},
	},
	"live": {
		tag: "server", summary: "Whether the process answers",
		answers: []reply{{200, "it does", health{}, nil, nil}},
	},
	"ready": {
		tag: "server", summary: "Whether requests should come here",
		answers: []reply{{200, "they should", health{}, nil, nil}, {503, "they should not", health{}, nil, nil}},
	},
	"metrics": {
		tag: "server", summary: "Counts, as Prometheus reads them", more: "For the owner of the store, unless the server was told otherwise.",
		answers: []reply{{200, "text", nil, []string{"text/plain"}, nil}},
	},
	"openapi": {
		tag: "server", summary: "This description",
		answers: []reply{{200, "OpenAPI 3.1", nil, []string{"application/json"}, nil}},
	},
}

// headOf is an operation without its bodies.
func headOf(op operation) operation {
	op.summary += ", without them"
	out := op
	out.answers = nil
	for _, a := range op.answers {
		if a.status != 206 { // Range is for GET
			a.media = nil
			out.answers = append(out.answers, a)
		}
	}
	return out
}
