package daemon

import (
	"os"
	"strings"
	"testing"
)

// All pages of the code are there afterwards, as smaps counts them.
func TestResidentCode(t *testing.T) {
	must(t, residentCode())
	smaps, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	program, err := os.Readlink("/proc/self/exe")
	must(t, err)
	found, code, size := false, false, ""
	for line := range strings.Lines(string(smaps)) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 6 && len(f[1]) == 4:
			code = f[1] == "r-xp" && f[5] == program
		case code && f[0] == "Size:":
			size = f[1]
		case code && f[0] == "Rss:":
			found = true
			if f[1] != size {
				t.Errorf("%s kB of %s kB of code are resident", f[1], size)
			}
		}
	}
	if !found {
		t.Fatal("the code is not in smaps")
	}
}
