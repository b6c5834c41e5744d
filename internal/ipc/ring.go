package ipc

import (
	"errors"
	"math/bits"
	"sync/atomic"

	"multiedge/internal/abi"
)

// ErrRing is returned when the other side's index cannot be right. The peer must be disconnected.
var ErrRing = errors.New("ipc: ring index out of range")

// word numbers in the control page; each has two cache lines of its own, so that neighbours are not prefetched
// together.
const (
	wordSQTail        = iota // written by the client
	wordSQHead               // written by the daemon
	wordCQTail               // written by the daemon
	wordCQHead               // written by the client
	wordDaemonAsleep         // set by the daemon before it blocks, taken by the client that wakes it
	wordClientAsleep         // set by the client before it blocks (asleep, dozing), taken by the daemon that wakes it
	wordClientPolling        // set by the client while one of its threads polls
	// counted up by the daemon every PulseTime or so, and at least every second, while it runs; 0: it does not do that
	wordPulse
	wordCount
)

const wordStride = 128

// toldAt is where the daemon counts what it sends (Rings.tell): a word beside wordPulse, which is written as seldom.
const toldAt = wordPulse*wordStride + wordStride/2

// What the client writes to wordClientAsleep. Any other value but 0 means the same as asleep.
const (
	asleep = 1
	dozing = 2 // nobody waits for operations: their completions with StatusOK are no reason to wake it
)

// SubmitProducer is the client's end of the submission ring. One goroutine at a time uses it.
type SubmitProducer struct {
	r    *Rings
	mask uint32
	tail uint32 // next entry to fill
	seen uint32 // published tail
	head uint32 // daemon's head as last read
}

// Room returns how many entries can be put. It reads the daemon's head only when the last known one leaves no room.
func (p *SubmitProducer) Room() (int, error) { return p.RoomFor(1) }

// RoomFor returns Room, and reads the consumer's position again if fewer than n, at least 1, are free.
func (p *SubmitProducer) RoomFor(n int) (int, error) {
	if p.mask+1-(p.tail-p.head) < uint32(n) {
		head := p.r.word(wordSQHead).Load()
		if p.seen-head > p.seen-p.head {
			return 0, ErrRing
		}
		p.head = head
	}
	return int(p.mask + 1 - (p.tail - p.head)), nil
}

// Put fills the next entry. The caller has seen Room > 0 for it. The daemon sees it at Publish.
func (p *SubmitProducer) Put(e *SQE) {
	EncodeSQE(p.r.sqEntry(p.tail&p.mask), e)
	p.tail++
}

// Publish makes the entries put visible to the daemon and reports whether the caller must ring the submit doorbell.
func (p *SubmitProducer) Publish() (wake bool) {
	if p.seen == p.tail {
		return false
	}
	p.seen = p.tail
	p.r.word(wordSQTail).Store(p.tail)
	return take(p.r.word(wordDaemonAsleep))
}

// SubmitConsumer is the daemon's end of the submission ring. One goroutine at a time uses it.
type SubmitConsumer struct {
	r       *Rings
	mask    uint32
	head    uint32 // next entry to read
	scratch [SQESize]byte
}

// Drain moves up to len(dst) entries to dst, validated. It reads the client's tail once. On error the client must be
// disconnected; the n entries before the bad one are good.
func (c *SubmitConsumer) Drain(dst []SQE) (n int, err error) {
	avail := c.r.word(wordSQTail).Load() - c.head
	if avail > c.mask+1 {
		return 0, ErrRing
	}
	for n < len(dst) && uint32(n) < avail {
		copy(c.scratch[:], c.r.sqEntry((c.head+uint32(n))&c.mask))
		if err = DecodeSQE(c.scratch[:], &dst[n]); err != nil {
			break
		}
		if e := &dst[n]; e.Op > OpCredit && e.Op.Feature()&^c.r.features != 0 {
			err = ErrEntry
			break
		}
		n++
	}
	if n > 0 {
		c.head += uint32(n)
		c.r.word(wordSQHead).Store(c.head)
	}
	return n, err
}

// Ready reports whether entries wait (or the client's tail is wrong, which Drain will report).
func (c *SubmitConsumer) Ready() bool { return c.r.word(wordSQTail).Load() != c.head }

