package edge

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"multiedge/edge/internal/memnet"
	"multiedge/internal/config"
	"multiedge/internal/secure"
	"multiedge/linkdrv"
)

// Fabric is package fabric for the tests of this package, which cannot import it.
type Fabric struct {
	net memnet.Net

	mu   sync.Mutex
	devs []*Device
}

func NewFabric() *Fabric { return &Fabric{} }

func (f *Fabric) plug(link string) (linkdrv.Driver, error) { return f.net.Plug(link) }

func (f *Fabric) Open(name string) (*Device, error) {
	return f.OpenConfig(context.Background(), name, Config{})
}

func (f *Fabric) OpenConfig(ctx context.Context, name string, cfg Config) (*Device, error) {
	e := Embedded{}
	if cfg.Embedded != nil {
		e = *cfg.Embedded
	}
	e.Name, e.Links = name, []string{"mem0"}
	if e.Security == "" {
		e.Security = config.Plaintext
	}
	cfg.Embedded = &e
	d, err := door{}.OpenOn(ctx, cfg, f.plug)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devs = append(f.devs, d)
	return d, nil
}

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

// newKey is node.NewKey.
func newKey() (private, public string) {
	k := secure.NewPrivateKey()
	return k.Text(), k.Public().String()
}

// publicKey is node.PublicKey.
func publicKey(ctx context.Context, d *Device) (string, error) {
	body, err := d.status(ctx, "status")
	if err != nil {
		return "", err
	}
	var st struct {
		PublicKey string `json:"public_key"`
	}
	err = json.Unmarshal(body, &st)
	return st.PublicKey, err
}
