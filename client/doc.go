// Package client asks a Leafproof server over HTTP, and trusts nothing that it says.
//
// An artifact's id follows from the signed facts, the root of its bytes among them.
// So whoever has an id has what the bytes must be: [Client.Open] checks that the
// manifest that comes is the one that the id was made from, and everything that is
// read through the [Artifact] it returns is verified against that root before it is
// handed on: streams and ranges as they come, by the proof that comes with them;
// records, values and proven answers by a bundle. Where a principal may have the
// bytes and no proofs, the content is kept aside until its last byte has come and the
// hash of all is right.
//
// # What is verified, and what is not
//
// Bytes, lengths and places are proven. Who captured them, from where and how
// completely is somebody's signed word, and counts as far as [Options].Policy lets
// the key speak; without a policy no signature can be judged, and
// [Artifact.Verdict] says so. Which records match a query is the server's word
// unless [Question].Prove is set: then a proof over a signed index shows that none is
// missing. Grants, names, listings and assessments are the server's word.
//
// What comes is bounded before it is kept: headers, JSON, manifests, rows. A
// redirect is never followed, a retry is made only where the server says that it may
// help or the connection broke, and only of what can be asked twice.
package client
