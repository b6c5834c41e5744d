package kit

import (
	"fmt"
	"path/filepath"

	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/secure"
)

// Encrypted reports whether frames are encrypted.
func (c *Cluster) Encrypted() bool { return c.spec.Security != config.Plaintext }

// KeyFile is a host's private key.
func (c *Cluster) KeyFile(host int) string { return filepath.Join(c.dir, fmt.Sprintf("h%d.key", host)) }

// PeersFile is a host's file of authorised peers.
func (c *Cluster) PeersFile(host int) string {
	return filepath.Join(c.dir, fmt.Sprintf("h%d.peers", host))
}

// makeKeys gives each host a key and has it authorise the others, as an administrator of real hosts does with edgectl
// key and edgectl peers.
func (c *Cluster) makeKeys() error {
	if !c.Encrypted() {
		return nil
	}
	hosts := make([]secure.Peer, c.lab.Hosts())
	for i := range hosts {
		key := secure.NewPrivateKey()
		if err := identity.CreateKey(c.KeyFile(i), key); err != nil {
			return err
		}
		hosts[i] = secure.Peer{Name: c.lab.Host(i).Name(), Key: key.Public()}
	}
	for i := range hosts {
		for j, peer := range hosts {
			if i == j {
				continue
			}
			if _, err := identity.AddPeer(c.PeersFile(i), peer); err != nil {
				return err
			}
		}
	}
	return nil
}
