package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/internal/abi"
)

var root = filepath.Join("..", "..", "..")

// TestNothingIsStale: what is made from the register is in the tree as the register is now.
func TestNothingIsStale(t *testing.T) {
	for _, o := range outputs {
		old, err := os.ReadFile(filepath.Join(root, o.path))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := o.render(root, string(old)); err != nil || text != string(old) {
			t.Errorf("%s is stale: run go generate ./internal/abi (%v)", o.path, err)
		}
	}
}

// TestEveryConstantIsRegistered: each constant of package abi that has a number of its own is in a table, so that C,
// the documents and the errors of programs have it, too.
func TestEveryConstantIsRegistered(t *testing.T) {
	all, err := register(root)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, c := range all {
		switch c.name {
		case "FirstLocal", "CodeLimit", "CodeNoConn", "FlagsAll", "PermAll", "AllFeatures", "ClientFeatures":
		default:
			count[c.typ]++
		}
	}
	want := map[string]int{"Op": len(abi.Ops), "Flags": len(abi.FlagBits), "Features": len(abi.FeatureBits),
		"Perm": len(abi.PermBits), "Completion": len(abi.Completions), "AtomicFunc": len(abi.Atomics),
		"Kind": len(abi.Kinds)}
	for typ, n := range want {
		if count[typ] != n {
			t.Errorf("%d constants of type %s, %d entries of its table", count[typ], typ, n)
		}
	}
	if n := count["Status"] + count["Code"]; n != len(abi.Statuses) {
		t.Errorf("%d statuses and codes, %d entries of their table", n, len(abi.Statuses))
	}
}

// TestNewStatus: an entry more in the register is in every output, the last one as well.
func TestNewStatus(t *testing.T) {
	last := &abi.Statuses[len(abi.Statuses)-1]
	old := *last
	defer func() { *last = old }()
	*last = abi.StatusInfo{Code: 999, Word: "new-one", Text: "what is new", C: "NEW", Errno: "EDOM", Help: "new; do so"}
	for what, text := range map[string]string{"ABI_STATUS_NEW_ONE = 999,": constants(), "X(NEW, EDOM,": constants(),
		"_Static_assert(-EDGE_ERR_NEW == 999": agreement(), "EDGE_ERR_NEW = -999,": publicErrors(),
		"| 999 | new-one | what is new |": codeTable()} {
		if !strings.Contains(text, what) {
			t.Errorf("no %q", what)
		}
	}
	last.Code, last.Sent = 99, "OpNak"
	if text := wireTable(); !strings.Contains(text, "| 99 | new-one | what is new | OpNak |") {
		t.Error("the wire does not have it")
	}
	last.Like = abi.CodeBusy
	if text := constants(); !strings.Contains(text, "X(ABI_STATUS_NEW_ONE, BUSY)") ||
		strings.Contains(publicErrors(), "NEW") {
		t.Error("a status that is like another one has an error of its own")
	}
}

// TestSections: text between marks is replaced, and nothing else; a mark that is not there is an error.
func TestSections(t *testing.T) {
	render := between("<%s>\n", "</>\n", sections{"a": func() string { return "new\n" }})
	if got, err := render("", "x\n<a>\nold\n</>\ny\n</>\n"); err != nil || got != "x\n<a>\nnew\n</>\ny\n</>\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"x\n", "<a>\nold\n"} {
		if got, err := render("", bad); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}
