package path

import (
	"math/bits"
	"slices"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Probes of the peer, which are echoed, and the echoes of ours (clause 9).

// echo is a Probe's nonce that is to return to the peer's link that it came from.
type echo struct {
	Nonce uint64
	To    uint8
	From  frame.Addr // where it came from, on an IP link
}

// OnProbe queues an Echo from the link on which the probe arrived to the link that it came from (clause 9.3). Several
// links of the peer may face one of ours: a probe from each can wait. Where the path leads nobody may be any more: if
// nothing is answered there, the Echo goes to where the Probe came from, too. Of two ends that have both moved neither
// would hear the other's Echo otherwise (clause 21.5).
func (s *Set) OnProbe(now mono.Time, i int, nonce uint64) {
	if p := s.Tx[i]; p != nil && s.TxMask&(1<<i) != 0 {
		back := echo{Nonce: nonce, To: s.HeardFrom}
		if s.isIP(i) {
			back.From = s.from
			if p.Move.To == s.from && p.Number == back.To && (p.reopened(now) || p.forsaken(now)) {
				p.Move.Back = nonce
			}
		}
		if len(p.Probing.Echo) < MaxLinks && !slices.Contains(p.Probing.Echo, back) {
			p.Probing.Echo = append(p.Probing.Echo, back)
		}
		s.Special |= 1 << i
	}
}

// PathOf finds the path that waits for an echo of nonce.
func (s *Set) PathOf(nonce uint64) *Tx {
	for m := s.TxMask; m != 0; m &= m - 1 {
		p := s.Tx[bits.TrailingZeros64(m)]
		if _, looks := p.asked(nonce); looks || p.Probing.Nonce == nonce || p.PMTU.late == nonce ||
			p.Move.nonce == nonce && nonce != 0 {
			return p
		}
	}
	return nil
}
