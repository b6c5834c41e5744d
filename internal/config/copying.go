package config

import (
	"multiedge/linkdrv"
)

// How payloads reach their place, the paper's four configurations (3.3.3, figure 3.8), remapping in two ways. All of
// them use the mmsg driver unless a link names another, so that they differ in copies and in nothing else. The kernel's
// own copies, from and to the memory that is given to it, are made by all.
const (
	CopyBoth = "cp"   // the paper's CP: the sender copies payloads to its frames, the receiver from them
	CopyRx   = "notx" // NoTx: the sender gathers payloads where they lie, the receiver copies
	// PinMap: no copy at the sender; the receiver exchanges runs of pages for those of their place, and copies the
	// rest. Embedded only
	CopyRemap = "pinmap"
	// the paper's frames (2.3.2): the sender puts the payload bytes that a frame's headers displace behind the others,
	// and frames arrive whole at page boundaries. The paper then exchanges every full page; here runs of pages are, of
	// remap.Least and more, as by pinmap: in plaintext, embedded. A daemon, whose clients map regions too, copies from
	// the pages
	CopyShuffle = "shuffle"
	// NoCP: no copy at the sender; the kernel puts payloads in their place, and what was not forecast is copied. The
	// paper leaves the copy out and the data where it is
	CopyNone = "nocp"
	// what is fastest on each link: gathers, and copies from a ring or receives in place by the driver its MTU suggests
	CopyUsual  = ""
	copyChoice = "cp, notx, pinmap, shuffle, nocp, or empty for what is fastest"
)

// checkCopy checks Copy and what it needs of links.
func (c *Config) checkCopy(p *problems) {
	switch c.Copy {
	case CopyUsual, CopyBoth, CopyRx:
	case CopyRemap, CopyNone, CopyShuffle:
		receives := "payloads in their place"
		if c.Copy == CopyShuffle {
			receives = "frames at page boundaries"
		}
		for _, l := range c.Links {
			p.check(l.Driver == "" || l.Driver == linkdrv.KindAlone || l.Driver == linkdrv.KindMmsg, "copy",
				"%q receives %s, which the driver %q of link %q cannot: leave its driver out, or make it \"mmsg\"",
				c.Copy, receives, l.Driver, l.Name)
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
