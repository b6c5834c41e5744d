package report

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes formats a size the short way: 4 B, 64 KiB, 1 MiB. Sizes that are no whole number of a unit keep three digits.
func Bytes(n int) string {
	for _, u := range []struct {
		bytes int
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		switch {
		case n < u.bytes:
		case n%u.bytes == 0:
			return fmt.Sprintf("%d %s", n/u.bytes, u.name)
		default:
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// ParseBytes reads a size: 4096, 64k, 64K, 64KiB, 1m, 1MiB, 2g. Units are powers of 1024, as in perftest.
func ParseBytes(s string) (int, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "b"), "i")
	shift := 0
	if t != "" {
		switch t[len(t)-1] {
		case 'k':
			shift = 10
		case 'm':
			shift = 20
		case 'g':
			shift = 30
		}
	}
	if shift > 0 {
		t = t[:len(t)-1]
	}
	n, err := strconv.ParseInt(strings.TrimSpace(t), 10, strconv.IntSize)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0, n > math.MaxInt>>shift:
		return 0, fmt.Errorf("size %q is too large for any machine's memory", s)
	case err != nil || n < 0:
		return 0, fmt.Errorf("size %q: want bytes such as 4096, 64k, 1m or 1MiB", s)
	}
	return int(n << shift), nil
}

// Gbit formats a throughput in bytes per second as Gbit/s (10^9 bits).
func Gbit(bytesPerSecond float64) string { return fmt.Sprintf("%.2f Gbit/s", bytesPerSecond*8/1e9) }

// Nanos formats nanoseconds for people: 812 ns, 3.10 us, 1.20 ms, 2.00 s.
func Nanos(ns float64) string {
	switch d := time.Duration(ns); {
	case d < time.Microsecond:
		return fmt.Sprintf("%.0f ns", ns)
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f us", ns/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	}
	return fmt.Sprintf("%.2f s", ns/1e9)
}

// Plural says how many there are: "1 link", "2 links".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ParseRate reads a link rate as tc writes them (10gbit, 250mbit, 64kbit, 1000bit) and returns bits per second.
func ParseRate(s string) (float64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	for _, u := range []struct {
		suffix string
		scale  float64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}} {
		num, ok := strings.CutSuffix(t, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(num, 64)
		if err != nil || v <= 0 {
			break
		}
		return v * u.scale, nil
	}
	return 0, fmt.Errorf("rate %q: want a number and bit, kbit, mbit or gbit, such as 250mbit", s)
}

// Rates formats per-link rates the way the paper names configurations: nxk, n links of rate k. Empty rates give the
// number of links.
func Rates(rates []string, links int) string {
	if len(rates) == 0 {
		return Plural(links, "link")
	}
	var parts []string
	for i := 0; i < len(rates); {
		j := i
		for j < len(rates) && rates[j] == rates[i] {
			j++
		}
		parts = append(parts, fmt.Sprintf("%dx%s", j-i, rates[i]))
		i = j
	}
	return strings.Join(parts, " + ")
}
