package shard

import (
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	LendAfter = 0 // links are lent whenever there is something on them
	goleak.VerifyTestMain(m)
}

// lacks skips a test that needs what this user may not have. Root may have everything, so there it fails.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf("it lacks "+format, args...)
	}
	t.Skipf("it lacks "+format, args...)
}

// pollFor polls descriptors, again after a signal.
func pollFor(set []unix.PollFd, ms int) (n int, err error) {
	for {
		if n, err = unix.Poll(set, ms); err != unix.EINTR {
			return n, err
		}
	}
}
