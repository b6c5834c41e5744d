package faults

import (
	"syscall"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// mishap is one fault of a soak.
type mishap struct {
	name        string
	least, most time.Duration // how long it lasts
	restarts    bool          // a daemon
	mute        bool          // clients do not answer meanwhile
	do, undo    func(s *soak)
}

// mishaps are the faults from which a soak chooses. The faults of wires are drawn anew each time.
var mishaps = []mishap{
	{name: "faulty wire", least: time.Second, most: 4 * time.Second, do: faultyWire, undo: cleanWire},
	{name: "faulty wires", least: time.Second, most: 4 * time.Second, do: faultyWires, undo: cleanWire},
	{name: "narrow wire", least: time.Second, most: 3 * time.Second, do: narrowWire, undo: cleanWire},
	{name: "cut link", least: 500 * time.Millisecond, most: 3 * time.Second, do: cutLink, undo: healLinks},
	{name: "cut in one direction", least: 500 * time.Millisecond, most: 3 * time.Second, do: cutOneWay,
		undo: healLinks},
	{name: "all links cut", least: 300 * time.Millisecond, most: 2 * time.Second, do: cutLinks, undo: healLinks},
	{name: "all links cut beyond the dead time", least: soakDead + time.Second, most: soakDead + 2*time.Second,
		do: cutLinks, undo: healLinks},
	{name: "NIC down", least: 300 * time.Millisecond, most: 2 * time.Second,
		do:   func(s *soak) { kit.Check(s.link(1).SetDown(0)) },
		undo: func(s *soak) { kit.Check(s.link(1).SetUp(0)) }},
	{name: "NIC deleted", least: 300 * time.Millisecond, most: 2 * time.Second,
		do:   func(s *soak) { kit.Check(s.link(1).Delete(1)) },
		undo: func(s *soak) { kit.Check(s.link(1).Recreate(1)) }},
	{name: "client stopped", least: 300 * time.Millisecond, most: 2 * time.Second, mute: true,
		do: signalClient(syscall.SIGSTOP), undo: signalClient(syscall.SIGCONT)},
	{name: "client killed", least: 100 * time.Millisecond, most: 300 * time.Millisecond, mute: true, do: killClient,
		undo: newClient},
	{name: "daemon restarted", least: 100 * time.Millisecond, most: time.Second, restarts: true, mute: true,
		do: killOneDaemon, undo: startDaemons},
}

func (s *soak) link(i int) *lab.Link { return s.cluster.Lab().Link(i) }

// mix draws faults of a wire.
func (s *soak) mix() lab.Faults {
	r := s.rng.Float64
	f := lab.Faults{Loss: 0.3 * r() * r(), Corrupt: 0.05 * r(), Dup: 0.2 * r(), Reorder: 0.2 * r(),
		ReorderBy: time.Duration(s.rng.IntN(5)) * time.Millisecond}
	if s.rng.IntN(3) == 0 {
		f.Burst = 3 + s.rng.IntN(30)
	}
	if s.rng.IntN(3) == 0 {
		f.Delay = time.Duration(s.rng.IntN(10)) * time.Millisecond
	}
	return f
}

func faultyWire(s *soak) { s.setFaultsOf(s.rng.IntN(2), s.mix()) }

func faultyWires(s *soak) {
	for i := range 2 {
		s.setFaultsOf(i, s.mix())
	}
}

func narrowWire(s *soak) { s.setFaultsOf(s.rng.IntN(2), lab.Faults{Longest: 1500}) }

func cleanWire(s *soak) { s.setFaults(lab.Faults{}) }

func cutLink(s *soak) { kit.Check(s.link(s.rng.IntN(2)).Cut(true)) }

func cutOneWay(s *soak) { kit.Check(s.link(s.rng.IntN(2)).CutTowards(s.rng.IntN(2), true)) }

func cutLinks(s *soak) { s.cutAll(true) }

func healLinks(s *soak) { s.cutAll(false) }

func signalClient(sig syscall.Signal) func(*soak) {
	return func(s *soak) { kit.Check(s.forward.proc.Signal(sig)) }
}

const unpinLongest = "memory of a killed client unpinned after ms, at most"

// killClient kills the client of host 0 with operations in flight. Nobody can claim any more what it wrote last.
func killClient(s *soak) {
	s.verify() // the claims that it has handed in so far
	s.forward.kill()
	took, ok := s.event(unpinTime, func() bool {
		return s.status(0).PinnedBytes <= s.backPinned() // which changes, when its connections come and go
	})
	if !ok {
		s.row.U[2].fail("memory of a killed client is pinned after %v", took)
	}
	s.row.Measured[unpinLongest] = max(s.row.Measured[unpinLongest], float64(took.Microseconds())/1e3)
}

// backPinned returns the bytes that the server of host 0 has pinned there.
func (s *soak) backPinned() uint64 {
	sum := uint64(0)
	for _, r := range s.regions(0) {
		if int(r.PID) != s.forward.proc.Pid() {
			sum += uint64(r.Bytes)
		}
	}
	return sum
}

func newClient(s *soak) {
	for _, server := range s.servers {
		if server.job.Service == "store" {
			server.tell(Order{Do: DoForget, Name: s.forward.job.Name})
		}
	}
	s.forward = s.work("store", MixRandom, 2, 8)
}

func killOneDaemon(s *soak) { s.killDaemon(s.rng.IntN(2)) }

func startDaemons(s *soak) {
	for h := range 2 {
		if !s.cluster.Daemon(h).HasEnded() {
			continue
		}
		s.startDaemon(h)
		s.starts[h]++
		_ = kit.Try(func() { s.settled(h) }) // it may be at work all the while
		kit.Check(s.ctx.Err())
	}
	s.flowing(s.forward, 10*time.Second)
}
