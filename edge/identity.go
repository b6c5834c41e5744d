package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/inspect"
	"multiedge/internal/secure"
)

// NewKey makes the identity of an embedded node: the private key for Embedded.Key, which is a secret, and the public
// one for its peers.
func NewKey() (private, public string) {
	k := secure.NewPrivateKey()
	return k.Text(), k.Public().String()
}

// PublicKey returns what peers must authorise to talk to this node; empty when it runs in plaintext.
func (d *Device) PublicKey(ctx context.Context) (string, error) {
	body, err := d.Status(ctx, "status")
	if err != nil {
		return "", err
	}
	var st inspect.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return "", fmt.Errorf("edge: the answer to status: %w", err)
	}
	return st.PublicKey, nil
}

// Authorise sets the peers, public keys by name, that an embedded node talks to. They replace those of Embedded.Peers
// or of an earlier call; those of Embedded.PeersFile stay. Connections with other peers end. Only the owner of a daemon
// chooses its peers (edgectl peers): ErrDenied.
func (d *Device) Authorise(peers map[string]string) error {
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
