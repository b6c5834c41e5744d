package daemon

import (
	"os"
	"testing"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// openAs attaches as a user without hello.
func openAs(t *testing.T, e *Embedded, uid uint32) *testClient {
	t.Helper()
	ours, theirs, err := ipc.Pair()
	must(t, err)
	e.d.serveAs(ours, ipc.Cred{PID: int32(os.Getpid()), UID: uid})
	c := &testClient{t: t, conn: theirs, in: make(chan *ipc.Message, 4096)}
	t.Cleanup(c.close)
	return c
}

// listedUsers is a directory with the files of owners.
func listedUsers(t testing.TB) string {
	dir := t.TempDir()
	write(t, dir, "passwd", testPasswd)
	write(t, dir, "subuid", testSubuid)
	return dir
}

// A user with many clients, of his own or as his subordinate users, who all submit as much as they can, has as many
// submissions taken as one with a single client, be they operations or entries that are refused.
func TestSubmissionsAreTakenFairlyByUser(t *testing.T) {
	const many, depth, rounds = 20, 256, 50
	same := func(int) uint32 { return 1001 }
	for _, x := range []struct {
		name    string
		refused bool
		uid     func(i int) uint32 // of client i of the many
	}{
		{"operations", false, same},
		{"refused entries", true, same},
		{"operations of subordinate users", false, func(i int) uint32 { return uint32(165_536 + i) }},
		{"refused entries of users that nobody lists", true, func(i int) uint32 { return uint32(700_000 + i) }},
	} {
		refused := x.refused
		t.Run(x.name, func(t *testing.T) {
			a, b := nodes(t, 1, nil)
			b.d.accounts.owners.dir = listedUsers(t)
			server := attach(t, a, 64)
			server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
			region, _ := server.register(4096)
			var clients [1 + many]*testClient
			var entry [1 + many]ipc.SQE
			for i := range clients {
				uid := uint32(os.Getuid())
				if i > 0 {
					uid = x.uid(i)
				}
				c := openAs(t, b, uid)
				must(t, c.hello(depth))
				atServer, conn := dialAccept(t, server, c, "a", "s")
				clients[i], entry[i] = c, ipc.SQE{Op: ipc.OpWrite, InlineLen: 8, Conn: conn,
					Key: exportTo(server, c, atServer, region, 4096, regmem.RemoteWrite)}
				if refused && i > 0 {
					entry[i].Conn++ // another's, or nobody's
				}
			}
			for _, e := range []*Embedded{a, b} { // both threads stay away
				until(t, "token", deadline, func() bool { return e.d.shard.Hold() })
				defer e.d.shard.Release()
			}
			s := b.d.shard

			var taken [2]int // by user
			var buf [64]ipc.CQE
			for range rounds {
				for i, c := range clients {
					room, err := c.sq.Room()
					must(t, err)
					for range room {
						c.sq.Put(&entry[i])
					}
					c.sq.Publish()
				}
				s.Iterate(mono.Now())
				a.d.shard.Iterate(mono.Now())
				for i, c := range clients {
					for {
						n, err := c.cq.Drain(buf[:])
						must(t, err)
						if n == 0 {
							break
						}
						taken[min(i, 1)] += n
					}
				}
			}
			if share := float64(taken[0]) / float64(taken[0]+taken[1]); taken[0] < rounds || share < 0.45 || !refused &&
				share > 0.55 {
				t.Errorf("of one client %d submissions were taken, of another user's %d clients %d: a share of %.3f",
					taken[0], many, taken[1], share)
			}
			until(t, "what is under way", deadline, func() bool {
				worked := s.Iterate(mono.Now())
				return !(a.d.shard.Iterate(mono.Now()) || worked)
			})
		})
	}
}
