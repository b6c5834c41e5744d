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

// structs are the struct types of the project, by "folder.Name".
type structs map[string]declared

type declared struct {
	pos     token.Position
	fields  *ast.StructType
	imports map[string]string // folders, by the name that the file has for them
}

// wide are the structs that reach more. Nothing may be added; who names the parts of one takes it out.
var wide = map[string]string{
	"internal/ipc.Message":    "its parts are one object on the wire",
	"internal/inspect.Status": "its parts are one object on the wire",
	"internal/config.Config":  "its parts are one table of the file",
	"bench/report.Row":        "its parts are one line of results",
	"bench/report.line":       "its parts are one line of results",
	"bench/figure.entry":      "embeds a line of results",
	"bench/figure.entryView":  "embeds a line of results",
}

// flags are the folders whose wide structs are flags: the library that parses these wants sets of them embedded.
const flags = "cmd/"

// TestStructsReachFewFields counts what one dot reaches: a struct's own fields and those of what it embeds. The limit
// for own fields (maxFields) would otherwise be kept by embedding, and a name such as c.pending would have no owner.
func TestStructsReachFewFields(t *testing.T) {
	root, all := filepath.Join("..", ".."), structs{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "out" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		all.add(fset, dir, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Fatalf("only %d structs; the test does not see the project", len(all))
	}
	for name := range wide {
		if all.reach(name) <= maxFields {
			t.Errorf("%s does not reach more than %d fields any more; take it out of wide", name, maxFields)
		}
	}
	for name, d := range all {
		if n := all.reach(name); n > maxFields && wide[name] == "" && !strings.HasPrefix(name, flags) {
			t.Errorf("%v: %s reaches %d fields with what it embeds; at most %d: name the parts", d.pos, name, n,
				maxFields)
		}
	}
}

// add notes the structs that a file declares at its top level.
func (s structs) add(fset *token.FileSet, dir string, file *ast.File) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		inside, ours := strings.CutPrefix(path, "multiedge/")
		if !ours {
			continue
		}
		name := inside[strings.LastIndexByte(inside, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = inside
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok {
				if st, ok := spec.Type.(*ast.StructType); ok {
					s[dir+"."+spec.Name.Name] = declared{fset.Position(spec.Pos()), st, imports}
				}
			}
		}
	}
}

// reach is how many fields one dot reaches from a struct, 0 for what the project does not declare.
func (s structs) reach(name string) (n int) {
	d, ok := s[name]
	if !ok {
		return 0
	}
	for _, f := range d.fields.Fields.List {
		n += max(1, len(f.Names))
		if len(f.Names) == 0 {
			n += s.reach(d.embedded(name[:strings.LastIndexByte(name, '.')], f.Type))
		}
	}
	return n
}

// embedded is the name under which structs would have an embedded type.
func (d declared) embedded(dir string, x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return d.embedded(dir, x.X)
	case *ast.IndexExpr: // of a generic type
		return d.embedded(dir, x.X)
	case *ast.Ident:
		return dir + "." + x.Name
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok && d.imports[id.Name] != "" {
			return d.imports[id.Name] + "." + x.Sel.Name
		}
	}
	return ""
}

func TestReach(t *testing.T) {
	src := "package p\nimport o \"multiedge/other\"\ntype a struct { x, y int; b; *o.C }\n" +
		"type b struct { z int; named c }\ntype c struct { u, v, w int }\n"
	all := structs{}
	other := "package other\ntype C struct { i, j int }\n"
	for dir, text := range map[string]string{"p": src, "other": other} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, dir+".go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		all.add(fset, dir, file)
	}
	for name, want := range map[string]int{"p.a": 8, "p.b": 2, "p.c": 3, "other.C": 2, "p.none": 0} {
		if got := all.reach(name); got != want {
			t.Errorf("%s reaches %d fields, want %d", name, got, want)
		}
	}
}
