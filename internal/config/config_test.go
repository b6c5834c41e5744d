package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/internal/secure"
)

func TestParseRefusals(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // every one must appear in the error
	}{
		{"misspelt top-level key", "naem = \"a\"\n", []string{"edged.toml:1", `"naem"`, `"name"`}},
		{"misspelt nested key", "[limits]\nregoins = 3\n", []string{"edged.toml:2", `"limits.regoins"`,
			`"limits.regions"`}},
		{"misspelt key of a link", "[[link]]\nname = \"eth1\"\nwieght = 2\n", []string{"edged.toml:3",
			`"link.weight"`}},
		{"misspelt table", "[metricz]\nlisten = \"x\"\n", []string{`"metricz"`, `"metrics"`}},
		{"nothing near", "zzzzzzzz = 1\n", []string{`"zzzzzzzz"`, "keys are name, node_id"}},
		{"every unknown key is reported", "naem = 1\nsokcet = 2\n", []string{`"naem"`, `"sokcet"`}},
		{"syntax", "name = \n", []string{"edged.toml:1: name:", "want text in quotes"}},
		{"syntax of a key behind another", "name = \"a\"\nshards 2\n", []string{"edged.toml:2: "}},
		{"type", "name = 3\n", []string{"edged.toml:1: name: want text in quotes"}},
		{"without quotes", "[[link]]\nname = eth1\n", []string{"edged.toml:2: link.name:", "want text in quotes"}},
		{"one table of many", "[link]\nname = \"eth1\"\n", []string{"edged.toml:1: link: want a line [[link]]"}},
		{"names for tables", "link = [\"eth1\"]\n", []string{"edged.toml:1: link: want a line [[link]]"}},
		{"value for a table", "log = \"info\"\n", []string{"edged.toml:1: log: want a line [log]"}},
		{"number in quotes", "shards = \"2\"\n", []string{"edged.toml:1: shards: want a whole number"}},
		{"text for truth", "wait_links = \"yes\"\n", []string{"want true or false"}},
		{"text for a number", "[[link]]\nweight = \"2\"\n", []string{"edged.toml:2: link.weight: want a number"}},
		{"top-level key in a table", "[log]\nsecurity = \"plaintext\"\n", []string{"edged.toml:2", `"log.security"`,
			`"security" must stand above the first line in brackets`}},
		{"key of a table at the top", "level = \"debug\"\n", []string{`"level" belongs below a line [log]`}},
		{"key of a table of many", "weight = 2\n", []string{`"weight" belongs below a line [[link]]`}},
		{"duration", "spin = \"fast\"\n", []string{"edged.toml:1: spin:", "fast", `such as "15s"`}},
		{"time with a fraction", "dead_time = 1.5\n", []string{"edged.toml:1: dead_time: want a time with its unit"}},
		{"duration without a unit", "name = \"a\"\nspin = 50\n", []string{"edged.toml:2", "spin", "\"50us\""}},
		{"time without a unit, of an embedded struct", "dead_time = 5\n", []string{"edged.toml:1", "dead_time"}},
		{"misspelt key of an embedded struct", "ded_time = \"5s\"\n", []string{"edged.toml:1", `"dead_time"`}},
		{"size", "[limits]\npinned = \"lots\"\n", []string{"lots", "64KiB"}},
		{"negative size", "[limits]\npinned = -1\n", []string{"negative"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text), "edged.toml")
			if err == nil {
				t.Fatalf("accepted %q", tc.text)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not mention %q", err, w)
				}
			}
		})
	}
}

func TestNormalizeRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no link", func(c *Config) { c.Links = nil }, "edged --link"},
		{"same link twice", func(c *Config) { c.Links = append(c.Links, c.Links[0]) }, "twice"},
		{"long link name", func(c *Config) { c.Links[0].Name = "an-interface-with-a-long-name" }, "15 bytes"},
		{"negative weight", func(c *Config) { c.Links[0].Weight = -1 }, "link.weight"},
		{"unknown driver", func(c *Config) { c.Links[0].Driver = "rign" }, `did you mean "ring"?`},
		{"unknown scheduler", func(c *Config) { c.Scheduler = "wssr" }, "scheduler"},
		{"unknown profile", func(c *Config) { c.Profile = "papper" }, "profile"},
		{"unknown poll", func(c *Config) { c.Poll = "bussy" }, `did you mean "busy"?`},
		{"unknown checksum", func(c *Config) { c.Checksum = "none" }, "full, header"},
		{"ethertype is a length", func(c *Config) { c.EtherType = 0x500 }, "ethertype"},
		{"ethertype of IPv4", func(c *Config) { c.EtherType = 0x800 }, "ethertype: 0x800"},
		{"node id", func(c *Config) { c.NodeID = "12" }, "node_id"},
		{"node id and key", func(c *Config) { c.NodeID = "00112233445566ff" }, "a node is who its key says"},
		{"unknown security", func(c *Config) { c.Security = "plaintxt" }, `did you mean "plaintext"?`},
		{"peer without key", func(c *Config) { c.Peers = []Peer{{Name: "b"}} }, `peer: peer "b": a key is 44`},
		{"peer without name", func(c *Config) { c.Peers = []Peer{{Key: secure.PrivateKey{1}.Public().String()}} },
			"peer name"},
		{"two peers of a key", func(c *Config) {
			key := secure.PrivateKey{1}.Public().String()
			c.Peers = []Peer{{Name: "b", Key: key}, {Name: "c", Key: key}}
		}, "the same key"},
		{"zero node id", func(c *Config) { c.NodeID = "0000000000000000" }, "zeros"},
		{"mode", func(c *Config) { c.Mode = "rw" }, "octal"},
		{"socket", func(c *Config) { c.Socket = "/" + strings.Repeat("x", 120) }, "107"},
		{"name with a space", func(c *Config) { c.Name = "a b" }, "white space"},
		{"name that steers a terminal", func(c *Config) { c.Name = "a\x1b[2J" }, "printed"},
		{"name that is no text", func(c *Config) { c.Name = "a\xff" }, "printed"},
		{"queue", func(c *Config) { c.Limits.Queue = 1000 }, "power of two"},
		{"clients", func(c *Config) { c.Limits.Clients = -1 }, "limits.clients"},
		{"metrics address", func(c *Config) { c.Metrics.Listen = "9469" }, "host:port"},
		{"metrics port", func(c *Config) { c.Metrics.Listen = "127.0.0.1:99999" }, "host:port"},
		{"log level", func(c *Config) { c.Log.Level = "loud" }, "debug, info"},
		{"keep-alive above dead time", func(c *Config) { c.KeepAlive = 20 * time.Second }, "dead_time"},
		{"dead time", func(c *Config) { c.DeadTime = 1 }, "dead_time"},
		{"window", func(c *Config) { c.Window = 1 << 20 }, "window"},
		{"unknown copy", func(c *Config) { c.Copy = "zero" }, `copy: "zero" is not one of cp, notx, pinmap, shuffle, nocp`},
		{"in place from a ring", func(c *Config) { c.Copy, c.Links[0].Driver = "nocp", "ring" }, `make it "mmsg"`},
		{"pages from a ring", func(c *Config) { c.Copy, c.Driver = "shuffle", "ring" },
			`receives frames at page boundaries, which the driver "ring" of link "eth1" cannot: leave its driver out`},
		{"pages from datagrams", func(c *Config) { c.Copy, c.Links[0].Driver = "shuffle", "udp" }, `make it "mmsg"`},
		{"misses", func(c *Config) { c.Misses = "forget" }, `misses: "forget"`},
		{"prefetch", func(c *Config) { c.Prefetch = "exactly" }, `prefetch: "exactly"`},
		{"spin", func(c *Config) { c.Spin = time.Hour }, "spin"},
		{"operation window", func(c *Config) { c.OpWindow = 3 }, "op_window"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{Links: []Link{{Name: "eth1"}}}
			tc.change(&c)
			err := c.Normalize()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// Profile paper has a window of 512 frames on every driver: links get receive slots for it unless they name some.
func TestPaperWindowHasSlots(t *testing.T) {
	for profile, want := range map[string]int{"": 0, "default": 0, "paper": 683} {
		c := Config{Profile: profile, Links: []Link{{Name: "eth1"}, {Name: "eth2", Slots: 64}}}
		must(t, c.Normalize())
		if c.Links[0].Slots != want || c.Links[1].Slots != 64 {
			t.Errorf("profile %q: %d and %d slots, want %d and 64", profile, c.Links[0].Slots, c.Links[1].Slots, want)
		}
	}
}

func TestConfigRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edged.toml")
	text := `
name = "alpha"
ethertype = 0x88b6
spin = "20us"
poll = "block"

[limits]
pinned = "2GiB"
regions = 7

[[link]]
name = "eth1"

[[link]]
name = "eth2"
weight = 2.5
driver = "mmsg"
`
	must(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := Load(path)
	must(t, err)
	must(t, c.Normalize())
	if c.Name != "alpha" || c.EtherType != 0x88b6 || c.Spin != 20*time.Microsecond || c.Limits.Pinned != 2<<30 ||
		c.Limits.Regions != 7 {
		t.Fatalf("decoded %+v", c)
	}
	if len(c.Links) != 2 || c.Links[0].Weight != 1 || c.Links[1].Weight != 2.5 || c.Links[1].Driver != "mmsg" {
		t.Fatalf("links %+v", c.Links)
	}
	if c.Limits.Conns == 0 || c.DeadTime == 0 || c.Scheduler != "adaptive" {
		t.Fatalf("defaults missing: %+v", c)
	}
	if _, err := Load(path + "x"); err == nil || !strings.Contains(err.Error(), "edged.tomlx") {
		t.Fatalf("missing file: %v", err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "4096": 4096, "64KiB": 64 << 10, "3 MiB": 3 << 20, "1G": 1 << 30,
		"1GB": 1e9, "2kB": 2000, "7B": 7} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5G", "99999999999TiB", "KiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %v; want an error", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 1: "1B", 1536: "1536B", 4096: "4KiB", 5 << 30: "5GiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d: %q, want %q", uint64(size), got, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	a, again, b := Config{Name: "a"}, Config{Name: "a"}, Config{Name: "b"}
	if PlainIdentity(&a) != PlainIdentity(&again) || PlainIdentity(&a) == PlainIdentity(&b) {
		t.Fatal("an identity must last and differ between names")
	}
	c := Config{NodeID: "00112233445566ff"}
	if got := PlainIdentity(&c).String(); got != c.NodeID {
		t.Fatalf("configured identity: %s", got)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
