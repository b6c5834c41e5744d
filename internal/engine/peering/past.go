package peering

import (
	"time"

	"multiedge/internal/mono"
)

// Trouble is why there is no session with a node that ought to have one.
type Trouble uint8

const (
	NoTrouble          Trouble = iota
	TroublePlaintext           // it talks plaintext only, and we encrypted
	TroubleSealed              // it talks encrypted only, and we plaintext
	TroubleOtherKey            // a node of that name says Hello, with another key than the one authorised here
	TroubleWrongKey            // who answers in its place proved another key
	TroubleUnwelcome           // it proved who it is, and does not authorise our key
	TroubleRefused             // it proved who it is, and refused the session for another reason
	TroubleNoAnswer            // it is heard, but does not answer requests for a session
	TroubleNoHandshake         // it answers, but the handshake does not come to an end
	TroubleNoDatagram          // it does not answer at the addresses of the configuration
)

// Past is what is remembered of a peer over its sessions.
type Past struct {
	Trouble   Trouble // the latest, since a session was open
	TroubleAt mono.Time
	opens     [flapOpens]mono.Time // when the latest sessions opened, a ring
	Sessions  uint64               // opened so far
	epoch     uint64               // of the latest session
	before    uint64               // the latest epoch that was another
	Returns   uint64               // times an epoch came back after another: two daemons have one key
	Received  uint64               // bytes of its frames with data that were authentic, or intact in plaintext
}

// flapOpens sessions that opened within flapTime are too many: something ends each.
const (
	flapOpens = 4
	flapTime  = time.Minute
)

// Troubled remembers why there is no session.
func (p *Past) Troubled(now mono.Time, t Trouble) { p.Trouble, p.TroubleAt = t, now }

// Opened counts a session. A daemon draws its epoch when it starts, so one that comes back is of a daemon that never
// stopped.
func (p *Past) Opened(now mono.Time, epoch uint64) {
	p.Trouble = NoTrouble
	p.opens[p.Sessions%flapOpens] = now
	p.Sessions++
	if epoch == p.epoch {
		return
	}
	if epoch == p.before {
		p.Returns++
	}
	p.before, p.epoch = p.epoch, epoch
}

// Flaps reports whether sessions with the peer keep ending.
func (p *Past) Flaps(now mono.Time) bool {
	return p.Sessions >= flapOpens && now.Sub(p.opens[p.Sessions%flapOpens]) < flapTime
}
