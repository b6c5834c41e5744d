package peering

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Clause 4.3: a cookie is good at the address and for the sender that it was made for, and for two intervals at most.
func TestCookies(t *testing.T) {
	c := NewCookies([32]byte{1}, 0)
	at := frame.Ether([6]byte{2, 1})
	now := mono.Time(time.Hour)
	in := wire.Init{Session: 7}
	in.Cookie = bytes.Clone(c.Make(now/mono.Time(CookieTime), at, &in, 3))
	if !c.Valid(now, at, &in, 3) || !c.Valid(now.Add(CookieTime), at, &in, 3) {
		t.Error("a cookie is not good")
	}
	other := in
	other.Session++
	for name, ok := range map[string]bool{
		"later":           c.Valid(now.Add(2*CookieTime), at, &in, 3),
		"another address": c.Valid(now, frame.Ether([6]byte{2, 2}), &in, 3),
		"another sender":  c.Valid(now, at, &other, 3),
		"another session": c.Valid(now, at, &in, 4),
		"none":            c.Valid(now, at, &wire.Init{Session: 7}, 3),
	} {
		if ok {
			t.Errorf("%s: the cookie is good", name)
		}
	}
}

// Each rank has a ration of its own in each span.
func TestRation(t *testing.T) {
	var r Ration
	took := func(now mono.Time, who Rank) (n int) {
		for range 10 {
			if r.Take(now, time.Second, who, 3) {
				n++
			}
		}
		return n
	}
	now := mono.Time(time.Hour)
	for i, got := range []int{took(now, RankStranger), took(now, RankPeer),
		took(now.Add(time.Second+1), RankStranger)} {
		if got != 3 {
			t.Errorf("%d: %d of 3", i, got)
		}
	}
	if n := took(now.Add(time.Second+1), RankStranger); n != 0 {
		t.Errorf("%d more in the same span", n)
	}
}
