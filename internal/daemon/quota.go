package daemon

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

// accounts bounds what each user holds, over all of that user's clients, and what all users hold together. A user's
// subordinate users share his account (owners.go).
type accounts struct {
	owners owners
	limits config.Limits
	mu     sync.Mutex
	total  int
	memory *regmem.Quota // of all users
	filled *regmem.Quota // likewise: what spaces were filled with
	mapped *regmem.Quota // likewise: what spaces could be filled with, and how many there are
	spaces int           // that all users may have; a user may have half as many
	queues atomic.Int64  // bytes of memory that are no region's
	users  map[uint32]*account
	pacing pacing // outlives accounts, or a user would get a fresh pacer by attaching again
}

// account is one user's. It lives as long as a client of that user does.
type account struct {
	uid     uint32
	clients int
	memory  *regmem.Quota
	filled  *regmem.Quota // of spaces
	mapped  *regmem.Quota // likewise
	all     *accounts
	held    *shard.User // what the shards count
}

func newAccounts(l config.Limits) *accounts {
	regmem.Spare(uint64(l.Reserve))
	spaces := config.SpaceRoom()
	return &accounts{owners: owners{directory: newDirectory()}, limits: l, spaces: spaces,
		memory: regmem.NewQuota(sizeInt(l.PinnedTotal), l.RegionsTotal),
		filled: regmem.NewQuota(sizeInt(l.FilledTotal), 0), mapped: regmem.NewQuota(mostMapped, spaces),
		users: map[uint32]*account{}, pacing: pacing{of: map[uint32]*pacers{}}}
}

func sizeInt(s config.Size) int { return int(min(s, math.MaxInt)) }

// reserve charges a region to a user, and to all users together, before its memory is made. An error names the limit
// and says what to do; nothing is charged then. release undoes it.
func (u *account) reserve(bytes int) error { return u.charge(bytes, 1) }

func (u *account) release(bytes int) { u.uncharge(bytes, 1) }

// charge is reserve for so many regions, none where the memory is another.
func (u *account) charge(bytes, regions int) error {
	if err := u.memory.Charge(bytes, regions); err != nil {
		return refusal(err, fmt.Sprintf("over all clients of %v; deregister some or raise", shard.Owner(u.uid)),
			"limits.pinned", "limits.regions_per_user")
	}
	if err := u.all.memory.Charge(bytes, regions); err != nil {
		u.memory.Uncharge(bytes, regions)
		return refusal(err, "over all users; try again when others have deregistered some, or raise",
			"limits.pinned_total", "limits.regions_total")
	}
	if regions == 0 {
		u.all.queues.Add(pages(bytes))
	}
	return nil
}

func (u *account) uncharge(bytes, regions int) {
	u.memory.Uncharge(bytes, regions)
	u.all.memory.Uncharge(bytes, regions)
	if regions == 0 {
		u.all.queues.Add(-pages(bytes))
	}
}

// fill charges a user, and all users together, for what a space is about to be filled with, gives back if negative. The
// pinner calls it.
func (u *account) fill(bytes int) error {
	if bytes < 0 {
		u.filled.Uncharge(-bytes, 0)
		u.all.filled.Uncharge(-bytes, 0)
		return nil
	}
	if err := u.filled.Charge(bytes, 0); err != nil {
		return err
	}
	err := u.all.filled.Charge(bytes, 0)
	if err != nil {
		u.filled.Uncharge(bytes, 0)
	}
	return err
}

// mostMapped is how many bytes the spaces of all users may have together; those of one user may have half of that. They
// are mapped whole, however little of them is ever filled, and a process has addresses for 2^47 bytes, of which heap
// grants take a half in one piece: where there are none left, nobody can register memory, and the runtime ends the
// process.
const mostMapped = 2 * regmem.MaxSpace

