package linkdrv

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
)

// A veth whose peer has a smaller MTU refuses long frames as if it were full. After a short time they are lost, one
// after the other without more delay, and short ones between them pass: by every driver, alone and in datagrams. When
// the peer's MTU is as before long frames pass again.
func TestRefusedFramesAreLost(t *testing.T) {
	for _, kind := range []string{KindRing, KindMmsg, KindUDP, KindAlone} {
		for _, joined := range []bool{false, true} {
			if joined && kind != KindUDP {
				continue
			}
			t.Run(map[bool]string{false: kind, true: kind + " in datagrams"}[joined], func(t *testing.T) {
				refusedFrames(t, kind, joined)
			})
		}
	}
}

func refusedFrames(t *testing.T, kind string, joined bool) {
	namespace(t)
	veth(t, 9000)
	change(t, "a0", map[string]bool{"tx-udp-segmentation": false, "tx-generic-segmentation": false})
	tx := open(t, "a0", Options{Kind: kind})
	must(t, netlink.LinkSetMTU(link(t, "b0"), 1400))
	rx := open(t, "b0", Options{Kind: kind})
	frame := func(size int) TxFrame {
		return TxFrame{Head: header(tx, rx, 24), Bulk: make([]byte, size-HeaderLen-24), Joined: joined}
	}
	const long, short = 4000, 200
	frames := []TxFrame{frame(long), frame(short), frame(long), frame(long), frame(short)}
	var lost, waits int
	for began := time.Now(); len(frames) > 0; {
		n, err := tx.Send(frames)
		switch {
		case errors.Is(err, ErrRefused) && n > 0 && frames[n-1].Len() == long:
			lost++
		case err != nil:
			t.Fatal(err)
		case n < len(frames):
			if waits++; lost > 0 {
				t.Fatalf("a frame is offered again after %d as long were lost", lost)
			}
		}
		frames = frames[n:]
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d frames of 5 block the link, %d lost", len(frames), lost)
		}
	}
	if lost != 3 || waits < 2 {
		t.Errorf("%d long frames were lost, after %d tries", lost, waits)
	}
	for _, f := range receive(t, rx, 2) {
		if len(f) != short {
			t.Errorf("a frame of %d bytes arrives", len(f))
		}
	}
	if s, err := tx.Stats(); err != nil || s.Sent != 2 || s.Refused != 3 {
		t.Errorf("%+v %v", s, err)
	}

	must(t, netlink.LinkSetMTU(link(t, "b0"), 9000))
	rx = open(t, "b0", Options{Kind: kind})
	for range 2 {
		sendFrames(t, tx, []TxFrame{frame(long)})
	}
	receive(t, rx, 2)
	must(t, netlink.LinkSetMTU(link(t, "b0"), 1400))
	if n, err := tx.Send([]TxFrame{frame(long)}); n != 0 || err != nil { // one has passed: it is offered again
		t.Errorf("%d, %v", n, err)
	}
}

// A device that takes nothing for longer than a frame is offered before its length is doubted loses none in the end: a
// tap whose reader pauses.
func TestFramesWaitForAFullDevice(t *testing.T) {
	for _, kind := range []string{KindRing, KindMmsg, KindUDP, KindAlone} {
		t.Run(kind, func(t *testing.T) {
			namespace(t)
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "tap0"
			tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
				Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_NO_PI}
			must(t, netlink.LinkAdd(tap))
			defer tap.Fds[0].Close()
			must(t, netlink.LinkSetTxQLen(link(t, "tap0"), 4))
			setUp(t, "tap0")
			tx := open(t, "tap0", Options{Kind: kind})
			var frames []TxFrame
			for i := range 64 {
				n := 1500
				if i%4 == 3 {
					n = 100
				}
				frames = append(frames, TxFrame{Head: header(tx, tx, n-HeaderLen)})
			}
			buf := make([]byte, 2000)
			const pause = 100 * time.Millisecond
			tries := 0
			for began := time.Now(); len(frames) > 0; tries++ {
				n, err := tx.Send(frames)
				if err != nil {
					t.Fatalf("with %d frames left: %v", len(frames), err)
				}
				frames = frames[n:]
				if n == 0 && time.Since(began) > pause {
					if _, err := tap.Fds[0].Read(buf); err != nil { // one place
						t.Fatal(err)
					}
				}
			}
			if s, err := tx.Stats(); err != nil || s.Sent != 64 || s.Refused != 0 || tries < 3 {
				t.Errorf("%+v %v, %d tries", s, err, tries)
			}
		})
	}
}

// A sender whose thread has its processor for a few ms only, and then not for many, as on a busy machine, doubts a
// length nevertheless, and a device that takes nothing loses a frame. Its pauses count as refusedTime each.
func TestDoubtsOfASlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turn, pause = 3 * time.Millisecond, 25 * time.Millisecond
		var r refusals
		var ends []verdict
		turns := 0
		for begin := time.Now(); time.Since(begin) < time.Second && !slices.Contains(ends, lost); turns++ {
			if v := r.judge(1500); v != waits {
				ends = append(ends, v)
			}
			time.Sleep(turn)
			if v := r.judge(1500); v != waits {
				ends = append(ends, v)
			}
			time.Sleep(pause)
		}
		ends = slices.Compact(ends)
		if least := int(fullTime/(refusedTime+turn)) - 1; !slices.Equal(ends, []verdict{doubtful, lost}) ||
			turns < least {
			t.Errorf("after %d turns: %v", turns, ends)
		}
	})
}

// joiner is a queue all of whose frames leave in one message.
type joiner struct{ queue }

func (joiner) frames(messages int) int { return 2 * messages }

// A doubt ends with the frames that it was about, though they leave inside a super-frame: the next as long is not lost
// at once when the device is full again, nor are those behind it.
func TestDoubtsEndWithTheirFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long, short = 1500, 100
		var r refusals
		wait := func(d time.Duration) (last verdict) {
			for range d / time.Millisecond {
				last = r.judge(long)
				time.Sleep(time.Millisecond)
			}
			return last
		}
		if v := wait(refusedTime); v != waits || r.judge(long) != doubtful {
			t.Fatal("a long frame is not doubted")
		}
		r.passed(&sendQueue{}, []TxFrame{{Head: make([]byte, short)}}, 1)
		long2 := []TxFrame{{Head: make([]byte, long)}, {Head: make([]byte, long)}}
		for range 3 { // saturated: what it is offered it takes, and then refuses once more
			r.passed(joiner{}, long2, 1)
			time.Sleep(refusedTime / 2)
			if v := r.judge(long); v != waits {
				t.Fatalf("a frame that the device refuses for the first time: %d", v)
			}
		}
		if r.length != 0 {
			t.Errorf("frames of %d bytes do not pass", r.length)
		}
		// A length that did not pass alone does not pass for having been in a super-frame.
		r = refusals{length: long, known: time.Now()}
		if r.passed(joiner{}, long2, 1); r.length != long {
			t.Error("a super-frame says that long frames pass alone")
		}
	})
}
