package workload

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInvoluntaryOf(t *testing.T) {
	name := filepath.Join(t.TempDir(), "status")
	must(t, os.WriteFile(name, []byte("Name:\tedged\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t41\n"),
		0o600))
	if n := involuntaryOf(name); n != 41 {
		t.Errorf("%d involuntary switches, want 41", n)
	}
	if n := involuntaryOf(name + ".gone"); n != 0 {
		t.Errorf("%d of a thread that is gone", n)
	}
}
