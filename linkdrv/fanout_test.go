package linkdrv

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

func openShards(t testing.TB, name string, n int, o Options) []Driver {
	t.Helper()
	ds, err := OpenShards(name, n, o)
	must(t, err)
	t.Cleanup(func() {
		for _, d := range ds {
			d.Close()
		}
	})
	return ds
}

// sessionFrame is a frame of a session, of n bytes behind the Ethernet header.
func sessionFrame(from, to Driver, session uint32, n int) TxFrame {
	head := header(from, to, 64)
	binary.BigEndian.PutUint32(head[HeaderLen+sessionOffset:], session)
	return TxFrame{Head: head, Bulk: make([]byte, n-64), Joined: session&64 != 0}
}

// checkSteering sends frames of random sessions and expects each at its shard, in the order of sending, and nothing
// else anywhere.
func checkSteering(t *testing.T, tx Driver, rx []Driver) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(len(rx))))
	want := make([][]uint32, len(rx))
	var frames []TxFrame
	for range 150 {
		s := rng.Uint32()
		want[s%uint32(len(rx))] = append(want[s%uint32(len(rx))], s)
		frames = append(frames, sessionFrame(tx, rx[0], s, 64+rng.IntN(tx.Info().MTU-tx.Info().Overhead-63)))
	}
	for len(frames) > 0 {
		n, err := tx.Send(frames)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		frames = frames[n:]
	}
	buf := make([][]byte, 1)
	for i, d := range rx {
		if len(want[i]) == 0 {
			t.Fatalf("no frame is for shard %d: choose another seed", i)
		}
		for k, f := range receive(t, d, len(want[i])) {
			if got := binary.BigEndian.Uint32(f[HeaderLen+sessionOffset:]); got != want[i][k] {
				t.Fatalf("frame %d at shard %d is of session %#x, want %#x", k, i, got, want[i][k])
			}
		}
		if n, err := d.Recv(buf); n != 0 || err != nil {
			t.Fatalf("shard %d received more than its frames: %d, %v", i, n, err)
		}
	}
}

func TestShards(t *testing.T) {
	for _, n := range []int{2, 3} {
		kinds(t, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
			namespace(t)
			veth(t, mtu)
			o := Options{Kind: kind}
			// a group at the other end, and a second one here, change nothing
			if tx := openShards(t, "a0", 2, o); tx != nil {
				rx := openShards(t, "b0", n, o)
				checkSteering(t, tx[1], rx)
				other := openShards(t, "b0", n+1, o)
				checkSteering(t, tx[0], other)
				for _, d := range other {
					if s, err := d.Stats(); err != nil || s.Received == 0 {
						t.Errorf("%+v, %v", s, err)
					}
				}
				for i, d := range tx {
					if s, err := d.Stats(); err != nil || s.Received != 0 {
						t.Errorf("sender %d must not receive frames of its own link: %+v, %v", i, s, err)
					}
				}
			}
		})
	}
}

// A short frame has no session number and still does no harm: it goes to the first shard.
func TestShardsShortFrame(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	tx, rx := open(t, "a0", Options{}), openShards(t, "b0", 2, Options{})
	if n, err := tx.Send([]TxFrame{{Head: header(tx, rx[0], 2)}}); n != 1 {
		t.Fatal(n, err)
	}
	if f := receive(t, rx[0], 1)[0]; len(f) != HeaderLen+2 {
		t.Errorf("%d bytes", len(f))
	}
}

// After the interface was down, a group that is opened again steers as before.
func TestShardsReopened(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	tx := open(t, "a0", Options{})
	for range 3 {
		rx, err := OpenShards("b0", 3, Options{})
		must(t, err)
		checkSteering(t, tx, rx)
		must(t, netlink.LinkSetDown(link(t, "b0")))
		setUp(t, "b0")
		for _, d := range rx {
			d.Close()
		}
	}
}

func TestShardsErrors(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	for _, n := range []int{-1, 0, maxFanout + 1} {
		if _, err := OpenShards("b0", n, Options{}); err == nil || !strings.Contains(err.Error(), "shards") {
			t.Errorf("%d shards: %v", n, err)
		}
	}
	for _, n := range []int{1, 2} {
		if _, err := OpenShards("none", n, Options{}); err == nil || !strings.Contains(err.Error(), "a0") {
			t.Errorf("%d shards of an unknown interface: %v", n, err)
		}
	}
}
