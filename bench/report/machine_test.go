package report

import "testing"

func TestStatSeconds(t *testing.T) {
	const line = "cpu  100 200 300 9999 8888 0 50 700 0 0"
	for _, c := range []struct {
		line    string
		columns []int
		want    float64
	}{
		{line, busyColumns, 13.5},
		{line, stolenColumns, 7},
		{"cpu  100 200 300 9999 8888 0 50", stolenColumns, 0}, // a kernel that does not count it
		{"cpu  a b c d e f g h i j", stolenColumns, 0},
		{"intr 1 2 3 4 5 6 7 8 9", stolenColumns, 0},
		{"", busyColumns, 0},
	} {
		if got := statSeconds(c.line, c.columns); got != c.want {
			t.Errorf("columns %v of %q: %v, want %v", c.columns, c.line, got, c.want)
		}
	}
	if busy, stolen := BusySeconds(), StolenSeconds(); busy <= 0 || stolen < 0 || stolen > busy {
		t.Errorf("this machine was busy for %v s and robbed of %v s", busy, stolen)
	}
}
