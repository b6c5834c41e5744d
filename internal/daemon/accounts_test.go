package daemon

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// punch gives back the pages of a region, as far as its client can.
func punch(m *regmem.Memory) error {
	return unix.Fallocate(m.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(m.Len()))
}

// pagesOf returns the bytes of a region that have pages.
func pagesOf(t *testing.T, m *regmem.Memory) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(m.FD(), &st))
	return st.Blocks * 512
}

// A client that punches holes and registers more, over and over, gets no more than its quota, and all that it got has
// its pages: nothing is left to be filled later, when the host has none.
func TestPunchAndRegisterAgain(t *testing.T) {
	const size, regions = 64 << 10, 8
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Pinned = config.Size(regions*size + queues(t, 64)) })
	c := attach(t, a, 64)
	for range regions {
		id, _ := c.offer(size)
		mem := c.regions[len(c.regions)-1]
		if err := punch(mem); err != nil { // before it is fixed that harms nobody
			t.Fatal(err)
		}
		c.must(&ipc.Message{Kind: ipc.KindMapped, Region: id})
		if err := punch(mem); !errors.Is(err, unix.EPERM) {
			t.Errorf("a hole in pinned memory: %v", err)
		}
		if n := pagesOf(t, mem); n != size {
			t.Errorf("%d of %d registered bytes have pages", n, size)
		}
	}
	if e := c.fails(&ipc.Message{Kind: ipc.KindRegister, Size: size}, ipc.CodeLimit); !strings.Contains(e.Text,
		"limits.pinned") {
		t.Errorf("beyond the quota: %v", e)
	}
}

// Memory that its client has yet to map can be neither used nor exported, few such regions may be there, and a client
// that leaves them leaves nothing behind.
func TestOfferedRegions(t *testing.T) {
	a, b := nodes(t, 1, nil)
	server, c := attach(t, a, 64), attach(t, b, 64)
	_, conn := connect(t, server, c, "a", "s")
	pinned, before := regmem.Pinned(), b.d.accounts.Pinned()
	var ids []uint32
	for range config.MaxOffered {
		id, _ := c.offer(4096)
		ids = append(ids, id)
	}
	if e := c.fails(&ipc.Message{Kind: ipc.KindRegister, Size: 4096}, ipc.CodeLimit); !strings.Contains(e.Text,
		"map them") {
		t.Errorf("%v", e)
	}
	c.fails(&ipc.Message{Kind: ipc.KindExport, Conn: conn, Region: ids[0], Size: 1, Perm: 1, Name: "x"},
		ipc.CodeNoRegion)
	c.post(ipc.SQE{Op: ipc.OpWrite, Conn: conn, Region: ids[0], Len: 8, Key: 1})
	if e := c.completion(); e.Status != ipc.StatusLocal {
		t.Errorf("an operation on offered memory: %v", e.Status)
	}
	if regmem.Pinned() != pinned {
		t.Error("offered memory is pinned")
	}
	c.must(&ipc.Message{Kind: ipc.KindDeregister, Region: ids[1]})
	c.must(&ipc.Message{Kind: ipc.KindMapped, Region: ids[2]})
	c.fails(&ipc.Message{Kind: ipc.KindMapped, Region: ids[2]}, ipc.CodeNoRegion) // twice
	c.fails(&ipc.Message{Kind: ipc.KindMapped, Region: ids[1]}, ipc.CodeNoRegion)
	c.register(4096)
	c.close()
	until(t, "all is given back", deadline, func() bool {
		return regmem.Pinned() == pinned &&
			b.d.accounts.Pinned() == before
	})
}

