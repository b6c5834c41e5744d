package daemon

import (
	"errors"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/linkdrv"

	"github.com/vishvananda/netlink"
)

// A host of which one NIC of two is missing starts with the other, and uses the first when it comes. A reload
// judges links as a start does: one that is missing is waited for beside another, and links that are all missing are
// refused.
func TestOneNICIsMissing(t *testing.T) {
	wires(t, 1, 1500)
	of := func(names ...string) config.Config {
		cfg := config.Config{Name: "a", Poll: "block"}
		for _, name := range names {
			cfg.Links = append(cfg.Links, config.Link{Name: name})
		}
		return plaintext(cfg)
	}
	for _, o := range []config.Config{of("nic7"), of("nic7", "nic8")} {
		if _, err := NewEmbedded(o, Options{}); !errors.Is(err, linkdrv.ErrNoLink) || !strings.Contains(err.Error(),
			"--wait-links") {
			t.Fatalf("a start without any link: %v", err)
		}
	}
	e, err := NewEmbedded(of("nic7", "a0"), Options{Log: logTo(t)})
	must(t, err)
	defer e.Close()
	state := func(want map[string]bool) {
		t.Helper()
		var last []inspect.LinkStatus
		until(t, "links", deadline, func() bool {
			last = snapshot(t, e.d).Links
			right := len(last) == len(want)
			for _, l := range last {
				up, there := want[l.Name]
				right = right && there && l.Up == up
			}
			return right
		})
	}
	state(map[string]bool{"nic7": false, "a0": true})

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "nic7", 1500
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far7"}))
	set(t, "far7", netlink.LinkSetUp)
	set(t, "nic7", netlink.LinkSetUp)
	state(map[string]bool{"nic7": true, "a0": true})

	if err := e.d.Reload(of("nic8", "nic9")); !errors.Is(err, linkdrv.ErrNoLink) {
		t.Errorf("a reload without any link: %v", err)
	}
	if r := snapshot(t, e.d).Status.Reload; r == nil || r.Result != inspect.ReloadFailed {
		t.Errorf("status shows of that reload: %+v", r)
	}
	state(map[string]bool{"nic7": true, "a0": true})
	if err := e.d.Reload(of("nic8", "b0")); !errors.Is(err, linkdrv.ErrNoLink) { // b0 was not used before
		t.Errorf("a reload with a link that is missing: %v", err)
	}
	state(map[string]bool{"nic8": false, "b0": true})
	waiting := of("nic9")
	waiting.WaitLinks = true
	if err := e.d.Reload(waiting); !errors.Is(err, linkdrv.ErrNoLink) {
		t.Errorf("a reload with a link that is waited for: %v", err)
	}
	state(map[string]bool{"nic9": false})
}
