package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// PROTOCOL clause 21: two hosts beyond a router, whose daemons are ordinary users' without any capability, do
// everything that hosts on one Ethernet do, over IPv4 and IPv6, and every byte is right.
func TestRoutedHosts(t *testing.T) {
	for name, spec := range map[string]ClusterSpec{
		"IPv4": {Lab: lab.Spec{Medium: lab.Routed, Links: 2, MTU: 1500}}, "IPv6": {Lab: lab.Spec{Medium: lab.Routed,
			IPv6: true}}, "lanes": {Lab: lab.Spec{Medium: lab.Routed, Paths: 4}, Lanes: 4},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Pin, spec.Nobody = true, true
			c := cluster(t, spec)
			for host := range 2 {
				if caps := effective(t, c.Daemon(host).Pid()); caps != "0000000000000000" {
					t.Fatalf("the daemon of host %d has capabilities %s", host, caps)
				}
			}
			tests := allTests(true)
			for _, r := range runPlans(t, c, tests...) {
				if r.IntegrityErrors > 0 || !r.IntegrityChecked || r.Operations == 0 || r.Driver != linkdrv.KindIP ||
					r.Links != c.lab.Links()*max(1, spec.Lanes) || r.Security != config.Encrypted {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// effective reads the effective capabilities of a process.
func effective(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatal("the kernel does not say what capabilities a process has")
	return ""
}
