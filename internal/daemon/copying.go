package daemon

import (
	"errors"
	"os"
	"sync"

	"multiedge/internal/engine"
	"multiedge/linkdrv"
	"multiedge/regmem"
	"multiedge/remap"
)

// How payloads reach their place, the paper's four configurations (3.3.3, figure 3.8). All of them use the mmsg driver unless a link names another, so
// that they differ in copies and in nothing else. The kernel's own copies, from and to the memory that is given to it, are made by all.
const (
	CopyBoth   = "cp"     // the paper's CP: the sender copies payloads to its frames, the receiver from them
	CopyRx     = "notx"   // NoTx: the sender gathers payloads where they lie, the receiver copies
	CopyRemap  = "pinmap" // PinMap: no copy at the sender; the receiver exchanges runs of pages for those of their place, and copies the rest. Embedded only
	CopyNone   = "nocp"   // NoCP: no copy at the sender; the kernel puts payloads in their place, and what was not forecast is copied. The paper leaves the copy out and the data where it is
	CopyUsual  = ""       // what is fastest on each link: gathers, and copies from a ring or receives in place by the driver its MTU suggests
	copyChoice = "cp, notx, pinmap, nocp, or empty for what is fastest"
)

// checkCopy checks Copy and what it needs of links.
func (c *Config) checkCopy(p *problems) {
	switch c.Copy {
	case CopyUsual, CopyBoth, CopyRx:
	case CopyRemap, CopyNone:
		for _, l := range c.Links {
			p.check(l.Driver == "" || l.Driver == linkdrv.KindAlone || l.Driver == linkdrv.KindMmsg, "copy", "%q receives payloads in their place, which the driver %q of link %q cannot: leave its driver out, or make it \"mmsg\"", c.Copy, l.Driver, l.Name)
		}
	default:
		p.check(false, "copy", "%q is not one of %s", c.Copy, copyChoice)
	}
}

// fillCopy gives links the driver that Copy suggests.
func (c *Config) fillCopy() {
	for i := range c.Links {
		if l := &c.Links[i]; c.Copy != CopyUsual && (l.Driver == "" || l.Driver == linkdrv.KindAlone) {
			l.Driver = linkdrv.KindMmsg
		}
	}
}

// errRemapShared refuses page exchange where other processes map regions.
var errRemapShared = errors.New(`copy: "pinmap" exchanges pages of regions, which changes only this process's view of them: it works embedded (edge.Embedded.Copy), not in a daemon; use "nocp"`)

// exchange is what an embedded daemon with page exchange has beside its regions. lock guards spaces; the shard owns the rest.
type exchange struct {
	stage  remap.Stage
	lock   sync.Mutex
	spaces map[*regmem.Region]*remap.Shared // of the regions that have a pool
}

// allocate returns memory for a region of size bytes, and the space behind it, nil where pages are not exchanged.
func (x *exchange) allocate(size int) (*regmem.Memory, *remap.Shared, error) {
	if !x.exchanges(size) {
		m, err := regmem.Alloc(size, regmem.Named("edge-region"))
		return m, nil, err
	}
	s, err := remap.NewShared(size, remap.Options{})
	if err != nil {
		return nil, nil, err
	}
	m := s.Memory()
	return m, s, s.Close() // the memory holds it now
}

// exchanges reports whether a region of size bytes has a pool. Sizes that are the same number of pages are treated alike.
func (x *exchange) exchanges(size int) bool {
	page := os.Getpagesize()
	return x != nil && size > 0 && size < largestPooled && (remap.Options{}).Fits((size+page-1)&^(page-1))
}

// largestPooled is above any memory there is, and far enough below the largest int to round up, in bytes.
const largestPooled = 1 << 60

// pins is how many bytes a region of size bytes pins.
func (x *exchange) pins(size int) int {
	if !x.exchanges(size) {
		return size
	}
	return remap.Options{}.Pinned(size)
}

// add makes a region's pages exchangeable. The shard calls it.
func (x *exchange) add(r *regmem.Region, s *remap.Shared) {
	if s == nil {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	x.spaces[r] = s
	x.stage.Add(s.Space)
}

// remove puts everything in place in a region that is about to go, and forgets it. The shard calls it.
func (x *exchange) remove(r *regmem.Region) {
	if x == nil {
		return
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	if s := x.spaces[r]; s != nil {
		x.stage.Remove(s.Space)
		delete(x.spaces, r)
	}
}

// settle puts everything in place before a key is revoked: nothing may change afterwards. The shard calls it.
func (x *exchange) settle() {
	if x != nil {
		x.stage.SettleAll()
	}
}

// copies configures an engine and a shard for the configuration's way to copy.
func (s *shard) copies(cfg *Config, e *engine.Config) {
	s.copying = cfg.Copy == CopyBoth || cfg.Copy == CopyRx
	e.CopySend = cfg.Copy == CopyBoth
	if cfg.Copy == CopyRemap {
		s.exchange = &exchange{spaces: map[*regmem.Region]*remap.Shared{}}
		s.exchange.stage.Prepare()
		e.Stage = &s.exchange.stage
	}
}

// Memory returns the memory of a region, of which the client got the descriptor fd, as the daemon itself sees it, if its pages are exchanged: the
// client must see the same. nil: the client maps fd. The caller closes the memory; fd stays its own, too.
func (e *Embedded) Memory(fd int) *regmem.Memory {
	x := e.d.shard.exchange
	if x == nil {
		return nil
	}
	id := remap.IdentityOf(fd)
	x.lock.Lock()
	defer x.lock.Unlock()
	for _, s := range x.spaces {
		if s.Identity() == id {
			return s.Memory()
		}
	}
	return nil
}
