package lab

import (
	"cmp"
	"errors"
	"fmt"

	"multiedge/internal/fault"
)

// Medium is what joins the ends of a link.
type Medium uint8

const (
	Auto   Medium = iota // Wire if the link has faults, else Switch if it has a rate or more than two hosts, else Cable
	Cable                // a bare veth pair between two hosts: fastest, cannot be cut nor shaped
	Switch               // a bridge: shaped by the kernel, can be cut
	Wire                 // user space: faults, rates and cuts, at a few Gbit/s
	Routed               // a router: hosts have no Ethernet in common, only IP
)

func (m Medium) String() string { return [...]string{"auto", "cable", "switch", "wire", "router"}[m] }

// Limits of a lab. Links is the engine's limit on links of a node.
const (
	MaxHosts = 16
	MaxLinks = 64
	MaxPaths = 16
	MinMTU   = 256
	MaxMTU   = 65535
)

// Spec describes a lab. The zero value is two hosts joined by one cable of MTU 9000.
type Spec struct {
	Hosts  int      // 2 if zero
	Links  int      // 1 if zero
	MTU    int      // bytes of Ethernet payload; 9000 if zero
	Rates  []string // per link, "1gbit", "250mbit"; one entry serves all links; "" is unlimited
	Medium Medium   // what to build links of
	IPv6   bool     // addresses on Routed links are IPv6's
	// ways between the first host's router and that of all others, of Routed links; 1 if zero: one router for all
	Paths int
	// every frame crosses the links alone, as from NICs without TSO, GSO and GRO
	NoOffloads bool
	Faults            // what every link does to its frames; changed later by Link.SetFaults
	Seed       uint64 // of the faults: the same seed spoils the same frames
}

// Faults is what a Wire does to each frame that it carries.
type Faults = fault.Faults

// normal fills in defaults and refuses what cannot be built. It returns the rate of each link in bytes per second, 0
// for unlimited.
func (s *Spec) normal() (rates []uint64, err error) {
	s.Hosts, s.Links, s.MTU = cmp.Or(s.Hosts, 2), cmp.Or(s.Links, 1), cmp.Or(s.MTU, 9000)
	switch {
	case s.Hosts < 2 || s.Hosts > MaxHosts:
		return nil, fmt.Errorf("lab: %d hosts: give 2 to %d", s.Hosts, MaxHosts)
	case s.Links < 1 || s.Links > MaxLinks:
		return nil, fmt.Errorf("lab: %d links: give 1 to %d", s.Links, MaxLinks)
	case s.MTU < MinMTU || s.MTU > MaxMTU:
		return nil, fmt.Errorf("lab: MTU %d: give %d to %d", s.MTU, MinMTU, MaxMTU)
	case s.Medium > Routed:
		return nil, fmt.Errorf("lab: medium %d is unknown", s.Medium)
	case len(s.Rates) > 1 && len(s.Rates) != s.Links:
		return nil, fmt.Errorf("lab: %d rates for %d links: give one for all or one for each", len(s.Rates), s.Links)
	case s.Medium != Auto && s.Medium != Wire && s.Faults.Any():
		return nil, fmt.Errorf("lab: a %s has no faults: leave Medium at Auto or choose Wire", s.Medium)
	case s.IPv6 && s.Medium != Routed:
		return nil, errors.New("lab: only routed links have IPv6 addresses")
	case s.Paths < 0 || s.Paths > MaxPaths:
		return nil, fmt.Errorf("lab: %d paths: give 1 to %d", s.Paths, MaxPaths)
	case s.Paths > 1 && s.Medium != Routed:
		return nil, errors.New("lab: only routed links have several paths")
	case s.Medium == Cable && (s.Hosts > 2 || len(s.Rates) > 0):
		return nil, errors.New("lab: a cable joins two hosts and has no rate: choose Switch or Wire")
	}
	if err := s.Faults.Check(); err != nil {
		return nil, err
	}
	rates = make([]uint64, s.Links)
	for i := range rates {
		if len(s.Rates) == 0 {
			break
		}
		if rates[i], err = ParseRate(s.Rates[i%len(s.Rates)]); err != nil {
			return nil, fmt.Errorf("link %d: %w", i, err)
		}
	}
	return rates, nil
}

// medium is what a link of the given rate is built of.
func (s *Spec) medium(rate uint64) Medium {
	switch {
	case s.Medium != Auto:
		return s.Medium
	case s.Faults.Any():
		return Wire
	case rate > 0 || s.Hosts > 2:
		return Switch
	}
	return Cable
}
