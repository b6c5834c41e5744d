package ethtool

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

//go:noinline
func deep(n int, f func()) byte {
	var room [64]byte
	if n == 0 {
		f()
		return room[0]
	}
	return deep(n-1, f) + room[n%len(room)]
}

// Requests are whole wherever the stack ends and moves to. What is asked for here changes nothing, also where it is
// permitted.
func TestWhereTheStackEnds(t *testing.T) {
	names, err := Features("lo")
	if err != nil || len(names) < 30 || !names["loopback"] {
		t.Fatalf("features of lo: %v, %v", names, err)
	}
	for depth := range 150 {
		done := make(chan error)
		go deep(depth, func() { done <- Change("lo", map[string]bool{"loopback": true}) }) // on a new stack
		if err := <-done; err != nil && !errors.Is(err, unix.EPERM) {
			t.Errorf("%d calls deep: %v", depth, err)
		}
	}
}

func TestErrorsNameTheInterface(t *testing.T) {
	const name = "no-such-link"
	_, features := Features(name)
	_, coalesce := RxDelay(name)
	for _, err := range []error{features, coalesce, Change(name, map[string]bool{"rx-gro": true}),
		Change("a-name-that-is-too-long", nil)} {
		if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "-") {
			t.Errorf("%v", err)
		}
	}
}

func TestUnknownFeatures(t *testing.T) {
	if err := Change("lo", map[string]bool{"rx-gro": true, "no-such-feature": true}); err == nil ||
		!strings.Contains(err.Error(), "no-such-feature") {
		t.Errorf("%v", err)
	}
}
