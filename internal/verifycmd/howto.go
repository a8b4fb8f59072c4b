package verifycmd

import (
	"fmt"
	"io"
	"strings"

	"leafproof/manifest"
)

// writeHowto prints how to check a bundle's signature and root with tools that
// nobody here wrote. Every word of it comes from this program, none from the bundle.
func writeHowto(w io.Writer, file string) error {
	if file == "" {
		file = "FILE.proof"
	}
	quoted := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	_, err := fmt.Fprintf(w, `# Needs jq and OpenSSH. PROOF is the bundle; KEY is YOUR copy of the store's public
# key (its keys/manifest.pub), which must reach you by another way than the bundle.
PROOF=$(realpath -- %[1]s) && KEY=$(realpath manifest.pub) && cd "$(mktemp -d)" &&

# 1. Take the signed statement and its SSH signature out of line 2.
head -n 2 -- "$PROOF" | tail -n 1 > header.json &&
jq -r .manifest.payload header.json | base64 -d > payload.json &&
jq -r .ssh header.json > payload.json.sig &&

# 2. Check the signature against the key.
echo 'store namespaces="%[2]s" '"$(cut -d' ' -f1,2 "$KEY")" > allowed_signers &&
ssh-keygen -Y verify -f allowed_signers -I store -n %[2]s -s payload.json.sig < payload.json &&

# 3. The root that the statement vouches for: what b3sum prints for the whole artifact.
jq -r .predicate.bytes.root payload.json

# These lines check who said what about which root. That the excerpt stands under that
# root takes leafproof-verify; of a bare slice, tools/verify.py checks it too.
`, quoted, manifest.NamespaceManifest)
	return err
}
