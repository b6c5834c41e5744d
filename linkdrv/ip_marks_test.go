package linkdrv

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/internal/frame"
)

// classes are the traffic classes of the next n datagrams of an IP socket.
func classes(t *testing.T, fd, n int) (list []int) {
	t.Helper()
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	for len(list) < n {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if k, err := unix.Poll(p, 2000); k == 0 {
			t.Fatalf("%d of %d datagrams: %v", len(list), n, err)
		}
		_, have, _, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_DONTWAIT)
		must(t, err)
		messages, err := unix.ParseSocketControlMessage(oob[:have])
		must(t, err)
		class := -1
		for _, m := range messages {
			if m.Header.Type == unix.IP_TOS && m.Header.Level == unix.IPPROTO_IP ||
				m.Header.Type == unix.IPV6_TCLASS && m.Header.Level == unix.IPPROTO_IPV6 {
				class = int(m.Data[0])
			}
		}
		list = append(list, class)
	}
	return list
}

// Clause 21.12: frames that can bear a mark leave with ECT(0), others without, joined ones too, and all with the DSCP
// of the configuration; without ECN no frame has a mark.
func TestIPTrafficClass(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, ecn := range []bool{false, true} {
			to, err := net.ListenPacket("udp", net.JoinHostPort(loopback(v6), "0"))
			must(t, err)
			defer to.Close()
			raw, err := to.(*net.UDPConn).File()
			must(t, err)
			defer raw.Close()
			fd := int(raw.Fd())
			must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1))
			if v6 {
				must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1))
			}
			for _, listen := range []string{net.JoinHostPort(loopback(v6), freePort(t)), ":" + freePort(t)} {
				d := open(t, "", Options{Listen: listen, ECN: ecn, DSCP: 46}).(*ipDriver)
				at := frame.IP(to.LocalAddr().(*net.UDPAddr).AddrPort())
				var frames []TxFrame
				for k := range 8 {
					f := ipFrame(d, 900, k < 6)
					f.To, f.Capable = at, k%8 < 3 || k == 7
					frames = append(frames, f)
				}
				if n, err := d.Send(frames); n != len(frames) || err != nil {
					t.Fatal(n, err)
				}
				for k, class := range classes(t, fd, len(frames)) {
					want := 46 << 2
					if ecn && frames[k].Capable {
						want |= int(frame.ECT0)
					}
					if class != want {
						t.Errorf("%s, ECN %v: frame %d has traffic class %#x, want %#x", listen, ecn, k, class, want)
					}
				}
			}
		}
	}
}

func loopback(v6 bool) string {
	if v6 {
		return "::1"
	}
	return "127.0.0.1"
}

// freePort is a UDP port that nobody had a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "")
	must(t, err)
	defer c.Close()
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}

// What a datagram's IP header says of congestion arrives with each of its frames, merged or not.
func TestIPMarks(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, every := range []bool{false, true} {
			listen := net.JoinHostPort(loopback(v6), freePort(t))
			if every {
				_, port, _ := net.SplitHostPort(listen)
				listen = ":" + port
			}
			d := open(t, "", Options{Listen: listen, ECN: true}).(*ipDriver)
			_, port, _ := net.SplitHostPort(listen)
			c, err := net.Dial("udp", net.JoinHostPort(loopback(v6), port))
			must(t, err)
			defer c.Close()
			raw, err := c.(*net.UDPConn).File()
			must(t, err)
			defer raw.Close()
			fd, f := int(raw.Fd()), ipFrame(d, 500, false)
			level, opt := unix.IPPROTO_IP, unix.IP_TOS
			if v6 {
				level, opt = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
			}
			var want []frame.ECN
			for _, say := range []frame.ECN{frame.NotECT, frame.ECT0, frame.ECT0, frame.CE, frame.ECT1, frame.CE} {
				must(t, unix.SetsockoptInt(fd, level, opt, 46<<2|int(say)))
				must(t, unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, HeaderLen+500))
				b := append(f.AppendTo(nil), f.AppendTo(nil)...) // two datagrams
				if _, err := c.Write(b); err != nil {
					t.Fatal(err)
				}
				want = append(want, say, say)
			}
			var got []frame.ECN
			for buf := make([][]byte, 3); len(got) < len(want); {
				n, err := d.Recv(buf)
				must(t, err)
				if n == 0 {
					await(t, d, 2000)
				}
				if len(d.Marks()) != n {
					t.Fatalf("%d marks of %d frames", len(d.Marks()), n)
				}
				got = append(got, d.Marks()...)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: %v arrived, want %v", listen, got, want)
				}
			}
		}
	}
}
