package edge

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory that hangs is a mapping of a file whose file system never answers a read. Who touches it sleeps until that
// file system is gone, whatever signal comes, so it is a process of its own, as is who owns the mapping.
const (
	childFuseEnv  = "EDGE_TEST_FUSE"  // the child is a file system, mounted over that file
	childStuckEnv = "EDGE_TEST_STUCK" // it grants a mapping of childMemEnv, and dials, by that socket
	childMemEnv   = "EDGE_TEST_STUCK_FILE"
)

const stuckSize = 64 << 10

// Of the kernel's fuse.h.
const (
	fuseForget, fuseGetattr, fuseOpen, fuseRead, fuseInit, fuseInterrupt, fuseForgets = 2, 3, 14, 15, 26, 36, 42

	fuseInHeader, fuseOutHeader = 40, 16
)

// beFuse mounts a file system whose root is a file, and answers everything but reads of it, for a minute at most.
func beFuse(file string) error {
	time.AfterFunc(time.Minute, func() { os.Exit(1) })
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("stuck", file, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=100000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid())); err != nil {
		return err
	}
	fmt.Println("at work")
	le, in := binary.LittleEndian, make([]byte, 1<<20)
	for {
		n, err := unix.Read(fd, in)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < fuseInHeader {
			return err
		}
		var out []byte
		fails := int32(0)
		switch op := le.Uint32(in[4:]); op {
		case fuseRead, fuseForget, fuseForgets, fuseInterrupt:
			continue
		case fuseInit:
			out = make([]byte, 64)
			le.PutUint32(out, 7)      // version 7.31
			le.PutUint32(out[4:], 31) // of the protocol
			le.PutUint32(out[20:], 4096)
		case fuseGetattr:
			out = make([]byte, 104)
			le.PutUint64(out, 60)     // seconds for which that is so
			le.PutUint64(out[16:], 1) // inode
			le.PutUint64(out[24:], stuckSize)
			le.PutUint32(out[76:], unix.S_IFREG|0o666)
			le.PutUint32(out[80:], 1) // link
			le.PutUint32(out[96:], 4096)
		case fuseOpen:
			out = make([]byte, 16)
		default:
			fails = -int32(unix.ENOSYS)
		}
		head := make([]byte, fuseOutHeader, fuseOutHeader+len(out))
		le.PutUint32(head, uint32(fuseOutHeader+len(out)))
		le.PutUint32(head[4:], uint32(fails))
		copy(head[8:], in[8:16])
		unix.Write(fd, append(head, out...)) // who asked may be gone
	}
}

// beStuckOwner grants memory that hangs to "work" at "a", and lives until it is killed.
func beStuckOwner(socket string) error {
	fd, err := unix.Open(os.Getenv(childMemEnv), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t // the kernel learns the file's size by it
	if err := unix.Fstat(fd, &st); err != nil || st.Size != stuckSize {
		return fmt.Errorf("%d bytes of %s: %w", st.Size, os.Getenv(childMemEnv), err)
	}
	mem, err := unix.Mmap(fd, 0, stuckSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	ctx := context.Background()
	d, err := Open(ctx, Config{Socket: socket, QueueDepth: 8})
	if err != nil {
		return err
	}
	c, err := d.Dial(ctx, "a", "work")
	if err != nil {
		return err
	}
	r, err := door{}.GrantHeap(ctx, d, uint64(uintptr(unsafe.Pointer(&mem[0]))), stuckSize, nil)
	if err != nil {
		return err
	}
	if _, err := r.Export(c, "child", RemoteRead|RemoteWrite, 0, stuckSize); err != nil {
		return err
	}
	fmt.Println("at work")
	select {}
}

// openFiles is how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

// newFuse starts a file system whose file answers no read, and returns how others find the file.
func newFuse(t *testing.T) (file string, child *testChild) {
	t.Helper()
	place := filepath.Join(t.TempDir(), "stuck")
	must(t, os.WriteFile(place, nil, 0o600))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childFuseEnv+"="+place)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		lacks(t, "a mount namespace: %v", err)
	} else {
		must(t, err)
	}
	child = &testChild{t: t, cmd: cmd, ends: make(chan struct{})}
	t.Cleanup(child.kill)
	line, _ := bufio.NewReader(out).ReadString('\n')
	go func() {
		cmd.Wait()
		close(child.ends)
	}()
	if line != "at work\n" {
		lacks(t, "the right to mount a file system of its own, or /dev/fuse: %q", line)
	}
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, place), child
}

