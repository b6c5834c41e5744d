// Command generate writes what is made from the register: constants for C, names that packages pass on, and tables of
// documents. "go generate ./internal/abi" runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(filepath.Join("..", "..")); err != nil { // go generate runs it in internal/abi
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run renews every output below root, the folder of the project.
func run(root string) error {
	for _, o := range outputs {
		path := filepath.Join(root, o.path)
		old, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		text, err := o.render(root, string(old))
		if err != nil {
			return fmt.Errorf("%s: %w", o.path, err)
		}
		if text != string(old) {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// output is a file that is made from the register, as a whole or between marks.
type output struct {
	path   string
	render func(root, old string) (string, error)
}

var outputs = []output{
	{"edge/c/abi_const.h", func(_, _ string) (string, error) { return constants(), nil }},
	{"edge/c/abi_agree.h", func(_, _ string) (string, error) { return agreement(), nil }},
	{"edge/c/edge.h", between("\t/* abi: %s (go generate ./internal/abi) */\n", "\t/* end of abi */\n", sections{
		"errors": publicErrors,
	})},
	{"docs/ABI.md", between("<!-- abi: %s (go generate ./internal/abi) -->\n", "<!-- end of abi -->\n", sections{
		"features": featureTable, "requests": requestTable, "events": eventTable, "ops": opTable, "flags": flagTable,
		"completions": completionTable, "atomics": atomicTable, "permissions": permTable, "statuses": codeTable,
		"limits": limitTable,
	})},
	{"docs/PROTOCOL.md", between("<!-- abi: %s (go generate ./internal/abi) -->\n", "<!-- end of abi -->\n", sections{
		"statuses": wireTable, "atomics": atomicTable,
	})},
	{"internal/ipc/abi.go", names("ipc", func(c constant) bool { return c.typ != "Perm" })},
	{"internal/engine/abi.go", names("engine", func(c constant) bool {
		return c.typ == "Status" && c.value > 0 && c.value < int(firstLocal)
	})},
	{"internal/wire/abi.go", names("wire", func(c constant) bool { return c.typ == "AtomicFunc" })},
}
