package linkdrv

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/net/bpf"
)

// Opener opens an interface, which is Ethernet and up, once for each of n shards: frames of session number s arrive at
// driver s modulo n only (PROTOCOL clause 2.2). No driver takes a frame before all of them can. Options.EtherType is
// not zero. It checks the options that mean something to it, and its errors name the remedy.
type Opener func(ifi *net.Interface, n int, o Options) ([]Driver, error)

// openers are the kinds of driver there are.
var openers = map[string]Opener{}

// Register adds a kind of driver, before anything is opened: in an init function of the file that has it.
func Register(kind string, open Opener) { openers[kind] = open }

// Kinds lists the values of Options.Kind, but for the empty one.
func Kinds() []string {
	kinds := []string{KindAlone}
	for k := range openers {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds[1:])
	return kinds
}

// packetKind is a kind of driver over packet sockets.
type packetKind struct {
	kind  string
	pages bool // it has Options.Pages
	all   bool // its sockets take frames of every EtherType, and its filters choose
	// make adds the receive side to a socket, which is the caller's to close after an error.
	make func(s *socket, ifi *net.Interface, o Options) (packetDriver, error)
}

// packetDriver is a driver over packet sockets.
type packetDriver interface {
	Driver
	// sockets are so many for each driver of one kind; the first sends.
	sockets() []*socket
	// filter passes what socket k is to receive.
	filter(k int, o Options) []bpf.RawInstruction
}

func (s *socket) sockets() []*socket                           { return []*socket{s} }
func (s *socket) filter(_ int, o Options) []bpf.RawInstruction { return acceptFilter(o.Promiscuous) }

func registerPackets(k packetKind) { Register(k.kind, k.open) }

// open is the kind's Opener.
func (k packetKind) open(ifi *net.Interface, n int, o Options) (_ []Driver, err error) {
	if o.Pages && !k.pages {
		return nil, fmt.Errorf("linkdrv: driver %q cannot receive frames at page boundaries: use %q", k.kind, KindMmsg)
	}
	if k.all && o.EtherType == EtherTypeAll {
		return nil, fmt.Errorf("linkdrv: driver %q takes its port from the EtherType: name one", k.kind)
	}
	if o.RingSlots < 0 || o.RingSlots > maxSlots {
		return nil, fmt.Errorf("linkdrv: %d ring slots: want 1 to %d, or 0 for the default", o.RingSlots, maxSlots)
	}
	members := make([]packetDriver, 0, n)
	defer func() {
		if err != nil {
			for _, d := range members {
				d.Close()
			}
		}
	}()
	for range n {
		d, err := k.attach(ifi, o)
		if err != nil {
			return nil, explainOpen(ifi.Name, err)
		}
		members = append(members, d)
	}
	if n > 1 {
		if err := joinGroup(ifi.Name, members); err != nil {
			return nil, err
		}
	}
	drivers := make([]Driver, n)
	for i, d := range members {
		if err := admit(d, o); n == 1 && err != nil {
			return nil, explainOpen(ifi.Name, err)
		} else if err != nil {
			return nil, fmt.Errorf("linkdrv: %s: %w", ifi.Name, err)
		}
		drivers[i] = d
	}
	return drivers, nil
}

// attach makes a driver that no frame reaches yet.
func (k packetKind) attach(ifi *net.Interface, o Options) (packetDriver, error) {
	protocol := o.EtherType
	if k.all {
		protocol = EtherTypeAll
	}
	s, err := newSocket(ifi, protocol, o)
	if err != nil {
		return nil, err
	}
	d, err := k.make(s, ifi, o)
	if err != nil {
		s.Close()
		return nil, err
	}
	return d, nil
}

// opener finds the kind that the options ask for.
func opener(o Options) (Opener, error) {
	open := openers[o.Kind]
	if open == nil {
		return nil,
			fmt.Errorf("linkdrv: unknown driver kind %q: want one of %s, or nothing to choose by interface and "+
				"MTU", o.Kind, strings.Join(Kinds(), ", "))
	}
	return open, nil
}
