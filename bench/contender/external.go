package contender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// All returns every contender this program knows. TCP by itself and as iperf3 drives it is there for each of overs,
// what runs above TCP for the first of them. There is one at least.
func All(overs []Over) []Contender {
	all := []Contender{Raw{Kind: linkdrv.KindMmsg}}
	for _, kind := range []string{linkdrv.KindRing, linkdrv.KindUDP, linkdrv.KindIP} {
		all = append(all, Raw{Kind: kind}, Raw{Kind: kind, Sealed: true}, Raw{Kind: kind, Sealed: true, Stdlib: true})
	}
	for _, o := range overs {
		all = append(all, TCP{o})
	}
	for _, o := range overs {
		all = append(all, Iperf3{o})
	}
	o := overs[0]
	return append(all, TLS{o}, KTLS{o}, UCX{o}, Libfabric{"tcp", o}, Libfabric{Provider: "udp"})
}

// missing returns how to get a program that is not in the path, or "".
func missing(program, packages string) string {
	if _, err := exec.LookPath(program); err == nil {
		return ""
	}
	return fmt.Sprintf("%s is not installed and is left out: %s", program, packages)
}

// external is a foreign benchmark that consists of a server and a client program.
type external struct {
	server, client []string
	env            []string
	port           int // the server listens here; 0: just wait a moment
}

// grace is how long a client may take beyond the duration of a job.
const grace = 15 * time.Second

// run runs both programs in a job's hosts and returns what the client wrote and what the two used.
func (x *external) run(ctx context.Context, j *Job) (string, report.CPU) {
	ctx, cancel := context.WithTimeout(ctx, j.Duration+grace)
	defer cancel()
	server := startIn(j, 1, x.server, x.env, nil)
	defer server.end()
	kit.Doing(func() { x.listening(ctx, j) }, "%s", x.server[0])
	var out bytes.Buffer
	client := startIn(j, 0, x.client, x.env, &out)
	defer client.end()
	select {
	case <-client.done:
	case <-ctx.Done():
		kit.Fail("%s: %w", x.client[0], ctx.Err())
	}
	if client.err != nil {
		kit.Fail("%s: %w: %s", x.client[0], client.err,
			lastLine(client.errs.String()+out.String()))
	}
	server.end()
	return out.String(), report.Ends(client.used(), server.used())
}

// listening waits until the server accepts connections, by looking whether its port is taken.
func (x *external) listening(ctx context.Context, j *Job) {
	for !taken(j.Hosts[1], x.port) {
		kit.Doing(func() { kit.Rest(ctx, 10*time.Millisecond) }, "does not listen")
	}
}

// taken reports whether a TCP port of a host is in use. Connecting would be taken for a client.
func taken(h *lab.Host, port int) bool {
	inUse := false
	_ = h.Do(func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)).String())
		if err == nil {
			return l.Close()
		}
		inUse = errors.Is(err, unix.EADDRINUSE)
		return nil
	})
	return inUse
}

// program is a running foreign program.
type program struct {
	cmd  *exec.Cmd
	proc *lab.Process
	errs bytes.Buffer
	done chan struct{}
	err  error
}

// startIn starts argv in a host, by way of this program's hidden subcommand, which binds itself to the host's
// processors first.
func startIn(j *Job, host int, argv, env []string, out *bytes.Buffer) *program {
	if len(j.Self) > 0 {
		argv = append(append(append([]string{}, j.Self...), enterCommand), argv...)
	}
	p := &program{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	if cpus := j.CPUs[host]; len(cpus) > 0 {
		p.cmd.Env = append(p.cmd.Env, kit.Pinned(cpus))
	}
	p.cmd.Stderr = &p.errs
	if out != nil {
		p.cmd.Stdout = out
	}
	p.proc = kit.Get(j.Hosts[host].Start(p.cmd))
	go func() {
		p.err = p.proc.Wait()
		close(p.done)
	}()
	return p
}

// end makes sure that the program has ended: it may do so by itself, for a moment.
func (p *program) end() {
	select {
	case <-p.done:
		return
	case <-time.After(300 * time.Millisecond):
	}
	_ = p.proc.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Second):
		p.proc.Kill()
		<-p.done
	}
}

// used is the processor time of a program that has ended.
func (p *program) used() report.End {
	st := p.cmd.ProcessState
	if st == nil {
		return report.End{}
	}
	return report.End{ProcessUser: st.UserTime().Seconds(), ProcessSystem: st.SystemTime().Seconds()}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// numbers returns the fields of a line that are numbers.
func numbers(line string) []float64 {
	var v []float64
	for _, f := range strings.Fields(line) {
		if x, err := strconv.ParseFloat(f, 64); err == nil {
			v = append(v, x)
		}
	}
	return v
}

// enterCommand is the hidden subcommand of edgebench that calls Enter.
const enterCommand = "lab-enter"

// Enter replaces this process by the program argv, with a /sys of its own that shows the network namespace it is in:
// UCX and libfabric look for interfaces there. It returns only on failure.
func Enter(argv []string) error {
	runtime.LockOSThread()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	return syscall.Exec(path, argv, os.Environ())
}
