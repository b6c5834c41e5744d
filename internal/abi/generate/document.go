package main

import (
	"fmt"
	"math/bits"
	"strings"

	"multiedge/internal/abi"
)

const firstLocal = abi.FirstLocal

// sections are the generated parts of a file, by name.
type sections map[string]func() string

// between renders the sections of a file, each of which stands between a line that names it and another one.
func between(begin, end string, parts sections) func(root, old string) (string, error) {
	return func(_, old string) (string, error) {
		for name, part := range parts {
			before, rest, ok := strings.Cut(old, fmt.Sprintf(begin, name))
			_, after, closed := strings.Cut(rest, end)
			if !ok || !closed {
				return "", fmt.Errorf("no section %q between its marks", name)
			}
			old = before + fmt.Sprintf(begin, name) + part() + end + after
		}
		return old, nil
	}
}

// table renders rows below a heading.
func table(heading string, rows ...string) string {
	line := "|" + strings.Repeat("---|", strings.Count(heading, "|")-1)
	return "\n" + heading + "\n" + line + "\n" + strings.Join(rows, "") + "\n"
}

func bitTable(heading string, all []abi.Bit) string {
	var rows []string
	for _, b := range all {
		rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", bits.TrailingZeros64(b.Bits), b.Word, b.Text))
	}
	return table(heading, rows...)
}

func featureTable() string {
	t := bitTable("| bit | name | meaning |", abi.FeatureBits[:])
	return strings.TrimSuffix(t, "\n") + "| others | | reserved |\n\n"
}

func flagTable() string { return bitTable("| bit | flag | meaning |", abi.FlagBits[:]) }
func permTable() string { return bitTable("| bit | permission | meaning |", abi.PermBits[:]) }

func requestTable() string {
	var rows []string
	for i := range abi.Kinds {
		if k := &abi.Kinds[i]; !k.Event() && !k.Tool() {
			row := fmt.Sprintf("| %d | %s | %s | %s | %s | %s |\n", k.Kind, k.Word, k.Struct, k.Reply, k.Comes,
				k.Descriptors)
			rows = append(rows, strings.Replace(row, "|  |\n", "| |\n", 1))
		}
	}
	return table("| kind | request | struct | reply | comes | descriptors of the reply |", rows...)
}

func eventTable() string {
	var rows []string
	for i := range abi.Kinds {
		if k := &abi.Kinds[i]; k.Event() {
			rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", k.Kind, k.Word, k.Struct))
		}
	}
	return table("| kind | event | struct |", rows...)
}

func opTable() string {
	var rows []string
	for _, o := range abi.Ops {
		rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", o.Op, o.Word, o.Text))
	}
	return table("| op | name | meaning |", rows...)
}

func completionTable() string {
	var rows []string
	for _, c := range abi.Completions {
		rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", c.Kind, c.Word, c.Text))
	}
	return table("| kind | name | meaning |", rows...)
}

func atomicTable() string {
	var rows []string
	for _, f := range abi.Atomics {
		rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", f.Func, f.Word, f.Text))
	}
	return table("| number | name | stores |", rows...)
}

func codeTable() string {
	var rows []string
	for i := range abi.Statuses {
		s := &abi.Statuses[i]
		what := s.Text
		if s.Help != "" && s.Code < abi.Code(firstLocal) { // of these, it says more
			what, _, _ = strings.Cut(s.Help, ";")
		}
		rows = append(rows, fmt.Sprintf("| %d | %s | %s |\n", s.Code, s.Code, what))
	}
	return table("| number | word | meaning |", rows...)
}

func wireTable() string {
	var rows []string
	for i := range abi.Statuses {
		if s := &abi.Statuses[i]; s.Sent != "" {
			rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s |\n", s.Code, s.Code, s.Text, s.Sent))
		}
	}
	return table("| number | word | meaning | sent in |", rows...)
}

func limitTable() string {
	var rows []string
	for _, l := range abi.Limits {
		rows = append(rows, fmt.Sprintf("| %s | %d | %s |\n", l.C, l.Value, l.Text))
	}
	return table("| name | value | meaning |", rows...)
}
