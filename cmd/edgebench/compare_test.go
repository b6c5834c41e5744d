package main

import (
	"path/filepath"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// Every row, work and ratio says what TCP it was: the congestion control that its sockets had, cores, offloads, region.
// Without --region there are two, one that caches hold and one that none does, and the first touch of each.
func TestCompareNamesWhatItCompares(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	cmd, stdout, stderr := edgebench("compare", "one-way", "--lab", "-s", "64k", "-D", "0.03", "--rounds", "1",
		"--only",
		"tcp,tls,ktls", "--edge", "udp-encrypted", "--tcp-cc", "cubic,reno", "-o", file)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	f, err := report.ReadFile(file)
	must(t, err)
	seen := map[string]int{}
	for _, r := range f.Results {
		seen[r.Contender()+", "+report.Bytes(r.RegionBytes)]++
		if r.Transport == report.TransportTCP && (r.Congestion == "" || !strings.HasSuffix(r.Variant, r.Congestion)) ||
			r.Test != report.FirstTouch && (r.Cores == "" || r.Offloads == "") {
			t.Errorf("%+v", r.Setup)
		}
	}
	for _, name := range []string{"edge udp encrypted", "tcp cubic", "tcp reno", "tls go aes128gcm cubic",
		"memory first"} {
		for _, region := range []string{"4 MiB", "256 MiB"} {
			if seen[name+", "+region] != 1 {
				t.Errorf("%d rows of %s with a region of %s", seen[name+", "+region], name, region)
			}
		}
	}
	for _, want := range []string{"one-way, 64 KiB, region 4 MiB, 1 link, MTU 9000, offloads TSO", "region 256 MiB",
		"edge udp encrypted / tcp reno ", "edge udp encrypted / tls go aes128gcm cubic", "memory first"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout.String(), "ktls") == strings.Contains(stderr.String(), "ktls is left out") {
		t.Errorf("kernel TLS is neither measured nor missed: %s", stderr)
	}
}
