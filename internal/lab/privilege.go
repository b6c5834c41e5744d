package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// marker is set in the environment of a program that EnsurePrivileges started again, and of all its children.
const marker = "MULTIEDGE_LAB_USERNS"

// needed are the capabilities it takes to make namespaces, interfaces and packet sockets.
var needed = [...]uint{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN}

// EnsurePrivileges makes sure that this process can build labs. Call it first thing in main (or TestMain) of a program
// that does.
//
// With the capabilities it takes, it returns at once. Otherwise it runs the program again, with the same arguments,
// environment and standard files, as root of a new user namespace that holds a new network namespace; it then passes
// signals on, waits, and exits with the program's status: it does not return. The second run finds itself marked in the
// environment and returns. Files it makes belong to the user who started it; the machine's own network is not visible
// there, but its files are.
//
// It returns an error that says what to do where user namespaces are disabled.
func EnsurePrivileges() error {
	if capable() {
		if Unprivileged() {
			return newNetworkUp()
		}
		return nil
	}
	if Unprivileged() {
		return explain("use capabilities in a user namespace", unix.EPERM)
	}
	code, err := rerun()
	if err != nil {
		return explain("start again in a user namespace", err)
	}
	os.Exit(code)
	return nil
}

// Unprivileged reports whether the privileges are those of a user namespace, so that nothing outside it can be changed,
// BPF programs cannot be loaded and locked memory is limited.
func Unprivileged() bool { return os.Getenv(marker) != "" }

// capable reports whether this thread has all capabilities needed.
func capable() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	for _, c := range needed {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return false
		}
	}
	return true
}

func newNetworkUp() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	return loopbackUp(nl)
}

// rerun runs this program in new user and network namespaces and returns its exit status. The child is its own process
// group, so that a signal from the terminal reaches it once, through us; it dies with this thread, which therefore
// stays locked.
func rerun() (code int, err error) {
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	child := exec.Command(self)
	child.Args = os.Args
	child.Env = append(os.Environ(), marker+"=1")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
		Setpgid:     true,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	if !signal.Ignored(unix.SIGHUP) { // as it is under nohup
		signal.Notify(signals, unix.SIGHUP)
	}
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = child.Process.Signal(s)
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, err
			}
			if status := child.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return child.ProcessState.ExitCode(), nil
		}
	}
}

// explain adds to a refusal of namespaces which setting of this machine refuses them.
func explain(what string, err error) error {
	switch {
	case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSPC) &&
		!errors.Is(err, unix.EINVAL):
		return fmt.Errorf("lab: %s: %w", what, err)
	case refusal() != "":
		return fmt.Errorf("lab: %s: %w; run as root, or allow user namespaces: %s", what, err, refusal())
	}
	return fmt.Errorf("lab: %s: %w; run as root, or call lab.EnsurePrivileges first thing in main where user "+
		"namespaces are allowed "+
		"(a container's seccomp profile or a limit under sysctl user.* may refuse them)", what, err)
}

// refusal names the setting that disables user namespaces on this machine, as the command that changes it.
func refusal() string {
	for _, s := range []struct{ file, bad, cure string }{
		{"user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"user/max_net_namespaces", "0", "sysctl user.max_net_namespaces=10000"},
		{"kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if v, err := os.ReadFile("/proc/sys/" + s.file); err == nil && strings.TrimSpace(string(v)) == s.bad {
			return s.cure
		}
	}
	return ""
}
