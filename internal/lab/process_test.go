package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// child is what this binary does in place of its tests, as childMode says.
func child(mode string) {
	switch mode {
	case "linger": // say where we are and wait to be killed
		ns, _ := os.Readlink("/proc/self/ns/net")
		fmt.Println(os.Getpid(), ns)
		select {}
	case "parent": // start one of those in a lab and wait to be killed
		l, err := New(context.Background(), Spec{Links: 2, Rates: []string{"", "1gbit"}})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		cmd := again("linger")
		cmd.Stdout = os.Stdout
		if _, err := l.Host(1).Start(cmd); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		select {}
	case "tour": // build every kind of link, move a frame, say what we are
		var m tour
		l := build(&m, Spec{Links: 2, Rates: []string{"1gbit", ""}, MTU: 9000})
		exchange(&m, l, 0, 0, 1, 9014)
		exchange(&m, l, 1, 0, 1, 9014)
		w := build(&m, Spec{Faults: Faults{Dup: 1}})
		exchange(&m, w, 0, 0, 1, 9014)
		for range m.cleanups {
			m.cleanups[len(m.cleanups)-1]()
			m.cleanups = m.cleanups[:len(m.cleanups)-1]
		}
		fmt.Println("unprivileged", Unprivileged(), "as", os.Geteuid(), "in", l.Describe())
	case "bare": // build without EnsurePrivileges
		_, err := New(context.Background(), Spec{})
		fmt.Println(err)
	case "refused": // as where an administrator has disabled user namespaces
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			fmt.Println(err)
		}
		_, err := rerun()
		fmt.Println(explain("start again in a user namespace", err))
	case "exit3":
		os.Exit(3)
	}
}

// tour is a testing.TB outside a test.
type tour struct {
	testing.TB
	cleanups []func()
}

func (*tour) Helper()            {}
func (m *tour) Cleanup(f func()) { m.cleanups = append(m.cleanups, f) }
func (m *tour) Fatal(a ...any)   { fmt.Println(a...); os.Exit(1) }
func (m *tour) Errorf(f string, a ...any) {
	m.Fatal(fmt.Sprintf(f, a...))
}
func (m *tour) Fatalf(f string, a ...any) { m.Fatal(fmt.Sprintf(f, a...)) }

// again is a command that runs this test binary in a child mode.
func again(mode string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	return cmd
}

// nested is the same in a user namespace of its own, also if this process is in one already.
func nested(mode string) *exec.Cmd {
	cmd := again(mode)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, marker+"=") })
	cmd.Env = append(cmd.Env, childForce+"=1")
	return cmd
}

// announced reads what "linger" prints.
func announced(t *testing.T, r io.Reader) (pid int, ns string) {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err, line)
	}
	if _, err := fmt.Sscan(line, &pid, &ns); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return pid, ns
}

// Processes run inside their host; Close kills them and waits.
func TestStart(t *testing.T) {
	l := build(t, Spec{})
	var inside [2]string
	var last *Process
	for h := range inside {
		cmd := again("linger")
		out, err := cmd.StdoutPipe()
		must(t, err)
		if last, err = l.Host(h).Start(cmd); err != nil {
			t.Fatal(err)
		}
		_, inside[h] = announced(t, out)
		l.Host(h).Do(func() error {
			if ns, _ := os.Readlink("/proc/thread-self/ns/net"); ns != inside[h] {
				t.Errorf("process in %s, Do in %s", inside[h], ns)
			}
			return nil
		})
	}
	if home, _ := os.Readlink("/proc/self/ns/net"); inside[0] == inside[1] || inside[0] == home {
		t.Errorf("hosts in %v, test in %s", inside, home)
	}
	must(t, l.Close())
	var exit *exec.ExitError
	if err := last.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("after Close: %v", err)
	}
	if _, err := l.Host(0).Start(again("linger")); !errors.Is(err, ErrClosed) {
		t.Errorf("Start after Close: %v", err)
	}
	if err := again("exit3").Run(); err == nil || err.Error() != "exit status 3" {
		t.Errorf("status was lost: %v", err)
	}
}

