package shard

import "multiedge/regmem"

// starving are the spaces that had no room for what they were to ask for, by user. They take turns: users, and spaces
// of a user, of which there may be thousands. Nothing here goes through them all: any user may have them come and go.
type starving struct {
	users  []*starvingUser
	byID   map[uint32]*starvingUser
	places map[*regmem.Space]starvingPlace
	next   int
}

type starvingUser struct {
	id     uint32
	at     int // among the users
	spaces []*regmem.Space
	next   int
}

// starvingPlace is where a space is among those of its user.
type starvingPlace struct {
	user *starvingUser
	at   int
}

// mostStarving is how many spaces ask in an iteration.
const mostStarving = 16

// n is how many spaces starve.
func (q *starving) n() int { return len(q.places) }

// add puts a space last among those of its user, unless it is there: it may begin to starve again before its turn.
func (q *starving) add(user uint32, space *regmem.Space) {
	if _, there := q.places[space]; there {
		return
	}
	if q.places == nil {
		q.byID, q.places = map[uint32]*starvingUser{}, map[*regmem.Space]starvingPlace{}
	}
	u := q.byID[user]
	if u == nil {
		u = &starvingUser{id: user, at: len(q.users)}
		q.byID[user] = u
		q.users = append(q.users, u)
	}
	q.places[space] = starvingPlace{u, len(u.spaces)}
	u.spaces = append(u.spaces, space)
}

// turn calls ask for the next space, and forgets the space unless ask says that it still starves.
func (q *starving) turn(ask func(*regmem.Space) (still bool)) {
	q.next = (q.next + 1) % len(q.users)
	u := q.users[q.next]
	u.next = (u.next + 1) % len(u.spaces)
	if space := u.spaces[u.next]; !ask(space) {
		q.forget(space)
	}
}

// forget takes a space out, if it is there. The last of its user takes its place, and the last user that of a user who
// has none left.
func (q *starving) forget(space *regmem.Space) {
	p, there := q.places[space]
	if !there {
		return
	}
	delete(q.places, space)
	u, last := p.user, len(p.user.spaces)-1
	if p.at < last {
		moved := u.spaces[last]
		u.spaces[p.at], q.places[moved] = moved, p
	}
	u.spaces[last] = nil
	if u.spaces = u.spaces[:last]; last > 0 {
		return
	}
	delete(q.byID, u.id)
	last = len(q.users) - 1
	q.users[u.at] = q.users[last]
	q.users[u.at].at = u.at
	q.users[last] = nil
	q.users = q.users[:last]
}
