package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"strings"
	"time"

	"multiedge/edge"
)

// follow takes notifications until the connection ends.
func (s *server) follow(ctx context.Context, t *target) {
	var err error
	for {
		var n edge.Notification
		if n, err = t.conn.WaitNotify(ctx); err != nil {
			break
		}
		was := t.notes[n.Imm]
		t.notes[n.Imm] = note{was.times + 1, n.Len}
	}
	t.why = err
	s.ended(t)
}

// ended records that a connection has ended and that everything that came over it was taken.
func (s *server) ended(t *target) {
	name, _ := typeOf(t.why)
	t.crashed = errors.Is(t.why, edge.ErrDaemonDown)
	s.mu.Lock()
	if !t.sealed {
		t.seal()
	}
	s.mu.Unlock()
	close(t.over)
	if !errors.Is(t.why, context.Canceled) {
		s.w.emit(Event{Ended: &Ended{ID: t.id, Type: name, At: time.Now()}})
	}
	t.conn.Close() // it has ended; what this side still knows of it goes
}

// wrong reports what must never happen, at a target if there is one.
func (s *server) wrong(t *target, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if t != nil {
		what = t.id + ": " + what
	}
	s.w.emit(Event{Wrong: what})
}

// seal takes a checksum of the memory: from now on it may not change.
func (t *target) seal() { t.sum, t.sealed = crc64.Checksum(t.memory, crcTable), true }

func (s *server) order(o Order) {
	switch o.Do {
	case DoVerify:
		c := new(Claim)
		if err := readFile(o.File, c); err != nil {
			s.w.emit(Event{Error: err.Error()})
		} else {
			s.verify(c)
		}
	case DoVoid:
		s.verify(&Claim{ID: o.Name})
	case DoRevoke:
		s.revoke()
	case DoForget:
		s.forget(o.Name)
	}
}

// revoke withdraws every export and takes a checksum of its memory at that moment.
func (s *server) revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, t := range s.targets {
		if t.conn.Err() == nil && t.grant != nil && t.grant.Revoke() == nil {
			t.seal()
			n++
		}
	}
	s.w.emit(Event{Revoked: n})
}

// forget releases the memory of a killed client, once its connections have ended.
func (s *server) forget(client string) {
	s.mu.Lock()
	s.void[client] = true // its last dials may still arrive
	var mine []*target
	for id, t := range s.targets {
		if strings.HasPrefix(id, client+"-") {
			mine = append(mine, t)
			delete(s.targets, id)
		}
	}
	s.mu.Unlock()
	for _, t := range mine {
		select {
		case <-t.over:
			s.release(t)
		case <-time.After(verifyTime):
			s.w.emit(Event{Checked: &Checked{ID: t.id, Wrong: 1,
				Details: []string{"the connection of a killed client has not ended"}}})
		}
	}
}

// verifyTime bounds how long a server waits for the end of a connection whose client is done with it.
const verifyTime = 30 * time.Second

// verify compares the memory of a connection with a claim, and releases it. A claim without bytes is of a connection
// that the client never had: then memory must be unchanged.
func (s *server) verify(c *Claim) {
	s.mu.Lock()
	t := s.targets[c.ID]
	delete(s.targets, c.ID)
	out := Checked{ID: c.ID, Void: c.Bytes == nil}
	switch {
	case t != nil:
	case out.Void || s.unwanted(c.ID): // the connection has not arrived; it is refused if it does
		s.void[c.ID] = true
	default:
		out.Wrong = len(c.Bytes)
		out.say("the server has no memory of that connection, whose client wrote to it")
	}
	s.mu.Unlock()
	if t == nil {
		s.w.emit(Event{Checked: &out})
		return
	}
	select {
	case <-t.over:
	case <-time.After(verifyTime):
		s.w.emit(Event{Checked: &Checked{ID: c.ID, Wrong: 1,
			Details: []string{"the server's end of the connection has not ended"}}})
		return
	}
	got := t.memory
	if c.Bytes == nil || t.region == nil {
		c.Bytes = newOracle(t.seed, len(got)).bytes
	}
	void := out.Void
	out = c.compare(got)
	out.Void = void
	c.notes(&out, t.notes, t.crashed)
	if t.letters != nil {
		t.letters.counts(&out, c, t.crashed)
	}
	if out.Late = crc64.Checksum(got, crcTable) != t.sum; out.Late {
		out.say("memory changed after the connection's end")
	}
	s.release(t)
	s.w.emit(Event{Checked: &out})
}

// release gives a target's memory back. It also closes the target's attachment if that is over and no other target uses
// it.
func (s *server) release(t *target) {
	if t.region != nil {
		if err := t.region.Close(); err != nil && t.on.dev.Err() == nil {
			s.w.emit(Event{Note: fmt.Sprintf("deregistering: %v", err)})
		}
	}
	s.mu.Lock()
	t.on.users--
	last := t.on.over && t.on.users == 0
	s.mu.Unlock()
	if last {
		t.on.dev.Close()
	}
}
