package bench

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// CommandFault is the hidden subcommand of edgebench that is one process of a fault scenario: its argument is a
// faults.Job in JSON, and it takes orders on its standard input.
const CommandFault = "lab-fault"

// CommandConfined is the hidden subcommand that runs the rest of its command line without CAP_IPC_LOCK under a limit of
// locked memory, its first argument, in bytes.
const CommandConfined = "lab-confined"

// CommandGrouped is the hidden subcommand that runs the rest of its command line in the control group in whose
// directory, its first argument, cgroup.procs is.
const CommandGrouped = "lab-grouped"

// Process is a process of this program in a lab host, for runs that do to processes what benchmarks do not. Its methods
// may be called from any goroutine.
type Process struct{ k *child }

// Spawn starts a hidden subcommand in a host. CommandFault has pipes as standard input and output.
func (c *Cluster) Spawn(host int, command, argument string) (*Process, error) {
	k, err := c.start(host, command, argument)
	if err != nil {
		return nil, err
	}
	return &Process{k}, nil
}

// Dir is a directory of the cluster's own, which Close removes.
func (c *Cluster) Dir() string { return c.dir }

// Daemon returns the present daemon of a host.
func (c *Cluster) Daemon(host int) *Process { return &Process{c.daemons[host]} }

// StartDaemon starts a host's daemon again after the one before has ended, and returns when it serves clients.
func (c *Cluster) StartDaemon(ctx context.Context, host int) error {
	if !c.Daemon(host).HasEnded() {
		return errors.New("bench: the host's daemon still runs: end it first")
	}
	d, err := c.start(host, CommandDaemon, c.Config(host))
	if err != nil {
		return err
	}
	c.daemons[host] = d
	return c.waitReady(ctx, host)
}

// ConfineDaemon replaces a host's daemon by one that CommandConfined or CommandGrouped, with its first argument,
// starts.
func (c *Cluster) ConfineDaemon(ctx context.Context, host int, command, argument string) error {
	c.daemons[host].stop()
	d, err := c.launch(host, []string{command, argument}, CommandDaemon, c.Config(host))
	if err != nil {
		return err
	}
	c.daemons[host] = d
	return c.waitReady(ctx, host)
}

// Pid is its process id.
func (p *Process) Pid() int { return p.k.proc.Pid() }

// In is its standard input and Out its standard output; nil where it has none. Stop closes them.
func (p *Process) In() io.Writer { return p.k.in }

// Out is its standard output.
func (p *Process) Out() io.Reader { return p.k.out }

// Words is the end of what it wrote to standard error.
func (p *Process) Words() string { return p.k.stderr.String() }

// Ended is closed when it is gone.
func (p *Process) Ended() <-chan struct{} { return p.k.ended }

// HasEnded reports whether it is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.k.ended:
		return true
	default:
		return false
	}
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.k.proc.Signal(s) }

// Kill ends it with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	p.k.proc.Kill()
	<-p.k.ended
}

// Stop asks it to end, and makes sure that it does.
func (p *Process) Stop() { p.k.stop() }
