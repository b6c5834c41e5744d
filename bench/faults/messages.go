package faults

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// Messages reach the buffers that were posted for them in order, whole and once (clause 14). Clients send twice as many
// messages at once as there are buffers. Some connections have buffers of their own, some share a queue.
const (
	talkConns = 2
	talkDepth = 4 // buffers of a connection or queue
)

func messageScenarios() []Scenario {
	inOrder := "each message arrives once, in order, with its bytes and immediate value; no byte beside it changes"
	return []Scenario{
		{Name: "messages over bad wires", Group: Network, Short: true, Set: twoLinks,
			Criteria: "no send fails; " + inOrder, Run: messagesLost},
		{Name: "messages across path cuts", Group: Network, Short: true, Set: twoLinks,
			Criteria: "no send fails; " + inOrder, Run: messagesCut},
		{Name: "receiver killed with buffers posted", Group: Host, Short: true, Set: slowWire,
			Criteria: "the receiver's memory is unpinned within 1 s; sends fail with a typed error; memory " +
				"registered since does not change",
			Run: receiverKilled},
		{Name: "sender killed with messages in flight", Group: Host, Short: true, Set: slowWire,
			Criteria: "buffers come back; those of a shared queue go to other senders, which go on; " + inOrder,
			Run:      senderKilled},
		{Name: "messages, both daemons restarted", Group: Host, Short: true,
			Criteria: "sends fail with a typed error and clients reconnect; every message whose send succeeded has " +
				"arrived; " + inOrder,
			Run: messagesRestarted},
		{Name: "receiver that posts no buffers", Group: Host, Short: true, Set: shaped,
			Criteria: "sends to the receiver wait without a place in a window; reads, writes and atomics of the same " +
				"connection, and messages to others, go on; once buffers are posted, " + inOrder, Run: receiverStands},
	}
}

// slowWire is slower than programs, so that at any moment buffers are posted or half full.
func slowWire(s *kit.ClusterSpec) { s.Lab.MTU, s.Lab.Rates = 1500, []string{linkRate} }

// talking starts a server and two clients that send messages to it. One client sends to a shared queue.
func (t *Trial) talking() (own, shared *agent) {
	own = t.pair(MixMessages, talkConns, talkDepth)
	shared = t.work("store", MixShared, talkConns, talkDepth)
	t.flowing(shared, 10*time.Second)
	return own, shared
}

// badWires lose and repeat frames, and hold some back until they count as lost.
var badWires = lab.Faults{Loss: 0.02, Dup: 0.05, Reorder: 0.1, ReorderBy: 50 * time.Millisecond}

// messagesUnder has clients send while something is done to the network, then finish what they have begun. It judges
// that no operation failed.
func (t *Trial) messagesUnder(during func(clients []*agent)) lab.Counters {
	own, shared := t.talking()
	t.setFaults(badWires)
	b := t.count()
	clients := []*agent{own, shared}
	during(clients)
	for _, c := range clients {
		w := call[*Window](c, "drain", nil) // the faults are still injected
		t.judge(c, w)
		t.unfailed(w)
	}
	d, l := t.since(b)
	t.injected("lost", l.Lost)
	t.injected("duplicated", l.Duplicated)
	t.injected("held back", l.Reordered)
	t.tried("segments that came again", d["segments_duplicated"])
	t.tried("sends that waited for a buffer", d["sends_waited"])
	t.setFaults(lab.Faults{})
	return l
}

// talkOn judges that clients go on sending.
func (t *Trial) talkOn(clients ...*agent) {
	for _, c := range clients {
		t.goesOn(c)
	}
}

func messagesLost(t *Trial) {
	t.messagesUnder(func(clients []*agent) {
		t.pause(t.span(4*time.Second, time.Second))
		t.talkOn(clients...)
	})
}

func messagesCut(t *Trial) {
	l := t.messagesUnder(func(clients []*agent) { t.cuts(func() { t.talkOn(clients...) }) })
	t.wasCut(l.Cut)
}

// buffers returns how many buffers of connections of host 1 are posted or being filled.
func (t *Trial) buffers() (n uint64) {
	for _, c := range t.conns(1) {
		n += uint64(c.Receives)
	}
	return n
}

