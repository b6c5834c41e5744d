package edge

import (
	"errors"
	"testing"

	"multiedge/internal/ipc"
)

// When the particular cause is known only that is said, and the error is still of its kind.
func TestParticularCauseAlone(t *testing.T) {
	code := ipc.StatusPeerUnknown.Code()
	if err := errorFor(code, "node x: it has another key"); !errors.Is(err, ErrPeerUnknown) ||
		err.Error() != "edge: node x: it has another key" {
		t.Errorf("a cause from the daemon: %v", err)
	}
	if err := errorFor(code, ""); err != error(ErrPeerUnknown) {
		t.Errorf("without one: %v", err)
	}
}
