package edge

import (
	"fmt"

	"multiedge/internal/daemon"
)

// authorise sets the peers of an embedded node. One that has a name of before stays where that one may be: an
// application that gives a peer a new key does not let it out of its networks.
func (d *Device) authorise(peers map[string]string) error {
	e, ok := d.at.Load().drive.(*daemon.Embedded)
	if !ok {
		return fmt.Errorf("%w: a daemon's peers are chosen by its owner: edgectl peers", ErrDenied)
	}
	if err := e.Daemon().SetPeers(d.cfg.Embedded.peers(peers)); err != nil {
		return invalid("%v", err)
	}
	return nil
}
