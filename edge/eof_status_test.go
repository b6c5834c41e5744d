package edge

import (
	"errors"
	"io"
	"testing"

	"multiedge/internal/ipc"
)

// Of all that a status or a word of the daemon can become, one error is io.EOF.
func TestOneErrorIsEOF(t *testing.T) {
	for i := range 256 {
		s := ipc.Status(i)
		if clean := s == ipc.StatusClosed; errors.Is(statusError[i], io.EOF) != clean {
			t.Errorf("status %v: %v", s, statusError[i])
		}
		if clean := s == ipc.StatusClosed || s == ipc.StatusOK; errors.Is(closedError(s.Code(), ""), io.EOF) != clean ||
			errors.Is(closedError(s.Code(), "why"), io.EOF) != clean {
			t.Errorf("a connection that ended with %v: %v", s, closedError(s.Code(), "why"))
		}
	}
	for _, code := range []ipc.Code{ipc.CodeInternal, 777} {
		if err := closedError(code, "why"); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a connection that ended with %q: %v", code.String(), err)
		}
	}
}
