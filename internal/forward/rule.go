// Package forward carries TCP and Unix connections over streams of package edge, for programs that know sockets and
// nothing else: static binaries, containers, other languages.
//
//	program -- TCP --> outward rule == stream ==> inward rule -- TCP --> server
//
// An outward rule listens on a socket address and dials a service of a peer for each connection. An inward rule offers
// a service and connects each stream to a socket address. Half-close passes through. A connection that breaks on one
// side is reset on the other, never closed in good order: a program can trust the end of what it reads as it can trust
// TCP's.
package forward

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// DefaultConns is how many connections a rule carries at once if Rule.Conns is 0. Every one of them pins
// stream.Config's buffers.
const DefaultConns = 256

// Rule says what is carried where. Exactly one of Listen and Target is set.
type Rule struct {
	Listen  string `toml:"listen"`  // outward: where programs connect, as ParseAddr takes it
	Peer    string `toml:"peer"`    // outward: the node that has the service
	Service string `toml:"service"` // what is dialled, or offered
	Target  string `toml:"target"`  // inward: where the server listens
	Conns   int    `toml:"conns"`   // connections at once; further ones wait. 0: DefaultConns
}

// String names the rule in logs.
func (r *Rule) String() string {
	if r.Listen != "" {
		return fmt.Sprintf("%s -> %s/%s", r.Listen, r.Peer, r.Service)
	}
	return fmt.Sprintf("%s -> %s", r.Service, r.Target)
}

// Check says what is wrong with the rule and what to write instead.
func (r *Rule) Check() error {
	switch {
	case r.Service == "":
		return errors.New("forward: a rule needs a service")
	case r.Listen != "" && r.Target != "":
		return fmt.Errorf("forward %s: listen and target are two rules: one host listens, the other has the target",
			r.Service)
	case r.Listen == "" && r.Target == "":
		return fmt.Errorf("forward %s: say listen (and peer) where programs connect, or target where the server is",
			r.Service)
	case r.Listen != "" && r.Peer == "":
		return fmt.Errorf("forward %s: listen needs a peer, the node that has the service", r.Service)
	case r.Target != "" && r.Peer != "":
		return fmt.Errorf("forward %s: target takes no peer: every authorised node may use the service", r.Service)
	case r.Conns < 0:
		return fmt.Errorf("forward %s: conns = %d; choose 1 or more", r.Service, r.Conns)
	}
	_, err := ParseAddr(r.Listen + r.Target)
	return err
}

// ParseAddr reads the address of a socket: tcp:HOST:PORT, HOST:PORT, unix:/PATH or /PATH.
func ParseAddr(s string) (net.Addr, error) {
	network, rest, ok := strings.Cut(s, ":")
	if strings.HasPrefix(s, "/") {
		network, rest, ok = "unix", s, true
	}
	switch {
	case ok && network == "unix":
		if !strings.HasPrefix(rest, "/") {
			return nil, fmt.Errorf("forward: %q: a Unix socket is named by its whole path: unix:/run/name.sock", s)
		}
		return &net.UnixAddr{Net: "unix", Name: rest}, nil
	case ok && network == "tcp":
		s = rest
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, fmt.Errorf("forward: %q is no address: want HOST:PORT or /PATH", s)
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, fmt.Errorf("forward: %q has no port: %v", s, err)
	}
	return hostPort{net.JoinHostPort(host, fmt.Sprint(number))}, nil
}

// hostPort is an address of TCP whose host is looked up when it is used.
type hostPort struct{ text string }

func (hostPort) Network() string  { return "tcp" }
func (a hostPort) String() string { return a.text }
