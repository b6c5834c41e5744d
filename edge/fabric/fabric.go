// Package fabric is a network in memory on which devices find each other by name, through the whole transport, without
// privileges and interfaces: for tests of programs that use package edge.
package fabric

import (
	"context"
	"errors"
	"sync"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/edge/internal/memnet"
	"multiedge/internal/config"
	"multiedge/linkdrv"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	OpenOn(ctx context.Context, cfg edge.Config, plug func(link string) (linkdrv.Driver, error)) (*edge.Device, error)
})

// Fabric is a network in memory. Frames stay in the process, so they are plaintext unless Embedded.Security says
// otherwise.
type Fabric struct {
	net memnet.Net

	mu   sync.Mutex
	devs []*edge.Device
}

// New returns a fabric without devices.
func New() *Fabric { return &Fabric{} }

// Open returns a new device under a name. Close it, or the Fabric.
func (f *Fabric) Open(name string) (*edge.Device, error) {
	return f.OpenConfig(context.Background(), name, edge.Config{})
}

// OpenConfig is Open with a configuration, of which Socket and Embedded.Links are not used.
func (f *Fabric) OpenConfig(ctx context.Context, name string, cfg edge.Config) (*edge.Device, error) {
	e := edge.Embedded{}
	if cfg.Embedded != nil {
		e = *cfg.Embedded
	}
	e.Name, e.Links = name, []string{"mem0"}
	if e.Security == "" {
		e.Security = config.Plaintext
	}
	cfg.Embedded = &e
	d, err := core.OpenOn(ctx, cfg, f.net.Plug)
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
