package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childHeapEnv makes the child one that grants memory on its heap to "work" at "a" as "child", writes "mem" from
// another part of it over and over, and doubles bytes of "child" that it is notified of.
const childHeapEnv = "EDGE_TEST_HEAP"

func beHeapChild(socket string) error {
	ctx := context.Background()
	d, err := Open(ctx, Config{Socket: socket, QueueDepth: 8})
	if err != nil {
		return err
	}
	c, err := d.Dial(ctx, "a", "work")
	if err != nil {
		return err
	}
	from, theirs := bytes.Repeat([]byte{0xc1}, childSize), make([]byte, childSize)
	local, err := grantBytes(ctx, d, from)
	if err != nil {
		return err
	}
	r, err := grantBytes(ctx, d, theirs)
	if err != nil {
		return err
	}
	if _, err := r.Export(c, "child", RemoteRead|RemoteWrite, 0, childSize); err != nil {
		return err
	}
	mem, err := c.Import(ctx, "mem")
	if err != nil {
		return err
	}
	go func() {
		for {
			n, err := c.WaitNotify(ctx)
			if err != nil {
				return
			}
			for i, b := range theirs[n.Offset:][:n.Len] {
				theirs[int(n.Offset)+i] = 2 * b
			}
			runtime.GC() // it moves nothing that was granted
		}
	}()
	for first := true; ; first = false {
		op, err := c.Post(ctx, &Work{Kind: Write, Local: local, Len: childSize, Remote: mem})
		if err != nil {
			return err
		}
		if first {
			if err := op.Wait(ctx); err != nil {
				return err
			}
			fmt.Println("at work")
		}
	}
}

// TestHeapOfProcess: the heap of another process is written and read through its daemon; that process is killed with
// its queue full, its peer gets a typed answer, and nothing of it is left.
func TestHeapOfProcess(t *testing.T) {
	ctx := testContext(t)
	w := newWorkplace(t)
	charged := func() (pinned uint64, threads int) {
		snap, err := w.b.d.Snapshot()
		must(t, err)
		tasks, err := os.ReadDir("/proc/self/task")
		must(t, err)
		for _, task := range tasks {
			name, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/comm")
			// the process's first thread cannot end: the runtime keeps it, with its name, if a courier ran there
			first := task.Name() == strconv.Itoa(os.Getpid())
			if strings.TrimSpace(string(name)) == "edge-courier" && !first {
				threads++
			}
		}
		return snap.Status.PinnedBytes, threads
	}
	before, _ := charged()
	for round := range byte(3) {
		hiring := w.hire(t)
		child := startChild(t, childHeapEnv+"="+w.b.cfg.Socket)
		at := <-hiring
		if bytes.Count(at.mem.Bytes(), []byte{0xc1}) != childSize {
			t.Fatal("the child's heap did not arrive")
		}
		if _, n := charged(); n > 1 {
			t.Fatalf("%d threads carry", n)
		}
		theirs, err := at.conn.Import(ctx, "child")
		must(t, err)
		src, err := w.server.Register(childSize)
		must(t, err)
		for i := range src.Bytes() {
			src.Bytes()[i] = 1 + round
		}
		op, err := at.conn.Post(ctx, &Work{Kind: Write, Local: src, Len: childSize, Remote: theirs, Flags: Notify})
		must(t, err)
		must(t, op.Wait(ctx))
		eventually(t, "the child doubles what was written", 10*time.Second, func() bool {
			op, err := at.conn.Post(ctx, &Work{Kind: Read, Local: src, Len: childSize, Remote: theirs})
			must(t, err)
			must(t, op.Wait(ctx))
			return bytes.Count(src.Bytes(), []byte{2 + 2*round}) == childSize
		})
		stop := make(chan error, 1)
		go func() {
			for {
				op, err := at.conn.Post(ctx, &Work{Kind: Write, Local: src, Len: childSize, Remote: theirs})
				if err == nil {
					err = op.Wait(ctx)
				}
				if err != nil {
					stop <- err
					return
				}
			}
		}()
		child.signal(syscall.SIGKILL)
		if err := <-stop; !errors.Is(err, ErrReset) && !errors.Is(err, ErrMemory) {
			t.Fatalf("writing to a process that is killed: %v", err)
		}
		if _, err := at.conn.WaitNotify(ctx); !errors.Is(err, ErrReset) {
			t.Fatalf("the peer was told %v", err)
		}
		must(t, src.Close())
		must(t, at.mem.Close())
		eventually(t, "nothing of the process is left", 10*time.Second, func() bool {
			pinned, threads := charged()
			return pinned == before && threads == 0
		})
	}
}
