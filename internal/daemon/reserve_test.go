package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// dialAs connects to a daemon as another user and group: the kernel notes those of the thread that connects, which ends
// with its goroutine.
func dialAs(t *testing.T, socket string, uid, gid uintptr) *ipc.Conn {
	t.Helper()
	type result struct {
		conn *ipc.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		for call, id := range map[uintptr]uintptr{unix.SYS_SETGROUPS: 0, unix.SYS_SETRESGID: gid} {
			if _, _, errno := unix.RawSyscall(call, id, id, id); errno != 0 && call != unix.SYS_SETGROUPS {
				done <- result{nil, errno}
				return
			}
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			done <- result{nil, errno}
			return
		}
		conn, err := ipc.Dial(context.Background(), socket)
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.conn.Close() })
	return r.conn
}

// Of two users one may offer a reserved service, by his number or his group, and the other is told for whom it is.
func TestReservedServiceOfTwoUsers(t *testing.T) {
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	cfg := keyed(t, config.Config{
		Socket: filepath.Join(dir, "s"), Mode: "0666", Links: []config.Link{{Name: "mem"}},
		Rights: config.Rights{Services: []config.Service{{Name: "db-*", User: "12345"},
			{Name: "db-*", Group: "23456"}}},
	})
	type offer struct {
		uid, gid uintptr
		service  string
		ok       bool
	}
	offers := []offer{{12345, 12345, "db-a", true}, {12346, 12346, "db-b", false}, {12346, 23456, "db-c", true},
		{12346, 12346, "free", true}, {0, 0, "db-d", true}}
	if us := uintptr(os.Geteuid()); us != 0 { // only root can be two users; one can be refused what is another's
		cfg.Services = append(cfg.Services, config.Service{Name: "own-*", User: strconv.Itoa(int(us))})
		offers = []offer{{us, uintptr(os.Getegid()), "own-a", true}, {us, uintptr(os.Getegid()), "db-a", false}}
	}
	defer run(t, cfg)()
	for _, tc := range offers {
		c := &testClient{t: t, conn: dialAs(t, cfg.Socket, tc.uid, tc.gid), in: make(chan *ipc.Message, 16)}
		t.Cleanup(c.close)
		if err := c.hello(64); err != nil {
			t.Fatalf("user %d: %v", tc.uid, err)
		}
		_, err := c.call(&ipc.Message{Kind: ipc.KindListen, Service: tc.service})
		e, _ := errors.AsType[*ipc.Error](err)
		if (err == nil) != tc.ok || err != nil && (e == nil || e.Code != ipc.CodeDenied || !strings.Contains(e.Text,
			"user 12345")) {
			t.Errorf("%+v: %v", tc, err)
		}
		c.close()
	}
}
