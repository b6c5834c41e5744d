package shard

// Frames between drivers and the engine. In: receive has each driver show up to 32 that wait, and the engine handles
// them one by one where they lie. Out: transmit has the engine fill the links' batches, flush sends what is in one with
// one call; what the kernel does not take stays with the link, which the engine knows as blocked until it is gone.

import (
	"errors"
	"slices"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// recvBatch is the most frames one link delivers per iteration, recvUsual how many it delivers if they are long: enough
// to make a system call or a ring scan cheap, few enough for the other links. A quarter of the receive slots is the
// most, since what was delivered takes up its slots until the next Recv.
const (
	recvBatch = 64
	recvUsual = linkdrv.RecvBatch
)

// framesPerRecv is how many frames of a link are taken together: of short ones a whole super-frame, so that it is
// handled, and acknowledged, as one.
func framesPerRecv(link linkdrv.Info) int {
	return max(1, min(max(recvUsual, framesPerSuper(link)), recvBatch, link.RxSlots/4))
}

// retryPause is how long a link that took no more frames is left alone: about a batch's time on the wire.
const retryPause = 20 * time.Microsecond

// Link is the shard's view of one local interface. The shard owns it. The index is the engine's link number and never
// changes while the link is configured.
type Link struct {
	index int
	cfg   config.Link
	raw   linkdrv.Driver // as it was given; nil: closed, because the interface is down or gone
	drv   linkdrv.Driver // the same, or Wrap's
	info  linkdrv.Info   // of drv
	rx    [recvBatch][]byte
	take  int       // of rx, frames of one Recv
	full  int       // Recvs in a row that returned as many as they could
	lent  *receiver // that has the link, or was offered it (receiver.go)

	sources linkdrv.Sourcer // raw, if its frames do not say themselves where they came from

	// For a driver that scatters: forecast places, and frames received there.
	scatter linkdrv.Scatterer
	slots   [recvBatch][]byte
	parts   [recvBatch]linkdrv.RxFrame
	arrived [recvBatch]engine.Arrival // of rx or of parts, for the engine; but for Head empty between two receives

	batch *engine.Batch // which the engine fills; kept for the next driver
	// frames of batch that the kernel has not taken yet; while there are any the engine knows the link as blocked and
	// leaves batch alone
	unsent  []linkdrv.TxFrame
	retryAt mono.Time

	inside   bool // it leads to the shards of this node alone: no configuration has it
	failed   bool // drv reported an error that needs a new driver; the keeper is told once
	opens    uint64
	discards uint64 // frames the driver refused for good, or that were dropped with a closing link
	last     linkdrv.Stats
	lastErr  string
}

// Open reports whether the link has a driver.
func (l *Link) Open() bool { return l.drv != nil }

// AddLink gives a configured link the first free number.
func (s *Shard) AddLink(cfg config.Link) *Link {
	for i := range s.links.byIndex {
		if s.links.byIndex[i] == nil {
			l := &Link{index: i, cfg: cfg}
			s.links.byIndex[i] = l
			s.links.active = append(s.links.active, l)
			return l
		}
	}
	if l := s.links.byIndex[insideLink]; l.inside {
		s.DropDriver(mono.Now(), l)
		s.RemoveLink(l)
		return s.AddLink(cfg)
	}
	panic("BUG: shard: more links than Normalize allows")
}

// insideLink is the number of the link to the shards of the own node, which gives way to the last that can be
// configured.
const insideLink = engine.MaxLinks - 1

// SetInside gives the shard the link to the shards of its node, unless it has it, and returns its address.
func (s *Shard) SetInside(now mono.Time, open func() linkdrv.Driver) (linkdrv.Addr, error) {
	l := s.links.byIndex[insideLink]
	switch {
	case l == nil:
		l = &Link{index: insideLink, cfg: config.Link{Name: "inside"}, inside: true}
		s.links.byIndex[insideLink] = l
		s.links.active = append(s.links.active, l)
		s.SetDriver(now, l, open())
	case !l.inside:
		return linkdrv.Addr{}, ipc.Errorf(ipc.CodeLimit,
			"this node has %d links, and none is left for connections with itself; "+
				"configure one less", engine.MaxLinks)
	}
	return l.info.Addr(), nil
}

// RemoveLink forgets a link that has no driver any more; its number is free for another.
func (s *Shard) RemoveLink(l *Link) {
	s.links.byIndex[l.index] = nil
	for i, other := range s.links.active {
		if other == l {
			s.links.active = slices.Delete(s.links.active, i, i+1)
			return
		}
	}
}

// Configure changes a link's settings; its driver is opened anew by the caller.
func (s *Shard) Configure(l *Link, cfg config.Link) { l.cfg = cfg }

// SetDriver puts a fresh driver in service.
func (s *Shard) SetDriver(now mono.Time, l *Link, drv linkdrv.Driver) {
	s.DropDriver(now, l)
	was := l.info
	l.raw, l.info, l.failed, l.lastErr = drv, drv.Info(), false, ""
	l.sources, _ = drv.(linkdrv.Sourcer)
	clear(l.arrived[:])
	s.wrapLink(l)
	l.take = framesPerRecv(l.info)
	s.countLooks()
	l.opens++
	if n := framesPerBatch(l.info); l.batch == nil || was.MTU != l.info.MTU || cap(l.batch.Frames) != n {
		l.batch = engine.NewBatch(n, l.info.MTU)
		s.links.batches.Set(l.index, l.batch)
	}
	lc := engine.LinkConfig{Name: l.cfg.Name, MTU: l.info.MTU, RxSlots: l.info.RxSlots, Weight: l.cfg.Weight,
		Addr: l.info.Addr(), Super: l.info.Super, Overhead: l.info.Overhead, Below: l.info.Below,
		Ports: l.info.Ports, Inside: l.inside, Congestion: flowctl.IPCongestion(l.cfg.Congestion),
		Group: l.cfg.Congestion + " " + l.cfg.Listen, ECN: l.cfg.ECN == config.ECNAuto}
	if l.info.Pages {
		lc.Shuffle = linkdrv.Split // what precedes a payload
	}
	if err := s.eng.SetLink(now, l.index, lc); err != nil {
		s.log.Error("link cannot be used", "error", err)
		l.lastErr = err.Error()
	}
	if l.inside {
		return
	}
	if s.links.receivers != nil {
		s.links.receivers.expect(l)
	}
	if s.number > 0 {
		return // the first says it for all
	}
	s.log.Info("link up", "link", l.cfg.Name, "mtu", l.info.MTU, "address", l.info.Addr().String(),
		"driver", l.info.Kind, "slots", l.info.RxSlots)
}

// DropDriver takes a link out of service: its paths die at once and frames in flight move to other links.
func (s *Shard) DropDriver(now mono.Time, l *Link) {
	if l.drv == nil {
		return
	}
	s.recall(now, l)
	s.eng.RemoveLink(now, l.index)
	s.dropUnsent(l)
	if st, err := l.drv.Stats(); err == nil {
		l.last = addStats(l.last, st)
	}
	if drv := l.drv; s.stopping.Load() {
		drv.Close()
	} else {
		s.links.closeDriver(drv)
	}
	l.raw, l.drv, l.scatter, l.sources = nil, nil, nil, nil
	s.countLooks()
	if !s.stopping.Load() && s.number == 0 && !l.inside {
		s.log.Warn("link down", "link", l.cfg.Name)
	}
}

// countLooks sets how often an iteration looks while quiet.
func (s *Shard) countLooks() {
	s.idle.looks = quietLooks
	for _, l := range s.links.active {
		if l.drv != nil && (l.info.Kind == linkdrv.KindMmsg || l.sources != nil) {
			s.idle.looks = 1
		}
	}
}

// stats returns what the link counted under all its drivers so far.
func (l *Link) stats() linkdrv.Stats {
	if l.drv == nil {
		return l.last
	}
	st, err := l.drv.Stats()
	if err != nil {
		return l.last
	}
	return addStats(l.last, st)
}

func addStats(a, b linkdrv.Stats) linkdrv.Stats {
	return linkdrv.Stats{
		Received: a.Received + b.Received, Dropped: a.Dropped + b.Dropped, Truncated: a.Truncated + b.Truncated,
		Sent:    a.Sent + b.Sent,
		Refused: a.Refused + b.Refused, SendCalls: a.SendCalls + b.SendCalls, NoRoom: a.NoRoom + b.NoRoom,
		RecvCalls: a.RecvCalls + b.RecvCalls, Uncut: a.Uncut + b.Uncut,
	}
}

// Wrap puts a driver around that of a link, or returns it as it is.
type Wrap func(number int, name string, drv linkdrv.Driver) linkdrv.Driver

// SetWrap changes what is around the drivers of all links; nil: nothing. It runs by Do.
func (s *Shard) SetWrap(now mono.Time, w Wrap) {
	s.links.wrap = w
	for _, l := range s.links.active {
		s.recall(now, l)
		s.wrapLink(l)
	}
}

// wrapLink makes a link's driver the one it was given, or a wrapped one.
func (s *Shard) wrapLink(l *Link) {
	if l.drv = l.raw; l.drv != nil && s.links.wrap != nil {
		l.drv = s.links.wrap(l.index, l.cfg.Name, l.raw)
	}
	l.scatter, _ = l.drv.(linkdrv.Scatterer)
}

// receive hands waiting frames of every link to the engine. The frames are the driver's; the engine borrows each for
// the call. Links that are lent are their receivers' (receiver.go).
func (s *Shard) receive(now mono.Time) (worked bool) {
	for _, l := range s.links.active {
		if l.drv == nil || l.lent != nil && !s.serves(now, l) {
			continue
		}
		n, most, slots, err := 0, l.take, 0, error(nil)
		if s.links.receivers != nil {
			most = s.most(l)
		}
		if l.scatter != nil {
			slots = s.forecast(l)
		}
		if slots > 0 {
			n, err = s.receiveInPlace(now, l, slots)
		} else if n, err = l.drv.Recv(l.rx[:most]); n > 0 {
			for i, frame := range l.rx[:n] {
				l.arrived[i].Head = frame
			}
			if l.sources != nil {
				from, marks := l.sources.Sources(), l.sources.Marks()
				for i := range from {
					l.arrived[i].Origin, l.arrived[i].ECN = &from[i], marks[i]
				}
			}
			s.eng.Handle(now, l.index, l.arrived[:n]...)
			clear(l.rx[:n])
		}
		worked = worked || n > 0
		if err != nil {
			s.linkFailed(l, err)
			continue
		}
		if l.full++; n < most {
			l.full = 0
		}
		if s.links.lends && n > 0 && l.full >= LendAfter && l.lent == nil && !l.inside && l.sources == nil {
			s.offer(now, l)
		}
	}
	if s.links.receivers != nil {
		worked = s.judgeAll(now) || worked
	}
	return worked
}

// forecast asks where the payloads of the next frames belong, if the driver can put them there, and if a wrong guess
// shows no user's bytes to another: until such a frame is joined its payload lies in memory that the other can read and
// write.
func (s *Shard) forecast(l *Link) int {
	if s.clients.mixed || s.copying {
		return 0
	}
	return s.eng.Forecast(l.index, l.slots[:])
}

// receiveInPlace receives frames whose payloads the kernel puts where they were forecast to belong.
func (s *Shard) receiveInPlace(now mono.Time, l *Link, slots int) (n int, err error) {
	n, err = l.scatter.RecvScatter(l.parts[:], l.slots[:slots])
	clear(l.slots[:slots])
	for i := range n {
		l.arrived[i].Rx = l.parts[i]
	}
	s.eng.Handle(now, l.index, l.arrived[:n]...)
	clear(l.parts[:n])
	clear(l.arrived[:n])
	return n, err
}

// linkFailed reacts to an error of a driver. The same iteration or the next takes the link out of service and
// asks the daemon's keeper of links for a new driver (reapLinks).
func (s *Shard) linkFailed(l *Link, err error) {
	if l.failed {
		return
	}
	l.failed = true
	s.links.failedLinks = true
	l.lastErr = err.Error()
}

// drawPorts has lanes ask from other ports, before anything leaves from there.
func (s *Shard) drawPorts() {
	for {
		i, socket, ok := s.eng.Drawn()
		if !ok {
			return
		}
		l := s.links.byIndex[i]
		if l == nil || l.raw == nil {
			continue
		}
		if d, can := l.raw.(linkdrv.Redrawer); can {
			if err := d.Redraw(socket); err != nil {
				l.lastErr = err.Error()
				s.log.Warn("no other port for a lane", "link", l.cfg.Name, "error", err)
			}
		}
	}
}

// reapLinks takes failed links out of service and has them opened anew.
func (s *Shard) reapLinks(now mono.Time) {
	if !s.links.failedLinks {
		return
	}
	s.links.failedLinks = false
	for _, l := range s.links.active {
		if l.failed && l.drv != nil {
			s.log.Warn("link failed", "link", l.cfg.Name, "error", l.lastErr)
			s.DropDriver(now, l)
			s.links.reopen(l.cfg.Name)
		}
	}
}

// transmit moves frames from the engine to the drivers until the engine has none, or the links have no room, or
// maxTransmit were moved.
func (s *Shard) transmit(now mono.Time) (worked bool) {
	s.retryBlocked(now)
	for sent := 0; sent < maxTransmit; {
		n := s.eng.PollTransmit(now, &s.links.batches)
		if n == 0 {
			return worked
		}
		worked = true
		sent += n
		for _, l := range s.links.active {
			if l.drv != nil && len(l.unsent) == 0 && len(l.batch.Frames) > 0 {
				l.unsent = l.batch.Frames
				s.flush(now, l)
			}
		}
	}
	return worked
}

// maxTransmit bounds the frames of one iteration, so that a busy sender still receives. With a quarter of it, many slow
// links run dry.
const maxTransmit = 128

// flush sends what a link holds. What remains blocks the link.
func (s *Shard) flush(now mono.Time, l *Link) {
	for len(l.unsent) > 0 {
		n, err := l.drv.Send(l.unsent)
		l.unsent = l.unsent[n:]
		switch {
		case err == nil:
		case errors.Is(err, linkdrv.ErrTooLong), errors.Is(err, linkdrv.ErrBadFrame):
			l.discards++
			l.lastErr = err.Error()
			continue
		default:
			l.discards += uint64(len(l.unsent))
			l.unsent = nil
			s.linkFailed(l, err)
		}
		if len(l.unsent) > 0 {
			l.retryAt = now.Add(retryPause)
			s.blocked(l, true)
			return
		}
	}
	s.emptied(l)
}

// emptied gives a link's batch back to the engine.
func (s *Shard) emptied(l *Link) {
	l.unsent = nil
	l.batch.Reset()
	s.blocked(l, false)
}

// blocked tells the engine about a change.
func (s *Shard) blocked(l *Link, on bool) {
	bit := uint64(1) << l.index
	if (s.links.blockedLinks&bit != 0) == on {
		return
	}
	s.links.blockedLinks ^= bit
	s.eng.SetLinkBlocked(l.index, on)
}

// retryBlocked offers held frames again.
func (s *Shard) retryBlocked(now mono.Time) {
	if s.links.blockedLinks == 0 {
		return
	}
	for _, l := range s.links.active {
		if len(l.unsent) > 0 && l.drv != nil && now >= l.retryAt {
			s.flush(now, l)
		}
	}
}

// dropUnsent forgets the frames a link holds: to the peers they are lost on the wire.
func (s *Shard) dropUnsent(l *Link) {
	l.discards += uint64(len(l.unsent))
	s.emptied(l)
}

// dropReferring forgets the frames that wait for a link and refer to mem. It is called before mem is unmapped, or its
// owner hears that peers read it no more, or that a write from it failed.
func (s *Shard) dropReferring(mem []byte) {
	s.dropFrames(func(f linkdrv.TxFrame) bool { return overlap(f.Bulk, mem) }) // what else is in a frame was copied
}

// dropGathered forgets the frames that wait for a link and may refer to anybody's memory. It is for the memory of very
// many keys: to find out which frames refer to it would take long.
func (s *Shard) dropGathered() {
	s.dropFrames(func(f linkdrv.TxFrame) bool { return len(f.Bulk) > 0 })
}

// dropFrames forgets some of the frames that wait for a link: to the peers they are lost on the wire.
func (s *Shard) dropFrames(some func(linkdrv.TxFrame) bool) {
	if s.links.blockedLinks == 0 {
		return
	}
	for _, l := range s.links.active {
		waited := len(l.unsent)
		l.unsent = slices.DeleteFunc(l.unsent, some)
		l.discards += uint64(waited - len(l.unsent))
		if waited > 0 && len(l.unsent) == 0 {
			s.emptied(l)
		}
	}
}

// leastBatch is the number of frames in a batch, unless whole super-frames are a few more or less.
const leastBatch = 32

// framesPerBatch is how many of a link's longest frames should leave at once.
func framesPerBatch(link linkdrv.Info) int {
	per := framesPerSuper(link)
	if per == 0 {
		return leastBatch
	}
	return max(1, leastBatch/per) * per
}

// framesPerSuper is how many of a link's longest frames a super-frame holds; 0: the link sends none.
func framesPerSuper(link linkdrv.Info) int {
	return min(link.Super/(link.MTU-link.Overhead+linkdrv.HeaderLen), linkdrv.SendBatch)
}
