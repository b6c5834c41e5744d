package flowctl

import (
	"time"

	"multiedge/internal/mono"
)

const (
	// reorderFloor is the least reordering allowance: the accuracy of waits in user space, and several batches of
	// frames.
	reorderFloor = 50 * time.Microsecond

	// reorderCeiling bounds the allowance, and so how long a loss may go unrepaired on a path that reorders.
	reorderCeiling = 50 * time.Millisecond

	// reorderMemory is how long an observed lateness stands before the allowance shrinks by a quarter, at least.
	reorderMemory = 50 * time.Millisecond
)

// lossState judges loss by time, as RACK does (RFC 8985), never by counting packets, which collapses on links that
// reorder.
//
// A packet is lost if a packet sent after it arrived, and it is older than a round trip (basis) and an allowance for
// reordering:
//
//   - when a block newer than all before shows it missing, at once. The basis is then the age of the block's Largest at
//     least, so that what
//     counts is how much earlier than Largest the packet was sent, and neither the peer's delay nor a slow way back
//     makes it look lost;
//   - else by the clock, with no newer word from the peer; the peer's acknowledgement delay is then allowed for as
//     well.
//
// The allowance starts at srtt/4 but at least reorderFloor. A packet that arrives after packets sent later shows how
// late reordering makes packets. The allowance is at once raised to a quarter above that, or to twice that if the
// packet had been judged lost, up to reorderCeiling. RFC 8985 stops at one srtt; here a burst overtaken by thousands of
// frames is many round trips late, and would be sent twice each time. What was observed stands for one epoch; without
// it, the allowance shrinks by a quarter per epoch.
type lossState struct {
	newest    uint64        // 1 + largest number that arrived; 0: none
	basis     time.Duration // round trip to judge by
	learned   time.Duration // allowance learned
	seen      time.Duration // largest allowance this epoch called for
	epochEnd  mono.Time
	abandoned uint64    // numbers below teach nothing
	at        mono.Time // when the oldest outstanding packet below newest is lost; Never if there is none
}

// observe takes from a block what it says about the path: the newest arrival, the basis, and how late the earliest-sent
// arrival was. It reports whether the block is as new as any before, so that what it does not acknowledge was missing
// when the newest packet arrived.
func (l *Ledger) observe(now mono.Time, b *Block, rtt *RTT, late lateArrival) (fresh bool) {
	s := &l.loss
	wasNewest := s.newest
	fresh = b.Largest+1 >= s.newest && l.next-b.Largest <= l.mask+1
	if fresh {
		s.newest = b.Largest + 1
		age := now.Sub(l.slots[b.Largest&l.mask].time)
		s.basis = max(rtt.SRTT(), age-max(b.Delay, 0))
	}
	if now >= s.epochEnd {
		s.learned = max(s.seen, s.learned/4*3)
		s.seen = 0
		s.epochEnd = now.Add(max(reorderMemory, 32*rtt.SRTT()))
	}
	if late.any && late.pn+1 < wasNewest && late.pn >= s.abandoned {
		lateness := now.Sub(late.sent) - s.basis
		s.seen = max(s.seen, min(lateness+lateness/4, reorderCeiling))
		s.learned = max(s.learned, s.seen)
		if late.lost { // those that are later still are not heard of yet
			s.learned = max(s.learned, min(2*lateness, reorderCeiling))
		}
	}
	return fresh
}

// allowance returns the reordering allowance.
func (l *Ledger) allowance(rtt *RTT) time.Duration {
	return max(rtt.SRTT()/4, reorderFloor, l.loss.learned)
}

// judge declares lost what is older than age among the packets sent before the newest arrival, and arms the clock for
// the next. Send times do not decrease with the number, so it stops at the first that is young enough.
func (l *Ledger) judge(now mono.Time, age time.Duration, rtt *RTT, lost []Sent) []Sent {
	end := l.base
	young := false
	var oldest mono.Time
	if l.frames > 0 {
		last := min(l.loss.newest, l.next)
		for end < last {
			pn := l.nextOutBelow(end, last)
			if pn == last {
				end = last
				break
			}
			if oldest = l.slots[pn&l.mask].time; oldest.Add(age) > now {
				end, young = pn, true
				break
			}
			end = pn + 1
		}
	}
	lost = l.condemn(end, lost)
	l.loss.at = mono.Never
	if young {
		l.loss.at = max(oldest.Add(l.patience(rtt)), now+1)
	}
	return lost
}

// nextOutBelow returns the lowest outstanding number in [pn, end), or end.
func (l *Ledger) nextOutBelow(pn, end uint64) uint64 {
	for ; pn < end; pn = (pn | 63) + 1 {
		if l.out[pn>>6&l.wordMask]>>(pn&63) != 0 {
			return min(l.nextOut(pn), end)
		}
	}
	return end
}

// patience returns the age at which a packet is lost by the clock alone.
func (l *Ledger) patience(rtt *RTT) time.Duration {
	return max(l.loss.basis, rtt.SRTT()) + l.allowance(rtt) + l.params.AckDelay
}
