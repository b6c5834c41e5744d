package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes. In a configuration file it is an integer or a string such as "256MiB".
type Size uint64

var sizeUnits = []struct {
	suffix string
	factor uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// ParseSize reads "4096", "64KiB", "256 MiB", "1GB". A bare K, M, G or T is binary.
func ParseSize(text string) (Size, error) {
	digits, factor := strings.TrimSpace(text), uint64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || (n > 0 && factor > ^uint64(0)/n) {
		return 0, fmt.Errorf("%q is not a size; write it like 4096, \"64KiB\" or \"1GiB\"", text)
	}
	return Size(n * factor), nil
}

// UnmarshalText serves command line flags, and strings in a configuration file.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := ParseSize(string(text))
	*s = n
	return err
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for i, name := range [...]string{"TiB", "GiB", "MiB", "KiB"} {
		bits := 40 - 10*i
		if s != 0 && s%(1<<bits) == 0 {
			return fmt.Sprintf("%d%s", s>>bits, name)
		}
	}
	return fmt.Sprintf("%dB", uint64(s))
}
