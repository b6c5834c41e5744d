package ipc

import (
	"math/bits"
	"sync/atomic"
)

// Words on which threads of a client sleep, each for connections of its own (A8.7): the daemon wakes the thread that an
// entry of the completion ring concerns, and no other. They are futexes in the control page. The client cannot have
// anything else woken: it chooses numbers, not addresses. An entry makes one call at most, and those of an iteration
// for one word one together.

// WordSet is a set of words: bit i is word i+1.
type WordSet uint64

// Where the words lie in the control page, behind the control words.
const (
	wordsAt    = 1024
	wordsApart = 32
)

// stir notes a reason to wake who sleeps on a word.
func (p *CompleteProducer) stir(word uint8, why reason) {
	i := word - 1
	p.words[i] = max(p.words[i], why)
	p.due |= 1 << i
}

// Stir has the next Publish wake who sleeps on a word, or with 0 ring the doorbell, entries or not: a connection was
// aimed there, whose entries of before woke nobody there.
func (p *CompleteProducer) Stir(word uint8) {
	if word == 0 {
		p.bell = loud
		return
	}
	p.stir(word, loud)
}

// takeWords takes those who sleep on words that there is a reason to wake.
func (p *CompleteProducer) takeWords() {
	for due := p.due; due != 0; due &= due - 1 {
		i := bits.TrailingZeros64(uint64(due))
		if p.words[i].wakes(p.r.threadWord(i)) {
			p.wakes |= 1 << i
		}
		p.words[i] = calm
	}
	p.due = 0
}

// Wakes returns the words whose sleepers the caller must wake by Rings.Wake, since Publish took them.
func (p *CompleteProducer) Wakes() WordSet {
	w := p.wakes
	p.wakes = 0
	return w
}

// wakes takes a sleep word, and reports whether somebody sleeps there who is to be woken for the reason.
func (why reason) wakes(word *atomic.Uint32) bool {
	switch why {
	case calm:
		return false
	case quiet:
		return word.Load() != dozing && take(word)
	}
	return take(word)
}

// Wake wakes one thread on each word of a set, by a system call that waits for nobody, and returns how many calls.
func (r *Rings) Wake(words WordSet) (calls int) {
	for ; words != 0; words &= words - 1 {
		wakeOne(r.threadWord(bits.TrailingZeros64(uint64(words))))
		calls++
	}
	return calls
}

// SleepOn is what a thread of a client does before it sleeps on a word; dozing: operations that end well are not to
// wake it.
func (r *Rings) SleepOn(word uint8, doze bool) {
	v := uint32(asleep)
	if doze {
		v = dozing
	}
	r.threadWord(int(word) - 1).Store(v)
}

// SleepsOn reports whether a thread sleeps on a word and was not taken.
func (r *Rings) SleepsOn(word uint8) bool { return r.threadWord(int(word)-1).Load() != 0 }
