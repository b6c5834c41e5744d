package daemon

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/shard"
)

// News are events that watchers are told of as they happen. The daemon waits for no watcher: events that one does not
// take in time are counted, and it is told how many it missed.

// Event is one thing that happened.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Peer    string    `json:"peer,omitempty"`
	Node    string    `json:"node,omitempty"`
	Link    string    `json:"link,omitempty"`
	PID     int32     `json:"pid,omitempty"`
	UID     uint32    `json:"uid"` // with a PID
	Program string    `json:"program,omitempty"`
	Text    string    `json:"text,omitempty"`
	Missed  uint64    `json:"missed,omitempty"` // events before this one that the watcher was too slow for
}

// Kinds of Event.
const (
	EventLinkUp       = "link up"
	EventLinkDown     = "link down"
	EventPeerUp       = shard.NoticePeerUp
	EventPeerDown     = shard.NoticePeerDown
	EventPath         = shard.NoticePath
	EventClaim        = shard.NoticeClaim
	EventAttached     = "client attached"
	EventLeft         = "client left"
	EventEvicted      = "client evicted"
	EventReload       = "reload"
	EventReloadFailed = "reload failed" // Text is why
	EventPeers        = "peers read"
	EventDrain        = "drain"
	EventUndrain      = "drain undone"
)

const (
	maxWatchers = 32  // of all users; one has half of them at most
	newsRoom    = 256 // events that may wait for one of them
)

// news passes events on.
type news struct {
	watched atomic.Int32 // watchers: while there is none, nothing is done
	mu      sync.Mutex
	all     map[*watcher]struct{}
}

// watcher is a client that asked for news.
type watcher struct {
	uid    uint32
	events chan Event
	missed uint64 // under news.mu
}

// tell passes an event on.
func (d *Daemon) tell(ev *Event) { d.news.tell(ev) }

// tell passes an event on. Any goroutine may call it, shards too: it does not wait for watchers.
func (n *news) tell(ev *Event) {
	if n.watched.Load() == 0 {
		return
	}
	ev.Time = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.all {
		one := *ev
		one.Missed = w.missed
		select {
		case w.events <- one:
			w.missed = 0
		default:
			w.missed++
		}
	}
}

// join adds a watcher, or reports that there are too many.
func (n *news) join(uid uint32) (*watcher, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := 0
	for w := range n.all {
		if w.uid == uid {
			own++
		}
	}
	if len(n.all) >= maxWatchers || own >= maxWatchers/2 {
		return nil, false
	}
	if n.all == nil {
		n.all = map[*watcher]struct{}{}
	}
	w := &watcher{uid: uid, events: make(chan Event, newsRoom)}
	n.all[w] = struct{}{}
	n.watched.Store(int32(len(n.all)))
	return w, true
}

func (n *news) leave(w *watcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, w)
	n.watched.Store(int32(len(n.all)))
}

// watch answers, and from then on sends what happens until the control connection ends.
func (ss *controlConn) watch(m *ipc.Message) (*ipc.Message, error) {
	if !ss.watching.CompareAndSwap(false, true) {
		return nil, ipc.Errorf(ipc.CodeBusy, "this client watches already")
	}
	n := &ss.d.news
	w, ok := n.join(ss.owner)
	if !ok {
		ss.watching.Store(false)
		return nil, ipc.Errorf(ipc.CodeLimit, "%d watch already, or %d of %v; end one of them", maxWatchers,
			maxWatchers/2, shard.Owner(ss.owner))
	}
	if err := ss.conn.Send(m.Reply()); err != nil { // before the first event
		n.leave(w)
		return nil, err
	}
	ss.tracer.Go(func() {
		defer n.leave(w)
		for {
			select {
			case <-ss.quit:
				return
			case ev := <-w.events:
				body, err := json.Marshal(&ev)
				if err == nil {
					err = ss.conn.Send(&ipc.Message{Kind: ipc.KindEvent, Body: body})
				}
				if err != nil {
					ss.end()
					return
				}
			}
		}
	})
	return nil, nil
}
