package dsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// joining is a run of four ranks of which the last does not start. Ranks 1 and 2 wait for the roster, and rank 0 for
// rank 3.
type joining struct {
	ctx   context.Context
	c     [3]Config
	ranks [3]*links
	late  context.CancelFunc // ends the time that rank 0 gives the others
	root  chan error         // with what rank 0 ended
}

func join3(t *testing.T) *joining {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	fab := fabric.New()
	t.Cleanup(func() { fab.Close() })
	j := &joining{ctx: ctx, root: make(chan error, 1)}
	for rank := range j.ranks {
		name := fmt.Sprintf("n%d", rank)
		d, err := fab.OpenConfig(ctx, name, edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c := &j.c[rank]
		*c = Config{Name: "t", Rank: rank, Ranks: 4, Root: "n0", Device: d, Size: 1 << 16}
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		l := newLinks(ctx, c)
		j.ranks[rank] = l
		if err := l.register(ctx, c); err != nil {
			t.Fatal(err)
		}
		if rank > 0 {
			if err := l.dialRoot(ctx, c); err != nil {
				t.Fatal(err)
			}
			continue
		}
		within, late := context.WithCancel(l.ctx)
		j.late = late
		t.Cleanup(late)
		at, err := d.Listen(ctx, service(c, 0))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer at.Close()
			err := l.missing(c, within, l.meetAll(within, c, at))
			l.leave(err)
			j.root <- err
		}()
	}
	// Rank 0 answers this only when it is done with rank 2.
	_, err := j.c[2].Device.Dial(ctx, "n0", service(&j.c[0], 0), edge.Data([]byte("no rank")))
	if !errors.Is(err, edge.ErrRefused) {
		t.Fatalf("a dialler that is no rank: %v", err)
	}
	return j
}

// roster is with what the wait of a rank for the roster ends.
func (j *joining) roster(rank int) error {
	l := j.ranks[rank]
	return l.missing(&j.c[rank], j.ctx, l.awaitRoster(j.ctx, make([]string, 4)))
}

// All ranks say which one did not come, also those that know it from rank 0 alone.
func TestAllSayWhoDidNotCome(t *testing.T) {
	j := join3(t)
	j.late()
	if err := <-j.root; err == nil || !strings.Contains(err.Error(), "ranks [3] did not come") {
		t.Errorf("rank 0: %v", err)
	}
	for _, rank := range []int{1, 2} {
		if err := j.roster(rank); !errors.Is(err, ErrRank) || !strings.Contains(err.Error(), "ranks [3] did not come") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank that is lost ends the others at once, while they wait for one that has yet to come.
func TestRankIsLostWhileOthersJoin(t *testing.T) {
	j := join3(t)
	if err := j.ranks[2].conns[0].Abort(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-j.root:
		if !errors.Is(err, ErrRank) || !strings.Contains(err.Error(), "rank 2 on n2 was lost") {
			t.Errorf("rank 0: %v", err)
		}
	case <-j.ctx.Done():
		t.Fatal("rank 0 waits for rank 3")
	}
	if err := j.roster(1); !errors.Is(err, ErrRank) || !strings.Contains(err.Error(), "rank 2 on n2 was lost") {
		t.Errorf("rank 1: %v", err)
	}
}

// A rank may wait for rank 0 as long as for all others, and then as long as rank 0 waits for them: rank 0 gives up
// first.
func TestRankZeroGivesUpFirst(t *testing.T) {
	c := Config{Join: time.Minute}
	root := patience(&c)
	c.Rank = 1
	if p := patience(&c); p <= c.Join+root {
		t.Errorf("rank 1 waits %v, rank 0 up to %v", p, c.Join+root)
	}
}
