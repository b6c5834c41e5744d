package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/internal/ipc"
)

// A link with listen is a UDP port: what it cannot have is refused, each with its key.
func TestIPLinks(t *testing.T) {
	base := func() Config {
		return Config{KeyFile: filepath.Join(t.TempDir(), "key"), Links: []Link{{Listen: "10.0.0.1:9470"},
			{Name: "eth1"}}}
	}
	cfg := base()
	must(t, cfg.Normalize())
	must(t, cfg.Normalize()) // as before
	if l := cfg.Links[0]; l.Driver != "ip" || l.Name != "10.0.0.1:9470" || cfg.Links[1].Driver == "ip" {
		t.Errorf("%+v", cfg.Links)
	}
	for want, change := range map[string]func(*Config){
		"link.listen":  func(c *Config) { c.Links[0].Listen = "eth1:9470" },
		"link.driver":  func(c *Config) { c.Links[0].Driver = "ring" },
		"needs listen": func(c *Config) { c.Links[1].Driver = "ip" },
		"encrypted":    func(c *Config) { c.Security = Plaintext },
		"smaller one":  func(c *Config) { c.Shards, c.Links[0].Listen = 2, "10.0.0.1:65535" },
		"further apart": func(c *Config) {
			c.Shards, c.Links[1] = 3, Link{Listen: ":9472"}
		},
		"did you mean": func(c *Config) { c.Links[0].Congestion = "wen" },
		"profile":      func(c *Config) { c.Links[1].Congestion = "wan" },
		"link.ecn":     func(c *Config) { c.Links[0].ECN = "on" },
		"no router":    func(c *Config) { c.Links[1].ECN = ECNOff },
		"link.dscp":    func(c *Config) { c.Links[0].DSCP = 64 },
		"link.lanes":   func(c *Config) { c.Links[0].Lanes = 17 },
		"interface":    func(c *Config) { c.Links[1].Lanes = 2 },
		"each lane":    func(c *Config) { c.Links = manyLanes(5) },
		"copy":         func(c *Config) { c.Copy = CopyShuffle },
		"listed twice": func(c *Config) { c.Links[1] = c.Links[0] },
		"64 bytes":     func(c *Config) { c.Links[0].Name = strings.Repeat("x", 65) },
		"endpoint":     func(c *Config) { c.Peers = []Peer{{Name: "a", Key: testKey, Endpoints: []string{"here"}}} },
		"allow":        func(c *Config) { c.Peers = []Peer{{Name: "a", Key: testKey, Allow: []string{"here"}}} },
		"no network":   func(c *Config) { c.Peers = []Peer{{Name: "a", Key: testKey, Allow: []string{""}}} },
	} {
		cfg := base()
		change(&cfg)
		if err := cfg.Normalize(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// manyLanes are so many IP links of 16 lanes each.
func manyLanes(n int) (links []Link) {
	for i := range n {
		links = append(links, Link{Listen: fmt.Sprintf("10.0.0.1:%d", 9470+i), Lanes: 16})
	}
	return links
}

// Lanes have the name of their link, and a number from the second on; another link cannot have it.
func TestLaneNames(t *testing.T) {
	cfg := Config{KeyFile: filepath.Join(t.TempDir(), "key"), Links: manyLanes(4)}
	must(t, cfg.Normalize())
	if a, b := cfg.Links[1].Lane(0), cfg.Links[1].Lane(15); a.Name != "10.0.0.1:9471" || b.Name != "10.0.0.1:9471/15" {
		t.Errorf("%q, %q", a.Name, b.Name)
	}
	cfg = Config{KeyFile: cfg.KeyFile, Links: append(manyLanes(1), Link{Listen: ":1", Name: "10.0.0.1:9470/3"})}
	if err := cfg.Normalize(); err == nil || !strings.Contains(err.Error(), "listed twice") {
		t.Errorf("a link with the name of a lane: %v", err)
	}
}

// testKey is the public key of nobody.
const testKey = "RVhBTVBMRTogcHV0IHRoZSBwZWVyJ3Mga2V5IGhlcmU="

// Of the reservations that a name matches any may admit who offers it; users and groups that do not exist are named.
func TestReservations(t *testing.T) {
	cfg := Config{Rights: Rights{Services: []Service{{Name: "db-*", User: "1001"}, {Name: "db-shared", Group: "2002"},
		{Name: "web", User: "1003", Group: "2002"}}}}
	rs, err := cfg.ResolveServices()
	must(t, err)
	for _, tc := range []struct {
		service string
		uid     uint32
		groups  []uint32
		ok      bool
	}{
		{"db-main", 1001, nil, true}, {"db-main", 1002, nil, false}, {"db-main", 1002, []uint32{2002}, false},
		{"db-main", 0, nil, false},
		{"db-shared", 1002, []uint32{7, 2002}, true}, {"db-shared", 1001, nil, true}, {"db-shared", 1002, []uint32{7},
			false},
		{"web", 1003, nil, true}, {"web", 1, []uint32{2002}, true}, {"web", 1, nil, false}, {"other", 1, nil, true},
		{"xdb-main", 1, nil, true},
	} {
		err := rs.Allow(tc.service, tc.uid, func() ([]uint32, error) { return tc.groups, nil })
		e, _ := errors.AsType[*ipc.Error](err)
		if (err == nil) != tc.ok || err != nil && (e == nil || e.Code != ipc.CodeDenied || !strings.Contains(e.Text,
			"reserved for")) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	dir := t.TempDir()
	bad := Config{
		KeyFile:   filepath.Join(dir, "key"),
		PeersFile: filepath.Join(dir, "peers"),
		Links:     []Link{{Name: "eth1"}},
		Rights: Rights{Services: []Service{{Name: "x", User: "no-such-user"},
			{Name: "y", Group: "no-such-group"}}},
	}
	must(t, bad.Normalize())
	if err := bad.CheckFiles(); err == nil || !strings.Contains(err.Error(), `no user "no-such-user"`) ||
		!strings.Contains(err.Error(), `no group "no-such-group"`) {
		t.Errorf("check: %v", err)
	}
	for _, s := range []Service{{}, {Name: "x"}, {Name: "[", User: "1"}} {
		c := Config{Links: []Link{{Name: "eth1"}}, Rights: Rights{Services: []Service{s}}}
		if err := c.Normalize(); err == nil || !strings.Contains(err.Error(), "service") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