// hanging returns how many threads of this process sleep in the middle of carrying.
func hanging(t *testing.T) (n int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*")
	must(t, err)
	for _, task := range tasks {
		name, _ := os.ReadFile(task + "/comm") // it may be gone
		call, _ := os.ReadFile(task + "/syscall")
		number, _, _ := strings.Cut(string(call), " ") // or a word
		if strings.TrimSpace(string(name)) == "edge-courier" &&
			(number == fmt.Sprint(unix.SYS_PREAD64) || number == fmt.Sprint(unix.SYS_PWRITE64)) {
			n++
		}
	}
	return n
}

// TestHeapStuck: a process's memory that hangs whoever touches it holds up the courier of that process alone. Peers'
// operations on it fail with ErrMemory in time; those of others, on memory that is registered and on other processes'
// heaps, go on, also while the process is killed and its courier hangs still; and once that is over nothing is left.
func TestHeapStuck(t *testing.T) {
	file, fuse := newFuse(t)
	ctx := testContext(t)
	w := newWorkplace(t)
	hiring := w.hire(t)
	near, err := w.client.Dial(ctx, "a", "work")
	must(t, err)
	beside := <-hiring
	heap := make([]byte, 4096)
	granted, err := grantBytes(ctx, w.client, heap)
	must(t, err)
	_, err = granted.Export(near, "heap", RemoteRead|RemoteWrite, 0, len(heap))
	must(t, err)
	theirs, err := near.Import(ctx, "mem")
	must(t, err)
	ours, err := beside.conn.Import(ctx, "heap")
	must(t, err)
	others := func(what byte) {
		t.Helper()
		for range 20 {
			_, err := theirs.WriteAt([]byte{what}, 0)
			must(t, err)
			_, err = ours.WriteAt([]byte{what}, 7)
			must(t, err)
		}
		if beside.mem.Bytes()[0] != what || heap[7] != what {
			t.Fatal("what others wrote has not arrived")
		}
	}
	others(1)
	charges, files := charged(t, w.b), openFiles(t)

	hiring = w.hire(t)
	t.Setenv(childMemEnv, file)
	owner := startChild(t, childStuckEnv+"="+w.b.cfg.Socket)
	at := <-hiring
	stuck, err := at.conn.Import(ctx, "child")
	must(t, err)
	src, err := w.server.Register(stuckSize)
	must(t, err)
	for i, kind := range []Kind{Write, Read} {
		began := time.Now()
		op, err := at.conn.Post(ctx, &Work{Kind: kind, Local: src, Len: 8192, Remote: stuck, RemoteOff: 4096})
		must(t, err)
		eventually(t, "the courier hangs", 10*time.Second, func() bool { return hanging(t) == 1 })
		if i == 0 && op.Done() {
			t.Fatal("an operation on memory that hangs is done")
		}
		others(byte(2 + i))
		if err := op.Wait(ctx); !errors.Is(err, ErrMemory) {
			t.Fatalf("an operation of kind %v on memory that hangs: %v", kind, err)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	owner.signal(syscall.SIGKILL)
	<-owner.ends
	if _, err := at.conn.WaitNotify(ctx); !errors.Is(err, ErrReset) {
		t.Errorf("the peer of a process that was killed was told %v", err)
	}
	others(4)
	if n := hanging(t); n != 1 || charged(t, w.b) <= charges {
		t.Errorf("%d couriers hang and %d bytes are charged, %d before, when the process is gone: it is charged for "+
			"its courier as long as that hangs", n, charged(t, w.b), charges)
	}
	fuse.kill()
	must(t, src.Close())
	must(t, at.mem.Close())
	eventually(t, "nothing of it is left", 10*time.Second,
		func() bool { return hanging(t) == 0 && charged(t, w.b) == charges && openFiles(t) <= files })
	others(5)
}
