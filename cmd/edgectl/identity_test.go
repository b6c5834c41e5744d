package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"

	"golang.org/x/sys/unix"
)

// ctlFrom is ctl with a standard input.
func ctlFrom(in string, args ...string) (code int, out, errs string) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	w.WriteString(in)
	w.Close()
	defer r.Close()
	old := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = old }()
	return ctl(args...)
}

// The commands of two new hosts, from key to authorised.
func TestKeysAndPeersWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	none, key, peers := dir+"/none.sock", dir+"/state/key", dir+"/etc/peers"
	code, public, errs := ctl("key", "new", key)
	if code != 0 {
		t.Fatal(errs)
	}
	if code, shown, _ := ctl("-s", none, "key", "show", "-f", key); code != 0 || shown != public {
		t.Errorf("key show: %q, key new said %q", shown, public)
	}
	code, private, _ := ctl("key", "new")
	k, err := secure.ParsePrivateKey(private)
	if code != 0 || err != nil {
		t.Fatal(code, err)
	}
	code, other, errs := ctlFrom(private, "key", "public")
	if code != 0 || strings.TrimSpace(other) != k.Public().String() {
		t.Fatalf("key public: %d %q %s", code, other, errs)
	}
	other = strings.TrimSpace(other)
	if code, out, errs := ctl("-s", none, "peers", "add", other, "beta", "-f", peers); code != 0 ||
		!strings.Contains(out, "no running daemon") {
		t.Errorf("peers add: %d %s%s", code, out, errs)
	}
	if code, out, _ := ctl("-s", none, "peers", "list", "-f", peers); code != 0 || !strings.Contains(out, other) ||
		!strings.Contains(out, "beta") {
		t.Errorf("peers list: %d %s", code, out)
	}
	if code, out, _ := ctl("-j", "-s", none, "peers", "remove", "beta", "-f", peers); code != 0 ||
		!strings.Contains(out, `"no-daemon"`) || !json.Valid([]byte(out)) {
		t.Errorf("peers remove: %d %s", code, out)
	}
	// a comment is left: an empty file would look like one that was cut short
	if text, err := os.ReadFile(peers); err != nil || !strings.HasPrefix(string(text), "#") ||
		strings.Contains(string(text), other) {
		t.Errorf("%q %v", text, err)
	}
	for _, tc := range []struct {
		in   string
		args []string
		want string
	}{
		{"", []string{"key", "new", key}, "file exists"},
		{"", []string{"-s", none, "key", "show", "-f", dir + "/nokey"}, "edgectl key new"},
		{"no-key", []string{"key", "public"}, "44 characters"},
		{"", []string{"-s", none, "peers", "add", "beta", other, "-f", peers},
			"the key comes first: edgectl peers add " + other + " beta"},
		{"", []string{"-s", none, "peers", "add", "no-key", "beta", "-f", peers}, "44 characters"},
		{"", []string{"-s", none, "peers", "remove", "beta", "-f", peers}, "no peer"},
	} {
		if code, out, errs := ctlFrom(tc.in, tc.args...); code != 1 || !strings.Contains(errs, tc.want) || out != "" {
			t.Errorf("%v: %d %q %q, want %q", tc.args, code, out, errs, tc.want)
		}
	}
	must(t, os.Chmod(key, 0o644))
	if code, out, _ := ctl("-s", none, "doctor", "--key-file", key, "--peers-file", peers); code != 1 ||
		!strings.Contains(out, "chmod 600 "+key) || !strings.Contains(out, "nobody is authorised") {
		t.Errorf("doctor: %d %s", code, out)
	}
}

