package verifycmd

import (
	"fmt"
	"io"
	"strings"

	"leafproof/manifest"
)

// A Step is one thing to check about a bundle, and shell lines that check it with
// programs that nobody here wrote. The lines of all steps are one script, for a
// shell of its own that stops at the first command which fails.
type Step struct {
	Title string
	Lines string // each ends in a newline
}

// Steps are how to check a bundle by hand. docs/VERIFY.md has the same lines, and
// a test runs them; every word of them comes from this program, none from a bundle.
//
// PROOF, KEY and TOOL are the bundle, the public key and tools/verify.py, as words
// for a shell.
func Steps(proof, key, tool string) []Step {
	return []Step{
		{"The bundle, your copy of the public key, and an empty folder to work in", `set -eu
PROOF=$(realpath -- ` + proof + `) KEY=$(realpath -- ` + key + `) TOOL=$(realpath -- ` + tool + `)
cd "$(mktemp -d)"
`},
		{"The file arrived whole (b3sum, sed)", `test "$(sed -n '1{p;q;}' "$PROOF")" = "leafproof bundle v1 $(tail -n +2 -- "$PROOF" | b3sum --no-names)"
`},
		{"Take the signed statement and its signatures out of line 2 (sed, jq)", `sed -n '2{p;q;}' "$PROOF" > header.json
jq -r .manifest.payload header.json | base64 -d > payload.json
jq -j .ssh header.json > payload.json.sig
jq -r '(.manifest.payload | @base64d | fromjson | .predicate.issuer.key_id) as $id
  | .manifest.signatures[] | select(.keyid == $id).sig' header.json | base64 -d > sig.bin
`},
		{"The key signed the statement (ssh-keygen)", `test "$(ssh-keygen -lf "$KEY" | cut -d' ' -f2)" = "$(jq -r .predicate.issuer.key_id payload.json)"
echo 'signer namespaces="` + manifest.NamespaceManifest + `"' "$(cut -d' ' -f1,2 "$KEY")" > allowed_signers
ssh-keygen -Y verify -f allowed_signers -I signer -n ` + manifest.NamespaceManifest + ` -s payload.json.sig < payload.json
`},
		{"It signed the envelope too (openssl)", `printf '\060\052\060\005\006\003\053\145\160\003\041\000' > key.der
cut -d' ' -f2 "$KEY" | base64 -d | tail -c 32 >> key.der
printf 'DSSEv1 ` + fmt.Sprint(len(manifest.PayloadType)) + ` %s %d ' ` + manifest.PayloadType + ` "$(wc -c < payload.json)" > pae.bin
cat payload.json >> pae.bin
test "$(jq -r .manifest.payloadType header.json)" = ` + manifest.PayloadType + `
openssl pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in pae.bin -sigfile sig.bin
`},
		{"The statement is a manifest, about one artifact, and the reference is its own (jq)", `jq -e '._type == "` + manifest.StatementType + `" and .predicateType == "` + manifest.PredicateManifest + `"
  and (.subject | length) == 1 and .subject[0].name == .predicate.artifact_ref.artifact_id
  and .subject[0].digest == ({blake3: .predicate.bytes.root} + .predicate.bytes.also)
  and .predicate.artifact_ref.content_hash == "blake3:" + .predicate.bytes.root' payload.json
test "$(jq -cS .ref header.json)" = "$(jq -cS .predicate.artifact_ref payload.json)"
jq .predicate.artifact_ref payload.json
`},
		{"The excerpt stands where it claims to stand (python3)", `python3 "$TOOL" --bundle payload.json -o excerpt "$PROOF"
`},
		{"A copy of the whole artifact is the artifact (b3sum), where you have one", `test ! -e "${ARTIFACT-}" || test "$(b3sum --no-names < "$ARTIFACT")" = "$(jq -r .predicate.bytes.root payload.json)"
`},
	}
}

// writeHowto prints how to check a bundle with tools that nobody here wrote.
func writeHowto(w io.Writer, file string) error {
	if file == "" {
		file = "FILE.proof"
	}
	quoted := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	var b strings.Builder
	b.WriteString(`# How to check a bundle with other people's programs; docs/VERIFY.md says more.
# manifest.pub is YOUR copy of the store's public key (its keys/manifest.pub), which
# must reach you by another way than the bundle. tools/verify.py comes with leafproof
# and needs Python alone. Run this in a shell of its own: it stops at what is wrong.
`)
	for i, s := range Steps(quoted, "manifest.pub", "tools/verify.py") {
		fmt.Fprintf(&b, "\n# %d. %s.\n%s", i, s.Title, s.Lines)
	}
	b.WriteString("\necho 'Nothing contradicts this bundle. Whether that key may speak for this is for you to say.'\n")
	_, err := io.WriteString(w, b.String())
	return err
}
