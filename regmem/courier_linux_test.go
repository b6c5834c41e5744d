package regmem

import (
	"errors"
	"testing"
)

// TestAsideIsTriedAgain: a process that was short of descriptors or addresses when the first heap was granted grants
// others later.
func TestAsideIsTriedAgain(t *testing.T) {
	var a aside
	no := errors.New("no")
	fails := func() ([]byte, error) { return nil, no }
	if _, err := a.get(fails); err != no {
		t.Errorf("%v, want %v", err, no)
	}
	for _, set := range []func() ([]byte, error){func() ([]byte, error) { return make([]byte, 8), nil }, fails} {
		if b, err := a.get(set); err != nil || len(b) != 8 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}
