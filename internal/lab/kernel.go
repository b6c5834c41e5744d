package lab

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// KernelHas reports whether this machine's kernel has interfaces of a type, such as "wireguard".
func KernelHas(linkType string) (bool, error) {
	s, err := newSpace()
	if err != nil {
		return false, err
	}
	defer s.close()
	a := netlink.NewLinkAttrs()
	a.Name = "probe"
	err = s.nl.LinkAdd(&netlink.GenericLink{LinkAttrs: a, LinkType: linkType})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return err == nil, err
}