// CompleteProducer is the daemon's end of the completion ring. One goroutine at a time uses it.
type CompleteProducer struct {
	r    *Rings
	mask uint32
	tail uint32
	seen uint32
	head uint32 // client's head as last read

	bell  reason            // of entries behind seen to ring the doorbell
	words [abi.Words]reason // likewise to wake who sleeps on a word
	due   WordSet           // those of words that are not calm
	wakes WordSet           // whose sleepers Publish took, and that are still to be woken
}

// reason is why entries wake who waits for them.
type reason uint8

const (
	calm  reason = iota // there are none
	quiet               // operations that ended well: they wake nobody who dozes
	loud
)

// Refresh reads the client's head once and returns how many entries are free.
func (p *CompleteProducer) Refresh() (room int, err error) {
	head := p.r.word(wordCQHead).Load()
	if p.seen-head > p.seen-p.head {
		return 0, ErrRing
	}
	p.head = head
	return p.Room(), nil
}

// Room returns how many entries are free as of the last Refresh. It reads nothing shared.
func (p *CompleteProducer) Room() int { return int(p.mask + 1 - (p.tail - p.head)) }

// Used returns how many entries the client has not consumed as of the last Refresh.
func (p *CompleteProducer) Used() int { return int(p.tail - p.head) }

// Put fills the next entry, or reports false when the ring is full as of the last Refresh. The client sees it at
// Publish. It concerns who waits for the doorbell.
func (p *CompleteProducer) Put(e *CQE) bool { return p.PutFor(e, 0) }

// PutFor is Put of an entry that concerns who sleeps on a word (A8.7), unless that is 0.
func (p *CompleteProducer) PutFor(e *CQE, word uint8) bool {
	if p.tail-p.head > p.mask {
		return false
	}
	EncodeCQE(p.r.cqEntry(p.tail&p.mask), e)
	p.tail++
	why := quiet
	if e.Kind != CQComplete || e.Status != StatusOK {
		why = loud
	}
	if word == 0 {
		p.bell = max(p.bell, why)
	} else {
		p.stir(word, why)
	}
	return true
}

// Awaited reports whether a client that polls waits for what was put since the latest Publish.
func (p *CompleteProducer) Awaited(by Polling) bool {
	if by != PollsForPeer {
		return by != NotPolling
	}
	if p.bell == loud {
		return true
	}
	for due := p.due; due != 0; due &= due - 1 {
		if p.words[bits.TrailingZeros64(uint64(due))] == loud {
			return true
		}
	}
	return false
}

// Publish makes the entries put visible to the client and reports whether the caller must ring the complete doorbell.
// Whom it must wake besides is for Wakes to say.
func (p *CompleteProducer) Publish() (wake bool) {
	if p.seen != p.tail {
		p.seen = p.tail
		p.r.word(wordCQTail).Store(p.tail)
	}
	wake = p.bell.wakes(p.r.word(wordClientAsleep))
	p.bell = calm
	if p.due != 0 {
		p.takeWords()
	}
	return wake
}

// CompleteConsumer is the client's end of the completion ring. One goroutine at a time uses it.
type CompleteConsumer struct {
	r       *Rings
	mask    uint32
	head    uint32
	scratch [CQESize]byte
}

// Drain moves up to len(dst) entries to dst, validated. It reads the daemon's tail once. On error the daemon must be
// treated as dead; the n entries before the bad one are good.
func (c *CompleteConsumer) Drain(dst []CQE) (n int, err error) {
	avail := c.r.word(wordCQTail).Load() - c.head
	if avail > c.mask+1 {
		return 0, ErrRing
	}
	for n < len(dst) && uint32(n) < avail {
		copy(c.scratch[:], c.r.cqEntry((c.head+uint32(n))&c.mask))
		if err = DecodeCQE(c.scratch[:], &dst[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		c.head += uint32(n)
		c.r.word(wordCQHead).Store(c.head)
	}
	return n, err
}

// Ready reports whether entries wait. It may be called by any goroutine while no Drain runs.
func (c *CompleteConsumer) Ready() bool { return c.r.word(wordCQTail).Load() != c.head }

// take clears a sleep word and reports whether it was set, writing only when it was: the cache line stays shared
// otherwise.
func take(w *atomic.Uint32) bool { return w.Load() != 0 && w.Swap(0) != 0 }
