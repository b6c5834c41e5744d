package daemon

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// dialUser connects as another user: a thread that ends then has that user's number, and the kernel notes it. A process
// cannot change the number of one thread by Go's syscall.Setuid.
func dialUser(t *testing.T, socket string, uid uint32) *testClient {
	t.Helper()
	type result struct {
		conn *ipc.Conn
		err  error
	}
	dialled := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			dialled <- result{err: errno}
			return
		}
		conn, err := ipc.Dial(context.Background(), socket)
		dialled <- result{conn, err}
	}()
	r := <-dialled
	must(t, r.err)
	c := &testClient{t: t, conn: r.conn, in: make(chan *ipc.Message, 4096)}
	t.Cleanup(c.close)
	return c
}

// Users as the kernel reports them: a hundred have each an account of their own, a hundred subordinate users of one of
// them have his. Each client is shown with its own number.
func TestUsersOfTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it lacks the right to be another user")
	}
	dir, err := os.MkdirTemp("", "users")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o711))
	const users, each = 100, 3
	cfg := keyed(t, config.Config{Socket: filepath.Join(dir, "s"), Links: []config.Link{{Name: "mem"}}, Mode: "0666",
		Limits: config.Limits{Clients: 2 * users, ClientsPerUser: each}})
	d, err := New(cfg, Options{Log: logTo(t), Open: memoryLink})
	must(t, err)
	d.accounts.owners.dir = listedUsers(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() { cancel(); must(t, <-done) }()
	<-d.Ready()
	attached := func(uid uint32) int {
		if dialUser(t, cfg.Socket, uid).hello(64) != nil {
			return 0
		}
		return 1
	}
	own, subordinate := 0, 0
	for i := range uint32(users) {
		own += attached(20_000 + i)
		subordinate += attached(100_000 + i)
	}
	if own != users || subordinate != each {
		t.Errorf("of %d users %d have a client, of as many subordinate users of one, who may have %d, %d", users, own,
			each, subordinate)
	}
	if attached(1000) != 0 || attached(1001) != 1 {
		t.Error("the owner has more clients than his account, or another user has none")
	}
	shown := map[uint32]bool{}
	for _, c := range snapshot(t, d).Clients {
		shown[c.UID] = true
	}
	if len(shown) != users+each+1 || !shown[100_000] {
		t.Errorf("%d users are shown", len(shown))
	}
}
