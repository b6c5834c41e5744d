package layering

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of rooms in docs/ARCHITECTURE.md")

// The table of rooms in docs/ARCHITECTURE.md stands between these lines, and is made from the code.
const (
	roomsBegin = "<!-- made by: go test ./internal/layering -run TestRooms -update -->\n"
	roomsEnd   = "<!-- end of the table -->\n"
)

// gathered are the folders whose packages are one room each.
var gathered = []string{"bench", "cmd", "edge/examples"}

// room is a folder of packages, or several.
type room struct {
	lines   int // of Go, tests excepted
	imports []string
}

// TestRooms compares the table of rooms with the code. Lines are rounded to hundreds, and may be off by as much.
func TestRooms(t *testing.T) {
	root := filepath.Join("..", "..")
	path := filepath.Join(root, "docs", "ARCHITECTURE.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(doc), roomsBegin)
	said, tail, end := strings.Cut(rest, roomsEnd)
	if !ok || !end {
		t.Fatalf("docs/ARCHITECTURE.md has no table between %q and %q", roomsBegin, roomsEnd)
	}
	rooms := readRooms(t, root)
	if len(rooms) < 20 {
		t.Fatalf("only %d rooms; the test does not see the project", len(rooms))
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+roomsBegin+table(rooms)+roomsEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, fault := range stale(said, rooms) {
		t.Errorf("docs/ARCHITECTURE.md: %s; write it again: go test ./internal/layering -run TestRooms -update", fault)
	}
}

// readRooms looks at every Go file that is not a test.
func readRooms(t *testing.T, root string) map[string]*room {
	rooms := map[string]*room{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "out" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		name := roomOf(dir)
		r := rooms[name]
		if r == nil {
			r = &room{}
			rooms[name] = r
		}
		r.lines += bytes.Count(src, []byte("\n"))
		for _, spec := range file.Imports {
			inside, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "multiedge/")
			if other := roomOf(inside); ours && other != name && !slices.Contains(r.imports, other) {
				r.imports = append(r.imports, other)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		slices.Sort(r.imports)
	}
	return rooms
}

// roomOf is the room of a package.
func roomOf(dir string) string {
	for _, g := range gathered {
		if strings.HasPrefix(dir, g+"/") {
			return g
		}
	}
	return dir
}

// row is what the table says of a room.
func row(name string, r *room) string {
	short := strings.ReplaceAll(strings.Join(r.imports, ", "), "internal/", "")
	if short == "" {
		short = "nothing"
	}
	return fmt.Sprintf("| `%s` | %d | %s |\n", name, max(100, (r.lines+50)/100*100), short)
}

func table(rooms map[string]*room) string {
	out := "| room | lines | imports, without `internal/` |\n|---|---|---|\n"
	names := []string{}
	for name := range rooms {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out += row(name, rooms[name])
	}
	return out
}

// stale lists what is not true any more of a table.
func stale(said string, rooms map[string]*room) (faults []string) {
	rows := map[string][]string{}
	for _, line := range strings.Split(said, "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], "`") {
			rows[strings.Trim(cells[1], " `")] = cells
		}
	}
	for name, r := range rooms {
		cells := rows[name]
		if cells == nil {
			faults = append(faults, "there is no row for "+name)
			continue
		}
		delete(rows, name)
		lines, err := strconv.Atoi(strings.TrimSpace(cells[2]))
		if err != nil || abs(lines-r.lines) > 100 {
			faults = append(faults, fmt.Sprintf("%s has%slines, they are %d", name, cells[2], r.lines))
		}
		if want := strings.Split(row(name, r), "|"); cells[3] != want[3] {
			faults = append(faults, fmt.Sprintf("%s imports%s, the table says%s", name, want[3], cells[3]))
		}
	}
	for name := range rows {
		faults = append(faults, name+" is no more")
	}
	return faults
}

func abs(n int) int { return max(n, -n) }

func TestStale(t *testing.T) {
	rooms := map[string]*room{"a": {1234, []string{"internal/b"}}, "internal/b": {80, nil}}
	good := table(rooms)
	if faults := stale(good, rooms); len(faults) != 0 {
		t.Errorf("%v of\n%s", faults, good)
	}
	for from, to := range map[string]string{"1200": "1100", "`a`": "`c`", " b ": " d ", "nothing": "a", "100": "many"} {
		bad := strings.Replace(good, from, to, 1)
		if bad == good || len(stale(bad, rooms)) == 0 {
			t.Errorf("not noticed: %s instead of %s in\n%s", to, from, good)
		}
	}
}
