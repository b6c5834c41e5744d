package shard

import (
	"testing"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

func taken(uint64, regmem.PinWork) bool { return true }

// A hold that comes about while it is being given up leaves nothing behind: with it there would be no room for the
// next, and the shard would wait for room for ever.
func TestHoldThatIsLate(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	space, err := regmem.NewSpace(regmem.SpaceConfig{Size: 1 << 20, Pin: 1 << 20, Ask: taken})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 1)
	c := &Client{user: NewUser(1)}
	var hold *regmem.Hold
	s.Do(func(mono.Time) {
		hold, _ = space.HoldRange(0, 1, done)
		space.Done(0, true)
	})
	if err := s.giveUpHold(c, space, hold, done); err != nil || len(done) > 0 {
		t.Fatalf("%v, %d words are left in the channel", err, len(done))
	}
	s.Do(func(mono.Time) { hold, _ = space.HoldRange(1<<16, 1, done) })
	if err := s.giveUpHold(c, space, hold, done); err == nil || len(done) > 0 {
		t.Errorf("what did not come: %v, %d words are left in the channel", err, len(done))
	}
}

// An iteration looks at few spaces that starve, however many a user has; users, and the spaces of each, have turns.
func TestStarvingTakeTurns(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	const spaces = 5 * mostStarving
	var turns [2][spaces]int
	starve := func(user uint32, i int) {
		var space *regmem.Space
		space, err := regmem.NewSpace(regmem.SpaceConfig{Size: 1 << 20, Pin: 4 << 16, Ask: taken,
			Starve: func() { s.spaces.starving.add(user, space) },
			Waits:  func(uint64) bool { turns[user][i]++; return user == 0 }})
		if err != nil {
			t.Error(err)
			return
		}
		for chunk := range uint64(8) {
			space.Touch(chunk<<16, 1, 0, regmem.WriteTarget)
		}
	}
	count := func(user int) (had, most int) {
		for _, n := range turns[user] {
			had, most = had+min(n, 1), max(most, n)
		}
		return had, most
	}
	s.Do(func(now mono.Time) {
		for i := range spaces {
			starve(0, i)
		}
		for round := range spaces / mostStarving {
			s.askMore(now.Add(time.Hour))
			if had, _ := count(0); had != (round+1)*mostStarving {
				t.Errorf("%d have had their turns after %d iterations", had, round+1)
			}
		}
		if had, most := count(0); s.spaces.starving.n() != spaces || had != spaces || most != 1 {
			t.Errorf("of %d spaces, %d of which starve, %d had their turns, one %d of them", spaces,
				s.spaces.starving.n(), had,
				most)
		}
		starve(1, 0) // what it waits for is wanted no more: its first turn is the last
		s.askMore(now.Add(2 * time.Hour))
		if had, _ := count(1); had != 1 || s.spaces.starving.n() != spaces || len(s.spaces.starving.users) != 1 {
			t.Errorf("a space of another user waits for %d of one user, %d starve", spaces, s.spaces.starving.n())
		}
		s.spaces.starving = starving{}
	})
}

// The end of a space costs the same however many others there are.
func TestSpacesEndAlike(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	const ends = 200
	took := func(spaces int) (least time.Duration) {
		for range 5 {
			s.Do(func(now mono.Time) {
				var regions []*regmem.Region
				for range spaces {
					space := &regmem.Space{}
					s.spaces.byBacking[space] = &servedSpace{of: &regmem.PinnedSpace{Space: space}}
					regions = append(regions, &regmem.Region{Back: space})
				}
				for _, r := range regions {
					s.spaces.starving.add(1, r.Back.(*regmem.Space))
				}
				began := threadTime() // others may take the processor meanwhile
				for _, r := range regions[len(regions)-ends:] {
					s.dropSpace(now, r)
				}
				if d := threadTime() - began; least == 0 || d < least {
					least = d
				}
				for _, r := range regions[:len(regions)-ends] {
					s.dropSpace(now, r)
				}
			})
		}
		return least
	}
	few, many := took(2*ends), took(50*ends)
	if many > 10*few {
		t.Errorf("%d spaces end in %v among %d, in %v among %d", ends, few, 2*ends, many, 50*ends)
	}
	s.Do(func(mono.Time) {
		if v := s.LookAtSpaces(); v.Spaces+s.spaces.starving.n() != 0 {
			t.Errorf("%d spaces are left, and %d starve", v.Spaces, s.spaces.starving.n())
		}
	})
}

