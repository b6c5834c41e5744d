package seqnum

import "testing"

func TestSerialOrder(t *testing.T) {
	for _, c := range []struct {
		v, w     Value
		before   bool
		distance int
	}{
		{0, 1, true, 1},
		{1, 0, false, -1},
		{5, 5, false, 0},
		{0xffffffff, 0, true, 1},
		{0, 0xffffffff, false, -1},
		{0xfffffff0, 0x10, true, 0x20},
		{0x7ffffffe, 0xfffffffd, true, 0x7fffffff},
	} {
		if got := c.v.Before(c.w); got != c.before {
			t.Errorf("%#x.Before(%#x) = %v, want %v", c.v, c.w, got, c.before)
		}
		if got := c.v.AtMost(c.w); got != (c.before || c.v == c.w) {
			t.Errorf("%#x.AtMost(%#x) = %v", c.v, c.w, got)
		}
		if got := c.v.Distance(c.w); got != c.distance {
			t.Errorf("%#x.Distance(%#x) = %d, want %d", c.v, c.w, got, c.distance)
		}
		if got := c.v.Add(c.distance); got != c.w {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", c.v, c.distance, got, c.w)
		}
	}
}

func TestWindowAcrossWrap(t *testing.T) {
	first := Value(0xfffffffe)
	for i := -2; i < 6; i++ {
		if got, want := first.Add(i).InWindow(first, 4), i >= 0 && i < 4; got != want {
			t.Errorf("offset %d: InWindow = %v, want %v", i, got, want)
		}
	}
}
