package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/contender"
	"multiedge/internal/lab"
)

// child is a process of this program in a lab host.
type child struct {
	proc   *lab.Process
	in     io.WriteCloser // its standard input; nil unless it takes orders
	out    io.ReadCloser  // its standard output; nil for daemons
	stderr *Tail
	ended  chan struct{}
	err    error
}

// PinVariable tells a lab process which processors to bind itself to.
const PinVariable = contender.PinVariable

// start runs a hidden subcommand of this program in a host.
func (c *Cluster) start(host int, command, argument string) (*child, error) {
	return c.launch(host, nil, command, argument)
}

// launch is start with words put before the subcommand, and a standard input for CommandFault.
func (c *Cluster) launch(host int, before []string, command, argument string) (*child, error) {
	argv := slices.Concat(c.spec.Self, before, []string{command, argument})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	if cpus := c.CPUs(host); len(cpus) > 0 {
		list := strings.Trim(fmt.Sprint(cpus), "[]")
		// One processor, yet more than one P: the shard's thread must not keep the others from being scheduled.
		cmd.Env = append(cmd.Env, PinVariable+"="+list, "GOMAXPROCS="+strconv.Itoa(max(2, len(cpus))))
	}
	k := &child{stderr: &Tail{Limit: 16 << 10}, ended: make(chan struct{})}
	cmd.Stderr = k.stderr
	if c.spec.Log != "" {
		to := c.spec.LogTo
		if to == nil {
			to = os.Stderr
		}
		cmd.Stderr = io.MultiWriter(k.stderr, to)
	}
	if command != CommandDaemon {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer w.Close()
		k.out, cmd.Stdout = r, w
	}
	if command == CommandFault {
		r, w, err := os.Pipe()
		if err != nil {
			k.out.Close()
			return nil, err
		}
		defer r.Close()
		k.in, cmd.Stdin = w, r
	}
	var err error
	if k.proc, err = c.lab.Host(host).Start(cmd); err != nil {
		k.closePipes()
		return nil, err
	}
	go func() {
		k.err = k.proc.Wait()
		close(k.ended)
	}()
	return k, nil
}

// stop asks the process to end and makes sure that it does.
func (k *child) stop() {
	_ = k.proc.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-k.ended:
	case <-time.After(2 * time.Second):
		k.proc.Kill()
		<-k.ended
	}
	k.closePipes()
}

func (k *child) closePipes() {
	if k.in != nil {
		k.in.Close()
	}
	if k.out != nil {
		k.out.Close()
	}
}

// failure says why the process ended, in its own words if it left any.
func (k *child) failure() error {
	words := strings.TrimSpace(k.stderr.String())
	switch {
	case words != "":
		return errors.New(words)
	case k.err != nil:
		return k.err
	}
	return errors.New("ended unexpectedly")
}

// Tail keeps the last bytes written to it, Limit of them. Its methods may be called from any goroutine.
type Tail struct {
	Limit int

	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if over := t.buf.Len() - t.Limit; over > 0 {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// BindProcessors binds this process to the processors that PinVariable names, by starting the program again on a thread
// that is bound: every thread of a process inherits the binding of the one that made it, and at exec there is only one.
// It returns when there is nothing to do.
func BindProcessors() error {
	list := os.Getenv(PinVariable)
	if list == "" {
		return nil
	}
	var set unix.CPUSet
	for _, s := range strings.Fields(list) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%s: %w", PinVariable, err)
		}
		set.Set(n)
	}
	return rebind(&set)
}
