package lab

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that runs in a host.
type Process struct {
	cmd  *exec.Cmd
	once sync.Once
	err  error
}

// Wait waits for the process to end and returns what exec.Cmd.Wait does. It may be called often and from several
// goroutines. As there, reads from a StdoutPipe must be complete before.
func (p *Process) Wait() error {
	p.once.Do(func() { p.err = p.cmd.Wait() })
	return p.err
}

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills it and its process group. It does not wait.
func (p *Process) Kill() {
	if p.cmd.Process.Signal(unix.Signal(0)) == nil { // not reaped yet, so the number is still its own
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
}

// nursery starts the processes of a lab, all from one thread that lives as long as the lab: the kernel sends a process
// its parent death signal when the thread that started it ends, and the runtime may end any other thread.
type nursery struct {
	requests chan func()
	done     chan struct{}

	mu        sync.Mutex
	processes []*Process
	closed    bool
}

func newNursery() *nursery {
	n := &nursery{requests: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(n.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for request := range n.requests {
			request()
		}
	}()
	return n
}

func (n *nursery) start(in *space, cmd *exec.Cmd) (*Process, error) {
	var attr syscall.SysProcAttr
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Pdeathsig, attr.Setpgid, attr.Pgid = unix.SIGKILL, true, 0
	cmd.SysProcAttr = &attr
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Second // a grandchild that keeps a pipe open must not hang Close
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	result := make(chan error)
	n.requests <- func() { result <- in.do(cmd.Start) }
	if err := <-result; err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd}
	n.processes = append(n.processes, p)
	return p, nil
}

// close kills all processes and waits until they are gone.
func (n *nursery) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	for _, p := range n.processes {
		p.Kill()
	}
	for _, p := range n.processes {
		_ = p.Wait()
	}
	close(n.requests)
	<-n.done
}

// ErrClosed is returned by a Lab that was closed.
var ErrClosed = errors.New("lab: closed")
