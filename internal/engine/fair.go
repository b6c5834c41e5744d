package engine

// Fair turns. In each session the users with something to send, their clients and their connections form a tree.
// Siblings take turns by deficit round robin, in bytes: a share that has used up its turn goes behind its siblings, and
// bytes beyond the turn are subtracted from its next. So a user with one connection sends as much as one with a
// hundred, and no turn is reserved for a share without anything to send. All bytes of a connection count for its owner
// at this node: operations, answers to the peer's reads, refusals, retransmissions.
//
// Several sessions with something to send take turns likewise (Endpoint.transmitBusy); a user who sends in several
// sessions has a part of his turn in each.

// Owner says which user and client a connection belongs to, in numbers that the caller of the endpoint chooses. All
// connections with the zero Owner belong to one user.
type Owner struct {
	User   uint64
	Client uint64 // of that user
}

// share is one of a session's users, clients or connections: its turn among its siblings, and the ring of those below
// it that have something to send.
type share struct {
	up         *share
	next, prev *share // in the ring of up, while waits
	first      *share // of the ring below: the one whose turn it is
	credit     int    // bytes left of the turn; less than none were taken beyond it
	waits      bool
	below      int   // shares of which this is up
	user       *user // of a user's share
	held       int   // of a user's share: bytes of session.heldMem that are for him
	staged     int   // likewise of session.staged
	conn       *conn // of a connection's
}

// user is what all sessions of an endpoint know of one.
type user struct {
	number uint64
	shares int // in sessions
	active int // those of them that have something to send
	strewn int // bytes that the ends of redirections have to copy
}

// fair is a session's tree.
type fair struct {
	root    share
	clients map[Owner]*share
	users   map[uint64]*share
	waiting int  // connections
	quantum int  // bytes of a turn: the longest frame that leaves now
	allowed int  // bytes the session may send before it is another one's turn
	shared  bool // there are other sessions, and users
}

// join puts a connection below its owner.
func (f *fair) join(c *conn) {
	if f.clients == nil {
		f.clients, f.users = map[Owner]*share{}, map[uint64]*share{}
	}
	client := f.clients[c.owner]
	if client == nil {
		u := f.users[c.owner.User]
		if u == nil {
			u = &share{up: &f.root, user: c.e.user(c.owner.User)}
			u.user.shares++
			f.users[c.owner.User] = u
		}
		u.below++
		client = &share{up: u}
		f.clients[c.owner] = client
	}
	client.below++
	c.share.up, c.share.conn = client, c
}

// leave undoes join.
func (f *fair) leave(c *conn) {
	f.remove(c)
	client := c.share.up
	c.share = share{}
	if client.below--; client.below > 0 {
		return
	}
	delete(f.clients, c.owner)
	u := client.up
	if u.below--; u.below > 0 {
		return
	}
	delete(f.users, c.owner.User)
	if u.user.shares--; u.user.shares == 0 {
		delete(c.e.users, u.user.number)
	}
}

// user returns the record of one.
func (e *Endpoint) user(number uint64) *user {
	u := e.users[number]
	if u == nil {
		u = &user{number: number}
		e.users[number] = u
	}
	return u
}

// add puts a connection that has something to send behind its siblings, and those above it behind theirs if they had
// nothing.
func (f *fair) add(c *conn) {
	f.waiting++
	for n := &c.share; n.up != nil && !n.waits; n = n.up {
		n.waits = true
		if n.user != nil {
			n.user.active++
		}
		f.renew(n)
		head := n.up.first
		if head == nil {
			n.up.first, n.next, n.prev = n, n, n
			continue
		}
		n.next, n.prev = head, head.prev
		n.prev.next, head.prev = n, n
	}
}

// remove takes a connection out, and those above it that have nothing else.
func (f *fair) remove(c *conn) {
	if !c.share.waits {
		return
	}
	f.waiting--
	for n := &c.share; n.up != nil && n.first == nil; n = n.up {
		n.waits = false
		if n.user != nil {
			n.user.active--
		}
		if n.next == n {
			n.up.first = nil
		} else {
			n.prev.next, n.next.prev = n.next, n.prev
			if n.up.first == n {
				n.up.first = n.next
			}
		}
		n.next, n.prev = nil, nil
	}
}

// front returns the connection whose turn it is.
func (f *fair) front() *conn {
	if f.waiting == 0 {
		return nil
	}
	return f.root.first.first.first.conn
}

// spend charges a connection, and those above it, for bytes. A share that has used up its turn goes behind its
// siblings.
func (f *fair) spend(c *conn, bytes int) {
	f.allowed -= bytes
	for n := &c.share; n.up != nil; n = n.up {
		if n.credit -= bytes; n.credit <= 0 {
			f.renew(n)
			if n.up.first == n {
				n.up.first = n.next
			}
		}
	}
}

// sessionTurn is how many bytes a user who sends in one session alone may send there before it is another one's turn:
// as many as a datagram takes.
const sessionTurn = 64 << 10

// renew begins a turn of n. Bytes beyond the previous turn are subtracted, but at least one byte is left: the frames of
// another link may be longer.
func (f *fair) renew(n *share) {
	bytes := f.quantum
	if f.shared && n.user != nil {
		bytes = max(bytes, sessionTurn/n.user.active)
	}
	n.credit = max(1, min(n.credit, 0)+bytes)
}

// turn is how many bytes the session may send before it is another one's turn: those of each user who has something to
// send there, divided by the sessions he sends in.
func (f *fair) turn() int {
	bytes := 1 // there may be news of links alone
	for u := f.root.first; u != nil; {
		bytes += sessionTurn / u.user.active
		if u = u.next; u == f.root.first {
			break
		}
	}
	return bytes
}

// SetOwner sets the owner of a connection that a peer asked for, before it is answered. Connections made by Dial have
// the owner of DialOptions.
func (e *Endpoint) SetOwner(id ConnID, o Owner) {
	c := e.conn(id)
	if c == nil || c.owner == o {
		return
	}
	if c.s == nil {
		c.owner = o
		return
	}
	waits := c.share.waits
	c.s.fair.leave(c)
	c.owner = o
	c.s.fair.join(c)
	if waits {
		c.s.fair.add(c)
	}
}
