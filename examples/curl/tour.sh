#!/bin/sh
# A tour of the store over HTTP, with curl and jq: a throw-away server on a unix
# socket, whose token is printed once.
set -eu

work=$(mktemp -d)
leafproof serve --ephemeral --quiet --json >"$work/started" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
until [ -s "$work/started" ]; do sleep 0.1; done
socket=$(jq -r .socket "$work/started")
export TOKEN="$(jq -r .token "$work/started")"

# The token goes by a file of headers: a command line is there for all to read.
printf 'Authorization: Bearer %s\n' "$TOKEN" >"$work/auth"
api() { path=$1; shift; curl -sS --fail-with-body --unix-socket "$socket" -H @"$work/auth" "http://localhost$path" "$@"; }

echo "# Put: the bytes as they are, facts in a header. The answer is the ArtifactRef."
printf '{"id":1,"status":"open"}\n{"id":2,"status":"shut"}\n{"id":3,"status":"open"}\n' >"$work/tickets.ndjson"
api /v1/artifacts -T "$work/tickets.ndjson" -H 'Content-Type: application/x-ndjson' \
	-H 'Leafproof-Manifest: {"artifact_ref":{"completeness":{"coverage":{"queue":"support"}}}}' >"$work/ref"
id=$(jq -r .artifact_id "$work/ref")
jq -r '.artifact_id, .content_hash' "$work/ref"

echo "# Read: a range, and nothing where nothing changed."
api "/v1/artifacts/$id/content" -r 0-24
etag=$(api "/v1/artifacts/$id/content" -I | sed -n 's/^[Ee][Tt]ag: \(.*\)\r$/\1/p')
api "/v1/artifacts/$id/content" -H "If-None-Match: $etag" -o /dev/null -w '%{http_code}\n'

echo "# Query: rows, and what was examined."
api "/v1/artifacts/$id/query" --json '{"where":"@.status == \"open\"","select":["/id"]}' >"$work/page"
jq -c '[.rows[].selected[0][0].value]' "$work/page"
jq -r .answer.conclusion "$work/page"

echo "# Prove: a file that verifies offline, with no store and no network."
api "/v1/artifacts/$id/prove" --json '{"records":[2,3]}' -o "$work/excerpt.proof"
leafproof verify "$work/excerpt.proof" --policy "$(dirname "$socket")/store/trust.policy" | tail -n 1

echo "# A large file: in parts, going on where it was cut."
head -c 3000000 /dev/urandom >"$work/large"
upload=$(api /v1/uploads -X POST -H 'Upload-Complete: ?0' -D - -o /dev/null | sed -n 's/^[Ll]ocation: \(.*\)\r$/\1/p')
head -c 1000000 "$work/large" | api "$upload" -X PATCH -H 'Upload-Offset: 0' -H 'Content-Type: application/partial-upload' --data-binary @-
offset=$(api "$upload" -I | sed -n 's/^[Uu]pload-[Oo]ffset: \(.*\)\r$/\1/p')
tail -c "+$((offset + 1))" "$work/large" | api "$upload" -X PATCH -H "Upload-Offset: $offset" -H 'Upload-Complete: ?1' \
	-H 'Content-Type: application/partial-upload' --data-binary @- | jq -r .content_hash
echo "blake3:$(leafproof sum "$work/large" | cut -d' ' -f1)"

echo "# An error: what, why, and what to do about it."
api /v1/artifacts/art_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa || true
