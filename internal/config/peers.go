package config

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"multiedge/internal/identity"
	"multiedge/internal/secure"
)

// Authorised are the peers in force, with where they were found.
type Authorised struct {
	*secure.Peers
	self    secure.PublicKey
	File    string // empty: none
	Inline  []Peer // of the configuration
	sources []identity.Source
}

// ReadPeers reads the peers that the configuration authorises. self, the node's own key, may be among them. inline: no
// file is read. old is in force now; nil: nothing is.
func (c *Config) ReadPeers(self secure.PublicKey, inline bool, old *Authorised) (*Authorised, error) {
	a := &Authorised{Inline: c.Peers, self: self}
	if !inline {
		a.File = c.PeersFile
	}
	return a, a.load(old)
}

// Reread reads the file again, to take the place of a, with inline for the peers of the configuration.
func (a *Authorised) Reread(inline []Peer) (*Authorised, error) {
	again := &Authorised{self: a.self, File: a.File, Inline: inline}
	return again, again.load(a)
}

// Read reads again what a was read from, as a start would.
func (a *Authorised) Read() (*Authorised, error) {
	again := &Authorised{self: a.self, File: a.File, Inline: a.Inline}
	return again, again.load(nil)
}

// load fills a from its file and its part of the configuration. old is in force now; nil: nothing is.
func (a *Authorised) load(old *Authorised) (err error) {
	var sources []identity.Source
	if a.File != "" {
		read := identity.ReadPeers
		if old.filed(a.File) {
			read = identity.ReadPeersAgain
		}
		peers, err := read(a.File)
		if err != nil {
			return err
		}
		sources = append(sources, identity.Source{Name: a.File, Peers: a.others(peers)})
	}
	inline, err := parsePeers(a.Inline)
	if err != nil {
		return err
	}
	a.sources = append(sources, identity.Source{Name: "configuration", Peers: a.others(inline)})
	a.Peers, err = identity.Merge(a.sources...)
	return err
}

// filed reports whether a has peers of that file.
func (a *Authorised) filed(file string) bool {
	return a != nil && a.File == file && len(a.sources) > 0 && len(a.sources[0].Peers) > 0
}

// others leaves out the node itself, which may be in a file that all nodes share.
func (a *Authorised) others(peers []secure.Peer) []secure.Peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p secure.Peer) bool { return p.Key == a.self })
}

func parsePeers(list []Peer) (out []secure.Peer, err error) {
	for _, p := range list {
		key, err := secure.ParsePublicKey(p.Key)
		if err != nil {
			return nil, fmt.Errorf("peer %q: %w", p.Name, err)
		}
		if slices.Contains(p.Allow, "") {
			return nil, fmt.Errorf("peer %q: allow names no network; leave it out, and the peer may be anywhere",
				p.Name)
		}
		one := secure.Peer{Name: p.Name, Key: key, Endpoints: strings.Join(p.Endpoints, ","),
			Allow: strings.Join(p.Allow, ",")}
		if _, err := secure.NewPeers(one); err != nil {
			return nil, fmt.Errorf("peer %q: %w", p.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// Source says where a peer was found.
func (a *Authorised) Source(p secure.Peer) string {
	for _, s := range a.sources {
		if slices.ContainsFunc(s.Peers, func(o secure.Peer) bool { return o.Name == p.Name && o.Key == p.Key }) {
			return s.Name
		}
	}
	return ""
}

// checkSecurity checks what can be checked without files.
func (c *Config) checkSecurity(p *problems) {
	p.oneOf("security", c.Security, []string{Encrypted, Plaintext})
	if c.Security == Encrypted {
		p.check(c.NodeID == "", "node_id", "with security = \"encrypted\" a node is who its key says, so that nobody "+
			"can pretend to be it: leave node_id out (edgectl status shows the identity)")
		p.check(c.KeyFile != "", "key_file", "there is no home directory to keep the key in: name a file")
	}
	list, err := parsePeers(c.Peers)
	if err == nil {
		_, err = secure.NewPeers(list...)
	}
	p.check(err == nil, "peer", "%v", err)
}

// CheckFiles looks up users and groups and reads the key and the peers as a start would, without making a key. What a
// start would find wrong is the error.
func (c *Config) CheckFiles() error {
	_, err := c.GroupID()
	_, unknown := c.ResolveServices()
	_, strange := c.ResolveAdmins()
	if err = errors.Join(err, unknown, strange); err != nil || c.Security == Plaintext {
		return err
	}
	_, err = identity.ReadKey(c.KeyFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = nil // it will be made; or it is the daemon's user's, and whoever checks is another
	}
	_, peersErr := c.ReadPeers(secure.PublicKey{}, false, nil)
	return errors.Join(err, peersErr)
}
