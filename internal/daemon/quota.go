package daemon

import (
	"math"
	"sync"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// accounts bounds what each user holds, over all of that user's clients.
type accounts struct {
	limits Limits
	mu     sync.Mutex
	total  int
	users  map[uint32]*account
}

// account is one user's. It lives as long as a client of that user does.
type account struct {
	clients int
	memory  *regmem.Quota
}

func newAccounts(l Limits) *accounts { return &accounts{limits: l, users: map[uint32]*account{}} }

// enter admits a client.
func (a *accounts) enter(uid uint32) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= a.limits.Clients {
		return nil, ipc.Errorf(ipc.CodeLimit, "the daemon serves %d clients already; close some or raise limits.clients", a.total)
	}
	u := a.users[uid]
	if u == nil {
		u = &account{memory: regmem.NewQuota(int(min(a.limits.Pinned, math.MaxInt)), math.MaxInt)}
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
