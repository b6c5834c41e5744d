package contender

import (
	"slices"
	"strings"
	"testing"

	"multiedge/bench/report"
	"multiedge/internal/lab"
	"multiedge/linkdrv"
)

// What runs over TCP says in its row, and in its name, what congestion control its own sockets had.
func TestRowsNameTheCongestionControl(t *testing.T) {
	known, err := lab.CongestionControls()
	if err != nil || len(known) < 2 {
		t.Fatalf("this kernel has %v, %v: nothing to choose", known, err)
	}
	l := testJob(t, lab.Spec{MTU: 9000}, report.OneWay, 1<<16)
	for _, name := range known {
		o := Over{Congestion: name}
		for _, c := range []Contender{TCP{o}, TLS{o}} {
			r, err := run(t.Context(), c, l)
			if err != nil {
				t.Fatal(err)
			}
			if r.Congestion != name || !slices.Contains(strings.Fields(r.Contender()), name) {
				t.Errorf("%s over %s: the row says %q", r.Contender(), name, r.Congestion)
			}
		}
	}
	if _, err := run(t.Context(), TCP{Over{Congestion: "carrierpigeon"}}, l); err == nil ||
		!strings.Contains(err.Error(), "carrierpigeon") {
		t.Errorf("a congestion control that the kernel does not have: %v", err)
	}
}

// A row with the name of one congestion control and sockets of another is not made.
func TestOtherCongestionControlIsRefused(t *testing.T) {
	row := &report.Row{}
	if err := (Over{Congestion: "cubic"}).confirm(row, "cubic", "cubic"); err != nil || row.Congestion != "cubic" {
		t.Errorf("%v, %+v", err, row)
	}
	if err := (Over{}).confirm(row, "cubic", "bbr"); err == nil || !strings.Contains(err.Error(), `"bbr", not "cubic"`) {
		t.Errorf("sockets with bbr: %v", err)
	}
}

func TestNamesOfSettings(t *testing.T) {
	for _, c := range []struct {
		c    Contender
		want string
	}{
		{TCP{}, "cubic"}, {TCP{Over{Congestion: "bbr", Free: true}}, "bbr free"},
		{Iperf3{Over{Free: true}}, "cubic free"},
		{TLS{}, "go aes128gcm cubic"}, {KTLS{}, "aes128gcm cubic"}, {UCX{}, "put cubic"},
		{Libfabric{Provider: "tcp"}, "tcp cubic"}, {Libfabric{Provider: "udp"}, "udp"},
	} {
		if got := c.c.Variant(); got != c.want {
			t.Errorf("%T: %q, want %q", c.c, got, c.want)
		}
	}
	names := map[string]int{}
	for _, c := range All([]Over{{}, {Free: true}, {Congestion: "bbr"}}) {
		names[c.Name()+" "+c.Variant()]++
	}
	for _, want := range []string{"tcp cubic", "tcp cubic free", "tcp bbr", "iperf3 bbr", "tls go aes128gcm cubic"} {
		if names[want] != 1 {
			t.Errorf("%d of %q among %v", names[want], want, names)
		}
	}
}

// Bound to processors, or free although the hosts have their own: the row says which.
func TestRowsNameTheCores(t *testing.T) {
	j := testJob(t, lab.Spec{MTU: 9000}, report.OneWay, 1<<16)
	j.CPUs = [2][]int{{0}, {0}}
	for free, want := range map[bool]string{false: report.CoresPinned, true: report.CoresFree} {
		r, err := run(t.Context(), TCP{Over{Free: free}}, j)
		if err != nil || r.Cores != want {
			t.Errorf("free %v: %+v, %v", free, r, err)
		}
	}
}

// Memory is touched before the clock starts: a round has hardly a page fault, although it crosses the region once at
// least and nothing has warmed it up.
func TestMemoryIsTouchedBeforeTheClock(t *testing.T) {
	const pages = 32 << 20 / 4096
	for _, c := range []Contender{Raw{Kind: linkdrv.KindRing}, Raw{Kind: linkdrv.KindUDP, Sealed: true}, TCP{}, TLS{}} {
		j := testJob(t, lab.Spec{MTU: 9000}, report.OneWay, 1<<20)
		j.Warmup, j.Region = 0, pages*4096
		j.Duration *= 2
		r, err := run(t.Context(), c, j)
		if err != nil {
			t.Fatal(err)
		}
		if used := min(r.Bytes/4096, pages); r.PageFaults > used/10 {
			t.Errorf("%s %s: %d page faults while %d pages were used at each end", c.Name(), c.Variant(),
				r.PageFaults, used)
		}
		t.Logf("%s %s: %d faults, %d MiB", c.Name(), c.Variant(), r.PageFaults, r.Bytes>>20)
	}
}

// Where the kernel has no TLS, that is said, with what to do.
func TestKernelTLSOrWhyNot(t *testing.T) {
	c := KTLS{}
	if why := c.Missing(); why != "" {
		if !strings.Contains(why, "modprobe tls") {
			t.Errorf("%q", why)
		}
		t.Log(why)
		return
	}
	j := testJob(t, lab.Spec{MTU: 9000}, report.OneWay, 1<<16)
	if r, err := run(t.Context(), c, j); err != nil || r.Bytes == 0 || r.Security != "encrypted" {
		t.Errorf("%+v, %v", r, err)
	}
}

// struct tls12_crypto_info_aes_gcm_128 of linux/tls.h, which the kernel refuses at any other length.
func TestCryptoInfo(t *testing.T) {
	a, b := cryptoInfo(0), cryptoInfo(1)
	if len(a) != 40 || string(a[:4]) != "\x04\x03\x33\x00" && string(a[:4]) != "\x03\x04\x00\x33" ||
		string(a[32:]) != "\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%x", a)
	}
	if string(a) == string(b) {
		t.Error("both directions have one key")
	}
}
