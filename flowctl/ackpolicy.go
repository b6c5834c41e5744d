package flowctl

import (
	"time"

	"multiedge/internal/mono"
)

// AckParams says how long the receive side of a path may keep silent (paper section 2.1.2).
type AckParams struct {
	Every     int           // explicit acknowledgement after this many eliciting frames
	NackEvery int           // frames after a new hole until it is reported; 0: at once
	Delay     time.Duration // the first unacknowledged frame is acknowledged within this
	NackDelay time.Duration // a hole is reported within this; without effect if NackEvery is 0
	// Exact has Every and Delay hold without exceptions: PUSH shortens no delay (clause 8.4), data about to leave does
	// not raise the count, and each data frame that leaves carries what is pending (clause 8.2).
	Exact bool
}

var (
	// PaperAcks are the values the paper arrived at by experiment: 48 frames, 256 frames, 5 ms.
	PaperAcks = AckParams{Every: 48, NackEvery: 256, Delay: 5 * time.Millisecond, NackDelay: 5 * time.Millisecond,
		Exact: true}

	// DefaultAcks suit user space and windows of at most 192 frames. Measured on veth, acknowledging every frame or
	// every 64th makes no difference to throughput; 16 keeps several acknowledgements in each window, so that the delay
	// signal is fresh and the sender does not move in lumps of a whole window. Waits in user space are accurate to 50
	// to 100 us, so a Delay below 100 us would promise what it cannot keep, and a longer one adds to the completion of
	// every lone operation. A hole is reported at once: it costs one small frame per hole and lets the sender start its
	// reordering clock a delay earlier.
	DefaultAcks = AckParams{Every: 16, Delay: 100 * time.Microsecond}
)

// AckPolicy decides when the receive side of one path must speak. It holds what arrived since the last block left:
//
//	idle     nothing to say; due is Never
//	pending  eliciting frames arrived, or a hole opened; an explicit acknowledgement must leave at due at the latest
//	due      due has been reached, by time or because a count was
//
// A frame that is not eliciting (a bare acknowledgement) never makes it speak, or two idle nodes would acknowledge each
// other for ever; a hole does, whatever frame revealed it. Init comes first.
type AckPolicy struct {
	params  AckParams
	frames  int       // eliciting frames not yet acknowledged
	hole    bool      // a hole opened that was not yet reported
	holeAge int       // frames since it opened
	due     mono.Time // meaningful while Pending
	holeDue mono.Time // when the hole is reported by time; meaningful while hole
	late    mono.Time // Delay after the first unacknowledged frame; meaningful while frames > 0
}

// Init sets the parameters and forgets what is pending.
func (p *AckPolicy) Init(params AckParams) { *p = AckPolicy{params: params} }

// OnFrames records the arrival of n eliciting frames that opened no hole, as so many calls of OnFrame do.
func (p *AckPolicy) OnFrames(now mono.Time, n int) {
	p.OnFrame(now, true, false)
	p.frames += n - 1
	if p.hole {
		p.holeAge += n - 1
	}
	if p.frames >= p.params.Every || p.hole && p.holeAge >= p.params.NackEvery {
		p.due = mono.Min(p.due, now)
	}
}

// OnFrame records the arrival of a frame that Tracker.Commit accepted.
func (p *AckPolicy) OnFrame(now mono.Time, eliciting, gap bool) {
	wasPending := p.Pending()
	due := mono.Never
	if wasPending {
		due = p.due
	}
	if eliciting {
		p.frames++
		if p.frames == 1 {
			p.late = now.Add(p.params.Delay)
			due = mono.Min(due, p.late)
		}
		if p.frames >= p.params.Every {
			due = mono.Min(due, now)
		}
	}
	if p.hole {
		p.holeAge++
	} else if gap {
		p.hole, p.holeDue = true, now.Add(p.params.NackDelay)
		due = mono.Min(due, p.holeDue)
	}
	if p.hole && p.holeAge >= p.params.NackEvery {
		due = mono.Min(due, now)
	}
	p.due = due
}

// Hasten has frames acknowledged now that were told to OnFrame or OnFrames.
func (p *AckPolicy) Hasten(now mono.Time) {
	if p.frames > 0 && !p.params.Exact {
		p.due, p.late = mono.Min(p.due, now), mono.Min(p.late, now)
	}
}

// Due reports whether an explicit acknowledgement must leave now.
func (p *AckPolicy) Due(now mono.Time) bool { return p.Pending() && p.due <= now }

// Overdue is Due for a side that has data of its own waiting to leave, which will carry the block: it puts off an
// explicit acknowledgement that is due by count alone, up to three times the count, but no delay and no hole; with
// Exact nothing.
func (p *AckPolicy) Overdue(now mono.Time) bool { return p.OverdueAt() <= now }

// OverdueAt returns when Overdue turns true if nothing else happens; Never when idle.
func (p *AckPolicy) OverdueAt() mono.Time {
	if p.Pending() && !p.params.Exact && !p.hole && p.frames < 3*p.params.Every {
		return p.late
	}
	return p.Deadline()
}

// Pending reports whether something is unacknowledged: the last data frame of a batch should carry a block, so that
// request and reply need no explicit one.
func (p *AckPolicy) Pending() bool { return p.frames > 0 || p.hole }

// WantPiggyback reports whether any data frame that leaves should carry a block: a hole, or a quarter of Every. Two-way
// traffic then needs no explicit acknowledgements, and three in four of its frames are spared the bytes. With Exact all
// data frames carry what there is.
func (p *AckPolicy) WantPiggyback() bool {
	if p.params.Exact {
		return p.frames > 0
	}
	return p.hole || p.frames > 0 && p.frames*4 >= p.params.Every
}

// Nack reports whether there is a new hole to reveal (Block.Nack).
func (p *AckPolicy) Nack() bool { return p.hole }

// Hides reports whether a hole is not to be revealed yet: negative acknowledgements wait for their own count and delay
// (paper 2.1.2).
func (p *AckPolicy) Hides(now mono.Time) bool {
	return p.hole && p.holeAge < p.params.NackEvery && now < p.holeDue
}

// Deadline returns when Due turns true if nothing else happens; Never when idle.
func (p *AckPolicy) Deadline() mono.Time {
	if !p.Pending() {
		return mono.Never
	}
	return p.due
}

// OnSent records that a block of this path left, alone or on a data frame.
func (p *AckPolicy) OnSent() { p.frames, p.hole, p.holeAge, p.due = 0, false, 0, mono.Never }

// Block makes the block that leaves now, of what t has: up to the first hole that is not to be reported yet (Hides), or
// all; with again all. Its bitmap of at most maxWords words is appended to dst. ok is false if there is nothing new.
func (p *AckPolicy) Block(now mono.Time, t *Tracker, dst []uint64, maxWords int, again bool) (b Block, ok bool) {
	largest, at, ok := t.Largest()
	if !ok {
		return b, false
	}
	first, found, open := t.Hole()
	if !open || again || !p.Hides(now) {
		b = Block{Largest: largest, Delay: now.Sub(at), Nack: p.hole}
		b.Floor, b.Bits = t.AckBits(dst, maxWords)
		p.OnSent()
		return b, true
	}
	said := p.frames == 0 // what is below the hole; said again with each frame, it could leave no room for data
	p.frames, p.due = 0, p.holeDue
	if said || first == 0 {
		return b, false
	}
	b = Block{Largest: first - 1, Delay: now.Sub(found)}
	b.Floor, b.Bits = t.AckBitsBelow(dst, maxWords)
	return b, true
}