// When the process that built a lab is killed, nothing remains: no process in it, and no namespace.
func TestKilledBuilder(t *testing.T) {
	builder := again("parent")
	out, err := builder.StdoutPipe()
	must(t, err)
	must(t, builder.Start())
	t.Cleanup(func() { builder.Process.Kill() })
	pid, ns := announced(t, out)
	if at := inhabitants(ns); len(at) == 0 {
		t.Fatalf("nobody in %s", ns)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(fd)
	builder.Process.Kill()
	builder.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); n != 1 {
		t.Fatalf("process %d outlives its lab (%v)", pid, err)
	}
	if at := inhabitants(ns); len(at) > 0 {
		t.Errorf("%v still in %s", at, ns)
	}
}

// inhabitants lists the threads whose network namespace is ns, and the descriptors that hold it.
func inhabitants(ns string) (at []string) {
	for _, pattern := range []string{"/proc/[0-9]*/task/*/ns/net", "/proc/[0-9]*/fd/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if to, err := os.Readlink(p); err == nil && to == ns {
				at = append(at, p)
			}
		}
	}
	return at
}

// An ordinary user builds the same labs in a user namespace.
func TestOrdinaryUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "lab")
	must(t, err)
	defer os.RemoveAll(dir)
	binary, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	file := filepath.Join(dir, "lab.test")
	must(t, errors.Join(os.WriteFile(file, binary, 0o755), os.Chmod(dir, 0o755)))
	run := func(mode string) (string, error) {
		cmd := exec.Command(file)
		cmd.Dir = "/"
		cmd.Env = []string{childMode + "=" + mode}
		if Unprivileged() { // no other user exists here, but this one is ordinary
			cmd.Env = append(cmd.Env, childForce+"=1")
		} else {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	out, err := run("tour")
	if err != nil || !strings.HasPrefix(out, "unprivileged true as 0 in 2 hosts, 2 links") {
		if refused := refusal(); refused != "" && strings.Contains(out, refused) {
			t.Logf("user namespaces are disabled here, and the error says what to do: %s", out)
			return
		}
		t.Fatalf("%v: %s", err, out)
	}
	t.Log(strings.TrimSpace(out))
	if out, err := run("bare"); err != nil || !strings.Contains(out, "call lab.EnsurePrivileges first thing in main") &&
		!strings.Contains(out, "<nil>") {
		t.Errorf("without privileges: %v, %s", err, out)
	} else {
		t.Log(strings.TrimSpace(out))
	}
	if out, err := run("exit3"); err == nil || err.Error() != "exit status 3" {
		t.Errorf("status of the second run was lost: %v: %s", err, out)
	}
}

// Where user namespaces are disabled, the error names the setting.
func TestRefusal(t *testing.T) {
	cmd := nested("refused")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "allow user namespaces: sysctl user.max_user_namespaces=10000") {
		t.Errorf("%v: %s", err, out)
	}
}

// A signal to the first run reaches the second, and a killed first run takes it along.
func TestSignalsReachSecondRun(t *testing.T) {
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGKILL} {
		first := nested("linger")
		out, err := first.StdoutPipe()
		must(t, err)
		must(t, first.Start())
		t.Cleanup(func() { first.Process.Kill() })
		pid, _ := announced(t, out)
		if pid == first.Process.Pid {
			t.Fatal("there was no second run")
		}
		fd, err := unix.PidfdOpen(pid, 0)
		must(t, err)
		first.Process.Signal(s)
		err = first.Wait()
		if want := "exit status " + strconv.Itoa(128+int(s)); s != unix.SIGKILL && (err == nil || err.Error() != want) {
			t.Errorf("after %v: %v, want %s", s, err, want)
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); n != 1 {
			t.Errorf("second run outlives a first that got %v (%v)", s, err)
		}
		unix.Close(fd)
	}
}
