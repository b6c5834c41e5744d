package contender

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/bytestream"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// Raw is the limit: bare packet sockets. Frames are the transport's in size and shape (78 bytes of header, then
// payload); the receiver reads the place from the header and copies the payload there. There are no acknowledgements:
// how much is in flight is read from shared memory, which costs nothing.
//
// Kind is the driver to use. Which of linkdrv.KindRing and linkdrv.KindMmsg is better depends on the MTU and on the
// machine, so both run; linkdrv.KindUDP is the limit for the transport over that, and linkdrv.KindIP, ordinary UDP
// sockets which alone cross routers, for IP links.
//
// Sealed is the limit for encrypted traffic: the sender seals every payload by AES-128-GCM on its way to the frame, the
// receiver opens it into memory of its own and then copies it to its place. There is nothing else of a secure channel.
// The cipher is the transport's (package aesgcm) or, with Stdlib, the standard library's, which is what a transport in
// Go would otherwise seal with.
type Raw struct {
	Kind   string
	Sealed bool
	Stdlib bool
}

func (Raw) Name() string { return report.TransportRaw }
func (c Raw) Variant() string {
	switch {
	case c.Sealed && c.Stdlib:
		return c.Kind + " sealed stdlib"
	case c.Sealed:
		return c.Kind + " sealed"
	}
	return c.Kind
}

// Routed reports whether its frames cross routers.
func (c Raw) Routed() bool { return c.Kind == linkdrv.KindIP }

func (Raw) Missing() string       { return "" }
func (Raw) Does(test string) bool { return Over{}.Does(test) }

const (
	rawType   = 0x88B6 // not the transport's: the daemons of the same hosts must not receive these frames
	rawHead   = 78     // bytes of a data frame before its payload, as the transport's
	rawWindow = 96     // frames in flight on a link, or half of what a receive ring holds if that is less
	rawBatch  = 32     // frames per system call, or whole super-frames of about as many
	rawPlace  = 40     // where in the head the place and the length stand: behind what drivers look at
	// after which frames in flight are given up: longer than a busy machine keeps an end off its core
	rawPatience = 2 * time.Second
	rawPage     = 8192
	rawAlone    = 640 // bytes of payload up to which frames travel alone, about as the transport's do
	rawPort     = 9471
)

// rawPayload is the largest payload of a frame: as the transport, it does not begin another page for less than a page,
// unless many frames share their pages.
func rawPayload(link linkdrv.Info) int {
	mtu := link.MTU - link.Overhead
	if mtu > rawPage && mtu < 2*rawPage && link.Kind != linkdrv.KindUDP && link.Kind != linkdrv.KindIP {
		mtu = rawPage
	}
	return mtu + linkdrv.HeaderLen - rawHead
}

// Run implements Contender.
func (c Raw) Run(ctx context.Context, j *Job) *report.Row {
	row := j.row(c)
	row.Security = config.Plaintext
	if c.Sealed {
		row.Security = config.Encrypted
	}
	nodes := [2]*rawNode{{}, {}}
	defer nodes[0].close()
	defer nodes[1].close()
	c.join(j, nodes)
	j.phases(func(phase *Job) { c.run(ctx, phase, nodes[0], nodes[1], row) })
	return finish(row)
}

// join opens both ends. They are the caller's to close, also if it fails.
func (c Raw) join(j *Job, nodes [2]*rawNode) {
	for i, n := range nodes {
		n.open(j, c, j.Hosts[i])
	}
	for i, n := range nodes {
		n.peer = nodes[1-i]
		n.address(n.peer)
	}
}

// run does the work once.
func (c Raw) run(ctx context.Context, j *Job, a, b *rawNode, row *report.Row) {
	for _, n := range []*rawNode{a, b} {
		n.bytesIn, n.sentBefore, n.gotBefore, n.lostBefore = 0, n.sent, n.got.Load(), n.lost
	}
	a.sending.Store(true) // before either looks at the other
	b.sending.Store(j.Test == report.TwoWay)
	before := rawCounts(a, b)
	lat := report.NewRecorder()
	var elapsed time.Duration
	client := func() { a.stream(ctx, j, true, j.Test == report.TwoWay, &elapsed) }
	server := func() { b.stream(ctx, j, j.Test == report.TwoWay, true, nil) }
	if j.Test == report.PingPong {
		client = func() { a.ping(ctx, j, lat, &elapsed) }
		server = func() { b.pong(ctx, j) }
	}
	watch(row, func() {
		u, v := pair(j, client, server)
		after := rawCounts(a, b)
		u.calls, v.calls = after[0].calls-before[0].calls, after[1].calls-before[1].calls
		row.Dropped = after[0].dropped + after[1].dropped - before[0].dropped - before[1].dropped
		account(row, u, v)
	})
	row.Seconds, row.Latency, row.QueueDepth = elapsed.Seconds(), lat.Summary(0.5), a.window
	row.Bytes = a.bytesIn + b.bytesIn
	if j.Test == report.TwoWay {
		row.EachWay = []float64{float64(b.bytesIn), float64(a.bytesIn)}
	}
	row.FramesSent = a.sent - a.sentBefore + b.sent - b.sentBefore
	row.FramesReceived = a.got.Load() - a.gotBefore + b.got.Load() - b.gotBefore
	row.FramesLost = a.lost - a.lostBefore + b.lost - b.lostBefore
}

