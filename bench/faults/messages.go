package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"multiedge/bench"
	"multiedge/internal/inspect"
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
func slowWire(s *bench.ClusterSpec) { s.Lab.MTU, s.Lab.Rates = 1500, []string{linkRate} }

// talking starts a server and two clients that send messages to it. One client sends to a shared queue.
func (t *Trial) talking(ctx context.Context) (own, shared *agent, err error) {
	if own, err = t.pair(ctx, MixMessages, talkConns, talkDepth); err != nil {
		return nil, nil, err
	}
	if shared, err = t.work(ctx, "store", MixShared, talkConns, talkDepth); err != nil {
		return nil, nil, err
	}
	return own, shared, t.flowing(ctx, shared, 10*time.Second)
}

// badWires lose and repeat frames, and hold some back until they count as lost.
var badWires = lab.Faults{Loss: 0.02, Dup: 0.05, Reorder: 0.1, ReorderBy: 50 * time.Millisecond}

// messagesUnder has clients send while something is done to the network, then finish what they have begun. It judges
// that no operation failed.
func (t *Trial) messagesUnder(ctx context.Context, during func(clients []*agent) error) (lab.Counters, error) {
	own, shared, err := t.talking(ctx)
	if err != nil {
		return lab.Counters{}, err
	}
	if err := t.setFaults(badWires); err != nil {
		return lab.Counters{}, err
	}
	b, err := t.count(ctx)
	if err != nil {
		return lab.Counters{}, err
	}
	clients := []*agent{own, shared}
	if err := during(clients); err != nil {
		return lab.Counters{}, err
	}
	for _, c := range clients {
		w, err := c.drain(ctx) // the faults are still injected
		if err != nil {
			return lab.Counters{}, err
		}
		t.judge(c, w)
		t.unfailed(w)
	}
	d, l, err := t.since(ctx, b)
	if err != nil {
		return l, err
	}
	t.injected("lost", l.Lost)
	t.injected("duplicated", l.Duplicated)
	t.injected("held back", l.Reordered)
	t.tried("segments that came again", d["segments_duplicated"])
	t.tried("sends that waited for a buffer", d["sends_waited"])
	return l, t.setFaults(lab.Faults{})
}

