package faults

import (
	"fmt"
	"time"

	"multiedge/bench/kit"
	"multiedge/internal/config"
	"multiedge/internal/lab"
)

// shapedRate limits wires where goodput with a fault is compared with goodput without. Two processors carry more than
// that, so the fault, not the machine, decides.
const shapedRate = "1gbit"

func shaped(s *kit.ClusterSpec) { s.Lab.Rates = []string{shapedRate} }

// before holds the counts at the start of an injection.
type before struct {
	daemons map[string]uint64
	lab     lab.Counters
}

func (t *Trial) count() before {
	return before{t.daemonCounters(), t.labCounters()}
}

// quiet waits until everything on the wires has arrived: the counts of frames that wires received and daemons sent no
// longer change.
func (t *Trial) quiet() {
	last := t.labCounters()
	t.event(2*time.Second, func() bool {
		if !sleep(t.ctx, 40*time.Millisecond) {
			return true
		}
		now := t.labCounters()
		still := now.Received-last.Received <= 1
		last = now
		return still
	})
}

// since returns what daemons and wires counted since b. It judges that every frame is accounted for: frames sent and
// not received since the daemons started equal the frames that the wires took away. It does not count from b on, since
// the counters of two working hosts cannot be read at one moment.
func (t *Trial) since(b before) (d map[string]uint64, l lab.Counters) {
	t.quiet()
	now := t.count()
	all, w := now.daemons, now.lab
	taken := w.Lost + w.Cut + w.Overflow + w.Missed + all["kernel_dropped"] + all["send_discards"]
	missing := all["frames_sent"] + w.Duplicated - min(all["frames_received"], all["frames_sent"]+w.Duplicated)
	t.counted("frames that did not arrive", missing)
	t.agrees("frames that did not arrive", missing, taken, 32+taken/100+w.Outer)
	return less(now.daemons, b.daemons), now.lab.Less(b.lab)
}

// everywhere injects the same faults on every link.
func everywhere(f lab.Faults) func(*Trial) { return func(t *Trial) { t.setFaults(f) } }

// under compares what a client does with and without faults on every link.
type under struct {
	turns
	base, did map[string]uint64 // daemons' counters without faults, and with them
	wires     lab.Counters
}

// under injects faults beside a client of its own for a time d in all: in one turn, or in several where goodput is
// judged.
func (t *Trial) under(mix string, conns, depth int, inject func(*Trial), d time.Duration, rounds int) *under {
	c := t.pair(mix, conns, depth)
	u := under{base: map[string]uint64{}}
	begin := t.count()
	for i := range rounds {
		was := t.count()
		t.turn(c, &u.turns, d/time.Duration(rounds), func() {
			for k, n := range less(t.count().daemons, was.daemons) {
				u.base[k] += n
			}
			inject(t)
		})
		if i < rounds-1 {
			t.setFaults(lab.Faults{})
			t.pause(healTime)
		}
	}
	rest := t.drain(c) // the fault is still injected: operations in flight must end under it
	t.unfailed(append(u.all(), rest)...)
	all, wires := t.since(begin)
	u.did, u.wires = less(all, u.base), wires
	t.row.Measured["clean Gbit/s"] = u.cleanRate() * 8 / 1e9
	t.row.Measured["goodput ratio"] = u.ratio()
	t.ms("stall", u.stall())
	t.ms("p99", u.p99())
	t.setFaults(lab.Faults{})
	return &u
}

// healTime is the pause after faults have ended and before a client's clean goodput is measured. Lost frames are sent
// again meanwhile.
const healTime = 50 * time.Millisecond

// frames judges how many frames carried the payload. Both numbers are the daemons'. A client's window begins at its
// mark, and misses what daemons send between their count and that mark: a tenth of all frames in the short form, more
// on a busy machine.
func (t *Trial) frames(u *under, p float64) {
	perByte := func(d map[string]uint64) float64 {
		return float64(d["data_frames_sent"]) / float64(max(d["payload_received"], 1))
	}
	ratio := perByte(u.did) / max(perByte(u.base), 1e-12)
	t.row.Measured["frames sent per frame needed"] = ratio
	t.check(fmt.Sprintf("frames sent at most %.3g times the fewest possible", framesMost(p)), ratio <= framesMost(p),
		"%.3g", ratio)
}

func (t *Trial) goodput(u *under, floor float64) {
	if floor > 0 {
		t.share("goodput ratio", fmt.Sprintf("goodput at least %.0f %% of that without loss", 100*floor), u.ratio(),
			floor)
	}
}

// wires is a scenario that injects faults beside a client and judges what that came to.
type wires struct {
	mix         string
	faults      lab.Faults
	full, short time.Duration // in all
	turns       int           // in the full form, where goodput is judged; 0: one
	judge       func(t *Trial, u *under)
}

func (w wires) run(t *Trial) {
	rounds := 1
	if w.turns > 0 {
		rounds = t.many(w.turns, 1)
	}
	w.judge(t, t.under(w.mix, 2, 8, everywhere(w.faults), t.span(w.full, w.short), rounds))
}

