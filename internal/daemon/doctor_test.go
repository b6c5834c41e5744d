package daemon

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Doctor says of an interface that it does not exist only where that is so, and not for want of a descriptor to look for it.
func TestDoctorWithoutDescriptors(t *testing.T) {
	var none, without findings
	none.iface("none", "")
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	without.iface("lo", "")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]findings{"there is no such interface": none, "too many open files": without} {
		if len(got) != 1 || got[0].Severity != FindingProblem || !strings.Contains(got[0].Text, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}
