package daemon

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/shard"
	"multiedge/linkdrv"
)

// Where peers are reached over IP. The engine takes addresses; names are looked up here, beside the packet path, and
// again while there is no session with the peer: it may have got another address.

const (
	resolveEvery = 10 * time.Second // between two lookups of a peer's names
	resolveTime  = 3 * time.Second  // for one of them
)

// endpoints is what is known of them.
type endpoints struct {
	kicks  chan struct{} // the authorised peers are others now
	shown  map[engine.NodeID][]linkdrv.Addr
	failed map[string]bool         // endpoints whose latest lookup failed: the log has said so
	found  map[string][]netip.Addr // of each endpoint, by the latest lookup that did not fail
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func newEndpoints() endpoints {
	return endpoints{kicks: make(chan struct{}, 1), shown: map[engine.NodeID][]linkdrv.Addr{},
		failed: map[string]bool{}, found: map[string][]netip.Addr{}, lookup: net.DefaultResolver.LookupNetIP}
}

// kick has the addresses of all peers found anew.
func (e *endpoints) kick() {
	select {
	case e.kicks <- struct{}{}:
	default: // it will be
	}
}

// followEndpoints tells the shards where peers are, until ctx ends.
func (d *Daemon) followEndpoints(ctx context.Context) {
	t := time.NewTicker(resolveEvery)
	defer t.Stop()
	for all := true; ; {
		d.findEndpoints(ctx, all)
		all = false
		select {
		case <-ctx.Done():
			return
		case <-d.trust.endpoints.kicks:
			all = true
		case <-t.C:
		}
	}
}

// findEndpoints finds the addresses of peers: of all, or of those with names and without a session. Names come last,
// since name servers may keep us waiting, and only until the peers are others.
func (d *Daemon) findEndpoints(ctx context.Context, all bool) {
	there, e := map[engine.NodeID]bool{}, &d.trust.endpoints
	var names []secure.Peer
	for _, p := range d.trust.now.Load().List() {
		if p.Endpoints == "" {
			continue
		}
		there[p.Key.Node()] = true
		if named(p) {
			names = append(names, p)
		} else if all {
			d.showEndpoints(p.Key.Node(), d.addresses(p, nil))
		}
	}
	for id := range e.shown {
		if !there[id] {
			d.showEndpoints(id, nil)
		}
	}
	if !all {
		names = slices.DeleteFunc(names, func(p secure.Peer) bool { return d.found(p.Key.Node()) })
	}
	d.lookUp(ctx, names)
}

// mostLookups is how many peers have their names looked up at once: a name server that does not answer for one of them
// keeps few others waiting.
const mostLookups = 16

// answer is what a lookup came to.
type answer struct {
	found []netip.Addr
	err   error
}

// lookUp finds the addresses of peers with names and shows them as they come, until the peers are others.
func (d *Daemon) lookUp(ctx context.Context, peers []secure.Peer) {
	type answered struct {
		of      secure.Peer
		answers []answer
	}
	e := &d.trust.endpoints
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := func() bool { return ctx.Err() != nil || len(e.kicks) > 0 }
	if over() {
		return
	}
	var all sync.WaitGroup
	next, got := make(chan secure.Peer, len(peers)), make(chan answered, len(peers))
	for _, p := range peers {
		next <- p
	}
	close(next)
	for range min(mostLookups, len(peers)) {
		all.Go(func() {
			for p := range next {
				if over() {
					return
				}
				got <- answered{p, e.ask(ctx, p)}
			}
		})
	}
	go func() {
		all.Wait()
		close(got)
	}()
	for {
		select {
		case a, more := <-got:
			if !more || over() {
				return
			}
			d.showEndpoints(a.of.Key.Node(), d.addresses(a.of, a.answers))
		case <-e.kicks: // those under way are not waited for: cancelled, they end by themselves
			e.kick()
			return
		}
	}
}

// ask looks the names among a peer's endpoints up, in their order. It may run beside itself.
func (e *endpoints) ask(ctx context.Context, p secure.Peer) (answers []answer) {
	for text := range strings.SplitSeq(p.Endpoints, ",") {
		if _, err := netip.ParseAddrPort(text); err != nil {
			host, _, _ := net.SplitHostPort(text) // whoever read it has checked it
			short, cancel := context.WithTimeout(ctx, resolveTime)
			found, err := e.lookup(short, "ip", host)
			cancel()
			answers = append(answers, answer{found, err})
		}
	}
	return answers
}

// named reports whether one of a peer's endpoints has to be looked up.
func named(p secure.Peer) bool {
	return slices.ContainsFunc(strings.Split(p.Endpoints, ","), func(text string) bool {
		_, err := netip.ParseAddrPort(text)
		return err != nil
	})
}

// found reports whether there is an open session with a node.
func (d *Daemon) found(id engine.NodeID) (found bool) {
	_ = d.everyShard(func(s *shard.Shard, _ mono.Time) { found = found || s.Engine().Found(id) })
	return found
}

// addresses returns those of a peer, whose names came to these answers. A name that cannot be looked up has those that
// it had last, and the log says so once.
func (d *Daemon) addresses(p secure.Peer, answers []answer) (at []linkdrv.Addr) {
	for text := range strings.SplitSeq(p.Endpoints, ",") {
		if ap, err := netip.ParseAddrPort(text); err == nil {
			at = append(at, linkdrv.IPAddr(ap))
			continue
		}
		_, port, _ := net.SplitHostPort(text)
		number, _ := strconv.ParseUint(port, 10, 16)
		found, err := answers[0].found, answers[0].err
		answers = answers[1:]
		e := &d.trust.endpoints
		switch was := e.failed; {
		case err == nil:
			delete(was, text)
			e.found[text] = found
		case !was[text]:
			was[text] = true
			d.log.Warn("the address of a peer cannot be looked up; will retry", "peer", p.Name, "endpoint", text,
				"error", err)
		}
		if err != nil {
			found = slices.Clone(e.found[text])
		}
		slices.SortFunc(found, netip.Addr.Compare) // name servers turn their answers
		for _, ip := range found[:min(len(found), secure.MaxEndpoints)] {
			if ip = ip.Unmap().WithZone(""); secure.CheckEndpointIP(ip) == nil {
				at = append(at, linkdrv.IPAddr(netip.AddrPortFrom(ip, uint16(number))))
			}
		}
	}
	if allow := d.trust.now.Load().Allow(p.Key.Node()); len(allow) > 0 {
		at = slices.DeleteFunc(at, func(a linkdrv.Addr) bool { return !a.In(allow) })
	}
	return at
}

// showEndpoints tells the shards where a peer is, if that is news.
func (d *Daemon) showEndpoints(id engine.NodeID, at []linkdrv.Addr) {
	known := d.trust.endpoints.shown
	if was, ok := known[id]; ok && slices.Equal(was, at) {
		return
	}
	if known[id] = at; len(at) == 0 {
		delete(known, id)
	}
	_ = d.everyShard(func(s *shard.Shard, now mono.Time) { s.Engine().SetEndpoints(now, id, at) })
}
