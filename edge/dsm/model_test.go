package dsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// heard is a model that writes down what it is told.
type heard []string

func (h *heard) add(format string, args ...any) { *h = append(*h, fmt.Sprintf(format, args...)) }

func (h *heard) Alloc(from int, homes []uint8)  { h.add("alloc %d %v", from, homes) }
func (h *heard) Touch(how Access, from, to int) { h.add("touch %d %d-%d", how, from, to) }
func (h *heard) Lock(number int)                { h.add("lock %d", number) }
func (h *heard) Unlock(number int)              { h.add("unlock %d", number) }
func (h *heard) Barrier()                       { h.add("barrier") }

// A model is told of everything, each time, and all ranks use the same memory.
func TestModel(t *testing.T) {
	memory := make([]byte, 4*pageSize+100)
	for rank := range 2 {
		h := &heard{}
		err := RunModel(Config{Rank: rank, Ranks: 2}, memory, h, func(m *Memory) error {
			Alloc[byte](m, 1, At(1))
			a := Alloc[uint64](m, 1024, Turns)
			a.Prefetch(0, 600)
			a.Own(500, 1024)[0] += 7
			m.Lock(4)
			a.Set(3, a.At(3)+1)
			m.Unlock(4)
			for range 2 {
				a.Read(3, 3)
				a.Read(511, 513)
			}
			a.Write(0, 2)
			m.Barrier()
			if got := a.At(3); got != uint64(rank+1) || m.Rank() != rank || m.Ranks() != 2 {
				t.Errorf("rank %d: %d", rank, got)
			}
			return nil
		})
		want := "alloc 0 [1], alloc 4096 [0 1], touch 3 4096-8896, touch 2 8096-12288, touch 1 8096-12288, lock 4, " +
			"touch 0 4120-4128, touch 1 4120-4128, unlock 4, touch 0 8184-8200, touch 0 8184-8200, " +
			"touch 1 4096-4112, barrier, touch 0 4120-4128"
		if got := strings.Join(*h, ", "); err != nil || got != want {
			t.Errorf("rank %d, %v:\n%s\n%s", rank, err, got, want)
		}
	}
	if memory[pageSize+24] != 2 {
		t.Error("the memory is not the caller's")
	}
}

// A program on a model makes the mistakes that it makes elsewhere.
func TestMistakesOnAModel(t *testing.T) {
	h := &heard{}
	own := errors.New("own")
	for want, f := range map[string]func(m *Memory) error{
		"unlock it first": func(m *Memory) error { m.Lock(1); return nil },
		"set Config.Size": func(m *Memory) error { Alloc[byte](m, 1<<20, Turns); return nil },
		"own":             func(*Memory) error { return own },
	} {
		err := RunModel(Config{Rank: 1, Ranks: 2}, make([]byte, 1<<14), h, f)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := RunModel(Config{Rank: 2, Ranks: 2}, make([]byte, 1<<14), h, nil); err == nil {
		t.Error("rank 2 of 2 is accepted")
	}
	if !slices.Equal(*h, []string{"lock 1"}) {
		t.Errorf("the model was told %v", *h)
	}
}
