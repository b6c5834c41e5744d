package secure

import (
	"net/netip"
	"strings"
	"testing"
)

// Networks to which peers are confined are read from lines and written to them; what could be meant otherwise is
// refused.
func TestAllow(t *testing.T) {
	key := NewPrivateKey().Public()
	line := key.String() + " beta 10.0.2.7:9470,beta.example:9470 allow=10.0.0.0/8,2001:db8::/32,192.0.2.9"
	p, err := ParsePeers([]byte(line+"\n"+NewPrivateKey().Public().String()+" gamma\n"), "peers")
	if err != nil {
		t.Fatal(err)
	}
	beta, _ := p.ByName("beta")
	if beta.Line() != line {
		t.Errorf("%q is written as %q", line, beta.Line())
	}
	allow := p.Allow(key.Node())
	for text, want := range map[string]bool{"10.255.0.1": true, "11.0.0.1": false, "2001:db8::1": true,
		"2001:db9::1": false, "192.0.2.9": true, "192.0.2.8": false} {
		got := false
		for _, n := range allow {
			got = got || n.Contains(netip.MustParseAddr(text))
		}
		if got != want {
			t.Errorf("%s is allowed: %v", text, got)
		}
	}
	gamma, _ := p.ByName("gamma")
	if p.Allow(gamma.Key.Node()) != nil || (*Peers)(nil).Allow(key.Node()) != nil {
		t.Error("who is not confined is confined")
	}
	for _, c := range []struct{ words, want string }{{"allow=10.0.0.1/8", "did you mean 10.0.0.0/8"},
		{"allow=", "names no network"}, {"allow=beta.example", "want a network"},
		{"allow=::ffff:10.0.0.0/104", "IPv4 addresses as such"}, {"allow=fe80::1%eth0", "want a network"},
		{"192.0.2.1:1 allow=10.0.0.0/8", "none of the networks"}, {"allow=10.0.0.0/8 10.0.0.1:1", "want a line"},
		{"allow=" + strings.Repeat("10.0.0.0/8,", MaxAllowed) + "10.0.0.0/8", "a peer can have"},
	} {
		_, err := ParsePeers([]byte(key.String()+" beta "+c.words), "peers")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.words, err, c.want)
		}
	}
}
