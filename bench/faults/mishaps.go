package faults

import (
	"context"
	"syscall"
	"time"

	"multiedge/internal/lab"
)

// mishap is one fault of a soak.
type mishap struct {
	name        string
	least, most time.Duration // how long it lasts
	restarts    bool          // a daemon
	mute        bool          // clients do not answer meanwhile
	do, undo    func(ctx context.Context, s *soak) error
}

// mishaps are the faults from which a soak chooses. The faults of wires are drawn anew each time.
var mishaps = []mishap{
	{name: "faulty wire", least: time.Second, most: 4 * time.Second, do: faultyWire, undo: cleanWire},
	{name: "faulty wires", least: time.Second, most: 4 * time.Second, do: faultyWires, undo: cleanWire},
	{name: "narrow wire", least: time.Second, most: 3 * time.Second, do: narrowWire, undo: cleanWire},
	{name: "cut link", least: 500 * time.Millisecond, most: 3 * time.Second, do: cutLink, undo: healLinks},
	{name: "cut in one direction", least: 500 * time.Millisecond, most: 3 * time.Second, do: cutOneWay,
		undo: healLinks},
	{name: "all links cut", least: 300 * time.Millisecond, most: 2 * time.Second, do: func(_ context.Context,
		s *soak) error {
		return s.cutAll(true)
	}, undo: healLinks},
	{name: "all links cut beyond the dead time", least: soakDead + time.Second, most: soakDead + 2*time.Second,
		do: func(_ context.Context, s *soak) error { return s.cutAll(true) }, undo: healLinks},
	{name: "NIC down", least: 300 * time.Millisecond, most: 2 * time.Second, do: func(_ context.Context,
		s *soak) error {
		return s.link(1).SetDown(0)
	}, undo: func(_ context.Context,
		s *soak) error {
		return s.link(1).SetUp(0)
	}},
	{name: "NIC deleted", least: 300 * time.Millisecond, most: 2 * time.Second, do: func(_ context.Context,
		s *soak) error {
		return s.link(1).Delete(1)
	}, undo: func(_ context.Context,
		s *soak) error {
		return s.link(1).Recreate(1)
	}},
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

func faultyWire(_ context.Context, s *soak) error { return s.link(s.rng.IntN(2)).SetFaults(s.mix()) }

func faultyWires(_ context.Context, s *soak) error {
	for i := range 2 {
		if err := s.link(i).SetFaults(s.mix()); err != nil {
			return err
		}
	}
	return nil
}

func narrowWire(_ context.Context, s *soak) error {
	return s.link(s.rng.IntN(2)).SetFaults(lab.Faults{Longest: 1500})
}

func cleanWire(_ context.Context, s *soak) error { return s.setFaults(lab.Faults{}) }

func cutLink(_ context.Context, s *soak) error { return s.link(s.rng.IntN(2)).Cut(true) }

func cutOneWay(_ context.Context, s *soak) error {
	return s.link(s.rng.IntN(2)).CutTowards(s.rng.IntN(2), true)
}

func healLinks(_ context.Context, s *soak) error { return s.cutAll(false) }

func signalClient(sig syscall.Signal) func(context.Context, *soak) error {
	return func(_ context.Context, s *soak) error { return s.forward.proc.Signal(sig) }
}

const unpinLongest = "memory of a killed client unpinned after ms, at most"

// killClient kills the client of host 0 with operations in flight. Nobody can claim any more what it wrote last.
func killClient(ctx context.Context, s *soak) error {
	if err := s.verify(ctx); err != nil { // the claims that it has handed in so far
		return err
	}
	s.forward.kill()
	took, ok := s.event(ctx, unpinTime, func() bool {
		st, err := s.status(ctx, 0)
		return err == nil && st.PinnedBytes <= s.backPinned(ctx) // which changes, when its connections come and go
	})
	if !ok {
		s.row.U[2].fail("memory of a killed client is pinned after %v", took)
	}
	s.row.Measured[unpinLongest] = max(s.row.Measured[unpinLongest], float64(took.Microseconds())/1e3)
	return nil
}

// backPinned returns the bytes that the server of host 0 has pinned there.
func (s *soak) backPinned(ctx context.Context) uint64 {
	regions, err := s.regions(ctx, 0)
	if err != nil {
		return 0
	}
	sum := uint64(0)
	for _, r := range regions {
		if int(r.PID) != s.forward.proc.Pid() {
			sum += uint64(r.Bytes)
		}
	}
	return sum
}

func newClient(ctx context.Context, s *soak) (err error) {
	for _, server := range s.servers {
		if server.job.Service == "store" {
			if err := server.tell(Order{Do: DoForget, Name: s.forward.job.Name}); err != nil {
				return err
			}
		}
	}
	s.forward, err = s.work(ctx, "store", MixRandom, 2, 8)
	return err
}

func killOneDaemon(_ context.Context, s *soak) error {
	h := s.rng.IntN(2)
	s.killDaemon(h)
	return nil
}

func startDaemons(ctx context.Context, s *soak) error {
	for h := range 2 {
		if !s.cluster.Daemon(h).HasEnded() {
			continue
		}
		if err := s.cluster.StartDaemon(ctx, h); err != nil {
			return err
		}
		s.starts[h]++
		if _, err := s.settled(ctx, h); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return s.flowing(ctx, s.forward, 10*time.Second)
}
