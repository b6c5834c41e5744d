package bytestream

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/mono"
)

// ends returns both ends of a TCP connection, with a byte more of memory than messages fill.
func ends(t *testing.T, size int) (a, b *End) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	in, err := l.Accept()
	must(t, err)
	for c, e := range map[net.Conn]**End{out: &a, in: &b} {
		*e, err = NewEnd(size, 3*size+1, true, true)
		must(t, err)
		(*e).Conn = c.(*net.TCPConn)
		t.Cleanup((*e).Close)
	}
	return a, b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const briefly = 20 * time.Millisecond

func TestSendAndReceive(t *testing.T) {
	for _, size := range []int{1, 4096, 100_001} {
		a, b := ends(t, size)
		received := make(chan error, 1)
		go func() { received <- kit.Try(b.Receive) }()
		n, err := kit.Outcome(func() uint64 { return a.Send(mono.Now().Add(briefly)) })
		must(t, err)
		must(t, <-received)
		if n == 0 {
			t.Errorf("no message of %d bytes was sent", size)
		}
	}
}

func TestPingAndPong(t *testing.T) {
	for _, size := range []int{1, 100_001} {
		a, b := ends(t, size)
		answered := make(chan uint64, 1)
		go func() {
			n, err := kit.Outcome(b.Pong)
			if err != nil {
				t.Error(err)
			}
			answered <- n
		}()
		lat := report.NewRecorder()
		n, err := kit.Outcome(func() uint64 { return a.Ping(mono.Now().Add(briefly), lat) })
		must(t, err)
		if m := <-answered; n == 0 || n != m || n != lat.Count() {
			t.Errorf("%d messages, %d answers, %d round trips", n, m, lat.Count())
		}
	}
}

// What does not arrive is no success.
func TestBytesThatAreMissingAreFound(t *testing.T) {
	a, b := ends(t, 1000)
	go func() {
		io.ReadFull(b.Conn, make([]byte, 1)) // which Receive does not count
		_ = kit.Try(b.Receive)
	}()
	n, err := kit.Outcome(func() uint64 { return a.Send(mono.Now().Add(briefly)) })
	if err == nil || !strings.Contains(err.Error(), "received") {
		t.Errorf("%d messages, a byte of which was lost: %v", n, err)
	}
}

// A message that ends in its middle is not the end.
func TestPongWantsWholeMessages(t *testing.T) {
	a, b := ends(t, 1000)
	_, err := a.Conn.Write(make([]byte, 1999))
	must(t, err)
	must(t, a.Conn.CloseWrite())
	if n, err := kit.Outcome(b.Pong); err != io.ErrUnexpectedEOF {
		t.Errorf("%d messages, %v", n, err)
	}
}