// loss loses a share of the frames, singly or in bursts.
func loss(p float64, burst int, short bool) Scenario {
	name, floor := fmt.Sprintf("loss %g %%", 100*p), lossFloor(p)
	criteria := "at loss p, at most 1.3/(1-p) times the fewest possible frames are sent"
	if burst > 1 {
		name, floor = name+fmt.Sprintf(" in bursts of %d", burst), 0
	}
	// Frames for each byte depend on the sizes of the messages, too: the short form is long enough for enough of them.
	w := wires{mix: MixBulk, faults: lab.Faults{Loss: p, Burst: burst}, full: 3 * time.Second, short: 2 * time.Second}
	if floor > 0 {
		criteria += fmt.Sprintf("; goodput is at least %.0f %% of that without loss", 100*floor)
		w.turns = turnsJudged
	}
	w.judge = func(t *Trial, u *under) {
		t.injected("lost", u.wires.Lost)
		t.counted("judged lost", u.did["frames_lost"])
		t.counted("spurious", u.did["spurious_losses"])
		t.frames(u, p)
		t.goodput(u, floor)
		real := u.did["frames_lost"] - min(u.did["frames_lost"], u.did["spurious_losses"])
		if real > u.wires.Lost+u.dropped()+16 {
			t.row.U[3].fail("%d frames were judged lost and never acknowledged, the wire lost %d", real, u.wires.Lost)
		}
	}
	return Scenario{Name: name, Group: Network, Criteria: criteria, Short: short, Set: shaped, Run: w.run}
}

// dropped is how many frames were taken by others than the faults.
func (u *under) dropped() uint64 { return u.wires.Overflow + u.wires.Missed + u.did["kernel_dropped"] }

// duplication delivers a share of frames twice.
func duplication(p float64, short bool) Scenario {
	return Scenario{Name: fmt.Sprintf("duplication %g %%", 100*p), Group: Network, Short: short,
		Criteria: "the daemons count as many duplicates as were injected",
		Run: wires{MixRandom, lab.Faults{Dup: p}, 2 * time.Second, 400 * time.Millisecond, 0, func(t *Trial, u *under) {
			t.injected("duplicated", u.wires.Duplicated)
			t.counted("duplicates", u.did["frames_duplicated"])
			t.agrees("duplicates", u.did["frames_duplicated"], u.wires.Duplicated, setupFrames+u.dropped())
		}}.run}
}

// setupFrames is how many of the injected frames in a scenario may have no packet number. Most of these are Hellos.
const setupFrames = 24

// corruption flips a bit in a share of frames.
func corruption(p float64, short bool) Scenario {
	return Scenario{Name: fmt.Sprintf("corruption %g %%", 100*p), Group: Network, Short: short,
		Criteria: "no byte is wrong; the daemons reject as many frames as were corrupted; connections stay up",
		Run: wires{MixRandom, lab.Faults{Corrupt: p}, 2 * time.Second, 400 * time.Millisecond, 0,
			func(t *Trial, u *under) {
				t.injected("corrupted", u.wires.Corrupted)
				// A sealed frame whose packet number was changed to one that was seen is turned away as a duplicate,
				// one with another session's number as unknown.
				turned := rejected(u.did) + u.did["frames_duplicated"] + u.did["unknown_session"]
				t.counted("rejected", turned)
				t.agrees("rejected", turned, u.wires.Corrupted, setupFrames+u.dropped()+u.wires.Outer)
			}}.run}
}

// spuriousMost is the share of frames that may be retransmitted in vain.
const spuriousMost = 0.02

// reordering holds frames back, or gives two links different delays.
func reordering(name string, short bool, set func(*kit.ClusterSpec), inject func(t *Trial),
	held func(u *under) uint64) Scenario {
	return Scenario{Name: name, Group: Network,
		Criteria: "no frame is wrongly dropped as a replay; spurious retransmissions are at most 2 % of frames",
		Short:    short, Set: set,
		Run: func(t *Trial) {
			u := t.under(MixBulk, 2, 8, inject, t.span(3*time.Second, 600*time.Millisecond), 1)
			t.injected("held back", held(u))
			t.counted("out of sequence", u.did["frames_reordered"])
			share := float64(u.did["spurious_losses"]) / float64(max(u.did["data_frames_sent"], 1))
			t.row.Measured["spurious share"] = share
			t.check("no frame is wrongly dropped as a replay", u.did["frames_duplicated"] == 0,
				"%d frames dropped as seen before", u.did["frames_duplicated"])
			t.check("spurious retransmissions at most 2 %", share <= spuriousMost, "%.2f %%", 100*share)
		}}
}

// shuffled makes daemons with copy = "shuffle" (PROTOCOL clause 2.6) carry random operations over wires that lose,
// repeat, reorder and damage frames. Bytes that replace their headers in the wrong place, or twice, show as wrong bytes
// in memory. Sealed frames are not shuffled, so frames are in plaintext; only checksums detect damage.
func shuffled() Scenario {
	faults := lab.Faults{Loss: 0.01, Dup: 0.02, Reorder: 0.05, Corrupt: 0.005}
	return Scenario{
		Name: "header shuffle under mixed faults", Group: Network, Criteria: "frames arrive with shuffled headers",
		Short: true,
		Set: func(s *kit.ClusterSpec) {
			s.Lab.Links, s.Copy, s.Security, s.Checksum = 2, config.CopyShuffle, config.Plaintext, "full"
		},
		Run: wires{MixRandom, faults, 3 * time.Second, 500 * time.Millisecond, 0, func(t *Trial, u *under) {
			t.injected("lost", u.wires.Lost)
			t.injected("duplicated", u.wires.Duplicated)
			t.injected("reordered", u.wires.Reordered)
			t.injected("corrupted", u.wires.Corrupted)
			n := u.did["frames_shuffled"]
			t.counted("frames shuffled", n)
			t.check("frames arrive shuffled", n > 0, "%d", n)
		}}.run,
	}
}
