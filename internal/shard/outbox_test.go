package shard

import (
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// All connections of a client that is slow to read may end at once without costing it its place; more than that may not
// wait.
func TestOutboxHoldsTheEndOfEveryConnection(t *testing.T) {
	const conns = 10000
	o := NewOutbox(conns, nil)
	end := []*ipc.Message{{Kind: ipc.KindClosed}}
	for i := range OutboxLimit + 2*conns {
		if !o.put(end) {
			t.Fatalf("message %d does not fit", i)
		}
	}
	if o.put(end) {
		t.Fatal("there is no limit")
	}
	for taken := 0; taken < OutboxLimit+2*conns; {
		n := len(o.Take(nil))
		if taken += n; n > mostTaken || o.length() != OutboxLimit+2*conns-taken+n {
			t.Fatalf("%d messages taken, %d of them now; %d wait", taken, n, o.length())
		}
		if taken == n && o.put(end) {
			t.Fatal("what was taken and is not sent does not count")
		}
	}
	if !o.put(end) {
		t.Fatal("it stays full after it was emptied")
	}
}

// What can be sent at once does not wait for the goroutine that writes, and nothing overtakes what waits.
func TestOutboxSendsItself(t *testing.T) {
	var sent []uint64
	room := 2
	o := NewOutbox(1, func(m *ipc.Message) bool {
		if room == 0 {
			return false
		}
		room--
		sent = append(sent, m.ID)
		return true
	})
	put := func(ids ...uint64) {
		t.Helper()
		var msgs []*ipc.Message
		for _, id := range ids {
			msgs = append(msgs, &ipc.Message{ID: id})
		}
		if !o.put(msgs) {
			t.Fatalf("%v do not fit", ids)
		}
	}
	put(1)
	put(2, 3, 4) // 3 and 4 have no room
	room = 10
	put(5) // it waits behind them
	taken := o.Take(nil)
	put(6) // those that were taken are not sent yet
	if len(taken) != 3 || taken[0].ID != 3 || taken[2].ID != 5 || o.length() != 4 {
		t.Fatalf("%d taken, %d wait", len(taken), o.length())
	}
	if taken = o.Take(nil); len(taken) != 1 || taken[0].ID != 6 {
		t.Fatalf("%d taken", len(taken))
	}
	over := make(chan []*ipc.Message)
	go func() { over <- o.Take(nil) }() // the writer has sent all
	for o.length() > 0 {
		time.Sleep(time.Millisecond)
	}
	put(7)
	if want := []uint64{1, 2, 7}; !slices.Equal(sent, want) {
		t.Fatalf("%v were sent, not %v", sent, want)
	}
	o.Close()
	if taken = <-over; taken != nil {
		t.Fatalf("%d taken of nothing", len(taken))
	}
}

// A client that asks on and on without reading the answers is not asked to the last: what waits for it is bounded, and
// it keeps its place once it reads.
func TestShortOutbox(t *testing.T) {
	const most = 10
	o := NewOutbox(1, nil)
	msgs := make([]*ipc.Message, most+1)
	o.put(msgs)
	served := make(chan struct{})
	go func() {
		o.Short(most)
		close(served)
	}()
	select {
	case <-served:
		t.Fatal("served before the answers were taken")
	case <-time.After(10 * time.Millisecond):
	}
	o.Take(nil)
	<-served
	o.put(msgs)
	o.Close()
	o.Short(most) // does not wait for ever
}

// However many clients a user has who do not read, what peers tell them takes little memory together; a client whose
// user's other clients do not read is told a little all the same.
func TestUnreadOfUserIsBounded(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	const clients, most = 100, mostUnread + 100*(fewUnread+1) + 1
	u, all := NewUser(1), []*Outbox(nil)
	s.Do(func(now mono.Time) {
		for range clients {
			c := &Client{user: u, out: NewOutbox(16384, nil), rings: new(ipc.Rings)}
			c.out.countFor(u)
			all = append(all, c.out)
			told := 0
			for len(c.msgs) == 0 && told < 2*OutboxLimit {
				s.advert(now, &Conn{id: 1, client: c}, &engine.Event{Kind: engine.EvAdvert})
				if len(c.msgs) == 0 {
					break
				}
				c.out.put(c.msgs)
				told, c.msgs = told+1, nil
			}
			if told < fewUnread {
				t.Errorf("a client was told %d things", told)
			}
		}
		s.clients.touched = nil
	})
	if n := u.unread.Load(); n < mostUnread || n > most {
		t.Errorf("%d messages wait for a user's clients; want %d at most", n, most)
	}
	for i, o := range all {
		if i%2 == 0 {
			o.Take(nil)
		}
		o.Close()
	}
	if n := u.unread.Load(); n != 0 {
		t.Errorf("%d messages count when nobody is there any more", n)
	}
}

// What waits for a client's courier is bounded like what waits to be read: a client is not evicted for what its peers
// have it told meanwhile.
func TestWhatIsPostponedIsBounded(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	carrier := regmem.NewCarrier(func(*regmem.Trip) bool { return true })
	heap, err := carrier.Heap(1<<20, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	if heap.Touch(0, 8, 0, regmem.WriteSource); heap.Fetch(heap.Last()) == nil {
		t.Fatal("no trip")
	}
	s.Do(func(now mono.Time) {
		c := &Client{user: NewUser(1), out: NewOutbox(0, nil), rings: new(ipc.Rings),
			carrying: &carrying{carrier: carrier}}
		s.say(c, &ipc.Message{Kind: ipc.KindClosed})
		for range 2 * OutboxLimit {
			s.advert(now, &Conn{id: 1, client: c}, &engine.Event{Kind: engine.EvAdvert})
		}
		if n := len(c.carrying.later); n < OutboxLimit/2 || n > OutboxLimit/2+1 || c.behind() {
			t.Errorf("%d messages wait for a courier", n)
		}
		s.clients.touched = nil
	})
}

// A client for whose socket a call takes long, since it waits there very many times, costs the shard one such call:
// what follows is left to the goroutine that writes.
func TestOutboxLeavesSlowSockets(t *testing.T) {
	calls := 0
	o := NewOutbox(1, func(*ipc.Message) bool {
		calls++
		time.Sleep(2 * sendsMost) // in the kernel
		return true
	})
	for id := range uint64(3) {
		if !o.put([]*ipc.Message{{ID: id}}) {
			t.Fatal("no room")
		}
	}
	if calls != 1 || o.length() != 2 {
		t.Fatalf("%d calls, %d messages left to the writer", calls, o.length())
	}
	if taken := o.Take(nil); taken[0].ID != 1 {
		t.Errorf("the writer begins with message %d", taken[0].ID)
	}
}
