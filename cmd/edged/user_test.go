package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// started says where the test program is edged itself: --user starts it again.
const started = "EDGED_TEST_USER"

func TestMain(m *testing.M) {
	if os.Getenv(started) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// Root that is told --user becomes that user with two capabilities and no way to more, and the user owns what edged
// writes. What it may do is read off the running process.
func TestBecomesAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := become("9469", nil); err == nil || !strings.Contains(err.Error(), "only root") {
			t.Errorf("another user: %v", err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "edged-user") // others may search it; t.TempDir's are private
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o755))
	self := filepath.Join(dir, "edged")
	text, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(self, text, 0o755))
	key, socket := filepath.Join(dir, "state", "key"), filepath.Join(dir, "run", "s")
	must(t, os.MkdirAll(filepath.Dir(key), 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "--link=no-such-if", "--wait-links", "--user=9469", "--group=9469",
		"--key-file="+key, "--peers-file="+filepath.Join(dir, "peers"), "--socket="+socket)
	cmd.Env = append(os.Environ(), started+"=1")
	log, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "serving") {
		t.Log(lines.Text())
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	must(t, err)
	for _, want := range []string{"Uid:\t9469\t9469\t9469\t9469", "Gid:\t9469\t9469\t9469\t9469", "Groups:\t9469",
		fmt.Sprintf("CapPrm:\t%016x", kept(t)), fmt.Sprintf("CapAmb:\t%016x", kept(t))} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	for _, path := range []string{filepath.Dir(key), key, filepath.Dir(socket), socket} {
		st, err := os.Stat(path)
		must(t, err)
		if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 9469 {
			t.Errorf("%s belongs to user %d", path, uid)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A file of root's with a second name is not given away: it may be any file, linked by who writes to the directory.
func TestLinkedFilesAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		return // gives nothing away
	}
	dir := t.TempDir()
	secret, key := filepath.Join(dir, "secret"), filepath.Join(dir, "key")
	must(t, os.WriteFile(secret, nil, 0o600))
	must(t, os.Link(secret, key))
	owner := func() uint32 {
		st, err := os.Stat(key)
		must(t, err)
		return st.Sys().(*syscall.Stat_t).Uid
	}
	if err := given(key, account{9469, 9469}); err == nil || !strings.Contains(err.Error(), "2 names") || owner() != 0 {
		t.Errorf("a file with two names: %v; it belongs to user %d", err, owner())
	}
	must(t, os.Remove(secret))
	if err := given(key, account{9469, 9469}); err != nil || owner() != 9469 {
		t.Errorf("a file with one name: %v; it belongs to user %d", err, owner())
	}
	link := filepath.Join(dir, "link")
	must(t, os.WriteFile(secret, nil, 0o600))
	must(t, os.Symlink(secret, link))
	must(t, errors.Join(given(link, account{9469, 9469}), given(filepath.Join(dir, "none"), account{9469, 9469})))
	if st, err := os.Stat(secret); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("what a symbolic link names was given away, or %v", err)
	}
}

// kept is what this process has of the capabilities that edged keeps.
func kept(t *testing.T) (mask uint64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, text, _ := strings.Cut(string(status), "CapPrm:\t")
	_, err = fmt.Sscanf(text, "%x", &mask)
	must(t, err)
	return mask & (1<<unix.CAP_NET_RAW | 1<<unix.CAP_IPC_LOCK)
}
