package secure

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// maxName is the length of the longest node name, in bytes.
const maxName = 64

// Peer is one node that may talk to us, and the name we dial it by.
type Peer struct {
	Name string
	Key  PublicKey
}

// Peers is the table of authorised peers. It does not change: a reload makes a new one. The zero value authorises
// nobody.
type Peers struct {
	list   []Peer
	byNode map[[8]byte]int
	byName map[string]int
}

// NewPeers makes a table. Names and keys must differ.
func NewPeers(list ...Peer) (*Peers, error) {
	p := &Peers{list: list, byNode: map[[8]byte]int{}, byName: map[string]int{}}
	for i, e := range list {
		if err := checkName(e.Name); err != nil {
			return nil, err
		}
		if j, twice := p.byName[e.Name]; twice && list[j].Key != e.Key {
			return nil, fmt.Errorf("peer %q has two keys; give the two nodes different names", e.Name)
		}
		if j, twice := p.byNode[e.Key.Node()]; twice {
			return nil, fmt.Errorf("peers %q and %q have the same key %v; every node has its own", list[j].Name, e.Name,
				e.Key)
		}
		p.byName[e.Name], p.byNode[e.Key.Node()] = i, i
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

// ParsePeers reads an authorised-peers file: a line `KEY NAME` per peer, `#` starts a comment. file names it in errors.
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
		if len(words) != 2 {
			return nil,
				fmt.Errorf("%s:%d: want a line `KEY NAME`, with the key as `edgectl key show` prints it on the peer",
					file, n)
		}
		key, err := ParsePublicKey(words[0])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if err := checkName(words[1]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		list = append(list, Peer{Name: words[1], Key: key})
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
