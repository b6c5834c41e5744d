package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The rule of addresses: only drivers know how links address each other. To the engine an address is a frame.Addr,
// which it compares and passes on, and what precedes a frame on a link are bytes that frame.Framing writes and reads.

// unaware are the packages that know no link's addresses.
var unaware = []string{"flowctl", "internal/engine", "internal/engine/build", "internal/engine/op",
	"internal/engine/op/eager", "internal/engine/op/message", "internal/engine/op/park", "internal/engine/path",
	"internal/engine/peering", "sched"}

// linkWords are names that only those have who know a link's addresses.
var linkWords = regexp.MustCompile(`EtherType|EthLen|HardwareAddr|MAC|^Ether|^mac$`)

func TestEngineKnowsNoLinkAddresses(t *testing.T) {
	seen := 0
	for _, dir := range unaware {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			seen++
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, pos := range addressUses(file) {
				t.Errorf("%v: a link's address is a frame.Addr here", fset.Position(pos))
			}
		}
	}
	if seen < 50 {
		t.Fatalf("only %d files; the test does not see the project", seen)
	}
}

// makers are the packages that make addresses of bytes: drivers, the wire format, and the simulator's network.
var makers = []string{"internal/sim", "internal/wire", "linkdrv"}

func TestDriversMakeAddresses(t *testing.T) {
	root, made := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "out" || d.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Ether" || !isPackage(file, sel.X, "multiedge/internal/frame") {
				return true
			}
			if made++; !contains(makers, dir) {
				t.Errorf("%v: only drivers make addresses", fset.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if made == 0 {
		t.Error("nobody makes addresses; the test does not see the project")
	}
}

// addressUses lists where a file has arrays of six bytes, or a name of linkWords.
func addressUses(file *ast.File) (at []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ArrayType:
			if length, ok := n.Len.(*ast.BasicLit); ok && length.Value == "6" {
				at = append(at, n.Pos())
			}
		case *ast.Ident:
			if linkWords.MatchString(n.Name) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

func TestAddressUses(t *testing.T) {
	for body, want := range map[string]int{
		"var a [6]byte": 1, "a := wire.EthLen": 1, "a := x.MAC": 1, "a := frame.Ether(b)": 1, "a := frame.HeaderLen": 0,
		"var a [7]byte": 0, "mac := 1": 1, "a := frame.Broadcast": 0, "var a []byte": 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(addressUses(file)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}
