package edge

import (
	"fmt"
	"maps"
	"slices"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
)

// authorise sets the peers of an embedded node.
func (d *Device) authorise(peers map[string]string) error {
	e, ok := d.at.Load().drive.(*daemon.Embedded)
	if !ok {
		return fmt.Errorf("%w: a daemon's peers are chosen by its owner: edgectl peers", ErrDenied)
	}
	if err := e.Daemon().SetPeers(peerList(peers)); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// peerList is in order of names, so that errors are the same each time.
func peerList(peers map[string]string) (list []config.Peer) {
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, config.Peer{Name: name, Key: peers[name]})
	}
	return list
}
