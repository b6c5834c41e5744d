package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// The limits of the house, so that whatever is read at once fits on a screen. There are no exceptions: they hold for
// tests as well.
const (
	maxColumns = 120 // a tab counts as four
	maxLines   = 600 // of a file
	maxBody    = 80  // lines of a function
	maxFields  = 30  // of a struct
	minFiles   = 400 // fewer: the test does not see the project
)

func TestFilesFitOnAScreen(t *testing.T) {
	root, seen := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "out" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		end := filepath.Ext(path)
		if end != ".go" && end != ".c" && end != ".h" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		raw := map[int]bool{} // lines that cannot be broken
		if end == ".go" {
			seen++
			checkGo(t, path, src, raw)
		}
		checkLines(t, path, string(src), raw)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < minFiles {
		t.Fatalf("only %d files looked at; the test does not see the project", seen)
	}
}

// checkGo reports what of a file's functions and types is beyond the limits, and finds the lines with raw strings and
// tags.
func checkGo(t *testing.T, path string, src []byte, raw map[int]bool) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		t.Error(err)
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if strings.HasPrefix(n.Value, "`") {
				for l := fset.Position(n.Pos()).Line; l <= fset.Position(n.End()).Line; l++ {
					raw[l] = true
				}
			}
		case *ast.FuncDecl:
			if lines := span(fset, n); lines > maxBody {
				t.Errorf("%s: %s has %d lines; at most %d", fset.Position(n.Pos()), n.Name.Name, lines, maxBody)
			}
		case *ast.StructType:
			if fields(n) > maxFields {
				t.Errorf("%s: a struct has %d fields; at most %d", fset.Position(n.Pos()), fields(n), maxFields)
			}
		}
		return true
	})
}

// checkLines reports a file that is too long, and lines that are.
func checkLines(t *testing.T, path, src string, raw map[int]bool) {
	lines := strings.Split(src, "\n")
	if len(lines)-1 > maxLines {
		t.Errorf("%s has %d lines; at most %d", path, len(lines)-1, maxLines)
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(strings.ReplaceAll(l, "\t", "    ")); n > maxColumns && !raw[i+1] {
			t.Errorf("%s:%d has %d columns; at most %d", path, i+1, n, maxColumns)
		}
	}
}

func span(fset *token.FileSet, n ast.Node) int {
	return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
}

// fields counts names; an embedded type is one.
func fields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
