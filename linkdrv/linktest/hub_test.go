package linktest

import (
	"testing"

	"multiedge/linkdrv"

	"golang.org/x/sys/unix"
)

// A hub's port gets what is for its address, its own frames too, and tells of them by its descriptor.
func TestHub(t *testing.T) {
	h := NewHub(1500, 4)
	ports := []*Port{h.Port("a"), h.Port("b")}
	readable := func(p *Port) bool {
		set := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(set, 0)
		must(t, err)
		return n == 1
	}
	frame := func(to *Port, body byte) linkdrv.TxFrame {
		head := make([]byte, 64)
		copy(head, to.Info().MAC)
		return linkdrv.TxFrame{Head: head, Bulk: []byte{body}}
	}
	other := frame(ports[0], 9)
	other.Head[5] = 77
	broadcast := frame(ports[0], 9)
	copy(broadcast.Head, []byte{255, 255, 255, 255, 255, 255})
	for round := range byte(3) {
		for _, p := range ports {
			if readable(p) {
				t.Errorf("round %d: %s is readable, and nothing waits", round, p.Info().Name)
			}
		}
		sent := []linkdrv.TxFrame{frame(ports[0], round), frame(ports[1], round+10), other, broadcast,
			frame(ports[1], round+20)}
		if n, err := ports[0].Send(sent); n != len(sent) || err != nil {
			t.Fatal(n, err)
		}
		for i, want := range [][]byte{{round}, {round + 10, round + 20}} {
			if !readable(ports[i]) {
				t.Errorf("round %d: port %d is not readable", round, i)
			}
			dst := make([][]byte, 8)
			n, err := ports[i].Recv(dst)
			if n != len(want) || err != nil {
				t.Fatalf("round %d: port %d received %d frames, want %d: %v", round, i, n, len(want), err)
			}
			for k := range want {
				if dst[k][64] != want[k] {
					t.Errorf("round %d: port %d received %d, want %d", round, i, dst[k][64], want[k])
				}
			}
			if n, err := ports[i].Recv(dst); n != 0 || err != nil {
				t.Error(n, err)
			}
		}
	}
	if n, err := ports[1].Send([]linkdrv.TxFrame{{Head: make([]byte, 2000)}}); n != 1 || err != linkdrv.ErrTooLong {
		t.Errorf("a frame that is too long: %d, %v", n, err)
	}
	for _, p := range ports {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
