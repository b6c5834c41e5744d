package shard

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A client whose first heap grant comes while the daemon stops is told so, and has no courier.
func TestCourierOfAShardThatStopped(t *testing.T) {
	s, stop := alone(t, still(t))
	stop()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	c := &Client{user: NewUser(1)}
	if err := s.Carry(c, pipe[1]); !errors.Is(err, ErrStopped) || c.Courier() != nil {
		t.Errorf("%v, courier %v", err, c.Courier())
	}
	if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil { // the end: the other side is closed
		t.Errorf("its descriptor is left open: %d, %v", n, err)
	}
}
