package lab

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// space is a network namespace without a name, held by a descriptor.
type space struct {
	fd netns.NsHandle
	nl *netlink.Handle // route netlink inside it; safe for concurrent use
}

// newSpace makes a namespace whose loopback interface is up and whose interfaces stay silent on IPv6.
func newSpace() (*space, error) {
	s := &space{fd: netns.None()}
	err := restoring(func() (err error) {
		if s.fd, err = netns.New(); err != nil {
			return explain("make a network namespace", err)
		}
		quiet()
		s.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err == nil {
		err = loopbackUp(s.nl)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close lets go of the namespace; the kernel removes it when nothing else is inside.
func (s *space) close() {
	if s.nl != nil {
		s.nl.Close()
	}
	if s.fd.IsOpen() {
		s.fd.Close()
	}
}

// do runs fn on a thread inside the namespace.
func (s *space) do(fn func() error) error {
	return restoring(func() error {
		if err := netns.Set(s.fd); err != nil {
			return fmt.Errorf("lab: enter network namespace: %w", err)
		}
		return fn()
	})
}

// restoring runs fn, which may change the thread's network namespace, and brings the thread back. Ending the thread
// instead would not do: the runtime parks a process's first thread for ever, and with it the namespace it is in.
func restoring(fn func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("lab: /proc must be mounted: %w", err)
	}
	defer home.Close()
	defer func() {
		if err := netns.Set(home); err != nil && !here(home) {
			panic(fmt.Sprintf("BUG: lab: a thread is stuck in a lab's network namespace: %v (EnsurePrivileges not "+
				"called first?)", err))
		}
		runtime.UnlockOSThread()
	}()
	return fn()
}

// here reports whether the thread is in the given namespace.
func here(ns netns.NsHandle) bool {
	now, err := netns.Get()
	if err != nil {
		return false
	}
	defer now.Close()
	return now.Equal(ns)
}

// quiet turns IPv6 off for the interfaces to come. Where /proc/sys is read-only the links carry some neighbour
// discovery; no harm otherwise.
func quiet() {
	for _, which := range []string{"default", "all"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0)
	}
}

func loopbackUp(nl *netlink.Handle) error {
	lo, err := nl.LinkByName("lo")
	if err == nil {
		err = nl.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("lab: loopback interface: %w", err)
	}
	return nil
}