// What is written is in force at once.
func TestPeersOfARunningDaemon(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	file := filepath.Join(filepath.Dir(a), "peers")
	k := secure.NewPrivateKey().Public().String()
	code, out, errs := ctl("-j", "-s", a, "peers", "add", k, "gamma")
	var r peersReport
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Reload != "done" || r.InForce != 2 ||
		!r.Changed || r.File != file {
		t.Fatalf("%d %+v %v %s", code, r, err, errs)
	}
	if _, out, _ := ctl("-s", a, "peers", "list"); !strings.Contains(out, k) || !strings.Contains(out, "not heard") {
		t.Errorf("list: %s", out)
	}
	if _, out, _ := ctl("-s", a, "status"); !strings.Contains(out, "security   encrypted, key ") ||
		!strings.Contains(out, "authorised peers: 2 ("+file) {
		t.Errorf("status: %s", out)
	}
	own, err := identity.ReadKey(filepath.Join(filepath.Dir(a), "key"))
	if _, out, _ := ctl("-s", a, "key", "show"); err != nil || strings.TrimSpace(out) != own.Public().String() {
		t.Errorf("key show %q, %v", out, err)
	}
	if code, out, _ := ctl("-s", a, "peers", "add", own.Public().String(), "self"); code != 0 || !strings.Contains(out,
		"this node's own key") || strings.Contains(out, "authorised") {
		t.Errorf("add of its own key: %d %s", code, out)
	}
	if code, out, _ := ctl("-s", a, "peers", "add", k, "gamma"); code != 0 || strings.Contains(out, "own key") {
		t.Errorf("add of a peer that is there: %d %s", code, out)
	}
	t.Chdir(filepath.Dir(a))
	if code, out, errs := ctl("-s", a, "peers", "remove", "gamma", "-f", "./peers"); code != 0 || !strings.Contains(out,
		"no more") || strings.Contains(out, "no running daemon") {
		t.Errorf("remove: %d %s%s", code, out, errs)
	}
	must(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 10), 0o644))
	if code, out, _ := ctl("-s", a, "doctor"); code != 1 || !strings.Contains(out, "peers:1") {
		t.Errorf("doctor on a malformed file: %d %s", code, out)
	}
}

func TestPlaintextIsShown(t *testing.T) {
	a, b := pair(t, config.Plaintext)
	if code, _, errs := ctl("-s", b, "ping", "a", "-c", "1"); code != 0 {
		t.Fatal(errs)
	}
	for args, want := range map[string]string{"status": "security   PLAINTEXT", "peer": "PLAINTEXT"} {
		if code, out, _ := ctl("-s", a, args); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
	for _, args := range []string{"key show", "peers list"} {
		if code, _, errs := ctl(append([]string{"-s", a}, strings.Fields(args)...)...); code != 1 ||
			!strings.Contains(errs, "plaintext") {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
}

// Root edits the file that another user's socket names only if it is the one that he would edit anyway.
func TestPeersFileOfAnothersSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it lacks another user")
	}
	dir, err := os.MkdirTemp("", "peers")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o777))
	victim := filepath.Join(dir, "victim")
	key := secure.NewPrivateKey().Public().String()
	serve := func(uid int, file string) (socket string) {
		socket = filepath.Join(dir, filepath.Base(file)+strconv.Itoa(uid))
		l := listenAs(t, socket, uid)
		t.Cleanup(func() { l.Close() })
		var st inspect.Status
		st.Security, st.PeersFile = config.Encrypted, file
		go answerStatus(l, st)
		return socket
	}
	code, _, errs := ctl("-s", serve(12345, victim), "peers", "add", key, "b")
	if _, err := os.Stat(victim); code == 0 || !os.IsNotExist(err) || !strings.Contains(errs, "--file") {
		t.Errorf("another user's socket: %d %s", code, errs)
	}
	ctl("-s", serve(0, victim), "peers", "add", key, "b") // fails to reload: that is no daemon
	if text, err := os.ReadFile(victim); err != nil || !strings.Contains(string(text), key) {
		t.Errorf("root's socket: %q %v", text, err)
	}
	must(t, os.Remove(victim))
	t.Setenv("CONFIGURATION_DIRECTORY", dir) // where edged's unit has the file
	ctl("-s", serve(12345, filepath.Join(dir, "peers")), "peers", "add", key, "b")
	if text, err := os.ReadFile(filepath.Join(dir, "peers")); err != nil || !strings.Contains(string(text), key) {
		t.Errorf("the usual file: %q %v", text, err)
	}
}

// listenAs makes a socket that the kernel says is another user's.
func listenAs(t *testing.T, socket string, uid int) *ipc.Listener {
	t.Helper()
	type result struct {
		l   *ipc.Listener
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			made <- result{err: errno}
			return
		}
		l, err := ipc.Listen(socket, 0o666)
		made <- result{l, err}
	}()
	r := <-made
	must(t, r.err)
	return r.l
}

// answerStatus answers every request with a status.
func answerStatus(l *ipc.Listener, st inspect.Status) {
	st.Schema = inspect.StatusSchema
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		for {
			m, err := conn.Recv()
			if err != nil {
				break
			}
			reply := m.Reply()
			reply.Body, _ = json.Marshal(st)
			_ = conn.Send(reply)
		}
		conn.Close()
	}
}
