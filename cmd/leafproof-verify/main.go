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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"leafproof/internal/verifycmd"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "leafproof-verify: %v\n", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	var o verifycmd.Options
	var policies list
	fs := flag.NewFlagSet("leafproof-verify", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are one line, of our own
	fs.Var(&policies, "policy", "the trust.policy `FILE` that says whose word counts (default: that of $LEAFPROOF_STORE)")
	fs.Var((*list)(&o.Keys), "key", "an ad-hoc policy: this public key `FILE`, an OpenSSH line or PEM (may be repeated)")
	fs.StringVar(&o.Out, "o", "", "write the verified bytes to this `FILE`")
	fs.StringVar(&o.At, "at", "", "judge expiry and keys as of this RFC 3339 `TIME`")
	fs.Var((*list)(&o.RequireProven), "require-proven", "a `FACT` that must be proven, not attested (may be repeated)")
	fs.BoolVar(&o.RequireCurrent, "require-current", false, "an expired or superseded artifact is unverifiable")
	fs.StringVar(&o.ExpectArtifact, "expect-artifact", "", "the bundle must be about the artifact with this `ID`")
	fs.StringVar(&o.ExpectBytes, "expect-bytes", "", "the claim must be these bytes `A:B`")
	fs.StringVar(&o.ExpectRecords, "expect-records", "", "the claim must be these records `A:B`")
	fs.StringVar(&o.ExpectWhere, "expect-where", "", "the claim must be the answer to this condition `EXPR`")
	fs.Int64Var(&o.ExpectLimit, "expect-limit", 0, "with --expect-where: cut at this many records `N` (default: not cut)")
	fs.Var((*list)(&o.ExpectOrder), "expect-order", "with --expect-where: in the order of the value at `P`, or P:desc (may be repeated)")
	fs.BoolVar(&o.ExpectCount, "expect-count", false, "with --expect-where: only how many records match (default: the records)")
	fs.StringVar(&o.RebuildIndex, "rebuild-index", "", "build the index again from this `FILE` with the artifact's bytes, and compare")
	fs.Func("expect-pointer", "the claim must be the value at this JSON `POINTER`", func(s string) error { o.ExpectPointer = &s; return nil })
	fs.Var((*list)(&o.Later), "later", "a `FILE` with a signed statement (supersede or tombstone) that came to you later (may be repeated)")
	fs.StringVar(&o.Checkpoints, "checkpoints", "", "remember the highest checkpoint of each log in this `FILE`, and demand consistency with it")
	fs.StringVar(&o.Log, "log", "", "show consistency by the exported log in this `DIR`")
	fs.BoolVar(&o.Howto, "howto", false, "print how to check a bundle with other people's tools")
	fs.BoolVar(&o.JSON, "json", false, "print one JSON value")
	files, err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("usage: leafproof-verify [flags] FILE.proof")
		fs.SetOutput(os.Stdout)
		fs.PrintDefaults()
		return verifycmd.ExitOK, nil
	case err != nil:
		return verifycmd.ExitUsage, err
	case len(files) > 1 || len(files) == 0 && !o.Howto:
		return verifycmd.ExitUsage, fmt.Errorf("%d files are given, one is verified; usage: leafproof-verify [flags] FILE.proof", len(files))
	case len(policies) > 1:
		return verifycmd.ExitUsage, errors.New("--policy is given twice")
	}
	if len(policies) == 1 {
		o.Policy = policies[0]
	}
	var given []string
	fs.Visit(func(f *flag.Flag) { given = append(given, f.Name) })
	if err := o.Given(given...); err != nil {
		return verifycmd.ExitUsage, err
	}
	if dir := os.Getenv("LEAFPROOF_STORE"); dir != "" {
		o.DefaultPolicy = filepath.Join(dir, "trust.policy")
	}
	if len(files) == 1 {
		o.File = files[0]
	}
	return verifycmd.Run(o, os.Stdout, os.Stderr)
}

// parse reads flags in front of the file and behind it, as leafproof verify does,
// and returns what is no flag. Behind -- nothing is one.
func parse(fs *flag.FlagSet, args []string) (files []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		rest := fs.Args()
		if ended := len(args) > len(rest) && args[len(args)-len(rest)-1] == "--"; ended || len(rest) == 0 {
			return append(files, rest...), nil
		}
		files, args = append(files, rest[0]), rest[1:]
	}
}
