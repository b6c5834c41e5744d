package shard

import (
	"os"
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// A doorbell may be closed, and its number be another file's, once its client is gone: not before the last ring.
func TestGoneAfterTheLastRing(t *testing.T) {
	var pipe [2]int // full: who rings waits
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	size, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	full := make([]byte, size)
	if _, err := unix.Write(pipe[1], full); err != nil {
		t.Fatal(err)
	}
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := newSleeper(t, s)
	c.ring.bell = ipc.DoorbellFromFD(pipe[1])
	now := mono.Now()
	c.ring.long(now, time.Hour) // from here on a goroutine rings
	c.given(s)
	s.detach(now, c.Client)
	if s.Iterate(now); s.clients.list[c.slot] != nil {
		t.Fatal("the shard has not let go of the client")
	}
	select {
	case <-c.Gone():
		t.Error("the client is gone while its doorbell is yet to be rung")
	default:
	}
	if n, err := unix.Read(pipe[0], full); n != size || err != nil {
		t.Fatal(n, err)
	}
	<-c.Gone()
	if n, err := unix.Read(pipe[0], full); n != 8 || err != nil {
		t.Errorf("gone before the last ring: %d bytes, %v", n, err)
	}
}
