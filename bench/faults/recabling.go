package faults

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/daemon"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/lab"
	"multiedge/internal/wire"
	"multiedge/linkdrv"
)

// Cables are swapped while no carrier changes, and a stranger announces a swap falsely.

// replaceTime is how soon a path whose cable was moved must be replaced; pingTime is how soon a peer must answer a
// ping.
const (
	replaceTime = 2 * time.Second
	pingTime    = 5 * time.Second
)

func recablingScenarios() []Scenario {
	criteria := "connections stay up; the peer answers a ping within 5 s; every path is replaced within 2 s"
	return []Scenario{
		{Name: "cables swapped at rest", Group: Network, Criteria: criteria, Short: true, Set: switched,
			Run: func(t *Trial) { t.recabled(false) }},
		{Name: "cables swapped under load", Group: Network, Criteria: criteria + "; no stall exceeds 2 s",
			Short: true, Set: switched,
			Run: func(t *Trial) { t.recabled(true) }},
	}
}

func poisonedHello() Scenario {
	return Scenario{
		Name: "four forged hellos, cables crossed", Group: Adversary,
		Criteria: "the peer answers a ping within 5 s; every path is found within 2 s", Short: true, Set: switched,
		Run: poisoned,
	}
}

func switched(s *kit.ClusterSpec) {
	s.Lab.Links, s.Lab.Medium, s.Lab.Rates = 2, lab.Switch, []string{linkRate}
}

// ping makes a host's daemon ping the other, as edgectl ping does, and returns the time. It returns false if no answer
// came in time.
func (t *Trial) ping(host int) (time.Duration, bool) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.ctx, pingTime+time.Second)
	defer cancel()
	body, err := ipc.Ask(ctx, t.cluster.Socket(host), ipc.Message{Kind: ipc.KindPing,
		Peer: t.cluster.Lab().Host(1 - host).Name(), Timeout: pingTime, Count: 1})
	var report daemon.PingReport
	ok := err == nil && json.Unmarshal(body, &report) == nil && len(report.Results) == 1 &&
		report.Results[0].Status == "ok"
	return time.Since(start), ok
}

// led reports whether both paths of both hosts are good and crossed or straight, as asked.
func (t *Trial) led(crossed bool) bool {
	return t.allGood(func(link int, p *inspect.PathStatus) bool { return (p.PeerLink != link) == crossed })
}

// recabled swaps the cables of host 1 several times. It judges the transfer that runs meanwhile (load), or the one that
// resumes afterwards.
func (t *Trial) recabled(load bool) {
	c := t.pair(MixRandom, 2, 8)
	var s swaps
	if !load {
		w := t.drain(c)
		s.windows = append(s.windows, w)
	}
	for k := range t.many(6, 3) {
		t.swap(c, load, k%2 == 0, &s)
	}
	if load {
		t.ms("longest stall", s.stall)
		t.check("nothing completes for 2 s at most", s.stuck == 0, "%d times longer, at most %v", s.stuck, s.stall)
	} else {
		call[any](c, "resume", nil)
		t.flowing(c, pingTime)
	}
	w := t.drain(c)
	t.unfailed(append(s.windows, w)...)
	t.row.Measured["operations"] = float64(w.Ops)
	t.ms("longest ping", s.ping)
	t.ms("longest until both paths were replaced", s.paths)
	t.check("the peer answers a ping within 5 s", s.dark == 0, "%d times not", s.dark)
	t.check("every path is replaced within 2 s", s.late == 0, "%d times not", s.late)
}

// swaps sums up all swaps of a row.
type swaps struct {
	windows            []*Window
	ping, paths, stall time.Duration // the longest
	dark, late, stuck  int           // swaps after which ping, paths or completions took too long
}

// swap swaps the cables of host 1 once. Afterwards the paths must be crossed or straight, as asked. It adds its
// measurements to s.
func (t *Trial) swap(c *agent, load, crossed bool, s *swaps) {
	if load {
		t.mark(c, "before")
	} else {
		t.pause(t.span(time.Second, 300*time.Millisecond))
	}
	kit.Check(t.cluster.Lab().Swap(1, 0, 1))
	swapped := time.Now()
	t.injected("swaps", 1)
	replaced, ok := t.event(replaceTime, func() bool { return t.led(crossed) })
	if s.paths = max(s.paths, replaced); !ok {
		s.late++
	}
	took, ok := t.ping(0)
	if s.ping = max(s.ping, took); !ok {
		s.dark++
	}
	if !load {
		return
	}
	// a shorter window might see no completion although operations go on
	t.pause(replaceTime + 200*time.Millisecond - time.Since(swapped))
	w := t.mark(c, "swapped")
	s.windows = append(s.windows, w)
	if s.stall = max(s.stall, w.Stall); w.Stall > replaceTime {
		s.stuck++
	}
}

// poison sends a forged Hello on each link of a host, in the host's name. The Hello claims to come from the other link.
func (t *Trial) poison(host int) {
	key := kit.Get(identity.ReadKey(fmt.Sprintf("%s/h%d.key", t.cluster.Dir(), host)))
	h := t.cluster.Lab().Host(host)
	for link, name := range h.LinkNames() {
		named := 1 - link
		hello := wire.Hello{Node: key.Public().Node(), Epoch: 1, Flags: wire.HelloSecure, Link: uint8(named),
			RxSlots: 256, MTU: 9000, Name: []byte(h.Name())}
		b := append([]byte{255, 255, 255, 255, 255, 255}, h.MAC(named)...)
		b = binary.BigEndian.AppendUint16(b, uint16(linkdrv.EtherType))
		b = append(b, make([]byte, wire.FixedLen)...)
		body := hello.AppendTo(nil)
		wire.Finish(b[wire.EthLen:], &wire.Header{Type: wire.TypeHello, Path: uint8(named)}, body)
		kit.Check(h.Do(func() error {
			drv, err := linkdrv.Open(name, linkdrv.Options{Kind: linkdrv.KindAlone})
			if err != nil {
				return err
			}
			defer drv.Close()
			if n, err := drv.Send([]linkdrv.TxFrame{{Head: append(b, body...)}}); n != 1 {
				return fmt.Errorf("a forged Hello was not sent: %w", err)
			}
			return nil
		}))
		t.injected("forged hellos", 1)
	}
}

// poisoned crosses the cables, and a stranger announces the opposite. A daemon that knows nothing and one that does
// must then find each other.
func poisoned(t *Trial) {
	kit.Check(t.cluster.Lab().Swap(1, 0, 1))
	t.serve(1, "store")
	for h := range 2 {
		t.poison(h)
	}
	took, ok := t.ping(0)
	t.ms("ping", took)
	t.check("the peer answers a ping within 5 s", ok, "not after %v", took)
	took, ok = t.event(replaceTime, func() bool { return t.led(true) })
	t.ms("both paths", took)
	t.check("every path is found within 2 s", ok, "not after %v", took)
	c := t.work("store", MixRandom, 2, 8)
	t.flowing(c, pingTime)
	t.mark(c, "before")
	for h := range 2 {
		t.poison(h)
	}
	w := t.measure(c, "poisoned again", t.span(2*time.Second, 500*time.Millisecond))
	rest := t.drain(c)
	t.unfailed(w, rest)
	t.check("the paths stay where they are", t.led(true), "they do not")
}
