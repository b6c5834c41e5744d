package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/hostile"
	"multiedge/bench/kit"
	"multiedge/internal/ipc"
)

// The whole daemon under faults of its files, its configuration, its quotas and its control socket at once, while
// clients move data.
const (
	mutes    = 16          // clients that ask for lists and never read the answers
	wholeMin = time.Second // the longest time without a completion
	// share of the goodput beside equal misuse of two other daemons
	wholeShare = 0.3
)

// brokenPeers returns contents that a peers file may have while somebody edits it. The daemon must accept none.
func brokenPeers(good string) []string {
	at := strings.LastIndexByte(strings.TrimRight(good, "\n"), '\n') + 1 // the last line: KEY NAME
	return []string{good[:at+20], good + "nonsense\n", strings.Repeat("\x00", 4096), "", good[:at] + "=" + good[at:],
		good + strings.Repeat("x", 1<<20)}
}

// brokenConfigs returns such contents of a configuration. The last is valid, and leaves new clients no memory.
func brokenConfigs(good string) []string {
	return []string{good[:strings.IndexByte(good, '"')+2], "nonsense = 1\n" + good, "\x00\xff",
		good + "[[link]]\nname = \"edge0\"\n", strings.Replace(good, "[limits]\n", "[limits]\npinned = 4096\n", 1)}
}

// abuse is the misuse beside the transfer, and its counts.
type abuse struct {
	reloads, refused, believed, junk, asked atomic.Uint64
	all                                     sync.WaitGroup
}

// files breaks the files of a host's daemon repeatedly and makes the daemon read them.
func (a *abuse) files(ctx context.Context, t *Trial, host int, peers, config string) {
	file, socket := t.cluster.PeersFile(host), t.cluster.Socket(host)
	for i := 0; ctx.Err() == nil; i++ {
		p, c := brokenPeers(peers), brokenConfigs(config)
		_ = put(configFile(socket), c[i%len(c)])
		_ = t.cluster.Daemon(host).Signal(reloadSignal)
		_ = put(file, p[i%len(p)])
		a.reloads.Add(1)
		if err := reloadPeers(ctx, socket); err == nil {
			a.believed.Add(1)
		} else if _, typed := err.(*ipc.Error); typed {
			a.refused.Add(1)
		}
	}
}

// put replaces a file as a whole.
func put(file, text string) error {
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// reloadPeers asks a daemon to read its peers again.
func reloadPeers(ctx context.Context, socket string) error {
	_, err := ipc.Ask(ctx, socket, ipc.Message{Kind: ipc.KindReload})
	return err
}

// babble sends malformed or truncated messages to a daemon and leaves.
func (a *abuse) babble(ctx context.Context, socket string) {
	texts := [][]byte{[]byte(`{"id":1,"kind":"hel`), {0}, []byte(strings.Repeat("x", 100<<10)),
		[]byte(`{"id":1,"kind":"register","size":-1}`), []byte(`{"id":1,"kind":"hello","depth":1e9}`)}
	for i := 0; ctx.Err() == nil; i++ {
		if s, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"}); err == nil {
			if _, err := s.Write(texts[i%len(texts)]); err == nil {
				a.junk.Add(1)
			}
			s.Close()
		}
		sleep(ctx, time.Millisecond)
	}
}

// mute asks for every list and reads no answer.
func (a *abuse) mute(ctx context.Context, socket string) {
	conn, err := ipc.Dial(ctx, socket)
	if err != nil {
		return
	}
	defer conn.Close()
	for i := uint64(1); ctx.Err() == nil; i++ {
		what := []string{"status", "conn", "peer", "region", "client", "link"}[i%6]
		within, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if conn.SendContext(within, &ipc.Message{ID: i, Kind: ipc.KindStatus, What: what}) == nil {
			a.asked.Add(1)
		}
		cancel()
	}
}

// originals are a host's files as they should be.
type originals struct{ peers, config string }

// begin starts all misuse of the daemons of some hosts. The misuse ends with ctx.
func (a *abuse) begin(ctx context.Context, t *Trial, hosts []int, good []originals) {
	for _, h := range hosts {
		socket := t.cluster.Socket(h)
		a.all.Go(func() { a.files(ctx, t, h, good[h].peers, good[h].config) })
		a.all.Go(func() { a.babble(ctx, socket) })
		for range mutes / 2 {
			a.all.Go(func() { a.mute(ctx, socket) })
		}
		a.all.Go(func() {
			_, _ = hostile.Run(ctx, hostile.Options{Mode: "control", Seed: t.seed, Again: true,
				Dial: func(ctx context.Context) (*ipc.Conn, error) { return ipc.Dial(ctx, socket) }})
		})
	}
}

// misused measures a client while the daemons of some hosts are misused.
func (t *Trial) misused(c *agent, a *abuse, hosts []int, good []originals) *Window {
	during, stop := context.WithTimeout(t.ctx, scenarioTime)
	defer a.all.Wait()
	defer stop()
	a.begin(during, t, hosts, good)
	return t.measure(c, "misused", t.span(1500*time.Millisecond, time.Second))
}

// wholeHosts adds two hosts whose daemons the transfer does not use.
func wholeHosts(s *kit.ClusterSpec) { s.Lab.Hosts = 4 }

// wholeDaemon misuses, by turns, the daemons that the transfer uses and two that it does not use. Both cost the machine
// the same.
func wholeDaemon(t *Trial) {
	c := t.pair(MixRandom, 2, 8)
	var good []originals
	for h := range t.cluster.Lab().Hosts() {
		text := kit.Get(os.ReadFile(t.cluster.PeersFile(h)))
		good = append(good, originals{string(text), t.cluster.Config(h)})
	}
	var x turns
	other, a := &abuse{}, &abuse{}
	for range t.many(turnsJudged, 1) {
		clean := t.misused(c, other, []int{2, 3}, good)
		with := t.misused(c, a, []int{0, 1}, good)
		x.clean, x.with = append(x.clean, clean), append(x.with, with)
	}
	t.injected("broken files read", a.reloads.Load())
	t.injected("malformed control messages", a.junk.Load())
	t.injected("requests with unread answers", a.asked.Load())
	t.counted("peers files refused", a.refused.Load())
	t.ms("stall", x.stall())
	t.unfailed(x.all()...)
	t.check("no broken peers file is accepted", a.believed.Load()+other.believed.Load() == 0, "%d were",
		a.believed.Load()+other.believed.Load())
	t.check(fmt.Sprintf("the transfer goes on, no stall of %v", wholeMin), x.goesOn() && x.stall() < wholeMin,
		"stall %v", x.stall())
	t.share("goodput ratio", fmt.Sprintf("goodput at least %.0f %% of that beside misuse of other daemons",
		100*wholeShare), x.ratio(), wholeShare)
	if a.refused.Load() == 0 || a.junk.Load() == 0 || a.asked.Load() == 0 {
		t.row.U[3].fail("refused %d, junk %d, asked %d: a kind of fault is missing", a.refused.Load(), a.junk.Load(),
			a.asked.Load())
	}
	for h := range good { // valid files are accepted again
		kit.Check(put(t.cluster.PeersFile(h), good[h].peers))
		kit.Check(put(configFile(t.cluster.Socket(h)), good[h].config))
		kit.Check(t.cluster.Daemon(h).Signal(reloadSignal))
		kit.Check(reloadPeers(t.ctx, t.cluster.Socket(h)))
	}
	t.reuse() // new clients and connections are served
}
