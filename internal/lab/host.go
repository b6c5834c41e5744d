package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
)

// Host is one network namespace of a Lab, with interfaces edge0, edge1, ... on its links.
type Host struct {
	lab   *Lab
	index int
	space *space
}

// Index is the host's number, from 0.
func (h *Host) Index() int { return h.index }

// Name is "host0", "host1" and so on.
func (h *Host) Name() string { return fmt.Sprintf("host%d", h.index) }

// LinkNames returns the names its interfaces have now, in the order of the links; "" for one that was deleted.
func (h *Host) LinkNames() []string {
	names := make([]string, len(h.lab.links))
	for i, l := range h.lab.links {
		names[i] = l.Name(h.index)
	}
	return names
}

// MAC is the address its interface on a link has now. It changes when the interface is deleted and made again, as with
// a new card.
func (h *Host) MAC(link int) net.HardwareAddr { return h.lab.links[link].MAC(h.index) }

// IP is its address on a link.
func (h *Host) IP(link int) netip.Addr { return h.lab.address(link, h.index).Addr() }

// Do runs fn on a thread inside the host's namespace. What fn opens there stays there: a socket works from anywhere
// afterwards. Goroutines that fn starts do not run inside. It must have returned before Close.
func (h *Host) Do(fn func() error) error { return h.space.do(fn) }

// Start starts cmd inside the host, as leader of a process group of its own. It is killed, with its group, by Close,
// and dies with this process in any case. Of cmd.SysProcAttr, Pdeathsig and Setpgid are taken over. Wait for it with
// Process.Wait, never cmd.Wait.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) { return h.lab.nursery.start(h.space, cmd) }

// address is the IPv4 address of a host's interface on a link.
func address(link, host int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(link), byte(host + 1)}), 24)
}
