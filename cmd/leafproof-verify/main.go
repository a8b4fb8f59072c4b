// Command leafproof-verify checks a .proof bundle and nothing else: it has no
// network, no store and no database.
//
//	leafproof-verify [flags] FILE.proof
//
// It exits 0 when every fact holds, 2 when one cannot be judged, 3 when one is a
// MISMATCH or the file is no bundle, 1 when a file cannot be read or written, and
// 64 when the call's words are off.
package main

import (
	"flag"
	"fmt"
	"os"

	"leafproof/internal/verifycmd"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var o verifycmd.Options
	fs := flag.NewFlagSet("leafproof-verify", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: leafproof-verify [flags] FILE.proof")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.Policy, "policy", "", "the trust.policy that says whose word counts")
	fs.Var((*list)(&o.Keys), "key", "an ad-hoc policy: this public key, an OpenSSH line or a PEM file (may be repeated)")
	fs.StringVar(&o.Out, "o", "", "write the verified bytes to this file")
	fs.StringVar(&o.At, "at", "", "judge expiry and keys as of this RFC 3339 time")
	fs.Var((*list)(&o.RequireProven), "require-proven", "a fact that must be proven, not attested (may be repeated)")
	fs.BoolVar(&o.RequireCurrent, "require-current", false, "an expired or superseded artifact is unverifiable")
	fs.StringVar(&o.ExpectBytes, "expect-bytes", "", "the claim must be these bytes A:B")
	fs.StringVar(&o.ExpectRecords, "expect-records", "", "the claim must be these records A:B")
	fs.BoolVar(&o.Howto, "howto", false, "print how to check a bundle with other people's tools")
	fs.BoolVar(&o.JSON, "json", false, "print one JSON value")
	if err := fs.Parse(os.Args[1:]); err != nil {
		os.Exit(verifycmd.ExitUsage)
	}
	if fs.NArg() != 1 && !(o.Howto && fs.NArg() == 0) {
		fs.Usage()
		os.Exit(verifycmd.ExitUsage)
	}
	o.File = fs.Arg(0)
	code, err := verifycmd.Run(o, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "leafproof-verify: %v\n", err)
	}
	os.Exit(code)
}
