package profile

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// symbols are the kernel's functions in the order of their addresses.
type symbols struct {
	addrs []uint64
	names []string
}

// errHidden means that the kernel does not tell its addresses.
var errHidden = errors.New("/proc/kallsyms hides addresses (sysctl kernel.kptr_restrict)")

func kernelSymbols() (*symbols, error) {
	data, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	return parseSymbols(data)
}

// parseSymbols reads lines of an address, a type and a name, of which those of type t are code.
func parseSymbols(data []byte) (*symbols, error) {
	type symbol struct {
		addr uint64
		name string
	}
	var all []symbol
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		f := bytes.Fields(sc.Bytes())
		if len(f) < 3 || len(f[1]) != 1 || f[1][0]|0x20 != 't' && f[1][0]|0x20 != 'w' {
			continue
		}
		addr, err := strconv.ParseUint(string(f[0]), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/kallsyms: %w", err)
		}
		all = append(all, symbol{addr, string(f[2])})
	}
	slices.SortStableFunc(all, func(a, b symbol) int { return cmp.Compare(a.addr, b.addr) })
	s := &symbols{}
	for _, sym := range all {
		s.addrs, s.names = append(s.addrs, sym.addr), append(s.names, sym.name)
	}
	if len(all) == 0 || all[len(all)-1].addr == 0 {
		return nil, errHidden
	}
	return s, nil
}

// name returns the function that contains addr, "" when it is before all.
func (s *symbols) name(addr uint64) string {
	i, exact := slices.BinarySearch(s.addrs, addr)
	if !exact {
		i--
	}
	if i < 0 {
		return ""
	}
	return s.names[i]
}
