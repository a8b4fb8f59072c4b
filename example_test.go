package leafproof_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leafproof"
	"leafproof/manifest"
	"leafproof/manifest/bundle"
	"leafproof/merkle"
)

// A tool's output goes in once; a question about it is answered with what was
// searched; an excerpt is proven to somebody who has neither store nor network.
func Example() {
	ctx := context.Background()
	tmp, err := os.MkdirTemp("", "leafproof-example-*")
	check(err)
	defer os.RemoveAll(tmp)
	dir := filepath.Join(tmp, "store")

	check(leafproof.Init(ctx, dir)) // once
	s, err := leafproof.Open(ctx, dir)
	check(err)
	defer s.Close()

	output := strings.NewReader("{\"id\":1,\"status\":\"open\"}\n{\"id\":2,\"status\":\"shut\"}\n")
	draft, err := s.Put(ctx, output, leafproof.PutOptions{})
	check(err)
	ref, err := s.Publish(ctx, draft, leafproof.Facts{
		SourceID: "infra.events", ToolCallID: "call_42", Coverage: map[string]any{"region": "eu-west"},
	})
	check(err)

	answer, err := s.Query(ctx, leafproof.Owner, ref.ArtifactID, leafproof.Query{Where: `@.status == "open"`},
		func(r leafproof.Row) error {
			fmt.Printf("record %d: %s\n", r.Record, r.Bytes)
			return nil
		})
	check(err)
	fmt.Println(answer.Conclusion)

	var proof bytes.Buffer
	sel := leafproof.Selector{Records: &merkle.Range{Start: 1, End: 2}}
	_, err = s.Prove(ctx, leafproof.Owner, ref.ArtifactID, sel, &proof)
	check(err)

	// Elsewhere, with the store's public key:
	text, err := os.ReadFile(leafproof.PublicKeyPath(dir))
	check(err)
	key, err := manifest.ParsePublicKey(text)
	check(err)
	var records bytes.Buffer
	res, err := bundle.Verify(bytes.NewReader(proof.Bytes()), int64(proof.Len()), bundle.Options{
		Policy: manifest.AdHoc(key), At: time.Now(), Out: &records,
	})
	check(err)
	fmt.Printf("%s verified, exit %d: %s", res.Claim, res.Verdict.Exit(), &records)

	// Output:
	// record 0: {"id":1,"status":"open"}
	// Exactly 1 record matched in the captured coverage (region eu-west) of source infra.events (snapshot not stated, time of observation not stated) in a completed scan of 2 records; 0 undecidable. Nothing follows about anything outside that coverage, or about the source at any other time.
	// records 1:2 verified, exit 0: {"id":2,"status":"shut"}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
