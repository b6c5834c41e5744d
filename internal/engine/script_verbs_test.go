package engine_test

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Further commands of testdata/scripts: operations other than plain writes and reads, and what an end does by itself.
//
//	connect absent                  the exported memory of both nodes misses until the command resident
//	resident [node=1]               it has come
//	post [node=1] [bytes=64]        a buffer for messages
//	accept                          node 1 answers a dial that is held
//	send [node=0] [bytes=8] [strict] [notify=] [backward] [forward]     a message
//	atomic [node=0] [at=0] add= | swap= | cas= [compare=]    on 8 bytes of the other node's memory
//	redirect [node=1] at= bytes=    what arrives there goes to other memory, which verify compares
//	endredirect [node=1]
//	rekey [node=0]                  begins an exchange of fresh keys
func init() {
	scriptCommands["post"], scriptCommands["send"] = (*script).post, (*script).send
	scriptCommands["accept"] = (*script).accept
	scriptCommands["atomic"] = (*script).atomic
	scriptCommands["redirect"], scriptCommands["endredirect"] = (*script).redirect, (*script).endRedirect
	scriptCommands["resident"] = (*script).resident
	scriptCommands["rekey"] = func(s *script) { s.r.n[s.num("node", 0)].e.RenewKeys(s.r.now) }
}

// message is one that was sent, and the buffer that has to have it in the end, if any.
type message struct{ sent, buffer []byte }

// scriptVerbs is what these commands keep.
type scriptVerbs struct {
	absent   [2]*missing // of the exported memory, by node
	heldBack bool        // requests are accepted by a command
	posted   [2]int
	sends    [2]int // by the node that sends
	messages [2][]message
	aside    []byte // where the redirection of node 1's memory leads
	asideAt  int
}

// of returns message k that node to gets.
func (v *scriptVerbs) of(to, k int) *message {
	for len(v.messages[to]) <= k {
		v.messages[to] = append(v.messages[to], message{})
	}
	return &v.messages[to][k]
}

func (s *script) post() {
	node := s.num("node", 1)
	v := &s.verbs
	s.printf("buffer %d", v.posted[node])
	v.of(node, v.posted[node]).buffer = s.r.post(node, s.conn[node], 0, uint64(v.posted[node]), s.num("bytes", 64))
	v.posted[node]++
}

func (s *script) accept() {
	if err := s.r.n[1].e.Accept(s.r.now, s.conn[1], nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) send() {
	node, v := s.num("node", 0), &s.verbs
	op := send(s.token, pattern(int(s.token), s.num("bytes", 8)))
	op.Flags, op.Imm = s.flags()
	if s.d.HasArg("strict") {
		op.Patience = engine.NoWait
	} else {
		v.of(1-node, v.sends[node]).sent = op.Local
		v.sends[node]++
	}
	s.submit(node, op)
}

func (s *script) atomic() {
	node, at := s.num("node", 0), s.num("at", 0)
	a := engine.Atomic{Size: 8, Compare: uint64(s.num("compare", 0))}
	word := binary.NativeEndian.Uint64(s.want[1-node][at:])
	found := word
	for name, f := range map[string]wire.AtomicFunc{"add": wire.AtomicAdd, "swap": wire.AtomicSwap,
		"cas": wire.AtomicCAS} {
		if s.d.HasArg(name) {
			a.Func, a.Operand = f, uint64(s.num(name, 0))
		}
	}
	switch {
	case a.Func == wire.AtomicAdd:
		word += a.Operand
	case a.Func == wire.AtomicSwap || a.Func == wire.AtomicCAS && word == a.Compare:
		word = a.Operand
	case a.Func == 0:
		s.d.Fatalf(s.t, "atomic: say add, swap or cas")
	}
	binary.NativeEndian.PutUint64(s.want[1-node][at:], word)
	s.printf("has to find %d", found)
	s.submit(node, atomicOp(s.token, regmem.Key(s.key[1-node]), uint64(at), a))
}

// flags are those of the command's operation.
func (s *script) flags() (f engine.OpFlags, imm uint32) {
	for name, flag := range map[string]engine.OpFlags{"backward": engine.BackwardFence,
		"forward": engine.ForwardFence, "notify": engine.Notify} {
		if s.d.HasArg(name) {
			f |= flag
		}
	}
	if f&engine.Notify != 0 {
		imm = uint32(s.num("notify", 0))
	}
	return f, imm
}

// submit submits an operation with the next token.
func (s *script) submit(node int, op engine.Op) {
	s.r.submit(node, s.conn[node], op)
	s.printf("operation %d", s.token)
	s.token++
}

func (s *script) redirect() {
	node, v := s.num("node", 1), &s.verbs
	v.asideAt, v.aside = s.num("at", 0), make([]byte, s.num("bytes", 64))
	region := &regmem.Region{ID: 2, Mem: regmem.Wrap(v.aside)}
	key := regmem.Key(s.key[node])
	s.printf("%v", redirectTo(s.r.n[node].e, s.conn[node], 0, key, uint64(v.asideAt), v.aside, region))
}

func (s *script) endRedirect() {
	node := s.num("node", 1)
	s.printf("%v", s.r.n[node].e.EndRedirect(s.conn[node], 0))
	s.r.poll(node)
	s.events()
}

func (s *script) resident() {
	node := s.num("node", 1)
	back := s.verbs.absent[node]
	back.here = true
	s.r.n[node].e.Resident(s.r.now, regmem.Wait{Back: back})
	s.r.poll(node)
	s.events()
}

// event prints what the events of these commands say, and reports whether ev is one.
func (v *scriptVerbs) event(s *script, node int, ev *engine.Event) bool {
	switch ev.Kind {
	case engine.EvReceived:
		imm := ""
		if ev.Msg.HasImm {
			imm = fmt.Sprint(", immediate ", ev.Msg.Imm)
		}
		s.printf("%s    node %d: buffer %d: %v, %d bytes%s", s.at(), node, ev.Token, ev.Status, ev.Msg.Len, imm)
		m := v.of(node, int(ev.Token))
		if ev.Status == engine.OK && !bytes.Equal(m.buffer[:ev.Msg.Len], m.sent) {
			s.t.Errorf("buffer %d of node %d has other bytes than message %d", ev.Token, node, ev.Token)
		}
	case engine.EvRedirected:
		s.printf("%s    node %d: redirection over: %v, spans %v", s.at(), node, ev.Status, ev.Spans)
		for _, sp := range ev.Spans {
			lo, hi := int(sp.Off), int(sp.Off+sp.N)
			want := s.want[node][v.asideAt:]
			if !bytes.Equal(v.aside[lo:hi], want[lo:hi]) {
				s.t.Errorf("bytes %d to %d of the redirection are wrong", lo, hi)
			}
			copy(want[lo:hi], s.mem[node][v.asideAt+lo:v.asideAt+hi]) // they are not where they were written to
		}
	default:
		return false
	}
	return true
}
