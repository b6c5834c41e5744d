package faults

import (
	"errors"
	"path/filepath"
	"sync"

	"multiedge/bench/kit"
	"multiedge/linkdrv"

	"golang.org/x/sys/unix"
)

// captureMost bounds what is kept of a capture, in frames and bytes.
const (
	captureMost  = 4096
	captureBytes = 16 << 20
)

// capture keeps the first frames that reach a host's interface, set-up included.
type capture struct {
	drv    linkdrv.Driver
	stop   chan struct{}
	done   sync.WaitGroup
	frames [][]byte
	bytes  int
}

// capture begins to listen at the second host, which gets what the first one sends.
func (s *Scene) capture() *capture {
	c := &capture{stop: make(chan struct{})}
	o := linkdrv.Options{Kind: linkdrv.KindUDP, RingSlots: 512} // hears both forms
	kit.Check(s.cluster.Lab().Host(1).Do(func() (err error) {
		c.drv, err = linkdrv.Open(s.cluster.Lab().Host(1).LinkNames()[0], o)
		return err
	}))
	c.done.Go(c.run)
	return c
}

func (c *capture) run() {
	var rx [linkdrv.RecvBatch][]byte
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		n, err := c.drv.Recv(rx[:])
		if err != nil {
			return
		}
		for _, f := range rx[:n] {
			if len(c.frames) < captureMost && c.bytes < captureBytes {
				c.frames = append(c.frames, append([]byte(nil), f...))
				c.bytes += len(f)
			}
		}
		if n == 0 {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(c.drv.FD()), Events: unix.POLLIN}}, 20)
		}
	}
}

// save ends the capture and writes it to a file for an injector.
func (c *capture) save(dir string) (file string, n int, err error) {
	close(c.stop)
	c.done.Wait()
	file = filepath.Join(dir, "captured")
	return file, len(c.frames), errors.Join(c.drv.Close(), writeFile(file, c.frames))
}
