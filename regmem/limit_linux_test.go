package regmem

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Limits of the whole process are tried in children: this binary again, told by the environment which scenario to play.
const childEnv = "REGMEM_TEST_SCENARIO"

var scenarios = map[string]func() error{
	"memlock":      memlockScenario,
	"memlock zero": memlockZeroScenario,
	"descriptors":  descriptorScenario,
	"addresses":    addressScenario,
	"file size":    fileSizeScenario,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		runtime.LockOSThread() // capabilities belong to a thread
		if err := scenarios[name](); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("played:", name)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLimits(t *testing.T) {
	for name := range scenarios {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), childEnv+"="+name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "played: "+name+"\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// refused runs alloc, which must fail with want, and checks that nothing is left behind.
func refused(want error, alloc func() (*Memory, error)) error {
	_, _ = os.ReadFile("/proc/self/status") // what Go sets up for its first file is not a leak
	before, err := holding()
	if err != nil {
		return err
	}
	m, got := alloc()
	if m != nil || !errors.Is(got, want) {
		return fmt.Errorf("the error is %v, want one that is %v", got, want)
	}
	after, err := holding()
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("left behind: %+v, before it was %+v", after, before)
	}
	return nil
}

// setMemlock sets the limit and takes CAP_IPC_LOCK, which would ignore it, from this thread for good. Before that it
// makes sure that the limit is not what lets the calling test pass: with the capability, if there was one, pinning
// beyond the limit works.
func setMemlock(limit uint64, beyond int) error {
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("setrlimit: %w", err)
	}
	return dropIPCLock(func() error {
		m, err := Alloc(beyond)
		if err != nil {
			return fmt.Errorf("with CAP_IPC_LOCK: %w", err)
		}
		return m.Close()
	})
}

// dropIPCLock empties the bit in all of the thread's capability sets; where it was effective, it calls with first.
func dropIPCLock(with func() error) error {
	const bit = 1 << unix.CAP_IPC_LOCK
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&hdr, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if sets[0].Effective&bit != 0 && !inUserNamespace() {
		if err := with(); err != nil {
			return err
		}
	}
	sets[0].Effective &^= bit
	sets[0].Permitted &^= bit
	sets[0].Inheritable &^= bit
	if err := unix.Capset(&hdr, &sets[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	var now [2]unix.CapUserData
	if err := unix.Capget(&hdr, &now[0]); err != nil || now[0].Effective&bit != 0 || now[0].Permitted&bit != 0 {
		return fmt.Errorf("CAP_IPC_LOCK is still there: %+v (%v)", now[0], err)
	}
	return nil
}

// inUserNamespace says whether capabilities are only the namespace's own; the kernel asks for the real one before it
// ignores the limit.
func inUserNamespace() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
}

func memlockScenario() error {
	const limit = 256 << 10
	if err := setMemlock(limit, 2*limit); err != nil {
		return err
	}
	within, err := Alloc(limit / 2)
	if err != nil {
		return fmt.Errorf("within the limit: %w", err)
	}
	var last error
	err = refused(ErrMemlock, func() (m *Memory, err error) {
		m, last = Alloc(limit/2 + 1)
		return m, last
	})
	if err != nil {
		return err
	}
	var me *MemlockError
	page := uint64(os.Getpagesize())
	if !errors.As(last, &me) || *me != (MemlockError{Need: limit/2 + page, Locked: limit / 2, Limit: limit}) {
		return fmt.Errorf("the error says %+v", me)
	}
	for _, s := range []string{"ulimit -l", "LimitMEMLOCK=", "CAP_IPC_LOCK", "262144"} {
		if !strings.Contains(last.Error(), s) {
			return fmt.Errorf("%q is missing in: %v", s, last)
		}
	}
	// On demand: not pinned beyond the limit, and possible again once there is room.
	late, err := Alloc(limit, Unpinned())
	if err != nil {
		return fmt.Errorf("unpinned: %w", err)
	}
	copy(late.Bytes(), "kept")
	if err := refused(ErrMemlock, func() (*Memory, error) { return nil, late.Pin() }); err != nil {
		return fmt.Errorf("Pin: %w", err)
	}
	if late.Pinned() || string(late.Bytes()[:4]) != "kept" {
		return errors.New("memory whose pinning was refused is pinned or lost")
	}
	return errors.Join(within.Close(), late.Pin(), late.Close())
}

// With a limit of zero the kernel answers EPERM instead of ENOMEM.
func memlockZeroScenario() error {
	if err := setMemlock(0, 4096); err != nil {
		return err
	}
	return refused(ErrMemlock, func() (*Memory, error) { return Alloc(4096) })
}

// Without room for a descriptor. The limit is put below what is open already; files opened to check come after it is
// lifted.
func descriptorScenario() error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	return refused(unix.EMFILE, func() (*Memory, error) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
			return nil, err
		}
		defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		return Alloc(4096)
	})
}

// The file is there and sealed, but there is no room to map it.
func addressScenario() error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &old); err != nil {
		return err
	}
	size, ok := procBytes("/proc/self/status", "VmSize:")
	if !ok {
		return errors.New("no VmSize in /proc/self/status")
	}
	const room = 512 << 20 // for Go's own needs meanwhile
	return refused(ErrSize, func() (*Memory, error) {
		if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: size + room, Max: old.Max}); err != nil {
			return nil, err
		}
		defer unix.Setrlimit(unix.RLIMIT_AS, &old)
		return Alloc(2*room, Unpinned())
	})
}

// The file is there but may not become that long.
func fileSizeScenario() error {
	signal.Ignore(unix.SIGXFSZ) // or the process ends, as it does for any file
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: old.Max}); err != nil {
		return err
	}
	return refused(unix.EFBIG, func() (*Memory, error) { return Alloc(1 << 20) })
}
