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

// injectHandshakes requests sessions as nodes that do not exist, returns the cookies and sends the first flight of each
// handshake. Each handshake costs the attacked daemon as much as a real one.
const injectHandshakes = "handshakes"

// How many handshakes begin in a second, and the share of its goodput that a transfer must keep meanwhile.
const (
	handshakeRate  = 2000
	handshakeShare = 0.9
	handshakeTurns = 2*turnsJudged + 1 // windows of one second differ by more than a tenth
)

// handshakeFlood is that scenario. The injector shares the machine's processors. So the transfer beside it is compared,
// by turns, with the transfer beside the same injector sending as many frames of the same kinds to nobody.
func handshakeFlood() Scenario {
	return Scenario{
		Name: "handshake flood with returned cookies", Group: Adversary, Short: true, Set: cable,
		Criteria: "no session changes; strangers get answers; goodput is at least 90 % of that beside as many frames " +
			"for nobody",
		Run: func(t *Trial) {
			a := t.assault(injectHandshakes, false)
			x := t.byTurns(a, t.many(handshakeTurns, 1), t.span(time.Second, 500*time.Millisecond), handshakeRate)
			t.survived(a)
			t.row.Measured["clean Gbit/s"] = x.cleanRate() * 8 / 1e9
			t.unfailed(x.all()...)
			t.check("the transfer goes on", x.goesOn(), "nothing completes in a turn")
			t.share("goodput ratio", fmt.Sprintf("it keeps %.0f %%", 100*handshakeShare), x.ratio(), handshakeShare)
			t.unfailed(t.drain(a.client))
		},
	}
}

// handshaker is an injector that begins handshakes and remembers those whose answers it awaits.
type handshaker struct {
	*injector
	ctx    context.Context
	drv    linkdrv.Driver
	nobody bool // nothing it sends is for the daemon
	r      *Result
	flight []byte                // the first of a real node
	asked  map[uint32]*wire.Init // by our number
}

// handshakes floods until ctx ends. It counts the answers in r.Types.
func (in *injector) handshakes(ctx context.Context, drv linkdrv.Driver, a Aim, r *Result) {
	me := secure.NewNode(secure.NewPrivateKey(), nil).Dial(secure.Peer{}, nil)
	defer me.Close()
	s := &handshaker{injector: in, ctx: ctx, drv: drv, nobody: a.At == aimNobody, r: r,
		flight: (&wire.Crypto{Data: me.Out(secure.Initial)}).AppendTo(nil), asked: map[uint32]*wire.Init{}}
	var rx [linkdrv.RecvBatch][]byte
	start := time.Now()
	for begun := 0; ctx.Err() == nil; {
		for ; begun < int(time.Since(start).Seconds()*float64(a.Rate)); begun++ {
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

// answeredOne says how many strangers there are for each one that the daemon lets reach its first flight: strangers'
// share is some 35 a second.
const answeredOne = handshakeRate / 35

// begin requests the k-th session. Nobody returns no cookie and answers nothing, so for nobody begin sends all frames
// at once.
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

// heard returns a cookie to its sender, or sends the first flight once the handshake is accepted.
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
