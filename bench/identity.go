package bench

import (
	"fmt"
	"path/filepath"

	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/secure"
)

func (c *Cluster) encrypted() bool { return c.spec.Security != config.Plaintext }

func (c *Cluster) keyFile(host int) string { return filepath.Join(c.dir, fmt.Sprintf("h%d.key", host)) }

// PeersFile is a host's file of authorised peers.
func (c *Cluster) PeersFile(host int) string {
	return filepath.Join(c.dir, fmt.Sprintf("h%d.peers", host))
}

// makeKeys gives each host a key and has it authorise the others, as an administrator of real hosts does with edgectl
// key and edgectl peers.
func (c *Cluster) makeKeys() error {
	if !c.encrypted() {
		return nil
	}
	hosts := make([]secure.Peer, c.lab.Hosts())
	for i := range hosts {
		key := secure.NewPrivateKey()
		if err := identity.CreateKey(c.keyFile(i), key); err != nil {
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
