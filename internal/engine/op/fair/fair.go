// Package fair gives fair turns. In each session the users with something to send, their clients and their connections
// form a tree. Siblings take turns by deficit round robin, in bytes: a share that has used up its turn goes behind its
// siblings, and bytes beyond the turn are subtracted from its next. So a user with one connection sends as much as one
// with a hundred, and no turn is reserved for a share without anything to send. All bytes of a connection count for its
// owner at this node: operations, answers to the peer's reads, refusals, retransmissions.
//
// Several sessions with something to send take turns by the same rule; a user who sends in several
// sessions has a part of his turn in each.
package fair

// Owner says which user and client a connection belongs to, in numbers that the caller of the endpoint chooses. All
// connections with the zero Owner belong to one user.
type Owner struct {
	User   uint64
	Client uint64 // of that user
}

// Share is one of a session's users, clients or connections: its turn among its siblings, and the ring of those below
// it that have something to send.
type Share[C any] struct {
	up         *Share[C]
	next, prev *Share[C] // in the ring of up, while waits
	first      *Share[C] // of the ring below: the one whose turn it is
	credit     int       // bytes left of the turn; less than none were taken beyond it
	Waits      bool
	below      int   // shares of which this is up
	User       *User // of a user's share
	Held       int   // of a user's share: bytes that are kept for peers and charged to him
	Copied     int   // likewise bytes of copies
	conn       C     // of a connection's
}

// UserShare is the share of the user of a connection's.
func (n *Share[C]) UserShare() *Share[C] { return n.up.up }

// User is what all sessions of an endpoint know of one.
type User struct {
	number uint64
	shares int // in sessions
	active int // those of them that have something to send
	Strewn int // bytes that the ends of redirections have to copy
}

// Users are the users of all sessions, by number.
type Users map[uint64]*User

// Tree is a session's tree.
type Tree[C any] struct {
	root    Share[C]
	clients map[Owner]*Share[C]
	users   map[uint64]*Share[C]
	Waiting int  // connections
	Quantum int  // bytes of a turn: the longest frame that leaves now
	Allowed int  // bytes the session may send before it is another one's turn
	Shared  bool // there are other sessions, and users
}

// Join puts a connection, whose share is n, below its owner.
func (f *Tree[C]) Join(c C, n *Share[C], owner Owner, all Users) {
	if f.clients == nil {
		f.clients, f.users = map[Owner]*Share[C]{}, map[uint64]*Share[C]{}
	}
	client := f.clients[owner]
	if client == nil {
		u := f.users[owner.User]
		if u == nil {
			known := all[owner.User]
			if known == nil {
				known = &User{number: owner.User}
				all[owner.User] = known
			}
			u = &Share[C]{up: &f.root, User: known}
			u.User.shares++
			f.users[owner.User] = u
		}
		u.below++
		client = &Share[C]{up: u}
		f.clients[owner] = client
	}
	client.below++
	n.up, n.conn = client, c
}

// Leave undoes Join.
func (f *Tree[C]) Leave(n *Share[C], owner Owner, all Users) {
	f.Remove(n)
	client := n.up
	*n = Share[C]{}
	if client.below--; client.below > 0 {
		return
	}
	delete(f.clients, owner)
	u := client.up
	if u.below--; u.below > 0 {
		return
	}
	delete(f.users, owner.User)
	if u.User.shares--; u.User.shares == 0 {
		delete(all, u.User.number)
	}
}

// OneUser reports whether all connections are of one user.
func (f *Tree[C]) OneUser() bool { return len(f.users) == 1 }

// Add puts a connection that has something to send, and does not wait yet, behind its siblings, and those above it
// behind theirs if they had nothing.
func (f *Tree[C]) Add(n *Share[C]) {
	f.Waiting++
	for ; n.up != nil && !n.Waits; n = n.up {
		n.Waits = true
		if n.User != nil {
			n.User.active++
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

// Remove takes a connection out, and those above it that have nothing else.
func (f *Tree[C]) Remove(n *Share[C]) {
	if !n.Waits {
		return
	}
	f.Waiting--
	for ; n.up != nil && n.first == nil; n = n.up {
		n.Waits = false
		if n.User != nil {
			n.User.active--
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

// Front returns the connection whose turn it is; the zero C: none has something to send.
func (f *Tree[C]) Front() (c C) {
	if f.Waiting == 0 {
		return c
	}
	return f.root.first.first.first.conn
}

// Spend charges a connection, and those above it, for bytes. A share that has used up its turn goes behind its
// siblings.
func (f *Tree[C]) Spend(n *Share[C], bytes int) {
	f.Allowed -= bytes
	for ; n.up != nil; n = n.up {
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
func (f *Tree[C]) renew(n *Share[C]) {
	bytes := f.Quantum
	if f.Shared && n.User != nil {
		bytes = max(bytes, sessionTurn/n.User.active)
	}
	n.credit = max(1, min(n.credit, 0)+bytes)
}

// Turn is how many bytes the session may send before it is another one's turn: those of each user who has something to
// send there, divided by the sessions he sends in.
func (f *Tree[C]) Turn() int {
	bytes := 1 // there may be news of links alone
	for u := f.root.first; u != nil; {
		bytes += sessionTurn / u.User.active
		if u = u.next; u == f.root.first {
			break
		}
	}
	return bytes
}
