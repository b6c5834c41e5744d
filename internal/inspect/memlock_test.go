package inspect

import (
	"strings"
	"testing"
)

// Doctor does not advise a unit of systemd to set what the unit has already.
func TestTightMemlock(t *testing.T) {
	for _, c := range []struct {
		limit          uint64
		unit           bool
		severity, want string
	}{
		{8 << 20, true, FindingProblem, "systemctl edit edged"}, {8 << 20, false, FindingProblem, "ulimit -l"},
		{1 << 30, false, FindingWarning, "ulimit -l"},
	} {
		var f findings
		f.tightMemlock(c.limit, c.unit)
		if len(f) != 1 || f[0].Severity != c.severity || !strings.Contains(f[0].Remedy, c.want) ||
			strings.Contains(f[0].Remedy, "set LimitMEMLOCK") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
