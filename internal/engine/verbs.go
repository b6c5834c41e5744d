package engine

import (
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// What applications do with connections. op.Endpoint does it, and says more of each.

// Advertise tells the peer of exported memory under a name, and returns the number by which Withdraw takes it back
// (clause 5.6).
func (e *Endpoint) Advertise(now mono.Time, id ConnID, a Advert) (number uint32, ok bool) {
	return e.ops.Advertise(now, id, a)
}

// Withdraw takes the Advertise of a key back, which had that number.
func (e *Endpoint) Withdraw(now mono.Time, id ConnID, key regmem.Key, number uint32) {
	e.ops.Withdraw(now, id, key, number)
}

// Carried says that a courier has made a trip.
func (e *Endpoint) Carried(now mono.Time, t *regmem.Trip) { e.ops.Carried(now, t) }

// Accept answers EvIncoming: the connection is open and EvConnected follows.
func (e *Endpoint) Accept(now mono.Time, id ConnID, data []byte) error {
	return e.ops.Accept(now, id, data)
}

// Refuse answers EvIncoming with a reason.
func (e *Endpoint) Refuse(now mono.Time, id ConnID, reason string) { e.ops.Refuse(now, id, reason) }

// TakesReceives reports whether a connection can be given buffers, unless it takes from a shared queue.
func (e *Endpoint) TakesReceives(id ConnID) bool { return e.ops.TakesReceives(id) }

// Room says how many operations Submit would take now.
func (e *Endpoint) Room(id ConnID) int { return e.ops.Room(id) }

// Submit takes an operation.
func (e *Endpoint) Submit(now mono.Time, id ConnID, o *Op) bool { return e.ops.Submit(now, id, o) }

// Close ends the connection once everything submitted has completed; EvClosed follows.
func (e *Endpoint) Close(now mono.Time, id ConnID) { e.ops.Close(now, id) }

// ConnsLeft is how many connections more the endpoint has room for.
func (e *Endpoint) ConnsLeft() int { return e.ops.ConnsLeft() }

// Abort ends the connection at once: operations in flight complete with st, the peer is told, EvClosed follows.
func (e *Endpoint) Abort(now mono.Time, id ConnID, st Status) { e.ops.Abort(now, id, st) }

// TakeNotify takes the oldest notification of a connection.
func (e *Endpoint) TakeNotify(id ConnID) (Notification, bool) { return e.ops.TakeNotify(id) }

// GaveBack returns how many bytes connections that rest have given back since it was called last, garbage now, and
// whether more is to be expected soon.
func (e *Endpoint) GaveBack() (bytes int, more bool) { return e.ops.GaveBack() }

// Observe has f be told of all memory that operations use; nil: nobody.
func (e *Endpoint) Observe(f Look) { e.ops.Observe(f) }

// Resident says that a page which Backing.Touch named has come, or that it is time to ask again.
func (e *Endpoint) Resident(now mono.Time, w regmem.Wait) { e.ops.Resident(now, w) }

// Gone reports that memory was unregistered.
func (e *Endpoint) Gone(now mono.Time, b regmem.Backing) { e.ops.Gone(now, b) }

// Waits reports whether something is parked for a page.
func (e *Endpoint) Waits(w regmem.Wait) bool { return e.ops.Waits(w) }

// AskAgain has pages of b be asked for again soon, those first that are waited for longest: some were forgotten, and
// there may be room.
func (e *Endpoint) AskAgain(b regmem.Backing) { e.ops.AskAgain(b) }

// Placed returns when every payload of the frames handled so far is in place.
func (e *Endpoint) Placed() { e.ops.Placed() }

// Compose begins a write or send of op.Local, whose owner calls it name until he commits it; its Flags and Imm are
// said then.
func (e *Endpoint) Compose(id ConnID, o *Op, name uint64) Status { return e.ops.Compose(id, o, name) }

// Wrote marks n bytes from off on of a composed message as written.
func (e *Endpoint) Wrote(id ConnID, name, off, n uint64) bool { return e.ops.Wrote(id, name, off, n) }

// Commit submits the first n bytes of a composed message as an operation with those flags.
func (e *Endpoint) Commit(now mono.Time, id ConnID, name uint64, flags OpFlags, imm uint32, n uint64) bool {
	return e.ops.Commit(now, id, name, flags, imm, n)
}

// Discard drops a composed message; it completes with StatusAborted.
func (e *Endpoint) Discard(id ConnID, name uint64) bool { return e.ops.Discard(id, name) }

// Listen makes service available to peers; their requests arrive as EvIncoming.
func (e *Endpoint) Listen(service string) { e.ops.Listen(service) }

// Unlisten ends Listen.
func (e *Endpoint) Unlisten(service string) { e.ops.Unlisten(service) }

// PollEvent takes the oldest event.
func (e *Endpoint) PollEvent(ev *Event) bool { return e.ops.PollEvent(ev) }

// SnapshotConns looks at n places of connections as SnapshotPeers does at peers.
func (e *Endpoint) SnapshotConns(out []ConnStatus, from, n int) (_ []ConnStatus, next int) {
	return e.ops.SnapshotConns(out, from, n)
}

// SetOwner sets the owner of a connection that a peer asked for, before it is answered.
func (e *Endpoint) SetOwner(id ConnID, o Owner) { e.ops.SetOwner(id, o) }

// SetDomain has the peer of a connection that is not open yet reach the memory of a regmem.Domain, too.
func (e *Endpoint) SetDomain(id ConnID, domain uint64) { e.ops.SetDomain(id, domain) }

// PostReceive takes a buffer for the messages of a connection.
func (e *Endpoint) PostReceive(now mono.Time, id ConnID, r *Receive) bool {
	return e.ops.PostReceive(now, id, r)
}

// NewReceiveQueue makes a queue that connections can share.
func (e *Endpoint) NewReceiveQueue() QueueID { return e.ops.NewReceiveQueue() }

// DropReceiveQueue gives back what is posted to a shared queue.
func (e *Endpoint) DropReceiveQueue(id QueueID) bool { return e.ops.DropReceiveQueue(id) }

// JoinReceiveQueue has a connection take its buffers from a shared queue from now on.
func (e *Endpoint) JoinReceiveQueue(now mono.Time, id ConnID, queue QueueID) bool {
	return e.ops.JoinReceiveQueue(now, id, queue)
}

// PostShared takes a buffer for the messages of all connections that share a queue.
func (e *Endpoint) PostShared(now mono.Time, id QueueID, r *Receive) bool {
	return e.ops.PostShared(now, id, r)
}

// Redirect sends what arrives from now on for len(Dst) bytes behind a key to Dst, which must stay valid and belongs
// to the endpoint until EvRedirected.
func (e *Endpoint) Redirect(id ConnID, r *Redirection) Status { return e.ops.Redirect(id, r) }

// EndRedirect ends a redirection, and reports whether it was still there.
func (e *Endpoint) EndRedirect(id ConnID, name uint64) bool { return e.ops.EndRedirect(id, name) }
