package faults

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"multiedge/edge"
)

// claim makes a claim of one slot, and memory that fulfils it.
func claim(t *testing.T) (*Claim, []byte) {
	t.Helper()
	slots, size, err := divide(MixSmall, 2)
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(3, size)
	c := &Claim{ID: "x", Bytes: o.bytes, Notes: map[uint32]int{1: 10}, Doubts: map[uint32]int{2: 20}}
	for _, s := range slots {
		c.Slots = append(c.Slots, [2]int{s.off, s.size})
	}
	return c, append([]byte(nil), o.bytes...)
}

func TestClaimFindsEveryByte(t *testing.T) {
	c, got := claim(t)
	if out := c.compare(got); out.Wrong != 0 {
		t.Fatalf("untouched memory: %+v", out)
	}
	first := c.Slots[0][0]
	for _, tc := range []struct {
		name          string
		at            int
		wrong, canary int
	}{
		{"in a slot", first + 3, 1, 0}, {"before the slot", first - 1, 1, 1}, {"behind the slot", first + c.Slots[0][1],
			1, 1},
		{"first byte", 0, 1, 1}, {"last byte", len(got) - 1, 1, 1},
	} {
		got[tc.at] ^= 1
		if out := c.compare(got); out.Wrong != tc.wrong || out.Canary != tc.canary || len(out.Details) != 1 {
			t.Errorf("%s: %+v", tc.name, out)
		}
		got[tc.at] ^= 1
	}
	if out := c.compare(got[1:]); out.Wrong == 0 {
		t.Error("memory of another size passes")
	}
}

// What a failed operation carried may be there or not, byte by byte, and nothing else may.
func TestClaimOfFailedOperations(t *testing.T) {
	c, got := claim(t)
	at := c.Slots[1][0] + 5
	new := []byte{^got[at], ^got[at+1], ^got[at+2]}
	c.Maybe = []Maybe{{Off: at, Bytes: new}}
	got[at+1] = new[1]
	if out := c.compare(got); out.Wrong != 0 {
		t.Errorf("a byte of a failed operation: %+v", out)
	}
	got[at+2] ^= 1
	if out := c.compare(got); out.Wrong != 1 {
		t.Errorf("a byte that is neither old nor new: %+v", out)
	}
}

func TestClaimOfNotifications(t *testing.T) {
	c, _ := claim(t)
	for _, tc := range []struct {
		name string
		got  map[uint32]note
		want int
	}{
		{"as claimed", map[uint32]note{1: {1, 10}}, 0},
		{"with one in doubt", map[uint32]note{1: {1, 10}, 2: {1, 20}}, 0},
		{"missing", map[uint32]note{}, 1},
		{"twice", map[uint32]note{1: {2, 10}}, 1},
		{"wrong length", map[uint32]note{1: {1, 11}}, 1},
		{"doubtful one twice", map[uint32]note{1: {1, 10}, 2: {2, 20}}, 1},
		{"never sent", map[uint32]note{1: {1, 10}, 9: {1, 1}}, 1},
	} {
		var out Checked
		c.notes(&out, tc.got, false)
		if out.Notes != tc.want {
			t.Errorf("%s: %d wrong: %v", tc.name, out.Notes, out.Details)
		}
	}
	var out Checked
	if c.notes(&out, map[uint32]note{}, true); out.Notes != 0 || out.Crashed != 1 {
		t.Errorf("missing because the owner's daemon was killed: %+v", out)
	}
}

func TestClaimFile(t *testing.T) {
	c, _ := claim(t)
	file := filepath.Join(t.TempDir(), "claim")
	if err := writeFile(file, c); err != nil {
		t.Fatal(err)
	}
	back := new(Claim)
	if err := readFile(file, back); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("%v; %v", err, back.ID)
	}
}

func TestDivide(t *testing.T) {
	for mix := range slotSizes {
		slots, size, err := divide(mix, 20)
		if err != nil {
			t.Fatal(err)
		}
		at := guard
		for _, s := range slots {
			if s.off-at < gap || s.size < 1 {
				t.Errorf("%s: slot at %d, the one before ends at %d", mix, s.off, at)
			}
			at = s.off + s.size
		}
		if size-at < guard+gap {
			t.Errorf("%s: %d bytes behind the last slot", mix, size-at)
		}
	}
	if _, _, err := divide("?", 1); err == nil {
		t.Error("an unknown mix is divided")
	}
}

// The slowest operation of a window counts from when the window began, and one that is under way when it ends counts,
// too: a time in which nothing completes is not one without slow operations.
func TestTallySlowest(t *testing.T) {
	y := newTally()
	at := func(ago time.Duration) time.Time { return time.Now().Add(-ago) }
	old := y.begins(at(2 * time.Hour))
	y.since = at(time.Hour)
	if w := y.mark("nothing completes"); w.Ops != 0 || w.Worst < time.Hour || w.Worst > 3*time.Hour/2 {
		t.Errorf("an operation under way for all of an hour: %v", w.Worst)
	}
	y.since = at(time.Minute)
	y.ends(old, 1, nil, false)
	y.ends(y.begins(at(time.Second)), 1, nil, false)
	if w := y.mark("it completes"); w.Ops != 2 || w.Worst < time.Minute || w.Worst > time.Hour {
		t.Errorf("an operation from before the window: %v", w.Worst)
	}
	if w := y.mark("idle"); w.Worst != 0 {
		t.Errorf("no operation: %v", w.Worst)
	}
}

func TestTally(t *testing.T) {
	y := newTally()
	now := time.Now()
	y.ends(y.begins(now), 100, nil, false)
	y.ends(y.begins(now), 100, edge.ErrPeerDown, true)
	y.dialled(false)
	y.dialled(true)
	y.dialFailed(edge.ErrPeerUnknown)
	w := y.mark("a")
	if w.Ops != 1 || w.Bytes != 100 || w.Late != 1 || w.Errors["peer-down"] != 1 || w.Reconnects != 1 ||
		w.DialErrors["peer-unknown"] != 1 || w.Posted != 2 || w.Completed != 2 {
		t.Errorf("%+v", w)
	}
	if next := y.mark("b"); next.Ops != 0 || len(next.Errors) != 0 || next.Posted != 2 {
		t.Errorf("%+v", next)
	}
	sum := Window{}
	sum.add(w)
	sum.add(&Window{Ops: 5, Errors: map[string]uint64{"peer-down": 2}})
	if sum.Errors["peer-down"] != 3 || sum.Ops != 6 {
		t.Errorf("%+v", sum)
	}
}
