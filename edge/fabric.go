package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"multiedge/internal/config"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// Fabric is a network in memory, for tests: devices opened on it reach each other by name, through the whole transport,
// without privileges and interfaces. Frames stay in the process, so they are plaintext unless Embedded.Security says
// otherwise.
type Fabric struct {
	mu    sync.Mutex
	ports []*fabricPort
	devs  []*Device
	next  int
}

// Of every link in a fabric.
const (
	fabricMTU   = 9000
	fabricSlots = 256
)

// NewFabric returns a fabric without devices.
func NewFabric() *Fabric { return &Fabric{} }

// Open returns a new device under a name. Close it, or the Fabric.
func (f *Fabric) Open(name string) (*Device, error) {
	return f.OpenConfig(context.Background(), name, Config{})
}

// OpenConfig is Open with a configuration, of which Socket and Embedded.Links are not used.
func (f *Fabric) OpenConfig(ctx context.Context, name string, cfg Config) (*Device, error) {
	e := Embedded{}
	if cfg.Embedded != nil {
		e = *cfg.Embedded
	}
	e.Name, e.Links = name, []string{"mem0"}
	if e.Security == "" {
		e.Security = config.Plaintext
	}
	e.open = func(link string) (linkdrv.Driver, error) { return f.plug(link) }
	cfg.Embedded = &e
	d, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devs = append(f.devs, d)
	return d, nil
}

// Close closes every device of the fabric.
func (f *Fabric) Close() error {
	f.mu.Lock()
	devs := f.devs
	f.devs = nil
	f.mu.Unlock()
	var errs []error
	for _, d := range devs {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// plug makes a port and a link in memory from it to every other.
func (f *Fabric) plug(link string) (*fabricPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	p, err := newFabricPort(f, link, fabricMAC(f.next))
	if err != nil {
		return nil, err
	}
	for _, q := range f.ports {
		mine, theirs := linktest.Pair(fabricMTU, fabricSlots)
		if err := errors.Join(p.join(q, mine), q.join(p, theirs)); err != nil {
			f.drop(p)
			return nil, err
		}
	}
	f.ports = append(f.ports, p)
	return p, nil
}

func fabricMAC(n int) net.HardwareAddr {
	mac := net.HardwareAddr{0x02, 0x45, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(mac[2:], uint32(n))
	return mac
}

// unplug removes a port and its links.
func (f *Fabric) unplug(p *fabricPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(p)
}

func (f *Fabric) drop(p *fabricPort) {
	kept := f.ports[:0]
	for _, q := range f.ports {
		if q != p {
			q.mourn(p)
			p.mourn(q)
			kept = append(kept, q)
		}
	}
	clear(f.ports[len(kept):])
	f.ports = kept
}
