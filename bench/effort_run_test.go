package bench

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// ours are the system calls that Effort counts. Of these the runtime makes some epoll_pwait and write; the control
// sides of daemons and clients make others.
var ours = []int{unix.SYS_SENDMMSG, unix.SYS_RECVMMSG, unix.SYS_PPOLL, unix.SYS_SCHED_YIELD, unix.SYS_WRITE,
	unix.SYS_EPOLL_PWAIT, unix.SYS_TIMERFD_SETTIME, unix.SYS_CLOCK_GETTIME}

// kernelCount counts the calls of ours that processes make, by the kernel's tracepoint.
type kernelCount struct {
	fds    []int
	known  map[int]bool // threads
	attr   unix.PerfEventAttr
	filter []byte
}

// newKernelCount begins to count. The kernel lets root alone, outside of containers.
func newKernelCount(dir string, pids []int) (*kernelCount, error) {
	if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
		return nil, err
	}
	defer unix.Unmount(dir, 0)
	text, err := os.ReadFile(filepath.Join(dir, "events/raw_syscalls/sys_enter/id"))
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, err
	}
	var filter []string
	for _, call := range ours {
		filter = append(filter, fmt.Sprintf("id == %d", call))
	}
	k := &kernelCount{known: map[int]bool{}, filter: append([]byte(strings.Join(filter, " || ")), 0),
		attr: unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}}
	k.attr.Size = uint32(unsafe.Sizeof(k.attr))
	for more := true; more && err == nil; { // until no thread was begun meanwhile
		more, err = k.open(pids)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// open opens counters of the threads that have none; those that they begin have the same.
func (k *kernelCount) open(pids []int) (more bool, err error) {
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task))
			if k.known[tid] {
				continue
			}
			k.known[tid], more = true, true
			fd, err := unix.PerfEventOpen(&k.attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err == unix.ESRCH { // the thread has ended
				continue
			}
			if err != nil {
				return false, err
			}
			k.fds = append(k.fds, fd)
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER,
				uintptr(unsafe.Pointer(&k.filter[0]))); errno != 0 {
				return false, errno
			}
		}
	}
	return more, nil
}

func (k *kernelCount) sum() (n uint64) {
	for _, fd := range k.fds {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err == nil {
			n += binary.NativeEndian.Uint64(b[:])
		}
	}
	return n
}

func (k *kernelCount) close() {
	for _, fd := range k.fds {
		unix.Close(fd)
	}
}

// workersOf are the processes of this program that work.
func workersOf() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		text, _ := os.ReadFile(name)
		args := strings.Split(string(text), "\x00")
		if len(args) > 2 && slices.Contains(args, roleWorker) && strings.Contains(string(text), os.Args[0]) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// What a message costs in system calls, switches and wake-ups is what the kernel counts. With everything blocking, each
// of the four processes sleeps and is woken for each message, whatever the machine.
func TestEffortOfMessages(t *testing.T) {
	const messages = 6000 // each way
	c := cluster(t, ClusterSpec{Lab: lab.Spec{Links: 1}, Poll: "block"})
	first := Plan{Spec: spec{Test: report.PingPong, Duration: time.Second, Region: 4 << 20}} // the counters open
	specs, region, err := Concat(first, Plan{Spec: spec{Test: report.PingPong, Count: messages, Region: 4 << 20}})
	must(t, err)
	var kernel *kernelCount
	begun, before := 0, uint64(0)
	var refused error
	var counted uint64
	var row *report.Row
	must(t, c.Run(t.Context(), Series{Specs: specs, Region: region, Sink: func(e Event) {
		if e.Begin {
			begun++
		}
		switch {
		case e.Begin && begun == 2 && kernel != nil:
			before = kernel.sum()
		case e.Begin && begun == 1:
			pids := append(workersOf(), c.Daemon(0).Pid(), c.Daemon(1).Pid())
			if len(pids) != 4 {
				t.Errorf("processes %v: want two workers and two daemons", pids)
			}
			kernel, refused = newKernelCount(t.TempDir(), pids)
		case e.Row != nil && begun == 2:
			row = e.Row
			if kernel != nil {
				counted = kernel.sum() - before
				kernel.close()
			}
		}
	}}))
	if row == nil || row.Operations != 2*messages || row.Efforts == nil {
		t.Fatalf("%+v", row)
	}
	calls, switches, wakes, _ := row.PerMessage()
	t.Logf("a message: %.2f calls, %.2f switches, %.2f wake-ups; %s", calls, switches, wakes, row.EffortText())
	// For each message: the sender's doorbell, its daemon's poll and sendmmsg, the other's poll and doorbell, the
	// receiver's poll.
	ends := row.Efforts
	for name, e := range map[string]report.Effort{"client": ends.ClientProcess, "server": ends.ServerProcess,
		"client's daemon": ends.ClientDaemon, "server's daemon": ends.ServerDaemon} {
		wakes := uint64(messages / 4)
		if !strings.Contains(name, "daemon") {
			wakes = 1 // its daemon is mostly awake
		}
		if e.SystemCalls < messages || e.SystemCalls > 20*messages || e.WakeUps < wakes || e.Voluntary < messages/4 {
			t.Errorf("%s: %+v for %d messages each way, all of which it slept for", name, e, messages)
		}
	}
	if refused != nil {
		t.Logf("the kernel's own count is refused here: %v", refused)
		return
	}
	// The kernel's count is read a little later than the others are, and has the runtime's writes as well.
	if got := row.Efforts.Total().SystemCalls; float64(got) < 0.95*float64(counted) ||
		float64(got) > 1.05*float64(counted) {
		t.Errorf("%d system calls were counted, by the kernel %d", got, counted)
	} else {
		t.Logf("%d system calls were counted, by the kernel %d", got, counted)
	}
}
