package linkdrv

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	cacheLine  = 64
	vlanLen    = 4     // a tag the kernel did not strip
	longestMTU = 65535 // of any Ethernet interface
	ringSlots  = 256   // default number of frames a ring holds, unless
	// that is more than so many bytes, 2.5 MiB, as a core's own cache holds: with four times as many, copying into and
	// out of it takes twice as long
	ringBytes = 5 << 19

	// ringReserve is the extra headroom (PACKET_RESERVE) that puts byte 78 of a frame, where a bulk payload starts, on
	// a cache line: the kernel places the network header at align16(52+16)+reserve = 128, the frame 14 bytes before,
	// byte 78 at 192.
	ringReserve  = 48
	ringHeadroom = 80 + ringReserve - HeaderLen
	// mmsgHeadroom does the same for the buffers of the mmsg driver: 50+78 = 128.
	mmsgHeadroom = 50

	// maxBlock bounds one contiguous allocation of the kernel's, as far as slots are not large themselves.
	maxBlock = 256 << 10
)

// maxFrame is the length in bytes of the longest frame an interface of that MTU receives.
func maxFrame(mtu int) int { return mtu + HeaderLen + vlanLen }

func alignUp(n, to int) int { return (n + to - 1) / to * to }

// geometry is the layout of a receive ring: blocks of whole pages, each holding perBlock slots from its start and some
// waste at its end. Slots are packed as tightly as alignment to cache lines allows, because the ring is to stay in
// cache.
type geometry struct{ slot, block, blocks, perBlock int }

// layout plans a ring of at least slots slots for frames of an interface of that MTU.
//
// The block is the smallest power of two of pages that wastes under a 16th, or else the one that wastes least.
func layout(mtu, slots int) geometry {
	g := geometry{slot: alignUp(ringHeadroom+maxFrame(mtu), cacheLine)}
	best := 1 << 62
	for block := os.Getpagesize(); block <= max(maxBlock, 16*g.slot); block *= 2 {
		per := block / g.slot
		if per == 0 {
			continue
		}
		waste := block/per - g.slot
		if waste < best {
			best, g.block, g.perBlock = waste, block, per
		}
		if waste <= g.slot/16 {
			break
		}
	}
	g.blocks = (slots + g.perBlock - 1) / g.perBlock
	return g
}

// defaultSlots is how many slots a ring has if nobody says, for an interface of that MTU.
func defaultSlots(mtu int) int {
	g := layout(mtu, 1)
	return min(ringSlots, max(1, ringBytes/g.block)*g.perBlock)
}

func (g geometry) slots() int { return g.blocks * g.perBlock }
func (g geometry) bytes() int { return g.blocks * g.block }

// offset returns where slot i starts.
func (g geometry) offset(i int) int { return i/g.perBlock*g.block + i%g.perBlock*g.slot }

func (g geometry) request() *unix.TpacketReq {
	return &unix.TpacketReq{Block_size: uint32(g.block), Block_nr: uint32(g.blocks), Frame_size: uint32(g.slot),
		Frame_nr: uint32(g.slots())}
}

func (g geometry) String() string {
	return fmt.Sprintf("%d slots of %d bytes in %d blocks of %d", g.slots(), g.slot, g.blocks, g.block)
}
