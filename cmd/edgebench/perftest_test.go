package main

import (
	"strings"
	"testing"
)

func TestFlagsOfPerftest(t *testing.T) {
	for _, tc := range []struct {
		line, want string // want: what is left of the line
		refused    string // what the error says
		notes      int
	}{
		// What ib_write_bw, ib_write_lat and ib_read_bw share with us.
		{"one-way peer -a", "one-way peer -a", "", 0},
		{"one-way peer -s 65536 -n 1000 -t 64 -b -D 3", "one-way peer -s 65536 -n 1000 -t 64 -b -D 3", "", 0},
		{"one-way peer --report_gbits --tx-depth=16 --bidirectional", "one-way peer --report-gbits --depth=16 --both",
			"", 0},
		{"one-way peer --tx-depth 16", "one-way peer --depth 16", "", 0},
		{"one-way --lab -m 64:1m -o out/", "one-way --lab -m 64:1m -o out/", "", 0},
		// Without meaning: taken, with a note.
		{"one-way -d mlx5_0 -i 1 -x 3 -F peer", "one-way peer", "", 4},
		{"one-way -dmlx5_0 -i1 --CPU-freq --gid-index=3 --ib-dev mlx5_1 peer", "one-way peer", "", 5},
		{"one-way -aF peer", "one-way -a peer", "", 1},
		{"one-way -Fa peer -Fs 64", "one-way -a peer -s 64", "", 2},
		{"one-way -s64 -FR -p 18515 peer", "one-way -s64 peer", "", 3},
		{"read -u 14 -S 0 -c RC peer", "read peer", "", 3},
		{"read --connection RC --connection=RC peer", "read peer", "", 2},
		{"server -d mlx5_0 -F", "server", "", 2},
		{"one-way peer -F -- -F -q", "one-way peer -- -F -q", "", 1},
		// A value that looks like a flag of perftest is a value.
		{"one-way peer -o -q", "one-way peer -o -q", "", 0},
		// With another meaning: refused, with the right one.
		{"one-way peer -q 8", "", "--conns N", 0},
		{"one-way peer -q8", "", "--conns N", 0},
		{"one-way peer -aq 8", "", "--conns N", 0},
		{"one-way peer --qp=8", "", "--conns N", 0},
		{"compare --lab -q 8", "", "-t N (--depth)", 0},
		{"one-way peer -m 4096", "", "--lab-mtu", 0},
		{"one-way peer --mtu 4096", "", "--lab-mtu", 0},
		{"read peer -o 16", "", "-t N (--depth)", 0},
		{"read peer --outs=16", "", "-t N (--depth)", 0},
		{"one-way peer -l 32", "", "--batch", 0},
		{"ping-pong peer -e", "", "--poll block", 0},
		{"ping-pong peer -H", "", "percentiles", 0},
		{"ping-pong peer -C", "", "nanoseconds", 0},
		{"one-way peer -c UD", "", "reliable", 0},
		{"one-way peer -cUC", "", "reliable", 0},
		{"one-way peer -O", "", "--lab-links", 0},
		{"one-way peer --rate_limit 10", "", "--lab-rates", 0},
		{"one-way peer -V", "", "--version", 0},
		// Other commands have letters of their own.
		{"plot a.json -o 16", "plot a.json -o 16", "", 0},
		{"faults --lab -q", "faults --lab -q", "", 0},
		{"", "", "", 0},
	} {
		kept, notes, err := fromPerftest(strings.Fields(tc.line))
		switch {
		case tc.refused != "":
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, want an error that says %q", tc.line, err, tc.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", tc.line, err)
		case strings.Join(kept, " ") != tc.want || len(notes) != tc.notes:
			t.Errorf("%s: became %q with notes %q; want %q with %d", tc.line, strings.Join(kept, " "), notes, tc.want,
				tc.notes)
		}
	}
}

// No flag of ours is taken for one of perftest's.
func TestOurFlagsStayOurs(t *testing.T) {
	for _, f := range foreignFlags {
		if f.short == "" || f.only != nil {
			continue
		}
		if _, own := ours[f.short[0]]; own {
			t.Errorf("-%s is ours, and perftest's --%s", f.short, f.long)
		}
		if f.refuse == "" && f.idle == "" {
			t.Errorf("-%s says nothing", f.short)
		}
	}
}

func TestPerftestFlagsReachTheCommandLine(t *testing.T) {
	cmd, _, stderr := edgebench("one-way", "-q", "4", "peer")
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "--conns N") {
		t.Errorf("-q: %v, %s", err, stderr)
	}
	cmd, _, stderr = edgebench("one-way", "-d", "mlx5_0", "--socket", "/nowhere", "peer")
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "note: -d changes nothing") ||
		!strings.Contains(stderr.String(), "/nowhere") {
		t.Errorf("-d: %v, %s", err, stderr)
	}
}
