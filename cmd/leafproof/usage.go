package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leafproof"
)

// exitError is an error with an exit code of its own. With err nil, all that is to
// be said has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// hinted is an error with a hint of its own.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// hintFor says what helps whoever ran cmd and got err; "" where nothing is known to.
func hintFor(cmd *cobra.Command, err error) string {
	if e, ok := errors.AsType[*hinted](err); ok {
		return e.hint
	}
	hint := leafproof.Hint(err)
	if resume := cmd.Flags().Lookup("resume"); resume != nil && errors.Is(err, context.Canceled) {
		if resume.Changed {
			return "nothing was published; the same command goes on where this one stopped"
		}
		return "nothing was published; with --resume NAME the next put would go on where this one stopped"
	}
	if as := cmd.Flags().Lookup("as"); as != nil && as.Value.String() != "" && leafproof.CodeOf(err) == leafproof.CodeRefNotFound {
		// What the owner's listings show is not what this one may see.
		return fmt.Sprintf("`leafproof grants --principal %s` lists what %[1]s was given", as.Value)
	}
	return hint
}

// nameOf is a command as it is typed, without the program's name.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// args checks the number of arguments, as a usage error. An empty one, as an unset
// variable of a script leaves behind, is none.
func args(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return usage("%s: too few arguments; usage: %s", nameOf(cmd), cmd.UseLine())
		case len(args) > 0 && cmd.HasSubCommands():
			return usage("unknown command %q for %q: there are %s", args[0], cmd.CommandPath(), subcommands(cmd))
		case high >= 0 && len(args) > high:
			return usage("%s: one argument too many: %q; usage: %s", nameOf(cmd), args[high], cmd.UseLine())
		}
		for _, a := range args {
			if a == "" {
				return usage("%s: an argument is empty; usage: %s", nameOf(cmd), cmd.UseLine())
			}
		}
		return nil
	}
}

func subcommands(cmd *cobra.Command) string {
	var there []string
	for _, c := range cmd.Commands() {
		there = append(there, c.Name())
	}
	return strings.Join(there, ", ")
}

// rootArgs refuses what is no command, and guesses which one was meant.
func rootArgs(cmd *cobra.Command, args []string) error {
	cmd.SuggestionsMinimumDistance = 2
	if len(args) == 0 {
		return nil
	}
	hint := "`leafproof help` lists the commands"
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = "did you mean `leafproof " + strings.Join(like, "` or `leafproof ") + "`? " + hint
	}
	return &exitError{exitUsage, &hinted{fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), hint}}
}

// badFlag says of a flag what is wrong with it, in no language's own terms.
func badFlag(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := bad.GetFlag()
		kind := map[string]string{
			"int": "a whole number", "int64": "a whole number", "uint": "a whole number of zero or more", "uint64": "a whole number of zero or more",
			"duration": "a duration like 10s or 5m", "bool": "true or false",
		}[flag.Value.Type()]
		switch {
		case errors.Is(err, strconv.ErrRange):
			err = fmt.Errorf("--%s: %s is too large", flag.Name, bad.GetValue())
		case kind != "":
			err = fmt.Errorf("--%s: %q is not %s", flag.Name, bad.GetValue(), kind)
		}
	}
	return &exitError{exitUsage, &hinted{fmt.Errorf("%s: %w", nameOf(cmd), err), fmt.Sprintf("`%s -h` lists its flags", cmd.CommandPath())}}
}

// completeGroups makes every command that only has others below it refuse to be run
// by itself, as a script would that lost a word.
func completeGroups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeGroups(c)
		if c.HasSubCommands() && !c.Runnable() {
			c.Args = args(0, 0)
			c.RunE = func(c *cobra.Command, _ []string) error {
				return usage("%s: a command is missing: there are %s", nameOf(c), subcommands(c))
			}
		}
	}
}

// helpCommand is cobra's, but for an exit code where there is nothing to help with.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Show what a command does, and its flags",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usage("unknown command %q for %q: there are %s", rest[0], about.CommandPath(), subcommands(about))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
