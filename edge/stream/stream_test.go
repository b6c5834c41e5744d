package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// streamNet is two devices of a fabric, and a listener at the second.
type streamNet struct {
	a, b *edge.Device
	l    *Listener
	with Config
}

// cfg is how d makes streams.
func (n *streamNet) cfg(d *edge.Device) Config {
	c := n.with
	c.Device = d
	return c
}

func newStreamNet(t testing.TB, cfg Config) *streamNet {
	t.Helper()
	ctx := testContext(t)
	fab := fabric.New()
	t.Cleanup(func() { must(t, fab.Close()) })
	n := &streamNet{with: cfg}
	for name, d := range map[string]**edge.Device{"a": &n.a, "b": &n.b} {
		var err error
		*d, err = fab.Open(name)
		must(t, err)
	}
	var err error
	n.l, err = n.cfg(n.b).Listen(ctx, "s")
	must(t, err)
	return n
}

// pair returns both ends of a stream.
func (n *streamNet) pair(ctx context.Context) (out, in *Conn, err error) {
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = n.l.AcceptContext(ctx)
		accepted <- err
	}()
	out, err = n.cfg(n.a).Dial(ctx, "b", "s")
	return out, in, errors.Join(err, <-accepted)
}

func (n *streamNet) mustPair(t testing.TB) (out, in *Conn) {
	t.Helper()
	out, in, err := n.pair(testContext(t))
	must(t, err)
	return out, in
}

func TestStreamIsANetConn(t *testing.T) {
	n := newStreamNet(t, Config{})
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		out, in, err := n.pair(testContext(t))
		return out, in, func() {
			out.Close()
			in.Close()
		}, err
	})
}

// The least memory, and the peer's end of the stream.
func TestSmallStreamIsANetConn(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: minBuffer, SendBuffer: 2 * minBuffer})
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		out, in, err := n.pair(testContext(t))
		return in, out, func() {
			out.Close()
			in.Close()
		}, err
	})
}

func TestStreamEnds(t *testing.T) {
	n := newStreamNet(t, Config{})
	n.with.Data = []byte("who I am")
	out, in, err := n.pair(testContext(t))
	must(t, err)
	if string(in.Data()) != "who I am" || len(out.Data()) != 0 {
		t.Errorf("data %q at the one end, %q at the other", in.Data(), out.Data())
	}
	if got := fmt.Sprint(out.LocalAddr(), out.RemoteAddr(), in.LocalAddr(), in.RemoteAddr(),
		n.l.Addr()); got != "a:s b:s b:s a:s b:s" {
		t.Errorf("addresses %s", got)
	}
	_, err = out.Write([]byte("question"))
	must(t, err)
	must(t, out.CloseWrite())
	must(t, out.CloseWrite())
	if n, err := out.Write([]byte("x")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after CloseWrite: %d, %v", n, err)
	}
	if n, err := in.Read(nil); n != 0 || err != nil {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
	if n, err := in.Write(nil); n != 0 || err != nil {
		t.Errorf("write of nothing: %d, %v", n, err)
	}
	if p, err := io.ReadAll(in); string(p) != "question" || err != nil {
		t.Fatalf("read %q, %v", p, err)
	}
	_, err = in.Write([]byte("answer"))
	must(t, err)
	must(t, in.Close())
	if p, err := io.ReadAll(out); string(p) != "answer" || err != nil { // though the connection has ended
		t.Fatalf("read %q, %v", p, err)
	}
	must(t, out.Close())
	for name, err := range map[string]error{
		"Close": out.Close(), "CloseWrite": out.CloseWrite(), "SetDeadline": out.SetDeadline(time.Time{}),
		"Read": second(out.Read(make([]byte, 1))), "Write": second(out.Write(nil)),
	} {
		var op *net.OpError
		if !errors.Is(err, net.ErrClosed) || !errors.As(err, &op) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

// What is written before Close arrives, whenever the reader reads, whoever closes first.
func TestStreamCloseDeliversEverything(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: 1 << 14})
	for _, size := range []int{0, 1, 4095, 1 << 14} {
		out, in := n.mustPair(t)
		p := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(size)}).Read(p)
		_, err := out.Write(p)
		must(t, err)
		must(t, out.Close())
		got, err := io.ReadAll(in)
		if err != nil || !bytes.Equal(got, p) {
			t.Errorf("%d bytes: %d were read, equal %v, %v", size, len(got), bytes.Equal(got, p), err)
		}
		must(t, in.Close())
	}
}

// The positions that notifications carry begin again after 2^30 bytes.
func TestStreamPositionsWrap(t *testing.T) {
	n := newStreamNet(t, Config{})
	out, in := n.mustPair(t)
	const at = 1<<30 - 100_000
	out.out.sent.Store(at)
	out.out.acked.Store(at)
	out.out.freed = at
	in.in.tail.Store(at)
	in.in.granted.Store(at)
	in.in.head.Store(at)
	must(t, sendAndCompare(out, in, 1, 300_000))
	must(t, sendAndCompare(in, out, 2, 1000))
	must(t, out.Close())
	if p, err := io.ReadAll(in); len(p) > 0 || err != nil {
		t.Errorf("at the end: %d bytes, %v", len(p), err)
	}
	must(t, in.Close())
}