// Memory that its client sealed so that it cannot be fixed is refused, and gone.
func TestSpoiltRegion(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := attach(t, a, 64)
	id, _ := c.offer(4096)
	if _, err := unix.FcntlInt(uintptr(c.regions[0].FD()), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	c.fails(&ipc.Message{Kind: ipc.KindMapped, Region: id}, ipc.CodeInvalid)
	c.fails(&ipc.Message{Kind: ipc.KindDeregister, Region: id}, ipc.CodeNoRegion)
	if n := a.d.accounts.Pinned(); n != 0 {
		t.Errorf("%d bytes are charged still", n)
	}
}

// A region costs the daemon no descriptor.
func TestRegionsHoldNoDescriptors(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := attach(t, a, 64)
	c.register(4096)
	before := openFiles(t)
	const n = 100
	for range n {
		c.register(4096)
	}
	if more := openFiles(t) - before; more != n { // the client's own, which is in this process
		t.Errorf("%d regions hold %d descriptors, the client's among them", n, more)
	}
}

// What all users hold together is limited, whoever they are; the refusal names the limit and takes nothing from the
// user's own quota.
func TestLimitsOverAllUsers(t *testing.T) {
	l := config.Limits{Clients: 9, ClientsPerUser: 9, Pinned: 1 << 20, RegionsPerUser: 3, PinnedTotal: 3 << 20,
		RegionsTotal: 7}
	a := newAccounts(l)
	t.Cleanup(func() { regmem.Spare(0) })
	var users []*account
	for uid := range uint32(4) {
		u, err := a.enter(1000 + uid)
		must(t, err)
		users = append(users, u)
	}
	refused := func(u *account, bytes int, key string) {
		t.Helper()
		before, regions := u.memory.Used()
		var e *ipc.Error
		if err := u.reserve(bytes); !errors.As(err, &e) || e.Code != ipc.CodeLimit || !strings.HasSuffix(e.Text, key) {
			t.Errorf("%v, want a refusal by %s", err, key)
		}
		if b, n := u.memory.Used(); b != before || n != regions {
			t.Errorf("a refusal by %s costs %d bytes in %d regions", key, b-before, n-regions)
		}
	}
	for _, u := range users[:2] {
		for range 3 {
			must(t, u.reserve(4096))
		}
		refused(u, 4096, "limits.regions_per_user")
	}
	must(t, users[2].reserve(4096))
	refused(users[3], 4096, "limits.regions_total")
	users[0].release(4096)
	must(t, users[3].reserve(4096))
	users[1].release(4096)

	must(t, users[2].charge(1<<20-4096, 0)) // queues count as well
	refused(users[2], 4096, "limits.pinned")
	must(t, users[3].reserve(1<<20-4096))
	must(t, users[0].charge(1<<20-16384, 0))
	l.RegionsTotal = 8 // a reload
	a.setLimits(l)
	refused(users[1], 4096, "limits.pinned_total")
	if bytes, regions := a.Charged(); bytes != 3<<20 || regions != 7 {
		t.Errorf("%d bytes in %d regions", bytes, regions)
	}
	if got, want := a.Pinned(), uint64(3<<20-(1<<20-4096)-(1<<20-16384)); got != want {
		t.Errorf("%d bytes pinned, want %d", got, want)
	}
	l.PinnedTotal = 4 << 20
	a.setLimits(l)
	must(t, users[1].reserve(4096))
}

// Queues are charged before they are made.
func TestQueuesAreCharged(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) { c.Limits.Pinned = config.Size(2*queues(t, 64) + 4096) })
	first := attach(t, a, 64)
	second := attach(t, a, 64)
	var e *ipc.Error
	if err := open(t, a).hello(64); !errors.As(err, &e) || e.Code != ipc.CodeLimit || !strings.Contains(e.Text,
		"limits.pinned") {
		t.Errorf("queues beyond the quota: %v", err)
	}
	second.close()
	until(t, "the queues are given back", deadline,
		func() bool { b, _ := a.d.accounts.Charged(); return b == uint64(queues(t, 64)) })
	first.register(4096)
	snap := snapshot(t, a.d)
	if st := &snap.Status; st.PinnedBytes != 4096 || st.ChargedBytes != uint64(queues(t, 64))+4096 ||
		st.RegionsCharged != 1 || snap.Clients[0].UserPinned != st.ChargedBytes {
		t.Errorf("%+v %+v", st, snap.Clients)
	}
}
