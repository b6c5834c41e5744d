package daemon

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/linkdrv"
	"multiedge/linkdrv/linktest"
)

// As many clients are admitted as the configuration in force says, not the one at the start.
func TestReloadAdmitsMoreClients(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits = config.Limits{Clients: 2, ClientsPerUser: 2} })
	cfg := a.d.cfg
	cfg.Limits.Clients, cfg.Limits.ClientsPerUser = 64, 64
	must(t, a.d.Reload(cfg))
	for i := range 64 {
		if err := open(t, a).hello(64); err != nil {
			t.Fatalf("client %d of 64: %v", i+1, err)
		}
	}
}

// A link whose new settings cannot be had is in the error of Reload.
func TestReloadTellsOfLinkThatFails(t *testing.T) {
	broken := errors.New("no such driver here")
	o := Options{Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) {
		if l.Driver == linkdrv.KindUDP {
			return nil, broken
		}
		x, _ := linktest.PairN(0, 9000, 64)
		return x, nil
	}}
	cfg := plaintext(config.Config{Name: "a", Links: []config.Link{{Name: "eth1"}}, Poll: "block"})
	e, err := NewEmbedded(cfg, o)
	must(t, err)
	defer e.Close()
	cfg.Links = []config.Link{{Name: "eth1", Driver: linkdrv.KindUDP}}
	if err := e.d.Reload(cfg); err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Fatalf("reload: %v", err)
	}
}

// A setting that a reload leaves as it was is named.
func TestReloadTellsOfFixedSettings(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	cfg := a.d.cfg
	cfg.Log.Format, cfg.Spin = "json", cfg.Spin+1
	if err := a.d.Reload(cfg); err == nil || err.Error() != "these take effect after a restart only: spin, log.format" {
		t.Errorf("reload: %v", err)
	}
}

// Pages of a region are exchanged in the address space of its user only, so a daemon of its own refuses to be told to.
func TestPageExchangeNeedsEmbedding(t *testing.T) {
	_, err := New(
		config.Config{
			Copy:   config.CopyRemap,
			Links:  []config.Link{{Name: "eth1"}},
			Socket: filepath.Join(t.TempDir(), "s"),
		},
		Options{},
	)
	if err == nil || !strings.Contains(err.Error(), "edge.Embedded.Copy") || !strings.Contains(err.Error(), `"nocp"`) {
		t.Errorf("error %v", err)
	}
}
