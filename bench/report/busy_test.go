package report

import (
	"strings"
	"testing"
)

func TestBusy(t *testing.T) {
	for _, tc := range []struct {
		name           string
		others, stolen float64 // of four processors over two seconds
		want           string
	}{
		{"quiet", 0.7, 0, ""},
		{"others", 2, 0, "other programs used 25 % of the processors"},
		{"stolen", 0.4, 0.4, "a hypervisor took 5 % of them"},
		{"both", 2.4, 0.4, "other programs used 25 % of the processors, a hypervisor took 5 % of them"},
	} {
		r := Row{Seconds: 2, Disturbance: Disturbance{OtherCPU: tc.others, StolenCPU: tc.stolen, Busy: "stale"}}
		if r.judge(4); r.Busy != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, r.Busy, tc.want)
		}
	}
	f := NewFile(Head{Machine: Machine{CPUs: 4, Load: 1.9}})
	f.Results = []Row{{Seconds: 2}, {Seconds: 2, Disturbance: Disturbance{OtherCPU: 2.4, StolenCPU: 0.4,
		Switches: 300}}}
	if d := f.Disturbances(); d != nil {
		t.Errorf("a quiet run is called busy: %q", d)
	}
	f.Results[1].judge(4)
	f.Machine.Load = 2.1
	all := strings.Join(f.Disturbances(), "; ")
	for _, want := range []string{"load average of 2.1 on 4", "1 of 2 measurements", "used 25 %", "took 5 %",
		"150 times a second"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q does not say %q", all, want)
		}
	}
}
