package main

import (
	"fmt"
	"strings"

	"multiedge/internal/abi"
)

const notice = "by go generate ./internal/abi; change the register there, not this file"

// upper makes a word part of a name in C.
func upper(word string) string { return strings.ToUpper(strings.ReplaceAll(word, "-", "_")) }

// constants is abi_const.h: what libedge needs of the register.
func constants() string {
	var b strings.Builder
	fmt.Fprintf(&b, "/* The numbers of docs/ABI.md, written %s. */\n", notice)
	b.WriteString("#ifndef EDGE_ABI_CONST_H\n#define EDGE_ABI_CONST_H\n")
	enum := func(name, clause string, rows func(add func(name string, value uint64))) {
		fmt.Fprintf(&b, "\nenum %s{ /* %s */\n", name, clause)
		rows(func(name string, value uint64) { fmt.Fprintf(&b, "\tABI_%s = %d,\n", name, value) })
		b.WriteString("};\n")
	}
	enum("", "A2.2, A3.7, A10.1", func(add func(string, uint64)) {
		for _, l := range abi.Limits {
			if l.Value < 1<<31 {
				add(l.C, l.Value)
			}
		}
	})
	enum("abi_kind ", "A4", func(add func(string, uint64)) {
		for i := range abi.Kinds {
			if k := &abi.Kinds[i]; !k.Tool() {
				add(upper(k.Word), uint64(k.Kind))
			}
		}
	})
	enum("", "A6.6: op", func(add func(string, uint64)) {
		for _, o := range abi.Ops {
			add("OP_"+upper(o.Word), uint64(o.Op))
		}
	})
	enum("", "A6.11: kind", func(add func(string, uint64)) {
		for _, c := range abi.Completions {
			add(upper(c.Word), uint64(c.Kind))
		}
	})
	enum("", "A9", func(add func(string, uint64)) {
		for i := range abi.Statuses {
			add("STATUS_"+upper(abi.Statuses[i].Word), uint64(abi.Statuses[i].Code))
		}
	})
	errorTables(&b)
	b.WriteString("\n#endif\n")
	return b.String()
}

// errorTables writes the statuses as lists that error.c expands.
func errorTables(b *strings.Builder) {
	b.WriteString("\n/* X(name after EDGE_ERR_, errno, the error that it is as well, text). */\n")
	b.WriteString("#define ABI_ERRORS(X)")
	for i := range abi.Statuses {
		if s := &abi.Statuses[i]; s.Like == 0 && s.Code != 0 {
			also := "EDGE_OK"
			if s.Also != "" {
				also = "EDGE_ERR_" + s.Also
			}
			fmt.Fprintf(b, " \\\n\tX(%s, %s, %s, %s)", s.C, s.Errno, also, literal(s.Help))
		}
	}
	b.WriteString("\n\n/* X(status, name after EDGE_ERR_): programs get the error of another status. */\n")
	b.WriteString("#define ABI_ALIKE(X)")
	for i := range abi.Statuses {
		if s := &abi.Statuses[i]; s.Like != 0 {
			fmt.Fprintf(b, " \\\n\tX(ABI_STATUS_%s, %s)", upper(s.Word), s.Like.Info().C)
		}
	}
	b.WriteString("\n")
}

// literal renders a text as string literals that fit on a line.
func literal(text string) string {
	const most = 100
	var lines []string
	for len(text) > most {
		at := strings.LastIndexByte(text[:most], ' ') + 1
		lines = append(lines, fmt.Sprintf("%q", text[:at]))
		text = text[at:]
	}
	lines = append(lines, fmt.Sprintf("%q", text))
	if len(lines) == 1 && len(text) < 80 {
		return lines[0]
	}
	return "\\\n\t  " + strings.Join(lines, " \\\n\t  ")
}

// publicErrors is the part of enum edge_error that the register numbers.
func publicErrors() string {
	var b strings.Builder
	for i := range abi.Statuses {
		s := &abi.Statuses[i]
		if s.Like != 0 || s.Code == 0 {
			continue
		}
		what, also := s.Help, ""
		if s.Also != "" {
			also = "; is a " + s.Also
		}
		const most = 120 - len("    EDGE_ERR_PEER_UNKNOWN = -7,   /*  */")
		if len(what+also) > most {
			what, _, _ = strings.Cut(what, ";")
		}
		if len(what+also) > most {
			what = s.Text
		}
		fmt.Fprintf(&b, "\t%-29s /* %s%s */\n", fmt.Sprintf("EDGE_ERR_%s = -%d,", s.C, s.Code), what, also)
	}
	return b.String()
}

// agreement is abi_agree.h: the compiler's check that the constants of edge.h are those of the register.
func agreement() string {
	var b strings.Builder
	fmt.Fprintf(&b, "/* The constants of edge.h are those of docs/ABI.md: written\n * %s. */\n", notice)
	same := func(name string, value uint64) {
		if name != "" {
			fmt.Fprintf(&b, "_Static_assert(%s == %d, %q);\n", name, value, name)
		}
	}
	for i := range abi.Statuses {
		if s := &abi.Statuses[i]; s.Like == 0 && s.Code != 0 {
			same("-EDGE_ERR_"+s.C, uint64(s.Code))
		}
	}
	for _, o := range abi.Ops {
		same(o.C, uint64(o.Op))
	}
	for _, f := range abi.Atomics {
		same(f.C, uint64(f.Func))
	}
	for _, l := range abi.Limits {
		same(l.Public, l.Value)
	}
	for _, all := range [][]abi.Bit{abi.FlagBits[:], abi.FeatureBits[:], abi.PermBits[:]} {
		for _, bit := range all {
			same(bit.C, bit.Bits)
		}
	}
	return b.String()
}
