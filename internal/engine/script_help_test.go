package engine_test

import (
	"bytes"
	"strings"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// scriptCommands are the commands of testdata/scripts. Nodes are 0 and 1; from=0 means frames that node 0 sent.
//
//	new [links=] [mtu=] [profile=] [window=] [held=] [super=] [shuffle=] [scheduler=] [sealed] [bytes=]
//	        two nodes; each will export bytes of memory (65536)
//	connect [ordered] [cold]        node 0 dials node 1, both export; then paths find their frame size, unless cold
//	dial [held]                     node 0 asks; run shows what comes of it, and node 1 accepts, held: by accept
//	write | read [node=0] [bytes=8] [at=0] [notify=] [backward] [forward]     an operation on the other node's memory
//	compose [node=0] [bytes=640] [at=0]     begins a write that is composed, and names it by its operation
//	wrote [node=0] op= [bytes=64] [at=0]    writes part of its memory anew, and marks it
//	commit | discard [node=0] op= [notify=] [backward] [forward]
//	drop | hold | double | corrupt  from= [link=] [with=TEXT] [over=0] [skip=0] [count=1]
//	        what happens to the next count frames of more than over bytes whose line contains TEXT (_ is a space)
//	release [backwards] [each]      gives held frames to their receivers; each: they answer after every one
//	run [for=5ms] [only=TEXT] [quiet]   exchanges frames for a time; prints all but Hello, or lines with TEXT
//	link node= [link=0] down | up [mtu=] | blocked | free
//	close | abort [node=0]
//	advertise [node=1] name=, withdraw [node=1]
//	revoke [node=1]                 voids the key of the node's memory
//	verify                          compares all memory with what operations should have made of it
var scriptCommands = map[string]func(*script){
	"new": (*script).new, "connect": (*script).connect, "dial": (*script).dial, "write": (*script).op,
	"read": (*script).op, "compose": (*script).compose, "wrote": (*script).wrote, "commit": (*script).commit,
	"discard": (*script).commit,
	"drop":    (*script).rule, "hold": (*script).rule, "double": (*script).rule, "corrupt": (*script).rule,
	"release": (*script).release, "run": (*script).run, "link": (*script).link, "close": (*script).end,
	"abort":     (*script).end,
	"advertise": (*script).advertise, "withdraw": (*script).withdraw, "revoke": (*script).revoke,
	"verify": (*script).verify,
}

func (s *script) new() {
	s.o = rigOptions{
		links: s.num("links", 1), mtu: s.num("mtu", 1500), profile: s.text("profile"), window: s.num("window", 0),
		held:  s.num("held", 0),
		super: s.num("super", 0), shuffle: uint16(s.num("shuffle", 0)), scheduler: s.text("scheduler"),
		sealed: s.d.HasArg("sealed"),
	}
	if s.o.scheduler == "" {
		s.o.scheduler = "srr"
	}
	s.r, s.conns = newRig(s.t, s.o), map[string]string{}
	for i := range s.mem {
		s.mem[i] = make([]byte, s.num("bytes", 1<<16))
		s.want[i] = make([]byte, len(s.mem[i]))
	}
}

func (s *script) connect() {
	s.conn = s.r.connect(engine.DialOptions{Ordered: s.d.HasArg("ordered")})
	s.export()
	if !s.d.HasArg("cold") {
		s.r.settle()
	}
	for i, n := range s.r.n {
		s.seen[i] = len(n.events)
	}
}

func (s *script) dial() {
	s.r.n[1].e.Listen("test")
	id, err := s.r.n[0].e.Dial(s.r.now, "node1", "test", engine.DialOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.conn[0], s.verbs.heldBack = id, s.d.HasArg("held")
}

// export grants the memory of both nodes to the connection.
func (s *script) export() {
	for i, n := range s.r.n {
		region := &regmem.Region{ID: 1, Mem: regmem.Wrap(s.mem[i])}
		if s.d.HasArg("absent") {
			s.verbs.absent[i] = &missing{}
			region.Back = s.verbs.absent[i]
		}
		key, err := n.grants.Grant(region, uint64(s.conn[i]), every, 0, uint64(len(s.mem[i])))
		if err != nil {
			s.t.Fatal(err)
		}
		s.key[i] = uint64(key)
	}
}

func (s *script) op() {
	node, n, at := s.num("node", 0), s.num("bytes", 8), s.num("at", 0)
	op := engine.Op{Kind: engine.OpRead, Token: s.token, Key: regmem.Key(s.key[1-node]), Off: uint64(at),
		Local: make([]byte, n)}
	if s.d.Cmd == "write" {
		op.Kind, op.Local = engine.OpWrite, pattern(int(s.token), n)
		if at+n <= len(s.want[1-node]) {
			copy(s.want[1-node][at:], op.Local)
		}
	} else {
		s.reads = append(s.reads, pendingRead{1 - node, at, op.Local})
	}
	op.Flags, op.Imm = s.flags()
	s.submit(node, op)
}

// composing is a write that is being composed.
type composing struct {
	mem []byte
	at  int
}

func (s *script) compose() {
	node, n, at := s.num("node", 0), s.num("bytes", 640), s.num("at", 0)
	k := composing{make([]byte, n), at}
	op := engine.Op{Kind: engine.OpWrite, Token: s.token, Key: regmem.Key(s.key[1-node]), Off: uint64(at), Local: k.mem}
	s.printf("operation %d: %v", s.token, s.r.n[node].e.Compose(s.conn[node], &op, s.token))
	if s.composed == nil {
		s.composed = map[int]composing{}
	}
	s.composed[int(s.token)] = k
	s.token++
}

func (s *script) wrote() {
	op, n, at := s.num("op", 0), s.num("bytes", 64), s.num("at", 0)
	s.writes++
	copy(s.composed[op].mem[at:at+n], pattern(1000+s.writes, n))
	node := s.num("node", 0)
	if !s.r.n[node].e.Wrote(s.conn[node], uint64(op), uint64(at), uint64(n)) {
		s.d.Fatalf(s.t, "operation %d is not being composed", op)
	}
}

func (s *script) commit() {
	op, node := s.num("op", 0), s.num("node", 0)
	flags, imm := s.flags()
	k, e, done := s.composed[op], s.r.n[node].e, false
	if s.d.Cmd == "discard" {
		done = e.Discard(s.conn[node], uint64(op))
		s.events()
	} else {
		done = e.Commit(s.r.now, s.conn[node], uint64(op), flags, imm, uint64(len(k.mem)))
		copy(s.want[1-node][k.at:], k.mem)
	}
	if !done {
		s.d.Fatalf(s.t, "operation %d is not being composed", op)
	}
}

func (s *script) rule() {
	s.rules = append(s.rules, &rule{
		what: s.d.Cmd, from: s.num("from", 0), link: s.num("link", -1), with: strings.ReplaceAll(s.text("with"), "_",
			" "),
		over: s.num("over", 0), skip: s.num("skip", 0), left: s.num("count", 1),
	})
}

func (s *script) release() {
	s.began = s.r.now
	held := s.held
	s.held = nil
	for i := range held {
		h := &held[i]
		if s.d.HasArg("backwards") {
			h = &held[len(held)-1-i]
		}
		s.r.give(h.to, h.f)
		s.events()
		if !s.d.HasArg("each") {
			continue
		}
		for _, f := range s.r.take(h.to) {
			s.printf("after %d frames: %s", i+1, s.describe(h.to, &f))
			s.r.give(1-h.to, f)
		}
	}
	s.printf("%d frames", len(held))
}

func (s *script) run() {
	only := strings.ReplaceAll(s.text("only"), "_", " ")
	frames, quiet := 0, s.d.HasArg("quiet")
	s.r.pass = s.pass(func(text string) bool {
		frames++
		return !quiet && strings.Contains(text, only) && (only != "" || !strings.Contains(text, " hello "))
	})
	s.began = s.r.now
	end := s.r.now.Add(s.span("for", 5*time.Millisecond))
	for s.r.now <= end {
		moved := s.r.round()
		s.events()
		if moved {
			continue
		}
		next := min(s.r.n[0].e.NextTimeout(), s.r.n[1].e.NextTimeout())
		if next > end || next == mono.Never {
			break
		}
		s.r.now = max(s.r.now+1, next)
	}
	s.r.now = max(s.r.now, end)
	s.r.pass = nil
	if quiet {
		s.printf("%d frames", frames)
	}
}

func (s *script) link() {
	node, l := s.num("node", 0), s.num("link", 0)
	e := s.r.n[node].e
	switch {
	case s.d.HasArg("down"):
		e.RemoveLink(s.r.now, l)
	case s.d.HasArg("up"):
		s.r.relink(node, l, macOf(node, l), s.num("mtu", s.o.mtu))
	case s.d.HasArg("blocked"), s.d.HasArg("free"):
		e.SetLinkBlocked(l, s.d.HasArg("blocked"))
	default:
		s.d.Fatalf(s.t, "link: say down, up, blocked or free")
	}
}

func (s *script) end() {
	node := s.num("node", 0)
	if s.d.Cmd == "close" {
		s.r.n[node].e.Close(s.r.now, s.conn[node])
		return
	}
	s.r.n[node].e.Abort(s.r.now, s.conn[node], engine.StatusAborted)
}

func (s *script) advertise() {
	node := s.num("node", 1)
	a := engine.Advert{Name: s.text("name"), Key: regmem.Key(s.key[node]), Size: uint64(len(s.mem[node])), Perm: both}
	number, ok := s.r.n[node].e.Advertise(s.r.now, s.conn[node], a)
	if !ok {
		s.printf("refused")
	}
	s.number[node] = number
}

func (s *script) withdraw() {
	node := s.num("node", 1)
	s.r.n[node].e.Withdraw(s.r.now, s.conn[node], regmem.Key(s.key[node]), s.number[node])
}

func (s *script) revoke() {
	node := s.num("node", 1)
	if !s.r.n[node].grants.Revoke(regmem.Key(s.key[node])) {
		s.d.Fatalf(s.t, "the key of node %d is void already", node)
	}
}

func (s *script) verify() {
	for i := range s.mem {
		if !bytes.Equal(s.mem[i], s.want[i]) {
			at := 0
			for s.mem[i][at] == s.want[i][at] {
				at++
			}
			s.t.Errorf("memory of node %d is wrong from byte %d on", i, at)
		}
	}
	for _, r := range s.reads {
		if r.at+len(r.local) <= len(s.want[r.node]) && !bytes.Equal(r.local, s.want[r.node][r.at:r.at+len(r.local)]) {
			s.t.Errorf("a read of %d bytes at %d of node %d brought others", len(r.local), r.at, r.node)
		}
	}
	s.printf("memory is as it should be")
}