// receiverKilled kills a process whose buffers messages are filling, and has its memory used by others.
func receiverKilled(t *Trial) {
	own, shared := t.talking()
	var posted uint64 // none at a moment in which messages have taken them all
	t.event(goesOnTime, func() bool { posted = t.buffers(); return posted > 0 })
	at := time.Now()
	t.servers[0].kill()
	t.tried("buffers posted, as its daemon counts", posted)
	t.injected("receivers killed", 1)
	t.unpinned(1)
	for _, c := range []*agent{own, shared} {
		w, _, ok := t.until(c, "killed", 2*time.Second, func(w *Window) bool { return total(w.Errors) > 0 })
		t.ms("sender told after", w.FirstError.Sub(at))
		t.counted("sends that failed", total(w.Errors))
		t.check("sends fail with a typed error", ok && w.Errors["untyped"] == 0, "%s", counts(w.Errors))
	}
	t.reuse()
}

// promised stops a client whose connections share a queue, at a moment when the queue has promised them buffers that
// they do not use. It also stops another client that shares the queue.
func (t *Trial) promised(c, other *agent) {
	signal := func(s syscall.Signal) { kit.Check(errors.Join(other.proc.Signal(s), c.proc.Signal(s))) }
	credit := func() (n int) {
		for _, s := range t.conns(0) {
			if int(s.PID) == c.proc.Pid() {
				n += s.Credit
			}
		}
		return n
	}
	for range 50 {
		signal(syscall.SIGSTOP)
		if _, ok := t.event(30*time.Millisecond, func() bool { return credit() > 0 }); ok {
			t.injected("buffers promised to killed senders", uint64(credit()))
			return
		}
		signal(syscall.SIGCONT)
	}
	kit.Check(errors.New("no buffer stays promised to a client that is stopped"))
}

// senderKilled kills a client with half-sent messages, and a client to which a queue has promised buffers. A third
// client sends to the queue afterwards.
func senderKilled(t *Trial) {
	own, shared := t.talking()
	other := t.work("store", MixShared, talkConns, talkDepth)
	t.flowing(other, 10*time.Second)
	server, many := t.servers[0], 0
	for range t.many(6, 2) {
		own.kill()
		t.promised(shared, other)
		shared.kill()
		kit.Check(other.proc.Signal(syscall.SIGCONT))
		t.injected("senders killed", 2)
		many += 2 * talkConns
		took, ok := t.endings(server, many)
		t.ms("buffers are back after", took)
		t.check("the receiver is told, and has its buffers back", ok, "of %d of %d connections after %v",
			len(server.endings()), many, took)
		for _, dead := range []*agent{own, shared} {
			t.forget(server, dead)
		}
		t.goesOn(other)
		own = t.work("store", MixMessages, talkConns, talkDepth)
		shared = t.work("store", MixShared, talkConns, talkDepth)
		for _, c := range []*agent{own, shared} {
			t.flowing(c, 10*time.Second)
		}
	}
	t.talkOn(own, shared, other)
}

// messagesRestarted kills the receivers' daemon, then that of the senders, and starts each again.
func messagesRestarted(t *Trial) {
	own, shared := t.talking()
	for _, kill := range []struct {
		host int
		want string
	}{{1, "peer-down"}, {0, "daemon-down"}} {
		for _, c := range []*agent{own, shared} {
			t.mark(c, "before")
		}
		t.restarted(kill.host)
		back := time.Now()
		for _, c := range []*agent{own, shared} {
			w, _, ok := t.until(c, "after", 10*time.Second,
				func(w *Window) bool { return w.Reconnects >= talkConns && w.Ops > 0 })
			t.counted("sends that failed", total(w.Errors))
			t.check(fmt.Sprintf("sends fail with %s, then clients send again", kill.want),
				ok && w.Errors[kill.want] > 0,
				"%s, %d connections made anew, dial errors %s", counts(w.Errors), w.Reconnects, counts(w.DialErrors))
		}
		t.ms("all send again after", time.Since(back))
	}
	t.talkOn(own, shared)
}
