package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"multiedge/internal/secure"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
)

// injectHandshakes asks for sessions as nodes that do not exist, returns the cookies and says the first flight of each
// handshake: it costs the attacked one what a real one does.
const injectHandshakes = "handshakes"

// How many of them begin in a second, and what share of its goodput a transfer keeps meanwhile.
const (
	handshakeRate  = 2000
	handshakeShare = 0.9
	handshakeTurns = 2*turnsJudged + 1 // a tenth is less than windows of a second differ by
)

// handshakeFlood is the scenario of it. The machine's processors are shared with the injector, so the transfer is
// compared, by turns, with itself beside the same injector that sends as many frames of the same kinds to nobody.
func handshakeFlood() Scenario {
	return Scenario{
		Name: "handshake flood with returned cookies", Group: Adversary, Short: true, Set: cable,
		Criteria: "no session changes; strangers are answered; the transfer keeps 90 % of its goodput beside as many " +
			"frames for nobody",
		Run: func(ctx context.Context, t *Trial) error {
			a, err := t.assault(ctx, injectHandshakes, false)
			if err != nil {
				return err
			}
			x, err := t.byTurns(ctx, a, t.many(handshakeTurns, 1), t.span(time.Second, 500*time.Millisecond),
				handshakeRate)
			if err != nil {
				return err
			}
			if err := t.survived(ctx, a); err != nil {
				return err
			}
			t.row.Measured["clean Gbit/s"], t.row.Measured["goodput ratio"] = x.cleanRate()*8/1e9, x.ratio()
			t.unfailed(x.all()...)
			t.check("the transfer goes on", x.goesOn(), "nothing completes in a turn")
			t.speed(fmt.Sprintf("it keeps %.0f %%", 100*handshakeShare), x.ratio() >= handshakeShare, "%.1f %%",
				100*x.ratio())
			rest, err := t.drain(ctx, a.client)
			if err != nil {
				return err
			}
			t.unfailed(rest)
			return nil
		},
	}
}

// handshaker is an injector that begins handshakes and keeps those that it waits for answers to.
type handshaker struct {
	*injector
	ctx    context.Context
	drv    linkdrv.Driver
	nobody bool // nothing it sends is for the daemon
	r      *Result
	flight []byte                // the first of a real node
	asked  map[uint32]*wire.Init // by our number
}

// handshakes floods until ctx ends. What the attacked one answers is in r.Types.
func (in *injector) handshakes(ctx context.Context, drv linkdrv.Driver, o Order, r *Result) {
	me := secure.NewNode(secure.NewPrivateKey(), nil).Dial(secure.Peer{}, nil)
	defer me.Close()
	s := &handshaker{injector: in, ctx: ctx, drv: drv, nobody: o.Name == aimNobody, r: r,
		flight: (&wire.Crypto{Data: me.Out(secure.Initial)}).AppendTo(nil), asked: map[uint32]*wire.Init{}}
	var rx [linkdrv.RecvBatch][]byte
	start := time.Now()
	for begun := 0; ctx.Err() == nil; {
		for ; begun < int(time.Since(start).Seconds()*float64(o.Rate)); begun++ {
			s.begin(begun)
		}
		n, err := drv.Recv(rx[:])
		if err != nil {
			break
		}
		for _, b := range rx[:n] {
			s.heard(b)
		}
		if n == 0 {
			sleep(ctx, 200*time.Microsecond)
		}
	}
	if !s.nobody {
		r.Seconds, r.Fastest = r.Seconds+time.Since(start).Seconds(), r.Done
	}
}

// answeredOne is one in how many strangers gets as far as its first flight: some 70 a second, by their share.
const answeredOne = handshakeRate / 70

// begin asks for the k-th session. Of nobody, who returns no cookie and answers nothing, all is asked at once.
func (s *handshaker) begin(k int) {
	h := wire.Hello{Epoch: 1, Flags: wire.HelloSecure, RxSlots: 256, MTU: 1500, Name: []byte("x")}
	copy(h.Node[:], s.stranger())
	ask := &wire.Init{Hello: h, Session: s.rng.Uint32() | 1}
	if len(s.asked) > 4*handshakeRate {
		clear(s.asked)
	}
	s.asked[ask.Session] = ask
	s.send(wire.TypeInit, 0, ask.AppendTo(nil))
	if !s.nobody {
		return
	}
	ask.Cookie = make([]byte, wire.CookieLen)
	s.send(wire.TypeInit, 0, ask.AppendTo(nil))
	if k%answeredOne == 0 {
		s.send(wire.TypeCrypto, ask.Session, s.flight)
	}
}

func (s *handshaker) send(kind wire.Type, number uint32, body []byte) {
	head := append([]byte(nil), s.body(s.ethernet(s.src), wire.Header{Type: kind, Session: number}, body)...)
	if s.nobody {
		binary.BigEndian.PutUint16(head[12:], etherTypeOfNobody)
	}
	for f := []linkdrv.TxFrame{{Head: head}}; s.ctx.Err() == nil; {
		if n, _ := s.drv.Send(f); n == 1 {
			if !s.nobody {
				s.r.Done++
			}
			return
		}
	}
}

// heard returns a cookie, and says the first flight to who takes up the handshake.
func (s *handshaker) heard(b []byte) {
	var f wire.Frame
	if len(b) < wire.TailStart || f.Decode(b[wire.EthLen:]) != nil || s.asked[f.Session] == nil {
		return
	}
	asked := s.asked[f.Session]
	var ack wire.Init
	switch {
	case f.Type == wire.TypeRetry && asked.Cookie == nil:
		s.r.Types["cookies"]++
		asked.Cookie = append([]byte(nil), f.Tail...)
		s.send(wire.TypeInit, 0, asked.AppendTo(nil))
	case f.Type == wire.TypeInitAck && ack.Decode(f.Tail) == nil:
		s.r.Types["answers"]++
		s.send(wire.TypeCrypto, ack.Session, s.flight)
	case f.Type == wire.TypeCrypto:
		s.r.Types["handshakes"]++
		delete(s.asked, f.Session)
	}
}
