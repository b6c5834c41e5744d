package secure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// maxName is the length of the longest node name, in bytes.
const maxName = 64

// Peer is one node that may talk to us, and the name we dial it by.
type Peer struct {
	Name string
	Key  PublicKey
	// Endpoints are where it is reached over IP, HOST:PORT each, joined by commas; empty: nobody says.
	Endpoints string
	// Allow are the networks in which its IP addresses must be, such as 10.0.0.0/8, joined by commas; empty: all are.
	Allow string
}

// MaxEndpoints is how many endpoints a peer can have.
const MaxEndpoints = 16

// CheckEndpoints says what is wrong with the endpoints of a peer.
func CheckEndpoints(joined string) error {
	if joined == "" {
		return nil
	}
	all := strings.Split(joined, ",")
	if len(all) > MaxEndpoints {
		return fmt.Errorf("%d endpoints: a peer can have %d", len(all), MaxEndpoints)
	}
	for _, text := range all {
		host, port, err := net.SplitHostPort(text)
		number, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || bad != nil || number == 0 || strings.ContainsAny(text, " \t#%") {
			return fmt.Errorf("endpoint %.80q: want HOST:PORT, such as 10.0.2.7:9470 or [2001:db8::7]:9470", text)
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			if err := CheckEndpointIP(ip.Unmap()); err != nil {
				return fmt.Errorf("endpoint %.80q: %w", text, err)
			}
		}
	}
	return nil
}

// CheckEndpointIP says why no peer can be at an IP address.
func CheckEndpointIP(ip netip.Addr) error {
	switch {
	case ip.IsMulticast():
		return errors.New("that is the address of a group; give the peer's own")
	case ip.IsUnspecified():
		return errors.New("that is no host's address; give the peer's own")
	case ip.Is6() && ip.IsLinkLocalUnicast():
		return errors.New("an address that begins with fe80 is of one link; give another of the peer's")
	}
	return nil
}

// Peers is the table of authorised peers. It does not change: a reload makes a new one. The zero value authorises
// nobody.
type Peers struct {
	list   []Peer
	byNode map[[8]byte]int
	byName map[string]int
	allow  map[[8]byte][]netip.Prefix // of those that are confined
}

// NewPeers makes a table. Names and keys must differ.
func NewPeers(list ...Peer) (*Peers, error) {
	p := &Peers{list: list, byNode: map[[8]byte]int{}, byName: map[string]int{}, allow: map[[8]byte][]netip.Prefix{}}
	for i, e := range list {
		if err := errors.Join(checkName(e.Name), CheckEndpoints(e.Endpoints)); err != nil {
			return nil, err
		}
		if j, twice := p.byName[e.Name]; twice && list[j].Key != e.Key {
			return nil, fmt.Errorf("peer %q has two keys; give the two nodes different names", e.Name)
		}
		if j, twice := p.byNode[e.Key.Node()]; twice {
			return nil, fmt.Errorf("peers %q and %q have the same key %v; every node has its own", list[j].Name, e.Name,
				e.Key)
		}
		allow, err := e.checkAllow()
		if err != nil {
			return nil, err
		}
		if p.byName[e.Name], p.byNode[e.Key.Node()] = i, i; allow != nil {
			p.allow[e.Key.Node()] = allow
		}
	}
	return p, nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' ||
			r == '#' || r == 0x7f
	}) {
		return fmt.Errorf("peer name %.70q: 1 to %d bytes without blanks and #", name, maxName)
	}
	return nil
}

// allowWord begins the word of a line that confines a peer to networks.
const allowWord = "allow="

// Line is the peer as a line of an authorised-peers file.
func (p *Peer) Line() string {
	line := p.Key.String() + " " + p.Name
	if p.Endpoints != "" {
		line += " " + p.Endpoints
	}
	if p.Allow != "" {
		line += " " + allowWord + p.Allow
	}
	return line
}

// parsePeer reads the words of a line.
func parsePeer(words []string) (p Peer, err error) {
	rest := words[min(2, len(words)):]
	if n := len(rest); n > 0 && strings.HasPrefix(rest[n-1], allowWord) {
		p.Allow, rest = strings.TrimPrefix(rest[n-1], allowWord), rest[:n-1]
		if p.Allow == "" {
			return p, errors.New("allow= names no network; leave it out, and the peer may be anywhere")
		}
	}
	if len(words) < 2 || len(rest) > 1 {
		return p, errors.New("want a line `KEY NAME`, perhaps with HOST:PORT,... and allow=NETWORK,... behind it, " +
			"with the key as `edgectl key show` prints it on the peer")
	}
	if len(rest) == 1 {
		p.Endpoints = rest[0]
	}
	p.Name = words[1]
	if p.Key, err = ParsePublicKey(words[0]); err != nil {
		return p, err
	}
	if _, err = p.checkAllow(); err != nil {
		return p, err
	}
	return p, errors.Join(checkName(p.Name), CheckEndpoints(p.Endpoints))
}

// ParsePeers reads an authorised-peers file: a line `KEY NAME [ENDPOINT,...] [allow=NETWORK,...]` per peer, `#` starts
// a comment. file names it in errors.
func ParsePeers(text []byte, file string) (*Peers, error) {
	var list []Peer
	lines := bufio.NewScanner(bytes.NewReader(text))
	n := 0
	for lines.Scan() {
		n++
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		p, err := parsePeer(words)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		list = append(list, p)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = errors.New("a line is longer than 64 KiB")
		}
		return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
	}
	p, err := NewPeers(list...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// List returns the peers in order. The caller must not change it.
func (p *Peers) List() []Peer {
	if p == nil {
		return nil
	}
	return p.list
}

// ByNode returns the peer of that identity.
func (p *Peers) ByNode(id [8]byte) (Peer, bool) {
	if p == nil {
		return Peer{}, false
	}
	i, ok := p.byNode[id]
	if !ok {
		return Peer{}, false
	}
	return p.list[i], true
}

// ByName returns the peer of that name.
func (p *Peers) ByName(name string) (Peer, bool) {
	if p == nil {
		return Peer{}, false
	}
	i, ok := p.byName[name]
	if !ok {
		return Peer{}, false
	}
	return p.list[i], true
}
