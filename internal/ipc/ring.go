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

// awaitsAt is where the client says for how many entries it waits (A8.8): beside wordClientAsleep, since both change
// together.
const awaitsAt = wordClientAsleep*wordStride + wordStride/2

// AwaitNotes is said with it by one who waits for so many notifications, and not for operations that end well.
const AwaitNotes = 1 << 31

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

	// More says that operations of the client are in flight: more entries follow, and one that waits for several may
	// be left alone until it has them (A8.8).
	More bool

	bell  reason            // of entries behind seen to ring the doorbell
	notes uint32            // notifications since the doorbell's client was told
	held  bool              // there are entries before seen of which nobody was told: bell is their reason
	rush  bool              // they are to be told
	words [abi.Words]reason // likewise to wake who sleeps on a word
	due   WordSet           // those of words that are not calm
	wakes WordSet           // whose sleepers Publish took, and that are still to be woken
}

// reason is why entries wake who waits for them.
type reason uint8

const (
	calm  reason = iota // there are none
	quiet               // operations that ended well: they wake nobody who dozes
	note                // notifications: one may wait for several (A8.8)
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
	switch {
	case e.Kind == CQNotify:
		why = note
		p.notes++
	case e.Kind != CQComplete || e.Status != StatusOK:
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
	if by == NotPolling || p.due == 0 && p.few() {
		return false
	}
	if by != PollsForPeer || p.bell >= note {
		return true
	}
	for due := p.due; due != 0; due &= due - 1 {
		if p.words[bits.TrailingZeros64(uint64(due))] >= note {
			return true
		}
	}
	return false
}

// Publish makes the entries put visible to the client and reports whether the caller must ring the complete doorbell.
// Whom it must wake besides is for Wakes to say.
func (p *CompleteProducer) Publish() (wake bool) {
	fresh := p.seen != p.tail
	if fresh {
		p.seen = p.tail
		p.r.word(wordCQTail).Store(p.tail)
	}
	switch {
	case p.held && !fresh && !p.rush:
	case p.few():
		p.held = true
	default:
		wake = p.bell.wakes(p.r.word(wordClientAsleep))
		p.bell, p.notes, p.held, p.rush = calm, 0, false, false
	}
	if p.due != 0 {
		p.takeWords()
	}
	return wake
}

// few reports whether a client that waits for several entries is left alone: none has to be told at once, and there are
// fewer.
func (p *CompleteProducer) few() bool {
	if p.rush || p.bell == loud || p.bell == calm {
		return false
	}
	awaits := p.r.awaits().Load()
	n := awaits &^ AwaitNotes
	switch {
	case n <= 1:
		return false
	case p.bell == note:
		return awaits&AwaitNotes != 0 && p.notes < n
	case awaits&AwaitNotes != 0 || !p.More:
		return false
	case uint32(p.Used()) < n:
		return true
	}
	_, err := p.Refresh() // after an error the client goes when the shard looks for room
	return err == nil && uint32(p.Used()) < n
}

// Held reports whether a client was left alone with entries of which it has not been told since (A8.8); notes, with
// notifications.
func (p *CompleteProducer) Held() (held, notes bool) { return p.held, p.held && p.bell == note }

// Recall has the next Publish tell of entries with which the client was left alone, unless it has taken all. It
// reports whether there are any.
func (p *CompleteProducer) Recall() bool {
	if !p.held {
		return false
	}
	if _, err := p.Refresh(); err == nil && p.Used() == 0 {
		p.bell, p.notes, p.held = calm, 0, false
		return false
	}
	p.rush = true
	return true
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
