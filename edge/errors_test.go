package edge

import (
	"errors"
	"strings"
	"testing"

	"multiedge/internal/abi"
)

// TestEveryStatusHasItsError: to the last entry of the register, programs get the error that it names, with its text.
func TestEveryStatusHasItsError(t *testing.T) {
	own := map[error]abi.Code{}
	for i := range abi.Statuses {
		s := &abi.Statuses[i]
		err, ok := codeError[s.Code.Error()]
		if !ok {
			t.Errorf("status %v has no error", s.Code)
		}
		if _, has := codeError[s.Code]; has != (s.Like == 0) {
			t.Errorf("status %v is like %v, and in codeError: %v", s.Code, s.Like, has)
		}
		if s.Code < 256 && statusError[s.Code] != err {
			t.Errorf("an operation that ended with %v: %v, want %v", s.Code, statusError[s.Code], err)
		}
		if got := errorFor(s.Code, "why"); err != nil && !errors.Is(got, err) {
			t.Errorf("a request that failed with %v: %v, want %v", s.Code, got, err)
		}
		if s.Like != 0 || err == nil {
			continue
		}
		if other, twice := own[err]; twice {
			t.Errorf("%v and %v have one error", s.Code, other)
		}
		own[err] = s.Code
		if err != ErrMemlock && err.Error() != "edge: "+s.Help {
			t.Errorf("status %v has error %q, want %q", s.Code, err, s.Help)
		}
	}
	if len(own)+2 != len(codeError) { // without ok and internal
		t.Errorf("codeError has %d entries; %d codes have an error of their own", len(codeError), len(own))
	}
	if err := statusError[77]; err == nil || !strings.Contains(err.Error(), "77; upgrade") {
		t.Errorf("a status of a later release: %v", err)
	}
}
