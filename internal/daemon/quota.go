package daemon

import (
	"math"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// accounts bounds what each user holds, over all of that user's clients.
type accounts struct {
	limits Limits
	mu     sync.Mutex
	total  int
	users  map[uint32]*account
	pacers map[uint32]*pacers // by user; they outlive accounts, lest a user attach anew for a fresh one
}

// account is one user's. It lives as long as a client of that user does.
type account struct {
	clients int
	memory  *regmem.Quota
	conns   atomic.Int64 // of all clients, those that are ending included
	ops     atomic.Int64 // in flight, likewise
}

// connRoom says which limit keeps a client from having one more connection, and how to go on; nil: none does.
func (s *shard) connRoom(c *client) error {
	switch uid := c.session.cred.UID; {
	case len(c.conns) >= s.limits.Conns:
		return ipc.Errorf(ipc.CodeLimit, "this client has %d connections already; close some or raise limits.conns", len(c.conns))
	case c.account.conns.Load() >= int64(s.limits.ConnsPerUser):
		return ipc.Errorf(ipc.CodeLimit, "the clients of user %d have %d connections already; close some or raise limits.conns_per_user", uid, c.account.conns.Load())
	}
	return nil
}

func newAccounts(l Limits) *accounts {
	return &accounts{limits: l, users: map[uint32]*account{}, pacers: map[uint32]*pacers{}}
}

// enter admits a client.
func (a *accounts) enter(uid uint32) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= a.limits.Clients {
		return nil, ipc.Errorf(ipc.CodeLimit, "the daemon serves %d clients already; close some or raise limits.clients", a.total)
	}
	u := a.users[uid]
	if u == nil {
		u = &account{memory: regmem.NewQuota(int(min(a.limits.Pinned, math.MaxInt)), a.limits.RegionsPerUser)}
		a.users[uid] = u
	}
	if u.clients >= a.limits.ClientsPerUser {
		return nil, ipc.Errorf(ipc.CodeLimit, "user %d has %d clients already; close some or raise limits.clients_per_user", uid, u.clients)
	}
	u.clients++
	a.total++
	return u, nil
}

// leave undoes enter. The client has released its memory.
func (a *accounts) leave(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	u := a.users[uid]
	if u.clients--; u.clients == 0 {
		delete(a.users, uid)
	}
}

// setLimits changes what is admitted from now on. Users who have clients keep their memory quota.
func (a *accounts) setLimits(l Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = l
}

// admitted returns the limits in force.
func (a *accounts) admitted() Limits {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limits
}

// pinned returns the bytes reserved by all users.
func (a *accounts) pinned() (bytes uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.users {
		b, _ := u.memory.Used()
		bytes += uint64(b)
	}
	return bytes
}
