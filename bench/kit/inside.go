package kit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"multiedge/internal/lab"
)

// Hidden subcommands that a Cluster starts in its hosts.
const (
	commandDaemon  = "lab-daemon"  // CONFIG: a daemon; its configuration in TOML
	commandProcess = "lab-process" // ROLE JOB: a role (AddRole); its job in JSON
	// CommandConfined (BYTES ARGV...) runs the rest of its command line without CAP_IPC_LOCK, with at most so many
	// bytes of locked memory.
	CommandConfined = "lab-confined"
	// CommandGrouped (DIR ARGV...) runs the rest of its command line in the control group of that directory.
	CommandGrouped = "lab-grouped"
)

// command is a hidden subcommand with at least so many arguments.
type command struct {
	arguments int
	run       func(ctx context.Context, args []string) error
}

var commands = map[string]command{
	commandDaemon:   {1, func(ctx context.Context, args []string) error { return runDaemon(ctx, args[0]) }},
	commandProcess:  {2, func(ctx context.Context, args []string) error { return runRole(ctx, args[0], args[1]) }},
	CommandConfined: {2, func(_ context.Context, args []string) error { return confine(args[0], args[1:]) }},
	CommandGrouped:  {2, func(_ context.Context, args []string) error { return group(args[0], args[1:]) }},
}

// AddCommand adds a hidden subcommand with at least so many arguments. Packages call it when they are initialised.
func AddCommand(name string, arguments int, run func(ctx context.Context, args []string) error) {
	commands[name] = command{arguments, run}
}

// Inside binds this process to its host's processors. If the arguments of the process name a hidden subcommand, Inside
// runs it and returns the status with which the process shall exit.
func Inside() (status int, inside bool) {
	err := bindProcessors()
	if err == nil {
		if len(os.Args) < 2 {
			return 0, false
		}
		c, hidden := commands[os.Args[1]]
		if !hidden || len(os.Args)-2 < c.arguments {
			return 0, false
		}
		ctx, stop := Interruptible()
		defer stop()
		err = c.run(ctx, os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// Interruptible returns a context that ends when a person or the machine ends this program.
func Interruptible() (context.Context, context.CancelFunc) {
	endings := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		endings = append(endings, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), endings...)
}

// Tests runs the tests of a package that makes clusters, and ends the process: TestMain calls it with (*testing.M).Run.
func Tests(run func() int) {
	if status, inside := Inside(); inside {
		os.Exit(status)
	}
	if err := lab.EnsurePrivileges(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run())
}
