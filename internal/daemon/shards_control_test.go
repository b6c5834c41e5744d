package daemon

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// Clients are spread over the shards; services are unique among all of them; draining and limits are everywhere.
func TestShardsControl(t *testing.T) {
	wires(t, 1, 9000)
	a := serveShards(t, "", config.Plaintext, "a", 3, 1)
	count := func() (n [3]int) {
		s := snapshot(t, a)
		for _, c := range s.Clients {
			n[c.Shard]++
		}
		return n
	}
	var clients []*testClient
	for range 6 {
		clients = append(clients, clientOf(t, a, 0))
	}
	if n := count(); n != [3]int{2, 2, 2} {
		t.Errorf("six clients are placed %v", n)
	}
	clients[0].close()
	until(t, "client gone", deadline, func() bool { return count() == [3]int{1, 2, 2} })
	until(t, "place free", deadline, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.placed[0] == 1
	})
	clients[0] = clientOf(t, a, 0)
	if n := count(); n != [3]int{2, 2, 2} {
		t.Errorf("the new client is placed %v", n)
	}
	clients[1].must(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
	clients[2].fails(&ipc.Message{Kind: ipc.KindListen, Service: "x"}, ipc.CodeExists)
	clients[1].fails(&ipc.Message{Kind: ipc.KindListen, Service: "x"}, ipc.CodeExists)
	clients[1].must(&ipc.Message{Kind: ipc.KindUnlisten, Service: "x"})
	clients[2].must(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
	clients[2].close()
	until(t, "service free", deadline, func() bool {
		_, err := clients[1].call(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
		return err == nil
	})
	if !a.Alive(time.Minute) {
		t.Error("not alive")
	}
	for _, wish := range []int{-1, 4} {
		if _, err := a.place(wish); err == nil || !strings.Contains(err.Error(), "shards 1 to 3") {
			t.Errorf("shard %d: %v", wish, err)
		}
	}
	clients[3].must(&ipc.Message{Kind: ipc.KindDrain})
	for _, c := range []*testClient{clients[0], clients[4], clients[5]} {
		c.fails(&ipc.Message{Kind: ipc.KindListen, Service: "y"}, ipc.CodeDraining)
	}
}

func TestShardsRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  func() error
		want string
	}{
		{"links in memory", func() error {
			_, err := New(config.Config{Shards: 2, Links: []config.Link{{Name: "m"}}}, Options{Open: memoryLink})
			return err
		}, "leave shards out"},
		{"embedded", func() error {
			_, err := NewEmbedded(config.Config{Shards: 2, Links: []config.Link{{Name: "m"}}}, Options{})
			return err
		}, "run edged"},
		{"too many", func() error { return (&config.Config{Shards: 9, Links: []config.Link{{Name: "m"}}}).Normalize() },
			"outside 1..8"},
		{"negative", func() error {
			return (&config.Config{Shards: -1, Links: []config.Link{{Name: "m"}}}).Normalize()
		},
			"outside 1..8"},
	} {
		if err := tc.err(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
