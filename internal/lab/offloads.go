package lab

import (
	"strings"

	"multiedge/internal/ethtool"
)

// offloads are the features of an interface by which many frames pass through the kernel as one, with their usual
// names. Turned off, each frame goes alone, as it leaves a NIC without them.
var offloads = []struct{ feature, name string }{
	{"tx-tcp-segmentation", "TSO"},
	{"tx-udp-segmentation", "USO"},
	{"tx-generic-segmentation", "GSO"},
	{"rx-gro", "GRO"},
}

// Offloads names the offloads that are on at the host's first link: "TSO, GSO, GRO", or "none".
func (h *Host) Offloads() (string, error) {
	on := map[string]bool{}
	err := h.Do(func() (err error) {
		on, err = ethtool.Features(h.LinkNames()[0])
		return err
	})
	if err != nil {
		return "", err
	}
	var names []string
	for _, o := range offloads {
		if on[o.feature] {
			names = append(names, o.name)
		}
	}
	if len(names) == 0 {
		return "none", nil
	}
	return strings.Join(names, ", "), nil
}

// withoutOffloads turns them off, and what they need. The caller's thread is in the interface's namespace.
func withoutOffloads(link string) error {
	change := map[string]bool{}
	for feature := range plainFrames {
		change[feature] = false
	}
	for _, o := range offloads {
		change[o.feature] = false
	}
	return ethtool.Change(link, change)
}
