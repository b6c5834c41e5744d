package inspect

import (
	"errors"
	"sync"

	"multiedge/internal/mono"
	"multiedge/internal/trace"
	"multiedge/linkdrv"
	"multiedge/regmem"
)

// tapRoom is how many bytes of records may wait for the pipe.
const tapRoom = 8 << 20

// Tap collects records. The shards add to it, the control connection that asked for them empties it.
type Tap struct {
	links map[int]string // names of those traced, by number; one that comes later is not
	cut   int            // bytes kept of a frame
	News  chan struct{}  // there are records

	mu    sync.Mutex
	waits []byte
	lost  uint32
}

func NewTap(links map[int]string, cut int) *Tap {
	return &Tap{links: links, cut: cut, News: make(chan struct{}, 1)}
}

// add records a frame that passed link.
func (t *Tap) add(now mono.Time, link int, sent bool, pieces ...[]byte) {
	r := trace.Record{Time: now, Link: uint8(link), Sent: sent}
	for _, p := range pieces {
		r.Len += len(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waits)+min(r.Len, t.cut) > tapRoom {
		t.lost++
		return
	}
	r.Lost, t.lost = t.lost, 0
	t.waits = r.Begin(t.waits, t.cut, pieces...)
	select {
	case t.News <- struct{}{}:
	default:
	}
}

// Look records memory that a part of an operation used.
func (t *Tap) Look(pid int32, r *regmem.Region, off, n uint64, site regmem.Site) {
	l := trace.Lookup{PID: pid, Region: r.ID, Size: uint64(r.Mem.Len()), Off: off, Len: uint32(n), Site: uint8(site)}
	t.add(mono.Now(), 0, site == regmem.WriteSource || site == regmem.ReadTarget, l.Append(nil))
}

// Take returns what waits, and keeps spare to collect in.
func (t *Tap) Take(spare []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.waits
	t.waits = spare[:0]
	return b
}

// tapped is a driver whose frames are recorded.
type tapped struct {
	linkdrv.Driver
	tap  *Tap
	link int
}

// Send implements linkdrv.Driver. A refused frame is not recorded. The time is that before the call: while it lasts,
// the receiver may have the frame already, and even answer it.
func (t *tapped) Send(frames []linkdrv.TxFrame) (int, error) {
	now := mono.Now()
	n, err := t.Driver.Send(frames)
	taken := n
	if errors.Is(err, linkdrv.ErrTooLong) || errors.Is(err, linkdrv.ErrBadFrame) {
		taken--
	}
	for i := range frames[:taken] {
		f := &frames[i]
		t.tap.add(now, t.link, true, f.Head, f.Bulk, f.Tail)
	}
	return n, err
}

// Recv implements linkdrv.Driver.
func (t *tapped) Recv(dst [][]byte) (int, error) {
	n, err := t.Driver.Recv(dst)
	if n > 0 {
		now := mono.Now()
		for _, f := range dst[:n] {
			t.tap.add(now, t.link, false, f)
		}
	}
	return n, err
}

// tappedScatterer is the same of a driver that scatters.
type tappedScatterer struct {
	tapped
	scatter linkdrv.Scatterer
}

// RecvScatter implements linkdrv.Scatterer.
func (t *tappedScatterer) RecvScatter(dst []linkdrv.RxFrame, slots [][]byte) (int, error) {
	n, err := t.scatter.RecvScatter(dst, slots)
	if n > 0 {
		now := mono.Now()
		for i := range dst[:n] {
			f := &dst[i]
			t.tap.add(now, t.link, false, f.Head, f.Body, f.Rest)
		}
	}
	return n, err
}

// Wrap wraps the driver of a link that is traced, and returns any other's as it is.
func (t *Tap) Wrap(number int, name string, drv linkdrv.Driver) linkdrv.Driver {
	if t.links[number] != name {
		return drv
	}
	w := tapped{Driver: drv, tap: t, link: number}
	if scatter, ok := drv.(linkdrv.Scatterer); ok {
		return &tappedScatterer{w, scatter}
	}
	return &w
}
