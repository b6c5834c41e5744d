package linkdrv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watching, per subscription:
//
//  1. subscribe to the kernel's link messages, so that nothing that happens from here on is missed;
//  2. list all links and compare with what is known: report what is new, changed, or vanished meanwhile;
//  3. apply message by message, reporting only what changes an Event;
//  4. when the subscription breaks (its buffer overflowed), begin again at 1 with what is known.

// Event tells what became of one link.
type Event struct {
	Name    string
	Index   int              // stays the same through renames, and is new after deletion and recreation
	MAC     net.HardwareAddr // empty on interfaces that are not Ethernet; do not modify
	MTU     int              // bytes
	Up      bool             // administratively up, and not known to be without carrier
	Gone    bool             // deleted or moved to another namespace; the other fields say what it was last
	OldName string           // set if this event is (also) a rename
}

// resubscribePause keeps a failing subscription from spinning.
const resubscribePause = 50 * time.Millisecond

// Watch reports every link of the calling thread's network namespace to sink, first all that exist, then every change,
// until ctx is done; then it returns nil. Any other return means the namespace cannot be watched. Sink is called from
// Watch's goroutine, never concurrently.
//
// Watch subscribes anew after trouble and needs no privilege for that as long as its goroutine stays in the namespace:
// lock its thread if that is not the process's own namespace.
func Watch(ctx context.Context, sink func(Event)) error {
	w := watcher{known: make(map[int]Event), sink: sink}
	for failures := 0; ; {
		listed, err := w.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if failures++; listed {
			failures = 0
		}
		if failures == 3 {
			return fmt.Errorf("linkdrv: watch links: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resubscribePause):
		}
	}
}

// watcher knows the last event of every link that exists.
type watcher struct {
	known map[int]Event
	sink  func(Event)
}

// follow runs one subscription until it breaks or ctx is done; listed says whether it got past the listing.
func (w *watcher) follow(ctx context.Context) (listed bool, err error) {
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	failed := make(chan error, 1)
	opts := netlink.LinkSubscribeOptions{ReceiveBufferSize: 1 << 20, ErrorCallback: func(err error) {
		select {
		case failed <- err:
		default:
		}
	}}
	if err := netlink.LinkSubscribeWithOptions(updates, done, opts); err != nil {
		return false, fmt.Errorf("subscribe: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // lets the library's goroutine end
		}
	}()
	if err := w.list(); err != nil {
		return false, err
	}
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case u, ok := <-updates:
			if !ok {
				return true, errors.New("subscription ended")
			}
			w.apply(u)
		case err := <-failed:
			return true, err
		}
	}
}

// list compares all links with the known ones.
func (w *watcher) list() error {
	links, err := netlink.LinkList()
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 10; tries++ {
		links, err = netlink.LinkList()
	}
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	now := make(map[int]bool, len(links))
	for _, l := range links {
		now[l.Attrs().Index] = true
	}
	for _, index := range sortedKeys(w.known) { // first what vanished: its name may be another link's now
		if !now[index] {
			w.gone(index)
		}
	}
	slices.SortFunc(links, func(a, b netlink.Link) int { return cmp.Compare(a.Attrs().Index, b.Attrs().Index) })
	for _, l := range links {
		w.see(l.Attrs())
	}
	return nil
}

func sortedKeys(m map[int]Event) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// apply takes one message. Messages of family AF_BRIDGE speak of a link's membership in a bridge, where "delete" means
// that it left.
func (w *watcher) apply(u netlink.LinkUpdate) {
	switch {
	case u.Family == unix.AF_BRIDGE:
	case u.Header.Type == unix.RTM_DELLINK:
		w.gone(int(u.Index))
	case u.Header.Type == unix.RTM_NEWLINK:
		w.see(u.Attrs())
	}
}

// see reports a link unless it is known to be just so.
func (w *watcher) see(a *netlink.LinkAttrs) {
	e := Event{Name: a.Name, Index: a.Index, MAC: a.HardwareAddr, MTU: a.MTU, Up: isUp(a)}
	old, known := w.known[e.Index]
	if known && old.Name == e.Name && old.MTU == e.MTU && old.Up == e.Up && bytes.Equal(old.MAC, e.MAC) {
		return
	}
	w.known[e.Index] = e
	if known && old.Name != e.Name {
		e.OldName = old.Name
	}
	w.sink(e)
}

// gone reports that a known link no longer exists.
func (w *watcher) gone(index int) {
	if e, known := w.known[index]; known {
		delete(w.known, index)
		e.Gone, e.Up = true, false
		w.sink(e)
	}
}

func isUp(a *netlink.LinkAttrs) bool {
	switch a.OperState {
	case netlink.OperNotPresent, netlink.OperDown, netlink.OperLowerLayerDown:
		return false
	}
	return a.RawFlags&unix.IFF_UP != 0
}
