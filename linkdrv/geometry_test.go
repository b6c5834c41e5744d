package linkdrv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestLayout checks what the kernel demands of a ring (packet_set_ring) and what we promise, for any MTU and size.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtu, slots := rapid.IntRange(68, 65535).Draw(t, "mtu"), rapid.IntRange(1, 4096).Draw(t, "slots")
		g := layout(mtu, slots)
		page := os.Getpagesize()
		switch {
		case g.block%page != 0 || g.block < g.slot:
			t.Fatalf("%v: block", g)
		case g.slot%unix.TPACKET_ALIGNMENT != 0 || g.slot%cacheLine != 0:
			t.Fatalf("%v: slot alignment", g)
		case g.block/g.slot != g.perBlock || g.slots() != g.blocks*g.perBlock:
			t.Fatalf("%v: the kernel would compute other slots", g)
		case g.slots() < slots || g.slots() >= slots+g.perBlock:
			t.Fatalf("%v: asked for %d", g, slots)
		case g.slot-ringHeadroom < maxFrame(mtu):
			t.Fatalf("%v: too small for MTU %d", g, mtu)
		}
		for i := range g.slots() {
			if off := g.offset(i); off/g.block != (off+g.slot-1)/g.block || off+g.slot > g.bytes() {
				t.Fatalf("%v: slot %d at %d crosses a block", g, i, off)
			}
		}
	})
}

func TestLayoutWaste(t *testing.T) {
	for _, mtu := range []int{1500, 2048, 4096, 8192, 9000, 16384, 65535} {
		g := layout(mtu, 256)
		if used := g.slots() * g.slot; used < g.bytes()*85/100 {
			t.Errorf("MTU %d: %v wastes %d of %d bytes", mtu, g, g.bytes()-used, g.bytes())
		}
	}
}

// TestContents: a slot header that points outside its slot yields nothing.
func TestContents(t *testing.T) {
	slot := make([]byte, 2048)
	h := slotHeader(slot)
	for _, tc := range []struct {
		mac            uint16
		snaplen, frame uint32
		ok             bool
	}{
		{ringHeadroom, 60, 60, true},
		{ringHeadroom, 2048 - ringHeadroom, 2048 - ringHeadroom, true},
		{ringHeadroom, 2048 - ringHeadroom + 1, 2048 - ringHeadroom + 1, false},
		{ringHeadroom, 60, 61, false},
		{0, 60, 60, false},
		{65535, 1, 1, false},
		{ringHeadroom, 1<<32 - 1, 1<<32 - 1, false},
	} {
		h.Mac, h.Snaplen, h.Len = tc.mac, tc.snaplen, tc.frame
		got := contents(slot, h)
		if (got != nil) != tc.ok || tc.ok && len(got) != int(tc.frame) {
			t.Errorf("%+v: %d bytes", tc, len(got))
		}
	}
}
