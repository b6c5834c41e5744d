// Package node asks and tells the node behind a Device, the transport that it is attached to: its status, its keys and
// the peers that an embedded one talks to. Programs that only communicate do not need it.
package node

import (
	"context"
	"encoding/json"
	"fmt"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/internal/inspect"
	"multiedge/internal/secure"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Status(ctx context.Context, d *edge.Device, what string) (json.RawMessage, error)
	Authorise(d *edge.Device, peers map[string]string) error
})

// Status returns what the transport says of itself, as the JSON that edgectl -j prints; what is one of "status",
// "link", "peer", "conn", "region", "client". An answer of several pages comes as an array of them.
func Status(ctx context.Context, dev *edge.Device, what string) (json.RawMessage, error) {
	return core.Status(ctx, dev, what)
}

// NewKey makes the identity of an embedded node: the private key for edge.Embedded.Key, which is a secret, and the
// public one for its peers.
func NewKey() (private, public string) {
	k := secure.NewPrivateKey()
	return k.Text(), k.Public().String()
}

// PublicKey returns what peers must authorise to talk to this node; empty when it runs in plaintext.
func PublicKey(ctx context.Context, dev *edge.Device) (string, error) {
	body, err := Status(ctx, dev, "status")
	if err != nil {
		return "", err
	}
	var st inspect.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return "", fmt.Errorf("edge: the answer to status: %w", err)
	}
	return st.PublicKey, nil
}

// Authorise sets the peers, public keys by name, that an embedded node talks to. They replace those of
// edge.Embedded.Peers or of an earlier call; those of Embedded.PeersFile stay. One of a name that Embedded.Endpoints or
// Embedded.Allow has is where these say. Connections with other peers end. Only the owner of a daemon chooses its peers
// (edgectl peers): edge.ErrDenied.
func Authorise(dev *edge.Device, peers map[string]string) error { return core.Authorise(dev, peers) }