// open opens the links of one end, in a host, and makes its memory.
func (n *rawNode) open(j *Job, c Raw, h *lab.Host) {
	n.size = j.Size
	kit.Checkf(h.Do(func() error {
		for i, name := range h.LinkNames() {
			o := linkdrv.Options{EtherType: rawType, Kind: c.Kind}
			if c.Kind == linkdrv.KindIP {
				o.Listen = netip.AddrPortFrom(h.IP(i), rawPort).String()
				n.at = append(n.at, linkdrv.IPAddr(netip.AddrPortFrom(h.IP(i), rawPort)))
			}
			d, err := linkdrv.Open(name, o)
			if err != nil {
				return err
			}
			n.links = append(n.links, d)
		}
		return nil
	}), "raw: %s", h.Name())
	info := n.links[0].Info()
	n.payload, n.batch = rawPayload(info), rawBatch
	if per := min(info.Super/(info.MTU-info.Overhead+linkdrv.HeaderLen), linkdrv.SendBatch); per > 0 {
		n.batch = max(1, rawBatch/per) * per
	}
	if c.Sealed {
		n.sealed = newRawSeal(c.Stdlib)
		n.payload -= rawTag
	}
	n.source, n.target = kit.Get(bytestream.Memory(j.Region)), kit.Get(bytestream.Memory(j.Region))
	n.frames, n.heads = make([][]linkdrv.TxFrame, len(n.links)), make([][][]byte, len(n.links))
	n.rx = make([][]byte, 64)
}

func (n *rawNode) close() {
	for _, d := range n.links {
		d.Close()
	}
	bytestream.Free(n.source)
	bytestream.Free(n.target)
}

// rawCount is what an end has counted so far: frames that the kernel dropped, and system calls.
type rawCount struct{ dropped, calls uint64 }

func rawCounts(nodes ...*rawNode) (counts [2]rawCount) {
	for i, n := range nodes {
		counts[i].calls = n.yields
		for _, d := range n.links {
			st := kit.Get(d.Stats())
			counts[i].dropped += st.Dropped
			counts[i].calls += st.SendCalls + st.RecvCalls
		}
	}
	return counts
}

// stream sends until the time is over, receives what the peer sends, or both. It ends when all that either sent has
// arrived.
func (n *rawNode) stream(ctx context.Context, j *Job, sends, receives bool, elapsed *time.Duration) {
	defer n.sending.Store(false)
	start := mono.Now()
	stop := start.Add(j.Duration)
	for i, quiet := 0, 0; ; i++ {
		moved := 0
		if receives {
			moved = n.receive()
		}
		if sends {
			moved += n.send()
		}
		if quiet++; moved > 0 {
			quiet = 0
		}
		if i%64 != 0 {
			n.idle(quiet)
			continue
		}
		now := mono.Now()
		sends = sends && now < stop
		n.stalled(now, moved)
		if !sends && n.outstanding() == 0 {
			n.sending.Store(false)
			if moved == 0 && !n.peer.sending.Load() {
				break
			}
		}
		kit.Check(ctx.Err())
	}
	if elapsed != nil {
		*elapsed = mono.Now().Sub(start)
	}
}

// ping sends a message, waits for one, and so on, polling.
func (n *rawNode) ping(ctx context.Context, j *Job, lat *report.Recorder, elapsed *time.Duration) {
	defer n.sending.Store(false)
	start := mono.Now()
	stop := start.Add(j.Duration)
	for now := start; now < stop; {
		n.message(ctx, j.Size)
		t := mono.Now()
		lat.Record(t.Sub(now))
		now = t
	}
	*elapsed = mono.Now().Sub(start)
}

// message sends one message and waits for one.
func (n *rawNode) message(ctx context.Context, size int) {
	n.sendMessage(ctx)
	want := n.bytesIn + uint64(size)
	give := mono.Now().Add(time.Second)
	for quiet := 0; n.bytesIn < want; quiet++ {
		if n.receive() == 0 {
			n.idle(quiet)
			if quiet%1024 == 1023 && mono.Now() > give {
				kit.Fail("raw: no answer within a second: a frame was lost")
			}
		}
	}
	kit.Check(ctx.Err())
}

func (n *rawNode) pong(ctx context.Context, j *Job) {
	for want := uint64(j.Size); ; want += uint64(j.Size) {
		for quiet := 0; n.bytesIn < want; quiet++ {
			if n.receive() == 0 {
				n.idle(quiet)
				if !n.peer.sending.Load() || ctx.Err() != nil {
					kit.Check(ctx.Err())
					return
				}
			}
		}
		n.sendMessage(ctx)
	}
}

// idle is called when a node found nothing to do, with the number of times in a row. It polls for a while, then lets
// others onto this processor, should there be any: they might be the peer.
func (n *rawNode) idle(times int) {
	if times > 1000 {
		n.yields++
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}