// talkOn judges that clients go on sending.
func (t *Trial) talkOn(ctx context.Context, clients ...*agent) error {
	for _, c := range clients {
		if err := t.goesOn(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func messagesLost(ctx context.Context, t *Trial) error {
	_, err := t.messagesUnder(ctx, func(clients []*agent) error {
		if !sleep(ctx, t.span(4*time.Second, time.Second)) {
			return ctx.Err()
		}
		return t.talkOn(ctx, clients...)
	})
	return err
}

func messagesCut(ctx context.Context, t *Trial) error {
	l, err := t.messagesUnder(ctx, func(clients []*agent) error {
		return t.cuts(ctx, func() error { return t.talkOn(ctx, clients...) })
	})
	if err == nil {
		t.wasCut(l.Cut)
	}
	return err
}

// buffers returns how many buffers of connections of host 1 are posted or being filled.
func (t *Trial) buffers(ctx context.Context) (n uint64) {
	all, _ := fetch[[]inspect.ConnStatus](ctx, t.cluster.Socket(1), "conn")
	for _, c := range all {
		n += uint64(c.Receives)
	}
	return n
}

// receiverKilled kills a process whose buffers messages are filling, and has its memory used by others.
func receiverKilled(ctx context.Context, t *Trial) error {
	own, shared, err := t.talking(ctx)
	if err != nil {
		return err
	}
	var posted uint64 // none at a moment in which messages have taken them all
	t.event(ctx, goesOnTime, func() bool { posted = t.buffers(ctx); return posted > 0 })
	at := time.Now()
	t.servers[0].kill()
	t.tried("buffers posted, as its daemon counts", posted)
	t.injected("receivers killed", 1)
	t.unpinned(ctx, 1)
	for _, c := range []*agent{own, shared} {
		w, _, ok := t.until(ctx, c, "killed", 2*time.Second, func(w *Window) bool { return total(w.Errors) > 0 })
		t.ms("sender told after", w.FirstError.Sub(at))
		t.counted("sends that failed", total(w.Errors))
		t.check("sends fail with a typed error", ok && w.Errors["untyped"] == 0, "%s", counts(w.Errors))
	}
	return t.reuse(ctx)
}

// promised stops a client whose connections share a queue, at a moment when the queue has promised them buffers that
// they do not use. It also stops another client that shares the queue.
func (t *Trial) promised(ctx context.Context, c, other *agent) error {
	signal := func(s syscall.Signal) error { return errors.Join(other.proc.Signal(s), c.proc.Signal(s)) }
	credit := func() (n int) {
		all, _ := fetch[[]inspect.ConnStatus](ctx, t.cluster.Socket(0), "conn")
		for _, s := range all {
			if int(s.PID) == c.proc.Pid() {
				n += s.Credit
			}
		}
		return n
	}
	for range 50 {
		if err := signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if _, ok := t.event(ctx, 30*time.Millisecond, func() bool { return credit() > 0 }); ok {
			t.injected("buffers promised to killed senders", uint64(credit()))
			return nil
		}
		if err := signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return errors.New("no buffer stays promised to a client that is stopped")
}

// senderKilled kills a client with half-sent messages, and a client to which a queue has promised buffers. A third
// client sends to the queue afterwards.
func senderKilled(ctx context.Context, t *Trial) error {
	own, shared, err := t.talking(ctx)
	if err != nil {
		return err
	}
	other, err := t.work(ctx, "store", MixShared, talkConns, talkDepth)
	if err != nil {
		return err
	}
	if err := t.flowing(ctx, other, 10*time.Second); err != nil {
		return err
	}
	server, many := t.servers[0], 0
	for range t.many(6, 2) {
		own.kill()
		if err := t.promised(ctx, shared, other); err != nil {
			return err
		}
		shared.kill()
		if err := other.proc.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		t.injected("senders killed", 2)
		many += 2 * talkConns
		took, ok := t.event(ctx, 2*time.Second, func() bool { return len(server.endings()) >= many })
		t.ms("buffers are back after", took)
		t.check("the receiver is told, and has its buffers back", ok, "of %d of %d connections after %v",
			len(server.endings()), many, took)
		for _, dead := range []*agent{own, shared} {
			if err := server.tell(Order{Do: DoForget, Name: dead.job.Name}); err != nil {
				return err
			}
		}
		if err := t.goesOn(ctx, other); err != nil {
			return err
		}
		if own, err = t.work(ctx, "store", MixMessages, talkConns, talkDepth); err != nil {
			return err
		}
		if shared, err = t.work(ctx, "store", MixShared, talkConns, talkDepth); err != nil {
			return err
		}
		for _, c := range []*agent{own, shared} {
			if err := t.flowing(ctx, c, 10*time.Second); err != nil {
				return err
			}
		}
	}
	return t.talkOn(ctx, own, shared, other)
}

// messagesRestarted kills the receivers' daemon, then that of the senders, and starts each again.
func messagesRestarted(ctx context.Context, t *Trial) error {
	own, shared, err := t.talking(ctx)
	if err != nil {
		return err
	}
	for _, kill := range []struct {
		host int
		want string
	}{{1, "peer-down"}, {0, "daemon-down"}} {
		for _, c := range []*agent{own, shared} {
			if _, err := t.mark(ctx, c, "before"); err != nil {
				return err
			}
		}
		t.killDaemon(kill.host)
		t.injected("daemons killed", 1)
		if err := t.cluster.StartDaemon(ctx, kill.host); err != nil {
			return err
		}
		back := time.Now()
		for _, c := range []*agent{own, shared} {
			w, _, ok := t.until(ctx, c, "after", 10*time.Second,
				func(w *Window) bool { return w.Reconnects >= talkConns && w.Ops > 0 })
			t.counted("sends that failed", total(w.Errors))
			t.check(fmt.Sprintf("sends fail with %s, then clients send again", kill.want),
				ok && w.Errors[kill.want] > 0,
				"%s, %d connections made anew, dial errors %s", counts(w.Errors), w.Reconnects, counts(w.DialErrors))
		}
		t.ms("all send again after", time.Since(back))
	}
	return t.talkOn(ctx, own, shared)
}
