package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// minRate keeps the shaper's bucket, reckoned in time, inside the kernel's 32 bits of 64 ns ticks.
const minRate = 100_000 / 8

// queueBytes is how much a shaped port queues before it drops: about what a shared-memory switch grants one port.
const queueBytes = 1 << 20

// ParseRate reads a rate as tc writes it, "10gbit", "250mbit", "1.5gbit", "64000kbit", and returns bytes per second. ""
// is 0: unlimited. Rates count frames with their Ethernet header, without preamble, checksum and gap.
func ParseRate(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := strings.ToLower(s), 0.0
	for _, u := range []struct {
		suffix string
		bits   float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = n, u.bits
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || unit == 0 || !(v*unit >= 8*minRate && v*unit <= 1e12) {
		return 0, fmt.Errorf(`lab: rate %q: give a number and bit, kbit, mbit or gbit, from 100kbit to 1000gbit, such as "2.5gbit"`, s)
	}
	return uint64(v * unit / 8), nil
}

func formatRate(rate uint64) string {
	bits := float64(rate) * 8
	switch {
	case rate == 0:
		return "unlimited"
	case bits >= 1e9:
		return strconv.FormatFloat(bits/1e9, 'f', -1, 64) + "gbit"
	case bits >= 1e6:
		return strconv.FormatFloat(bits/1e6, 'f', -1, 64) + "mbit"
	}
	return strconv.FormatFloat(bits/1e3, 'f', -1, 64) + "kbit"
}

// burstBytes is the depth of the shaper's token bucket. It must hold a frame or the kernel drops it, and beyond that
// enough for the time by which the shaper may be woken too late on a busy machine, or tokens are lost and the rate with
// them. More than about a hundred frames would be too much for receive rings of a few hundred slots when they come at
// once after idle times.
func burstBytes(rate uint64, mtu int) uint64 {
	const late = 2 * time.Millisecond
	frame := uint64(mtu + ethernetHeader)
	return max(2*frame, min(100*frame, frame+rate*uint64(late)/uint64(time.Second)))
}

// shaper returns the root discipline that limits what leaves a port to rate bytes per second.
func shaper(port netlink.Link, rate uint64, mtu int) netlink.Qdisc {
	const tick = 64 // nanoseconds, what the kernel calls PSCHED_TICKS2NS(1)
	burst := burstBytes(rate, mtu)
	return &netlink.Tbf{
		QdiscAttrs: rootAttrs(port),
		Rate:       rate,
		Limit:      uint32(max(queueBytes, 16*(mtu+ethernetHeader))),
		Buffer:     uint32(float64(burst)*1e9/float64(rate)/tick) + 1,
	}
}

// blackhole returns the root discipline that swallows whatever leaves a port.
func blackhole(port netlink.Link) netlink.Qdisc {
	return &netlink.GenericQdisc{QdiscAttrs: rootAttrs(port), QdiscType: "blackhole"}
}

func rootAttrs(port netlink.Link) netlink.QdiscAttrs {
	return netlink.QdiscAttrs{LinkIndex: port.Attrs().Index, Parent: netlink.HANDLE_ROOT}
}
