package path

import (
	"time"

	"multiedge/internal/mono"
)

// Pushes decides how long a frame marked PUSH waits for its acknowledgement (clause 8.4). Its sender has nothing more
// to send, and perhaps waits for the completion: an acknowledgement at once costs a frame, but no time. Waiting pays
// only if something makes that frame unnecessary: data of our own that carries the acknowledgement, mostly an answer,
// or more frames with PUSH that share it, from a sender that writes and does not wait. Both are expected if they came
// lately.
type Pushes struct {
	Last    mono.Time // when the latest arrived
	open    bool      // nothing has left since then that could carry its acknowledgement
	held    int8      // how many wait
	answers int8      // how often in a row something carried it or could have, up to fewAnswers
	crowd   int8      // how many waits in vain are left before nobody is taken to come
	turn    uint8     // one in so many waits to see whether others come
}

const (
	// PushDelay is how long it may wait for others that share it.
	PushDelay = 20 * time.Microsecond

	// AnswerDelay is how long it may wait for an answer: long enough for an application that polls on its daemon's
	// core, which takes two switches of up to 5 us each. One that leaves alone meanwhile costs more than its frame:
	// it delays the application, and so the answers, which then seem too slow to be waited for. For an application
	// that has to be woken it is not worth waiting: the acknowledgement gets its peer's core up meanwhile.
	AnswerDelay = 30 * time.Microsecond

	fewAnswers    = 2                    // in a row are reason to wait
	closeTogether = 3 * time.Microsecond // sooner than anybody could have seen an acknowledgement and sent again
	crowdMost     = 4
)

// Arrived is told of each frame with PUSH, and returns how long its acknowledgement may wait.
func (p *Pushes) Arrived(now mono.Time) time.Duration {
	since := now.Sub(p.Last)
	if p.open && since > AnswerDelay {
		p.answers = 0
	}
	if since < closeTogether || p.held > 0 {
		p.crowd = crowdMost
	}
	p.Last, p.open = now, true
	p.turn++
	answered := p.answers == fewAnswers
	if !answered && p.crowd == 0 && p.turn != 0 {
		return 0
	}
	p.held = min(p.held+1, 2)
	if answered {
		return AnswerDelay
	}
	return PushDelay
}

// Alone is told of each acknowledgement that leaves in a frame of its own.
func (p *Pushes) Alone() {
	if p.open && p.answers == fewAnswers {
		p.answers = 0 // the wait was in vain
	}
	if p.held == 1 && p.crowd > 0 {
		p.crowd-- // nobody shared it
	}
	p.held = 0
}

// Left is told of each frame with data that leaves.
func (p *Pushes) Left(now mono.Time) {
	p.held = 0
	if !p.open {
		return
	}
	p.open = false
	if now.Sub(p.Last) > AnswerDelay {
		p.answers = 0
	} else if p.answers < fewAnswers {
		p.answers++
	}
}
