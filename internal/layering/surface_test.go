package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rule of the surface: a program that uses package edge meets few names. What not every program needs is in a
// package above it.

// mostNames is how many names edge may export: constants, functions, types and their methods, and variables but for
// error values, which are few words of one kind. Lower it when there are fewer.
const mostNames = 120

func TestEdgeExportsFewNames(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "edge", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names, errors []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range exportedNames(file) {
			if strings.HasPrefix(name, "Err") {
				errors = append(errors, name)
			} else {
				names = append(names, name)
			}
		}
	}
	if len(names) < 50 || len(errors) < 10 {
		t.Fatalf("only %d names and %d errors; the test does not see the package", len(names), len(errors))
	}
	slices.Sort(names)
	if len(names) > mostNames {
		t.Errorf("edge exports %d names, more than %d: put what not every program needs into a package above it\n%s",
			len(names), mostNames, strings.Join(names, " "))
	}
}

// exportedNames lists what a file exports, methods as Type.Method.
func exportedNames(file *ast.File) (names []string) {
	add := func(prefix string, id *ast.Ident) {
		if id.IsExported() {
			names = append(names, prefix+id.Name)
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add("", d.Name)
			} else if of := receiver(d); ast.IsExported(of) {
				add(of+".", d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add("", spec.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add("", id)
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of the type that a method is of.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

func TestExportedNames(t *testing.T) {
	const source = `package p
const A, b = 1, 2
var ErrC, d error
type E struct{ F int }
type g struct{}
func (E) H()  {}
func (*E) I() {}
func (g) J()  {}
func (E) k()  {}
func L()      {}
func m()      {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(exportedNames(file), " "); got != "A ErrC E E.H E.I L" {
		t.Errorf("found %s", got)
	}
}

// verbs are the files of edge that carry operations, and must know nothing of what is built of them.
var verbs = []string{"post.go", "completion.go", "conn.go", "notify.go", "wait.go", "leadership.go", "queue.go"}

func TestVerbsKnowNoStreams(t *testing.T) {
	for _, name := range verbs {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "edge", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && strings.Contains(strings.ToLower(id.Name), "stream") {
				t.Errorf("edge/%s has the name %s", name, id.Name)
			}
			return true
		})
	}
}
