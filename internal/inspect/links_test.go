package inspect

import (
	"net"
	"strings"
	"testing"
	"time"
)

// Doctor advises what works: no restart mends a link, without a link edged does not start, and what needs a restart is
// named.
func TestDoctorOfAReload(t *testing.T) {
	at := time.Now()
	for _, c := range []struct {
		status ReloadStatus
		up     int
		want   string
	}{
		{ReloadStatus{At: at, Result: ReloadPart, Error: "link eth9: no such interface"}, 1, "eth9"},
		{ReloadStatus{At: at, Result: ReloadPart, Restart: []string{"name"}}, 1, "-> systemctl restart edged"},
		{ReloadStatus{At: at, Result: ReloadPart, Restart: []string{"name"}}, 0, "-> bring a link up first"},
	} {
		var f findings
		f.reload(&c.status, c.up)
		if len(f) != 1 {
			t.Fatalf("%+v: %+v", c, f)
		}
		text := f[0].Text + " -> " + f[0].Remedy
		if !strings.Contains(text, c.want) || len(c.status.Restart) == 0 && strings.Contains(text, "restart") {
			t.Errorf("%+v: %q", c, text)
		}
	}
}

// A configured link without an interface, and one whose interface has another name now, are said.
func TestNamesOfLinks(t *testing.T) {
	all := []net.Interface{{Index: 3, Name: "eth0"}, {Index: 4, Name: "wan0"}, {Index: 5, Name: "eth2"}}
	links := []LinkStatus{{Name: "eth0", Up: true, index: 3}, {Name: "eth1", Up: true, index: 4, Device: "old"},
		{Name: "eth2"}, {Name: "eth3"}, {Name: "eth4", Error: "no carrier"}}
	lookUp(links, all)
	want := []struct {
		device, down string
	}{{}, {device: "wan0"}, {down: "the interface is down"}, {down: "no interface has this name"},
		{down: "no interface has this name"}}
	for i := range links {
		l := &links[i]
		down := ""
		if !l.Up {
			down = l.downText()
		}
		if l.Device != want[i].device || down != want[i].down {
			t.Errorf("%s: device %q, %q, want %+v", l.Name, l.Device, down, want[i])
		}
	}
	var f findings
	for i := range links {
		f.renamed(&links[i])
	}
	if len(f) != 1 || f[0].About != "link eth1" || !strings.Contains(f[0].Remedy, `name = "wan0"`) {
		t.Errorf("%+v", f)
	}
}
