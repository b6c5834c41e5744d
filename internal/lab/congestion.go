package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CongestionControls returns the TCP congestion controls that the kernel has loaded.
func CongestionControls() ([]string, error) {
	data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil, fmt.Errorf("lab: TCP congestion controls of this kernel: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// SetCongestion chooses the TCP congestion control of all connections that the host makes or accepts from now on over
// its links, whatever program has them. It is set at the routes to the links: the kernel refuses to set
// net.ipv4.tcp_congestion_control of a namespace to what net.ipv4.tcp_allowed_congestion_control of the machine does
// not list, which is often all but the default, and a route may name any.
func (h *Host) SetCongestion(name string) error {
	for i, k := range h.lab.links {
		k.mu.Lock()
		n := k.nics[h.index]
		k.mu.Unlock()
		if !n.present {
			continue
		}
		if k.medium == Routed {
			if err := k.routeHost(h.index, name); err != nil {
				return congestionError(name, err)
			}
			continue
		}
		ip := address(i, h.index)
		err := h.space.nl.RouteReplace(&netlink.Route{
			LinkIndex: n.index, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL, Src: ip.Addr().AsSlice(),
			Dst:     &net.IPNet{IP: ip.Masked().Addr().AsSlice(), Mask: net.CIDRMask(ip.Bits(), 32)},
			Congctl: name,
		})
		if err != nil {
			return congestionError(name, err)
		}
	}
	return nil
}

// ErrCongestion is in errors about congestion controls that the kernel does not have.
var ErrCongestion = errors.New("no such TCP congestion control")

// congestionError says why a congestion control could not be set.
func congestionError(name string, err error) error {
	known, e := CongestionControls()
	if e != nil || slices.Contains(known, name) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("lab: TCP congestion control %s: %w", name, err)
	}
	return fmt.Errorf("lab: %w: this kernel has %s, not %q: choose one of these, or load its module (modprobe tcp_%s)",
		ErrCongestion, strings.Join(known, ", "), name, name)
}