// What spaces did is summed in the slices in which regions are looked at, and is told of spaces that are gone, too.
func TestSpacesAreSummedInSlices(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	c := attached(t, s, NewUser(1), 1)
	const spaces, slice = 10, 4
	for i := range spaces {
		space, err := regmem.NewSpace(regmem.SpaceConfig{Size: 1 << 20, Pin: 1 << 20, Ask: taken})
		if err != nil {
			t.Fatal(err)
		}
		r := &regmem.Region{Mem: regmem.Wrap(make([]byte, 1)), Back: space}
		c.regions.add(r, spaces)
		s.spaces.byBacking[space] = &servedSpace{of: &regmem.PinnedSpace{Space: space}}
		space.Touch(uint64(i)<<16, 1, 0, regmem.WriteTarget)
	}
	for from, looked := 0, 0; looked == 0 || from > 0; {
		_, from = s.LookAtRegions(nil, c.slot, from, slice)
		looked = min(looked+slice, spaces)
		want := SpacesView{Spaces: spaces, Pinned: uint64(looked) << 16,
			Counts: regmem.SpaceCounters{Lookups: uint64(looked), Cold: uint64(looked)}}
		if got := s.LookAtSpaces(); got != want {
			t.Errorf("after %d spaces: %+v", looked, got)
		}
	}
	c.regions.all(func(r *regmem.Region) { r.Back.Touch(0, 1, 0, regmem.WriteTarget) }) // and nobody looks again
	now := mono.Now()
	s.detach(now, c)
	s.Iterate(now)
	if got := s.LookAtSpaces(); got.Spaces != 0 || got.Pinned != 0 || got.Counts.Lookups != 2*spaces {
		t.Errorf("when they have gone: %+v", got)
	}
}

// Dead clients with very many spaces are rid of them in pieces.
func TestSpacesOfDeadClientsEndInPieces(t *testing.T) {
	s := unstarted(t, still(t))
	defer s.Shutdown()
	const spaces = 5 * mostDropped
	c := attached(t, s, NewUser(1), 1)
	for range spaces {
		space := &regmem.Space{}
		c.regions.add(&regmem.Region{Mem: regmem.Wrap(make([]byte, 1)), Back: space}, spaces)
		s.spaces.byBacking[space] = &servedSpace{of: &regmem.PinnedSpace{Space: space}}
	}
	now := mono.Now()
	s.detach(now, c)
	for left, rounds := spaces, 0; s.clients.dying > 0; rounds++ {
		s.Iterate(now)
		if gone := left - len(s.spaces.byBacking); gone > mostDropped || rounds > 100 {
			t.Fatalf("%d spaces in iteration %d", gone, rounds)
		}
		left = len(s.spaces.byBacking)
	}
	<-c.Gone()
	if len(s.spaces.byBacking) != 0 {
		t.Errorf("%d spaces are left", len(s.spaces.byBacking))
	}
}

// A hold of a large range ends soon after its client, and leaves nothing held.
func TestHoldEndsWithItsClient(t *testing.T) {
	s, stop := alone(t, still(t))
	defer stop()
	const chunks, before = 1024, 2
	var space *regmem.Space
	space, err := regmem.NewSpace(regmem.SpaceConfig{Size: chunks << 12, Chunk: 1 << 12, Pin: chunks << 12,
		Ask: func(chunk uint64, what regmem.PinWork) bool {
			return what == regmem.UnpinChunk ||
				s.box.post(func(mono.Time) { space.Done(chunk, true) }) == nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	r := &regmem.Region{Mem: regmem.Wrap(make([]byte, chunks<<12)), Back: space}
	c := &Client{user: NewUser(1)}
	s.Do(func(mono.Time) {
		c.regions.add(r, 1)
		c.regions.finish(r)
	})
	looks := 0
	gone := func() bool { looks++; return looks > before }
	hold := &ipc.Message{Advice: ipc.AdviceHold, Region: r.ID, Size: chunks << 11}
	by := Caller{Gone: gone, Pace: func() {}}
	if err := s.Advise(c, hold, by); err == nil || looks != before+1 {
		t.Errorf("it went on for %d looks: %v", looks, err)
	}
	s.Do(func(mono.Time) {
		for off := uint64(0); off < chunks<<12; {
			off += space.Evict(off, chunks<<12-off)
		}
		if space.Pinned() != 0 {
			t.Errorf("%d bytes are held", space.Pinned())
		}
	})
	if err := s.Advise(c, hold, Caller{Gone: func() bool { return false }, Pace: func() {}}); err != nil {
		t.Error(err)
	}
}
