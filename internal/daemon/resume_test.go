package daemon

import (
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"

	"golang.org/x/sys/unix"
)

// A7.20: on a connection of a domain the daemon refuses an operation beyond limits.ops_per_user and all later ones,
// also when there is room again, until the client sends RESUME. Without the feature, and on other connections, it
// refuses only the operations for which there is no room.
func TestResume(t *testing.T) {
	const most = 4
	for name, c := range map[string]struct {
		features ipc.Features
		domain   uint32
		together bool
	}{
		"a domain":            {ipc.FeatureDomains | ipc.FeatureResume, 5, true},
		"no domain":           {ipc.FeatureDomains | ipc.FeatureResume, 0, false},
		"without the feature": {ipc.FeatureDomains, 5, false},
	} {
		a, b := nodes(t, 1, func(c *config.Config) { c.Limits = config.Limits{OpsPerUser: most} })
		server, client := attachShared(t, a), open(t, b)
		hello := ipc.Hello(64)
		hello.Features |= c.features
		rings, err := client.greet(hello)
		must(t, err)
		unix.Close(rings)
		server.must(&ipc.Message{Kind: ipc.KindListen, Service: "s"})
		m := &ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "s"}
		m.Ordered, m.Domain = true, c.domain
		id := client.send(m)
		server.must(&ipc.Message{Kind: ipc.KindAccept, Conn: server.event(ipc.KindIncoming).Conn})
		r, err := client.reply(id)
		must(t, err)
		write := func(token uint64) {
			client.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 1, Conn: r.Conn, Token: token, Key: 1})
		}
		ends := func(want ipc.Status, tokens ...uint64) {
			t.Helper()
			for _, token := range tokens {
				if e := client.completion(); e.Status != want || e.Token != token {
					t.Fatalf("%s: operation %d: %+v, want %v", name, token, e, want)
				}
			}
		}
		until(t, "hold of a", deadline, func() bool { return a.d.shard.Hold() })
		for token := range uint64(most + 1) {
			write(token)
		}
		ends(ipc.StatusQuota, most)
		a.d.shard.Release()
		ends(ipc.StatusKey, 0, 1, 2, 3)
		write(5)
		if !c.together {
			ends(ipc.StatusKey, 5)
			continue
		}
		ends(ipc.StatusQuota, 5)
		client.post(ipc.SQE{Op: ipc.OpResume, Conn: r.Conn})
		write(6)
		ends(ipc.StatusKey, 6)
	}
}
