package kit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"multiedge/internal/lab"
)

// Process is a process of this program in a lab host. Its methods may be called from any goroutine.
type Process struct {
	Events <-chan Event // what it reports, closed when it ends; nil of a daemon

	proc   *lab.Process
	in     io.WriteCloser // its standard input and output; nil of a daemon
	out    io.ReadCloser
	stderr *Tail
	ended  chan struct{}
	err    error
}

// pinVariable tells a process which processors to bind itself to, before it does anything else.
const pinVariable = "EDGEBENCH_CPUS"

// Pinned is the environment of a process of this program that binds itself to processors first.
func Pinned(cpus []int) string { return pinVariable + "=" + strings.Trim(fmt.Sprint(cpus), "[]") }

// launch runs this program in a host with those arguments, and with pipes if it talks.
func (c *Cluster) launch(host int, talks bool, arguments ...string) *Process {
	argv := slices.Concat(c.spec.Self, arguments)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	if cpus := c.CPUs(host); len(cpus) > 0 {
		// One processor, yet more than one P: the shard's thread must not keep the others from being scheduled.
		cmd.Env = append(cmd.Env, Pinned(cpus), "GOMAXPROCS="+strconv.Itoa(max(2, len(cpus))))
	}
	p := &Process{stderr: &Tail{Limit: 16 << 10}, ended: make(chan struct{})}
	cmd.Stderr = p.stderr
	if c.spec.Log != "" {
		to := c.spec.LogTo
		if to == nil {
			to = os.Stderr
		}
		cmd.Stderr = io.MultiWriter(p.stderr, to)
	}
	if talks {
		p.in = Get(cmd.StdinPipe())
		out, stdout := Get2(os.Pipe()) // not that of cmd, which is closed when the process ends, read or not
		defer stdout.Close()
		p.out, cmd.Stdout = out, stdout
	}
	var err error
	if p.proc, err = c.lab.Host(host).Start(cmd); err != nil {
		p.closePipes()
		Check(err)
	}
	go func() {
		p.err = p.proc.Wait()
		close(p.ended)
	}()
	return p
}

func (p *Process) closePipes() {
	if p.in != nil {
		p.in.Close()
	}
	if p.out != nil {
		p.out.Close()
	}
}

// Failure waits for the end of the process and says why it ended, in its own words if it left any.
func (p *Process) Failure() error {
	<-p.ended
	switch words := strings.TrimSpace(p.Words()); {
	case words != "":
		return errors.New(words)
	case p.err != nil:
		return p.err
	}
	return errors.New("ended unexpectedly")
}

// Ends waits for the end of the process and says how it ended; nil: well.
func (p *Process) Ends() error {
	<-p.ended
	return p.err
}

// Err is how the process ended; nil: well. It must have ended.
func (p *Process) Err() error { return p.err }

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

// bindProcessors binds this process to the processors that pinVariable names, by starting the program again on a thread
// that is bound: every thread of a process inherits the binding of the one that made it, and at exec there is only one.
// It returns when there is nothing to do.
func bindProcessors() error {
	list := os.Getenv(pinVariable)
	if list == "" {
		return nil
	}
	var set unix.CPUSet
	for _, s := range strings.Fields(list) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%s: %w", pinVariable, err)
		}
		set.Set(n)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding to processors %s: %w", list, err)
	}
	if err := os.Unsetenv(pinVariable); err != nil {
		return err
	}
	return again(os.Args[1:])
}
