// Package cli is what the command lines of edgebench, edgefault and edgestudy have in common: how a program runs and
// ends, flags that describe transports and labs, and what is said of where results come from.
package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"multiedge/bench/kit"
	"multiedge/bench/machine"
	"multiedge/bench/report"
	"multiedge/internal/buildinfo"
	"multiedge/internal/clidoc"
	"multiedge/sched"
)

// Flags are those of every program.
type Flags struct {
	Version kong.VersionFlag `help:"Print the version and exit."`

	clidoc.Flags
}

// Program is one of the programs.
type Program struct {
	Name, Description, Version string
	Variables                  map[string]string // that help texts refer to, besides those of all programs
	// Rewrite replaces arguments that other programs take, and returns notes for the user; nil: none.
	Rewrite func(args []string) (kept, notes []string, err error)
}

// program is the one that runs.
var program Program

// Main runs a program with the arguments of this process and returns its exit status. commands is a struct whose fields
// are the program's commands, as package kong has it; their Run methods may take a context.Context, which ends when the
// program is interrupted. In a host of a lab it runs what kit.Inside runs instead.
func Main(commands any, p Program) int {
	program = p
	if status, inside := kit.Inside(); inside {
		return status
	}
	vars := kong.Vars{"version": p.Version, "sizes": "64k; ping-pong and rate 8", "regions": "256m",
		"formats": strings.Join(report.Formats, ","), "schedulers": strings.Join(sched.Names(), ", ")}
	maps.Copy(vars, p.Variables)
	parser := kong.Must(commands, kong.Name(p.Name), kong.Description(p.Description), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), vars)
	if clidoc.Complete(parser) {
		return 0
	}
	args, notes := os.Args[1:], []string(nil)
	if p.Rewrite != nil {
		var err error
		if args, notes, err = p.Rewrite(args); err != nil {
			return usageError(err)
		}
	}
	kctx, err := parser.Parse(args)
	if err == nil {
		err = misplaced(kctx)
	}
	if err != nil {
		return usageError(err)
	}
	for _, n := range notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	ctx, stop := kit.Interruptible()
	defer stop()
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted; %s\n", p.Name, whatElse(err))
		return 130
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
	return 1
}

// whatElse says how it stands after an interruption that ended with err: data that arrived wrong before is no less
// wrong.
func whatElse(err error) string {
	if rest := besideCancel(err); rest != nil {
		return rest.Error()
	}
	return "everything that was set up is removed"
}

// besideCancel leaves out of joined errors those that say no more than that the context has ended.
func besideCancel(err error) (rest error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	for _, e := range joined.Unwrap() {
		rest = errors.Join(rest, besideCancel(e))
	}
	return rest
}

// usageError explains a command line that makes no sense.
func usageError(err error) int {
	fmt.Fprintf(os.Stderr, "%[1]s: %[2]v\nRun \"%[1]s --help\" or \"%[1]s COMMAND --help\".\n", program.Name, err)
	return 2
}

// Head says where results come from.
func Head() report.Head {
	return report.Head{Created: time.Now().UTC().Truncate(time.Second),
		Command: append([]string{program.Name}, os.Args[1:]...), Machine: machine.This(),
		Build: report.Build{Version: program.Version, Commit: buildinfo.Revision()}}
}

// The machine card of a result's head measures hand-overs with a second process: this program again.
func init() {
	kit.AddCommand(machine.CommandPeer, 2, func(_ context.Context, args []string) error {
		way, err := strconv.Atoi(args[0])
		core, err2 := strconv.Atoi(args[1])
		if err != nil || err2 != nil {
			return fmt.Errorf("%s: want two numbers, a way and a core", machine.CommandPeer)
		}
		return machine.Peer(way, core)
	})
}
