package linkdrv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// watching runs Watch in the test's namespace on a thread of its own and returns its events.
func watching(t *testing.T) <-chan Event {
	t.Helper()
	here, err := netns.Get()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	events, ended := make(chan Event, 256), make(chan error, 1)
	go func() {
		ended <- inside(here, func() error { return Watch(ctx, func(e Event) { events <- e }) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch returned %v", err)
		}
		here.Close()
	})
	return events
}

// until returns the first event that satisfies want.
func until(t *testing.T, events <-chan Event, what string, want func(Event) bool) Event {
	t.Helper()
	var seen []string
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if want(e) {
				return e
			}
			seen = append(seen, fmt.Sprintf("%+v", e))
		case <-deadline:
			t.Fatalf("no event %q within 30 s; saw %q", what, seen)
		}
	}
}

func TestWatch(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	events := watching(t)
	first := until(t, events, "existing", func(e Event) bool { return e.Name == "a0" && e.Up })
	if first.MTU != 1500 || len(first.MAC) != 6 || first.Index == 0 || first.Gone || first.OldName != "" {
		t.Errorf("%+v", first)
	}
	is := func(e Event) bool { return e.Index == first.Index }

	must(t, netlink.LinkSetMTU(link(t, "a0"), 9000))
	until(t, events, "MTU 9000", func(e Event) bool { return is(e) && e.MTU == 9000 && e.Up })

	must(t, netlink.LinkSetDown(link(t, "b0")))
	until(t, events, "carrier lost", func(e Event) bool { return is(e) && !e.Up && !e.Gone })
	setUp(t, "b0")
	until(t, events, "carrier back", func(e Event) bool { return is(e) && e.Up })

	must(t, netlink.LinkSetDown(link(t, "a0")))
	until(t, events, "down", func(e Event) bool { return is(e) && !e.Up && !e.Gone })
	must(t, netlink.LinkSetName(link(t, "a0"), "c0"))
	e := until(t, events, "rename", func(e Event) bool { return is(e) && e.Name == "c0" })
	if e.OldName != "a0" {
		t.Errorf("renamed: %+v", e)
	}

	must(t, netlink.LinkDel(link(t, "c0")))
	until(t, events, "gone", func(e Event) bool { return is(e) && e.Gone && e.Name == "c0" && !e.Up })
	veth(t, 4000)
	e = until(t, events, "recreated", func(e Event) bool { return e.Name == "a0" && e.Up })
	if e.Index == first.Index || e.MTU != 4000 {
		t.Errorf("recreated: %+v, first %+v", e, first)
	}
}

// TestWatchBridge: leaving a bridge is not being deleted.
func TestWatchBridge(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	events := watching(t)
	must(t, netlink.LinkSetMaster(link(t, "a0"), bridge))
	must(t, netlink.LinkSetNoMaster(link(t, "a0")))
	must(t, netlink.LinkSetMTU(link(t, "a0"), 1400))
	until(t, events, "MTU 1400", func(e Event) bool {
		if e.Name == "a0" && e.Gone {
			t.Errorf("%+v", e)
		}
		return e.Name == "a0" && e.MTU == 1400
	})
}

// TestWatcherCatchesUp: after a lost subscription, the listing makes up for what was missed, deletions first.
func TestWatcherCatchesUp(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	up := map[string]bool{}
	until(t, watching(t), "both ends up", func(e Event) bool { up[e.Name] = e.Up; return up["a0"] && up["b0"] })
	real := link(t, "a0").Attrs()
	var got []Event
	w := watcher{sink: func(e Event) { got = append(got, e) }, known: map[int]Event{
		9999:       {Name: "a0", Index: 9999, Up: true},
		real.Index: {Name: "z0", Index: real.Index, MTU: 100},
	}}
	must(t, w.list())
	if len(got) == 0 || got[0].Index != 9999 || !got[0].Gone || got[0].Up {
		t.Fatalf("%+v", got)
	}
	for _, e := range got {
		if e.Index == real.Index && (e.Name != "a0" || e.OldName != "z0" || e.MTU != 1500) {
			t.Errorf("%+v", e)
		}
	}
	n := len(got)
	if err := w.list(); err != nil || len(got) != n {
		t.Errorf("%v; unchanged links reported again: %+v", err, got[n:])
	}
}

func TestIsUp(t *testing.T) {
	for _, tc := range []struct {
		flags uint32
		oper  netlink.LinkOperState
		want  bool
	}{
		{unix.IFF_UP, netlink.OperUp, true},
		{unix.IFF_UP, netlink.OperUnknown, true},
		{unix.IFF_UP, netlink.OperLowerLayerDown, false},
		{unix.IFF_UP, netlink.OperDown, false},
		{0, netlink.OperUnknown, false},
	} {
		if got := isUp(&netlink.LinkAttrs{RawFlags: tc.flags, OperState: tc.oper}); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
