package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"3": 3 * time.Second, "0.5": 500 * time.Millisecond,
		"250ms": 250 * time.Millisecond} {
		var s Seconds
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%q: %v, %v", text, time.Duration(s), err)
		}
	}
	for _, text := range []string{"", "-1", "0", "soon"} {
		var s Seconds
		if s.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// What went wrong before an interruption is not lost in it.
func TestWhatElse(t *testing.T) {
	canceled := fmt.Errorf("worker: %w", context.Canceled)
	wrong := errors.New("3 integrity errors: data arrived wrong")
	for _, c := range []struct {
		err  error
		want string
	}{
		{canceled, "everything that was set up is removed"},
		{errors.Join(canceled, errors.Join(nil, context.Canceled)), "everything that was set up is removed"},
		{errors.Join(errors.Join(canceled, wrong), canceled), wrong.Error()},
	} {
		if got := whatElse(c.err); got != c.want {
			t.Errorf("%q: %q, want %q", c.err, got, c.want)
		}
	}
}
