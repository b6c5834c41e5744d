package inspect

import (
	"fmt"
	"time"

	"multiedge/internal/engine"
)

// Why a peer is not reached, for edgectl peer and doctor.

// troubleTime is for how long a trouble is spoken of that was not met again.
const troubleTime = 10 * time.Minute

// troubleText says what a trouble is and what to do. name is the peer's, key our public one.
func troubleText(t engine.Trouble, name, self, key string) (text, remedy string) {
	switch t {
	case engine.TroublePlaintext:
		return "it talks plaintext only, and this node encrypted", "give both nodes the same setting of security"
	case engine.TroubleSealed:
		return "it talks encrypted only, and this node plaintext", "give both nodes the same setting of security"
	case engine.TroubleOtherKey:
		return "a node that calls itself so is heard, with another key than the one authorised here",
			"compare edgectl key show there with edgectl peers list here; if its key is new: edgectl peers remove " +
				name + ", edgectl peers add KEY " + name
	case engine.TroubleWrongKey:
		return "who answers in its place has proved another key than the one authorised here",
			"compare edgectl key show there with edgectl peers list here"
	case engine.TroubleUnwelcome:
		return "it does not authorise this node's key", fmt.Sprintf("there: edgectl peers add %s %s", key, self)
	case engine.TroubleRefused:
		return "it refused the session", "look at its log"
	case engine.TroubleNoAnswer:
		return "its hellos come in, but it does not answer: frames of this node do not reach it, or not on the links " +
			"where it is heard", "edgectl trace at both ends; check the switch, VLANs and filters"
	case engine.TroubleNoDatagram:
		return "it does not answer at its endpoints over UDP", "edgectl peers list shows the endpoints; start edged " +
			"--listen there, and let UDP to its port pass firewalls and security groups"
	case engine.TroubleNoHandshake:
		return "it answers, but handshakes with it do not come to an end",
			"look at its log; edgectl trace at both ends shows what is lost"
	}
	return "", ""
}

// explain fills in why a peer without a session has none. self is our name, key our public one.
func (p *PeerStatus) explain(self, key string) {
	if p.State == "open" || p.trouble != engine.NoTrouble && p.troubleAgo > troubleTime {
		return
	}
	p.Reason, p.remedy = troubleText(p.trouble, p.Name, self, key)
	if p.Reason == "" && p.State == "known" {
		p.Reason = "no program has asked for it"
	}
}

// explain fills in why an authorised peer is not heard.
func (a *AuthorisedStatus) explain(self, key string, out *Snapshot) {
	a.quiet = true
	a.Reason, a.remedy = "no link hears it",
		"start edged there, on the same Ethernet segment; check VLANs, and that switches pass EtherType "+
			out.Status.EtherType
	if a.placed() && hasIP(out.Links) {
		a.Reason, a.remedy = "no program has asked for it", ""
		return
	}
	if hasIP(out.Links) {
		a.remedy += "; over IP: let it dial this node, or edgectl peers add KEY " + a.Name + " --endpoint HOST:PORT"
	}
	if out.Status.LinksUp == 0 {
		a.Reason, a.remedy = "no link of this node is up", "edgectl link"
	}
	for i := range out.wrong {
		if w := &out.wrong[i]; w.Name == a.Name && w.Ago < troubleTime {
			a.quiet = false
			a.Reason, a.remedy = troubleText(w.Trouble, a.Name, self, key)
			a.Reason += fmt.Sprintf(" (on link %s, node %s)", nameOf(out.Links, w.Link), w.Node)
		}
	}
}

// placed reports whether it is said where the peer is reached over IP.
func (a AuthorisedStatus) placed() bool { return a.Endpoints != "" }

// known reports that something is heard of the peer, which says why it is not reached.
func (a AuthorisedStatus) known() bool { return a.remedy != "" && !a.quiet }

// unreached says why peers have no session, where something keeps them from it.
func (f *findings) unreached(snap *Snapshot) {
	said := map[string]bool{}
	for i := range snap.Peers {
		p := &snap.Peers[i]
		if p.Twins > 0 && !said[p.Node] {
			said[p.Node] = true
			f.add(FindingProblem, "peer "+p.Name,
				fmt.Sprintf("two daemons run with its key: sessions came from one and the other in turn, %d times",
					p.Twins),
				"give each a key of its own: on one of the two stop edged, edgectl key new FILE, start edged with "+
					"--key-file FILE, authorise the new key here")
		} else if p.Flaps && !said[p.Node] {
			said[p.Node] = true
			f.add(FindingProblem, "peer "+p.Name,
				fmt.Sprintf("sessions with it keep ending: %d so far, the latest of them within a minute", p.Sessions),
				"look at both logs; two hosts with one key end each other's sessions: compare edgectl key show on "+
					"all hosts")
		}
		if p.remedy != "" && p.Security != Stranger {
			f.add(FindingWarning, "peer "+p.Name, "has no session: "+p.Reason, p.remedy)
		}
	}
	more := 0
	for i := range snap.Authorised {
		a := &snap.Authorised[i]
		switch {
		case a.remedy == "":
		case len(snap.Authorised) > fewUnheard && a.quiet:
			more++
		default:
			f.add(FindingWarning, "peer "+a.Name, "is authorised and not reached: "+a.Reason, a.remedy)
		}
	}
	if more > 0 {
		f.add(FindingWarning, "peers", fmt.Sprintf("%d authorised peers are heard on no link", more),
			"edgectl peers list shows which; start edged there, or take them off the list")
	}
}

// fewUnheard is up to how many authorised peers each that is not heard is named.
const fewUnheard = 16
