package daemon

import (
	"errors"
	"math"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// Spaces cost hardly anything but addresses, which the whole process shares: a user who maps all he can leaves most of
// them to others, and gets his part again when he deregisters. A space costs one descriptor.
func TestSpacesLeaveAddresses(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	c := open(t, a)
	hello := ipc.Hello(64)
	hello.Features = ipc.FeatureSpaces
	_, fds, err := c.exchange(hello)
	if ipc.CloseFDs(fds); err != nil {
		t.Fatal(err)
	}
	mapAll := func() (total uint64, regions []uint32, code ipc.Code) {
		for size := uint64(1 << 46); size >= 1<<40; {
			m, fds, err := c.exchange(&ipc.Message{Kind: ipc.KindMap, Size: size,
				Space: ipc.Space{Pin: 8 << 20, Chunk: 2 << 20}})
			if ipc.CloseFDs(fds); err != nil {
				size /= 2
				code = m.Error.Code
				continue
			}
			if _, _, err := c.exchange(&ipc.Message{Kind: ipc.KindMapped, Region: m.Region}); err != nil {
				t.Fatal(err)
			}
			total, regions = total+size, append(regions, m.Region)
		}
		return total, regions, code
	}
	for range 2 {
		total, regions, code := mapAll()
		if total != mostMapped/2 || code != ipc.CodeLimit {
			t.Errorf("one user's spaces have %d bytes, want %d; refused for %s", total, mostMapped/2, code)
		}
		before := openFiles(t)
		for _, id := range regions {
			if _, _, err := c.exchange(&ipc.Message{Kind: ipc.KindDeregister, Region: id}); err != nil {
				t.Fatal(err)
			}
		}
		if n := before - openFiles(t); n != len(regions) {
			t.Errorf("%d spaces had %d descriptors", len(regions), n)
		}
	}
}

// All users together leave addresses, too.
func TestSpacesOfAllUsersLeaveAddresses(t *testing.T) {
	all := newAccounts(config.Limits{Clients: 9, ClientsPerUser: 9, Requests: 1, Pinned: math.MaxInt64})
	var give []func()
	for uid := range uint32(3) {
		u, err := all.enter(uid)
		must(t, err)
		release, err := u.addresses(mostMapped / 2)
		if ok := err == nil; ok != (uid < 2) {
			t.Errorf("user %d: %v", uid, err)
		} else if ok {
			give = append(give, release)
		}
		if uid == 2 {
			give[0]()
			if release, err = u.addresses(mostMapped / 2); err != nil {
				t.Errorf("what another gave back: %v", err)
			} else {
				release()
			}
		}
	}
	give[1]()
	if n, _ := all.mapped.Used(); n != 0 {
		t.Errorf("%d bytes are charged still", n)
	}
}

// Spaces leave descriptors: all together have a quarter of those that the process may have, one user's an eighth.
func TestSpacesLeaveDescriptors(t *testing.T) {
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: was.Max}))
	all := newAccounts(config.Limits{Clients: 9, ClientsPerUser: 9, Requests: 1, Pinned: math.MaxInt64})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	var give []func()
	for uid, want := range []int{256 / 8, 256 / 8, 0} {
		u, err := all.enter(uint32(uid))
		must(t, err)
		had := 0
		for ; had <= 256; had++ {
			var release func()
			if release, err = u.addresses(1 << 20); err != nil {
				break
			}
			give = append(give, release)
		}
		e, ok := errors.AsType[*ipc.Error](err)
		if had != want || !ok || e.Code != ipc.CodeLimit || !strings.Contains(e.Text, "LimitNOFILE") {
			t.Errorf("user %d has %d spaces, want %d; then %v", uid, had, want, err)
		}
	}
	for _, release := range give {
		release()
	}
	if bytes, n := all.mapped.Used(); bytes != 0 || n != 0 {
		t.Errorf("%d bytes in %d spaces are charged still", bytes, n)
	}
}
