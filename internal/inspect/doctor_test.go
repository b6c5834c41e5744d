package inspect

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/engine"

	"golang.org/x/sys/unix"
)

// Doctor says of an interface that it does not exist only where that is so, and not for want of a descriptor to look
// for it.
func TestDoctorWithoutDescriptors(t *testing.T) {
	var none, without findings
	none.iface("none", "none", "", true)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	without.iface("lo", "lo", "", true)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]findings{"no interface has this name": none, "too many open files": without} {
		if len(got) != 1 || got[0].Severity != FindingProblem || !strings.Contains(got[0].Text, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// What is known of a trouble is said with what to do; so is a key that two daemons use.
func TestTroublesAreExplained(t *testing.T) {
	for _, tr := range []engine.Trouble{engine.TroublePlaintext, engine.TroubleSealed, engine.TroubleOtherKey,
		engine.TroubleWrongKey, engine.TroubleUnwelcome, engine.TroubleRefused, engine.TroubleNoAnswer,
		engine.TroubleNoHandshake, engine.TroubleNoDatagram} {
		p := PeerStatus{Name: "x", State: "known", trouble: tr}
		if p.explain("self", "key"); p.Reason == "" || p.remedy == "" {
			t.Errorf("trouble %d is not explained", tr)
		}
		p = PeerStatus{Name: "x", State: "known", trouble: tr, troubleAgo: 2 * troubleTime}
		if p.explain("self", "key"); p.remedy != "" {
			t.Errorf("trouble %d is spoken of for ever", tr)
		}
	}
	snap := &Snapshot{
		Status: Status{Totals: Totals{LinksUp: 1}},
		Authorised: []AuthorisedStatus{{Name: "x", State: notHeard},
			{Name: "y", State: notHeard}},
		wrong: []engine.NameTrouble{{Name: "y", Trouble: engine.TroubleOtherKey}},
	}
	for i := range snap.Authorised {
		snap.Authorised[i].explain("self", "key", snap)
	}
	if r := snap.Authorised[0].Reason; r != "no link hears it" {
		t.Error(r)
	}
	if r := snap.Authorised[1].Reason; !strings.Contains(r, "another key") {
		t.Error(r)
	}
	var f findings
	f.unreached(&Snapshot{Peers: []PeerStatus{{Name: "p", Node: "1", Twins: 2}, {Name: "q", Node: "2", Flaps: true,
		Sessions: 9}}})
	if len(f) != 2 || !strings.Contains(f[0].Text, "two daemons run with its key") || !strings.Contains(f[1].Text,
		"keep ending") {
		t.Errorf("%+v", f)
	}
}

// A drain that somebody forgot explains why programs are refused.
func TestDoctorSeesDrain(t *testing.T) {
	for _, draining := range []bool{false, true} {
		in := &Inspector{node: Node{InMemory: true, Identity: func() *Identity { return nil }}}
		text := said(in.Facts(&Snapshot{Status: Status{Draining: draining}}), "daemon")
		if strings.Contains(text, "drain --undo") != draining || (text == "") == draining {
			t.Errorf("draining %v: %q", draining, text)
		}
	}
}

// A link that is down is one finding.
func TestDownLinkIsSaidOnce(t *testing.T) {
	var f findings
	f.iface("no-such-if", "no-such-if", "", true)
	f.running(&LinkStatus{Name: "no-such-if"})
	if len(f) != 1 {
		t.Errorf("%+v", f)
	}
	f = nil
	if f.running(&LinkStatus{Name: "mem"}); len(f) != 1 {
		t.Errorf("a link in memory that is down: %+v", f)
	}
}

// What doctor says when nobody was heard: strangers are not remembered, so an encrypted node does not claim that there
// are none.
func TestDoctorHearsNobody(t *testing.T) {
	for _, c := range []struct {
		by    Protection
		peers []PeerStatus
		want  string
	}{
		{Protection{Security: config.Plaintext}, nil, "no other node was heard"},
		{Protection{Security: config.Encrypted, Authorised: 1}, nil, "no authorised peer was heard"},
		{Protection{Security: config.Encrypted}, nil, ""}, // that nobody is authorised is said elsewhere
		{Protection{Security: config.Plaintext}, []PeerStatus{{}}, ""},
	} {
		var f findings
		f.silence(&Snapshot{Status: Status{Protection: c.by}, Peers: c.peers})
		if text := said(f, "peers"); !strings.Contains(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%+v: %q, want %q", c.by, text, c.want)
		}
	}
}

// What doctor says of paths: one that is not used, and one that carries less than its link.
func TestDoctorExaminesPaths(t *testing.T) {
	links := []LinkStatus{{Name: "jumbo", MTU: 9000}, {Name: "plain", MTU: 1500}}
	for _, c := range []struct {
		path PathStatus
		want string
	}{
		{PathStatus{Link: "jumbo", State: "good", MTU: 9000}, ""},
		{PathStatus{Link: "jumbo", State: "good", MTU: 8938}, ""},
		{PathStatus{Link: "plain", State: "good", MTU: 1438}, ""},
		{PathStatus{Link: "jumbo", State: "good", MTU: 1438},
			"over jumbo carries frames of 1438 bytes, of the link's MTU 9000"},
		{PathStatus{Link: "jumbo", State: "suspect", MTU: 1438}, "is suspect"},
		{PathStatus{Link: "gone", State: "good", MTU: 1438}, ""},
		{PathStatus{Link: "plain", State: "good", MTU: 1500, PeerMTU: 9000}, "MTU 1500 and the peer's 9000"},
		{PathStatus{Link: "jumbo", State: "good", MTU: 1500, PeerMTU: 1500}, "MTU 9000 and the peer's 1500"},
		{PathStatus{Link: "jumbo", State: "good", MTU: 1438, PeerMTU: 9000}, "a switch between them takes no more"},
	} {
		var f findings
		f.peer(&PeerStatus{Name: "beta", Paths: []PathStatus{c.path}}, links)
		if text := said(f, "peer beta"); !strings.Contains(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%+v: %q, want %q", c.path, text, c.want)
		}
	}
}

func said(list []Finding, what string) (text string) {
	for _, f := range list {
		if f.About == what {
			text += f.Severity + " " + f.Text + " " + f.Remedy + "\n"
		}
	}
	return text
}

// Doctor speaks of a claim for a minute.
func TestOldClaim(t *testing.T) {
	for ago, want := range map[time.Duration]int{time.Second: 1, time.Hour: 0} {
		var f findings
		if f.claim(nil, &Claim{Ago: ago}); len(f) != want {
			t.Errorf("doctor says of a claim %v ago: %+v", ago, f)
		}
	}
}