// addresses charges a user, and all users together, for a space of so many bytes, and its descriptor. release undoes
// it.
func (u *account) addresses(bytes int) (release func(), err error) {
	if err := u.mapped.Charge(bytes, 1); err != nil {
		return nil, noSpace(err, fmt.Sprintf("the spaces of %v", shard.Owner(u.uid)), "deregister some")
	}
	if err := u.all.mapped.Charge(bytes, 1); err != nil {
		u.mapped.Uncharge(bytes, 1)
		return nil, noSpace(err, "the spaces of all users", "try again when others have deregistered some")
	}
	return func() {
		u.mapped.Uncharge(bytes, 1)
		u.all.mapped.Uncharge(bytes, 1)
	}, nil
}

// noSpace says why there cannot be another space.
func noSpace(err error, whose, do string) error {
	q, ok := errors.AsType[*regmem.QuotaError](err)
	if ok && q.What == "regions" {
		return ipc.Errorf(ipc.CodeLimit, "%s are %d already, and each holds a descriptor of the daemon; %s, or raise "+
			"LimitNOFILE in the unit (ulimit -n)", whose, q.Used, do)
	}
	if ok {
		return ipc.Errorf(ipc.CodeLimit, "%s would have more than %d bytes together; map less, or %s", whose, q.Limit,
			do)
	}
	return ipc.Errorf(memoryCode(err), "%v", err)
}

// pages is bytes as a quota counts them.
func pages(bytes int) int64 {
	page := int64(os.Getpagesize())
	return (int64(bytes) + page - 1) / page * page
}

// refusal names the limit that a quota's error is about.
func refusal(err error, whose, bytes, regions string) error {
	key := bytes
	if q, ok := errors.AsType[*regmem.QuotaError](err); ok && q.What == "regions" {
		key = regions
	}
	return ipc.Errorf(memoryCode(err), "%v, %s %s", err, whose, key)
}

// enter admits a client.
func (a *accounts) enter(uid uint32) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= a.limits.Clients {
		return nil, ipc.Errorf(ipc.CodeLimit,
			"the daemon serves %d clients already; close some or raise limits.clients", a.total)
	}
	u := a.users[uid]
	if u == nil {
		u = &account{
			uid:    uid,
			held:   shard.NewUser(uid),
			memory: regmem.NewQuota(sizeInt(a.limits.Pinned), a.limits.RegionsPerUser),
			filled: regmem.NewQuota(sizeInt(a.limits.Filled), 0),
			mapped: regmem.NewQuota(mostMapped/2, (a.spaces+1)/2),
			all:    a,
		}
		a.users[uid] = u
	}
	if u.clients >= a.limits.ClientsPerUser {
		return nil, ipc.Errorf(ipc.CodeLimit,
			"%v has %d clients already; close some or raise limits.clients_per_user", shard.Owner(uid), u.clients)
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

// setLimits changes what is admitted from now on.
func (a *accounts) setLimits(l config.Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = l
	a.memory.SetLimits(sizeInt(l.PinnedTotal), l.RegionsTotal)
	a.filled.SetLimits(sizeInt(l.FilledTotal), 0)
	for _, u := range a.users {
		u.memory.SetLimits(sizeInt(l.Pinned), l.RegionsPerUser)
		u.filled.SetLimits(sizeInt(l.Filled), 0)
	}
	regmem.Spare(uint64(l.Reserve))
}

// Admitted returns the limits in force.
func (a *accounts) Admitted() config.Limits {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limits
}

// Charged returns what all users together were charged for: registered memory, and queues besides.
func (a *accounts) Charged() (bytes uint64, regions int) {
	b, n := a.memory.Used()
	return uint64(b), n
}

// Pinned is charged without what is no region.
func (a *accounts) Pinned() uint64 {
	b, _ := a.Charged()
	return b - min(b, uint64(a.queues.Load()))
}

// Of returns what a user was charged for.
func (a *accounts) Of(uid uint32) (bytes uint64, regions int) {
	owner := a.owners.of(uid)
	a.mu.Lock()
	u := a.users[owner]
	a.mu.Unlock()
	if u == nil {
		return 0, 0
	}
	b, n := u.memory.Used()
	return uint64(b), n
}

// Filled returns what all users' spaces were filled with.
func (a *accounts) Filled() uint64 {
	b, _ := a.filled.Used()
	return uint64(b)
}
