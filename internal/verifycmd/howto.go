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
	_, err := fmt.Fprintf(w, `# 1. Take the signed statement and its SSH signature out of line 2 (needs jq).
head -n 2 -- %[1]s | tail -n 1 > header.json
jq -r .manifest.payload header.json | base64 -d > payload.json
jq -r .ssh header.json > payload.json.sig

# 2. Check the signature with OpenSSH, against the key that YOU hold of the store:
#    its keys/manifest.pub, which must reach you by another way than the bundle.
echo 'store namespaces="%[2]s" '"$(cut -d' ' -f1,2 manifest.pub)" > allowed_signers
ssh-keygen -Y verify -f allowed_signers -I store -n %[2]s -s payload.json.sig < payload.json

# 3. The root that the statement vouches for is what b3sum prints for the whole artifact.
jq -r .predicate.bytes.root payload.json

# 4. The excerpt itself: 'leafproof-verify', or a slice file and tools/verify.py.
`, quoted, manifest.NamespaceManifest)
	return err
}
