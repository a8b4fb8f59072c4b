// Check the signed statement in a bundle with sigstore's own verifier:
//
//   node verify.mjs FILE.proof KEY.pub
//
// KEY.pub is the public key, one OpenSSH line. The envelope is put into a sigstore
// bundle (v0.3) as it stands; no log and no timestamp is asked for. It exits 0 when
// the verifier accepts the signature, 1 when it refuses, with its reason.
//
// It needs the packages of package.json: copy this folder and run `npm ci` in it.

import { createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { bundleFromJSON } from "@sigstore/bundle";
import { Verifier, toSignedEntity } from "@sigstore/verify";

const [file, keyFile] = process.argv.slice(2);
const bytes = readFileSync(file);
const first = bytes.indexOf("\n") + 1;
const envelope = JSON.parse(bytes.subarray(first, bytes.indexOf("\n", first))).manifest;

const blob = Buffer.from(readFileSync(keyFile, "utf8").split(" ")[1], "base64"); // ends in the 32 bytes of the key
const der = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), blob.subarray(-32)]);
const publicKey = createPublicKey({ key: der, format: "der", type: "spki" });

const issuer = JSON.parse(Buffer.from(envelope.payload, "base64")).predicate.issuer.key_id;
const bundle = bundleFromJSON({
  mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
  verificationMaterial: { publicKey: { hint: issuer }, tlogEntries: [], timestampVerificationData: { rfc3161Timestamps: [] } },
  dsseEnvelope: { ...envelope, signatures: envelope.signatures.filter((s) => s.keyid === issuer) },
});
const trust = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [], publicKey: () => ({ publicKey, validFor: () => true }) };
try {
  new Verifier(trust, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0, tsaThreshold: 0 }).verify(toSignedEntity(bundle));
} catch (e) {
  console.error(`refused: ${e.code ?? ""} ${e.message}`);
  process.exit(1);
}
console.log("accepted");
