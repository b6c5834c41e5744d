package linkdrv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of Send and Recv are built once, when the driver is opened, and match these with errors.Is.
var (
	// ErrLinkDown: the interface is administratively down. It can come up again under the same driver.
	ErrLinkDown = errors.New("link is down")
	// ErrLinkGone: the interface was deleted or moved to another namespace. The driver must be closed. It is an
	// ErrLinkDown too.
	ErrLinkGone = fmt.Errorf("link is gone (%w)", ErrLinkDown)
	// ErrTooLong: a frame exceeds the interface's MTU.
	ErrTooLong = errors.New("frame too long for the link")
	// ErrRefused: the device took no frame of that length for some time, although its own MTU is larger. It is an
	// ErrTooLong too.
	ErrRefused = fmt.Errorf("the device takes no frame of this length, as if what is behind it had a smaller MTU: %w",
		ErrTooLong)
	// ErrBadFrame: a frame is shorter than an Ethernet header or was refused as invalid by the kernel.
	ErrBadFrame = errors.New("malformed frame")
	// ErrNoLink: Open found no interface of that name.
	ErrNoLink = errors.New("no such interface")
	// ErrClosed: the driver was closed. It is net.ErrClosed too.
	ErrClosed = fmt.Errorf("driver: %w", net.ErrClosed)
)

// linkErrors are the errors of one driver, made beforehand so that failing costs no allocation.
type linkErrors struct{ down, gone, tooLong, shut, bad, closed error }

func newLinkErrors(i Info) linkErrors {
	return linkErrors{
		down: fmt.Errorf("linkdrv: %s: %w; bring it up with: ip link set %s up", i.Name, ErrLinkDown, i.Name),
		gone: fmt.Errorf("linkdrv: %s (index %d): %w; close the driver and open the interface anew", i.Name, i.Index,
			ErrLinkGone),
		tooLong: fmt.Errorf("linkdrv: %s: %w; its MTU was %d when opened, frames may have %d bytes", i.Name, ErrTooLong,
			i.MTU, i.MTU+HeaderLen),
		shut: fmt.Errorf("linkdrv: %s: %w", i.Name, ErrRefused),
		bad: fmt.Errorf("linkdrv: %s: %w; it needs at least the %d bytes of an Ethernet header", i.Name,
			ErrBadFrame, HeaderLen),
		closed: fmt.Errorf("linkdrv: %s: %w", i.Name, ErrClosed),
	}
}

// explainOpen adds to an error of opening a packet socket what to do about it.
func explainOpen(name string, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		exe, exeErr := os.Executable()
		if exeErr != nil {
			exe = "PROGRAM"
		}
		return fmt.Errorf("linkdrv: %s: packet sockets need CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep %s`, "+
			"or AmbientCapabilities=CAP_NET_RAW in the systemd unit: %w", name, exe, err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("linkdrv: %s: this kernel has no packet sockets: load af_packet (CONFIG_PACKET): %w", name,
			err)
	default:
		return fmt.Errorf("linkdrv: %s: open packet socket: %w", name, err)
	}
}

// unknownLink reports a name that is none of the interfaces'.
func unknownLink(name string, all []net.Interface) error {
	names := make([]string, len(all))
	for i, ifi := range all {
		names[i] = ifi.Name
	}
	return fmt.Errorf("linkdrv: %q: %w; this namespace has: %s", name, ErrNoLink, strings.Join(names, ", "))
}
