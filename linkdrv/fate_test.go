package linkdrv

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// recvError receives until an error comes, at most a few rounds of errorEvery.
func recvError(d Driver) error {
	dst := make([][]byte, 4)
	for range 4 * errorEvery {
		if _, err := d.Recv(dst); err != nil {
			return err
		}
	}
	return nil
}

// TestDownAndUp: a link that goes down reports it and works again under the same driver.
func TestDownAndUp(t *testing.T) {
	kinds(t, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		frame := []TxFrame{{Head: header(tx, rx, 50)}}
		for _, name := range []string{"a0", "b0"} {
			must(t, netlink.LinkSetDown(link(t, name)))
		}
		await(t, rx, 2000) // POLLERR wakes a sleeping owner
		if err := recvError(rx); !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
			t.Errorf("Recv: %v, want ErrLinkDown only", err)
		}
		if err := recvError(rx); err != nil {
			t.Errorf("Recv reports the same event twice: %v", err)
		}
		for range 3 {
			if n, err := tx.Send(frame); n != 0 || !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
				t.Errorf("Send = %d, %v; want ErrLinkDown only", n, err)
			}
		}
		setUp(t, "a0")
		setUp(t, "b0")
		if n, err := tx.Send(frame); n != 1 || err != nil {
			t.Fatalf("Send after up: %d, %v", n, err)
		}
		receive(t, rx, 1)
	})
}

// TestGone: a deleted interface is reported for ever, and the recreated one can be opened beside.
func TestGone(t *testing.T) {
	kinds(t, []int{1500, 9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		frame := []TxFrame{{Head: header(tx, rx, 50)}}
		if n, err := tx.Send(frame); n != 1 {
			t.Fatal(n, err)
		}
		must(t, netlink.LinkDel(link(t, "a0")))
		veth(t, mtu)
		if f := receive(t, rx, 1); len(f) != 1 {
			t.Error("the frame received before was lost")
		}
		for range 3 {
			if n, err := tx.Send(frame); n != 0 || !errors.Is(err, ErrLinkGone) || !errors.Is(err, ErrLinkDown) {
				t.Errorf("Send = %d, %v; want ErrLinkGone", n, err)
			}
			if err := recvError(rx); !errors.Is(err, ErrLinkGone) || !errors.Is(err, ErrLinkDown) {
				t.Errorf("Recv: %v, want ErrLinkGone", err)
			}
		}
		tx2, rx2 := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		if n, err := tx2.Send([]TxFrame{{Head: header(tx2, rx2, 50)}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		receive(t, rx2, 1)
	})
}

// TestRename: a driver follows its interface through a rename.
func TestRename(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		must(t, netlink.LinkSetName(link(t, "a0"), "c0"))
		if n, err := tx.Send([]TxFrame{{Head: header(tx, rx, 50)}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		receive(t, rx, 1)
	})
}

// TestDownThenGone: an interface that goes down first and is deleted then is reported as gone too, by a driver that
// only receives.
func TestDownThenGone(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		d := open(t, "a0", Options{Kind: kind})
		must(t, netlink.LinkSetDown(link(t, "a0")))
		if err := recvError(d); !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
			t.Fatalf("Recv: %v, want ErrLinkDown only", err)
		}
		if err := recvError(d); err != nil {
			t.Errorf("Recv reports the same event twice: %v", err)
		}
		must(t, deleteLink(t, "a0"))
		for range 3 {
			if err := recvError(d); !errors.Is(err, ErrLinkGone) {
				t.Errorf("Recv: %v, want ErrLinkGone", err)
			}
		}
		must(t, d.Close())
	})
}

// TestDownToldOnce: a Send that goes on trying until the interface is up again does not make Recv tell twice, and does
// not allocate.
func TestDownToldOnce(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		here, err := netns.Get()
		must(t, err)
		defer here.Close()
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		frame := []TxFrame{{Head: header(tx, rx, 50)}}
		refused := func() {
			if n, err := tx.Send(frame); n != 0 || !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
				t.Fatalf("Send = %d, %v; want ErrLinkDown only", n, err)
			}
		}
		for range 20 {
			a0 := link(t, "a0")
			must(t, netlink.LinkSetDown(a0))
			if err := recvError(tx); !errors.Is(err, ErrLinkDown) {
				t.Fatalf("Recv: %v, want ErrLinkDown", err)
			}
			if a := testing.AllocsPerRun(10, refused); a != 0 {
				t.Errorf("%v allocations per Send while down", a)
			}
			up := make(chan error, 1)
			go func() { up <- inside(here, func() error { return netlink.LinkSetUp(a0) }) }()
			for done := false; !done; {
				select {
				case err := <-up:
					if done = true; err != nil {
						t.Fatal(err)
					}
				default:
					tx.Send(frame)
				}
			}
			if err := recvError(tx); err != nil {
				t.Fatalf("Recv reports the same event twice: %v", err)
			}
		}
	})
}

// TestFlapMetWithoutRoom: Recv tells of a flap also if the Send that met the report found no room then.
func TestFlapMetWithoutRoom(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		for _, name := range []string{"b0", "a0"} {
			must(t, netlink.LinkSetDown(link(t, name)))
		}
		setUp(t, "a0")
		if n, err := tx.Send([]TxFrame{{Head: header(tx, rx, 50)}}); n != 0 || err != nil {
			t.Errorf("Send without carrier = %d, %v; want 0, nil", n, err)
		}
		if err := recvError(tx); !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
			t.Errorf("Recv: %v, want ErrLinkDown only", err)
		}
		if err := recvError(tx); err != nil {
			t.Errorf("Recv reports the same event twice: %v", err)
		}
	})
}

// TestFlapMetBySend: Recv tells of each time the interface went down, once, also if a Send was first to hear of it and
// went through, since it was up again.
func TestFlapMetBySend(t *testing.T) {
	kinds(t, []int{9000}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		tx, rx := open(t, "a0", Options{Kind: kind}), open(t, "b0", Options{Kind: kind})
		frame := []TxFrame{{Head: header(tx, rx, 50)}}
		for _, sends := range []string{"up again", "still down", "down and up again"} {
			must(t, netlink.LinkSetDown(link(t, "a0")))
			if sends != "up again" {
				for range 2 {
					if n, err := tx.Send(frame); n != 0 || !errors.Is(err, ErrLinkDown) {
						t.Fatalf("%s: Send = %d, %v", sends, n, err)
					}
				}
			}
			if sends != "still down" {
				setUp(t, "a0")
				for range 2 {
					if n, err := tx.Send(frame); n != 1 || err != nil {
						t.Fatalf("%s: Send = %d, %v", sends, n, err)
					}
				}
			}
			if err := recvError(tx); !errors.Is(err, ErrLinkDown) || errors.Is(err, ErrLinkGone) {
				t.Errorf("%s: Recv: %v, want ErrLinkDown only", sends, err)
			}
			if err := recvError(tx); err != nil {
				t.Errorf("%s: Recv reports the same event twice: %v", sends, err)
			}
			setUp(t, "a0")
		}
	})
}
