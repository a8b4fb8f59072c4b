// Package leafproof holds its dependencies until the door is built.
package leafproof
import (
 _ "filippo.io/edwards25519"
 _ "github.com/go-json-experiment/json"
 _ "github.com/gowebpki/jcs"
 _ "github.com/hashicorp/golang-lru/v2"
 _ "github.com/ipfs/go-cid"
 _ "github.com/mattn/go-isatty"
 _ "github.com/multiformats/go-multihash"
 _ "github.com/rogpeppe/go-internal/testscript"
 _ "github.com/secure-systems-lab/go-securesystemslib/dsse"
 _ "github.com/spf13/afero"
 _ "github.com/spf13/cobra"
 _ "github.com/zeebo/blake3"
 _ "golang.org/x/crypto/ssh"
 _ "golang.org/x/sys/unix"
 _ "lukechampine.com/blake3/guts"
 _ "modernc.org/sqlite"
)