// The first streams of a Device have larger buffers, at both ends, where Config does not say.
func TestEarlyStreamsHaveLargerBuffers(t *testing.T) {
	n := newStreamNet(t, Config{})
	for i := range EarlyStreams + 2 {
		out, in := n.mustPair(t)
		want := EarlyBuffer
		if i >= EarlyStreams {
			want = DefaultBuffer
		}
		for end, s := range map[string]*Conn{"dialled": out, "accepted": in} {
			if s.ring != want || s.out.size != want || len(s.region.Bytes()) != 2*want {
				t.Errorf("stream %d, %s: buffers of %d and %d bytes in a region of %d; want %d each", i, end, s.ring,
					s.out.size, len(s.region.Bytes()), want)
			}
		}
		defer in.Close()
		defer out.Close()
	}
	n.with = Config{ReceiveBuffer: 8 << 10}
	out, in := n.mustPair(t)
	if out.ring != 8<<10 || out.out.size != DefaultBuffer || in.ring != DefaultBuffer {
		t.Errorf("buffers of %d, %d and %d bytes", out.ring, out.out.size, in.ring)
	}
	must(t, out.Close())
	must(t, in.Close())
}

// net/http, unmodified, with several requests at once over several streams.
func TestStreamHTTP(t *testing.T) {
	n := newStreamNet(t, Config{})
	body := make([]byte, 700_000)
	rand.NewChaCha8([32]byte{7}).Read(body)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, body[:len(got)]) {
			t.Errorf("request of %d bytes: %v", len(got), err)
		}
		w.Header().Set("X-From", r.RemoteAddr)
		w.Write(body[:len(body)-len(got)])
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(n.l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		node, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return n.cfg(n.a).Dial(ctx, node, "s")
	}}
	client := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for _, size := range []int{0, 1, 10_000 * i, len(body)} {
				r, err := client.Post("http://b/", "", bytes.NewReader(body[:size]))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || !bytes.Equal(got, body[:len(body)-size]) || r.Header.Get("X-From") != "a:s" {
					t.Errorf("%d bytes: %d were answered to %q, %v", size, len(got), r.Header.Get("X-From"), err)
				}
			}
		})
	}
	wg.Wait()
	transport.CloseIdleConnections()
	must(t, server.Shutdown(testContext(t)))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the server: %v", err)
	}
}

// writeUntilError returns what ends a stream of zeros.
func writeUntilError(s *Conn) error {
	for p := make([]byte, 10_000); ; {
		if _, err := s.Write(p); err != nil {
			return err
		}
	}
}

// sendAndCompare writes size bytes in chunks of any size, reads them in others, and compares them.
func sendAndCompare(from io.Writer, to io.Reader, seed byte, size int) error {
	written := make(chan error, 1)
	go func() {
		source, rng := rand.NewChaCha8([32]byte{seed}), rand.New(rand.NewPCG(uint64(seed), 1))
		p := make([]byte, 1<<17)
		for left := size; left > 0; {
			n := min(1+rng.IntN(1<<rng.IntN(18)), left)
			source.Read(p[:n])
			if m, err := from.Write(p[:n]); m != n || err != nil {
				written <- fmt.Errorf("write of %d with %d to go: %d, %w", n, left, m, err)
				return
			}
			clear(p[:n]) // it is ours again
			left -= n
		}
		written <- nil
	}()
	oracle, rng := rand.NewChaCha8([32]byte{seed}), rand.New(rand.NewPCG(uint64(seed), 2))
	p, want := make([]byte, 1<<17), make([]byte, 1<<17)
	for got := 0; got < size; {
		n, err := to.Read(p[:min(1+rng.IntN(1<<rng.IntN(18)), size-got)])
		oracle.Read(want[:n])
		if err != nil || !bytes.Equal(p[:n], want[:n]) {
			return fmt.Errorf("read of %d bytes at %d of %d: equal %v, %w", n, got, size, bytes.Equal(p[:n], want[:n]),
				err)
		}
		got += n
	}
	return <-written
}

// BenchmarkStream is one stream between two embedded transports: bytes one way, and a question and its answer.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("write-%d", size), func(b *testing.B) {
			out, in := newStreamNet(b, Config{}).mustPair(b)
			read := make(chan error, 1)
			go func() { read <- readUntilError(in) }()
			p := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_, err := out.Write(p)
				must(b, err)
			}
			must(b, out.Close())
			must(b, <-read)
			must(b, in.Close())
		})
	}
	b.Run("ping-pong-64", func(b *testing.B) {
		out, in := newStreamNet(b, Config{}).mustPair(b)
		echoed := make(chan error, 1)
		go func() { echoed <- second(io.Copy(in, in)) }()
		p := make([]byte, 64)
		b.ReportAllocs()
		for b.Loop() {
			_, err := out.Write(p)
			must(b, err)
			_, err = io.ReadFull(out, p)
			must(b, err)
		}
		must(b, out.CloseWrite())
		must(b, <-echoed)
		must(b, in.Close())
		must(b, out.Close())
	})
}
