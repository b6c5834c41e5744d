package inspect

import (
	"net"
	"slices"
	"strings"
	"testing"

	"multiedge/linkdrv"
)

// An address that is none of this host's tells of a translator; one of its own, at whatever port, and no address at all
// tell of none.
func TestTranslatorIsSeen(t *testing.T) {
	own := []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 2), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("2001:db8::2"), Mask: net.CIDRMask(64, 128)}}
	for at, want := range map[string]bool{"": false, "10.0.0.2:40000": false, "[2001:db8::2]:9470": false,
		"203.0.113.7:9470": true, "10.0.0.3:9470": true} {
		var f findings
		f.translated(&PeerStatus{Name: "b", Paths: []PathStatus{{Link: ":9470"}, {Link: ":9470/1", SeenAs: at},
			{Link: ":9470/2", SeenAs: at}}}, own)
		if got := strings.Contains(said(f, "peer b"), "NAT"); got != want || len(f) > 1 {
			t.Errorf("seen as %q: %+v", at, f)
		}
	}
}

// A kernel that does not cut messages up is a warning.
func TestUncutMessagesAreSaid(t *testing.T) {
	for uncut, want := range map[uint64]string{0: FindingOK, 3: FindingWarning} {
		var f findings
		f.ipLink(&LinkStatus{Name: "x", Listen: ":9470", Up: true, RxSlots: 1024, Kernel: Counts{"sent": 100,
			"uncut": uncut}})
		severity := ""
		for _, x := range f {
			if strings.Contains(x.Text, "GSO") {
				severity = x.Severity
			}
		}
		if severity != want {
			t.Errorf("%d calls refused: %+v", uncut, f)
		}
	}
}

// Lost frames of which nearly all were the last of a message tell of a kernel that spoils them; few, or such as chance
// loses, do not. Links of datagrams on an Ethernet are told of, too.
func TestSpoiltMessagesAreSaid(t *testing.T) {
	for _, c := range []struct {
		ends, lost uint64
		want       bool
	}{{0, 0, false}, {49, 49, false}, {50, 50, true}, {75, 100, true}, {74, 100, false}, {1000, 8000, false}} {
		for _, listen := range []string{"", ":9470"} {
			var f findings
			f.running(&LinkStatus{Name: "x", Listen: listen, Up: true, RxSlots: 1024, MTU: 1500,
				Driver: linkdrv.KindUDP, Kernel: Counts{"sent": 9000},
				Counters: Counts{"train_ends_lost": c.ends, "frames_lost": c.lost}})
			said := slices.ContainsFunc(f, func(x Finding) bool {
				return x.Severity == FindingWarning && strings.Contains(x.Remedy, "uname -r")
			})
			if said != c.want {
				t.Errorf("%+v, listening at %q: %+v", c, listen, f)
			}
		}
	}
}
