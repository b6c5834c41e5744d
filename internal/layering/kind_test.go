package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The files of a kind of operation, of which atomics are the example: two for the transport (docs/ARCHITECTURE.md, "How
// to add a kind of operation"), and those that pass its name on.
var atomicFiles = map[string]bool{
	"internal/wire/segment_atomic.go": true,
	"internal/engine/op/atomic.go":    true,
	"internal/engine/types.go":        true, // names for owners
}

// TestKindsLiveInTheirFiles finds out who in the transport knows of atomics. TestAnotherKind adds a kind.
func TestKindsLiveInTheirFiles(t *testing.T) {
	root, found := filepath.Join("..", ".."), map[string]bool{}
	for _, dir := range []string{"internal/engine", "internal/wire", "flowctl", "sched"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			ast.Inspect(file, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok || id.Name != "OpAtomic" && !strings.HasPrefix(id.Name, "KindAtomic") {
					return true
				}
				if found[name] = true; !atomicFiles[name] {
					t.Errorf(
						"%v: %s: a kind lives in its own files; give kinds (internal/engine/op/kinds.go) what it needs",
						fset.Position(id.Pos()), id.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) != len(atomicFiles) {
		t.Errorf("atomics are in %d files of %d; the test does not see the project", len(found), len(atomicFiles))
	}
}
