package layering

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// roomSlack is by how much, in per cent, the lines that docs/ARCHITECTURE.md gives for a room may be off.
const roomSlack = 10

// TestRooms compares the table "The daemon's rooms" of docs/ARCHITECTURE.md with the code: lines without tests, and
// what each room may import of the others.
func TestRooms(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "## The daemon's rooms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rooms := map[string][]string{}
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) == 7 && strings.Contains(cells[1], "`internal/") {
			rooms[strings.Trim(cells[1], " `")] = cells
		}
	}
	for _, room := range []string{"internal/config", "internal/shard", "internal/inspect", "internal/daemon"} {
		cells := rooms[room]
		if cells == nil {
			t.Errorf("docs/ARCHITECTURE.md has no row for %s", room)
			continue
		}
		said, err := strconv.Atoi(strings.TrimSpace(cells[2]))
		if lines := codeLines(t, filepath.Join(root, room)); err != nil || abs(lines-said)*100 > lines*roomSlack {
			t.Errorf("docs/ARCHITECTURE.md says that %s has%slines; it has %d", room, cells[2], lines)
		}
		for other := range rooms {
			short := strings.TrimPrefix(other, "internal/")
			says := strings.Contains(cells[5], short) || strings.TrimSpace(cells[5]) == "all"
			if other != room && says != covered(other, allowed[room]) {
				t.Errorf("docs/ARCHITECTURE.md says%sfor what %s may import; the layers say: %s", cells[5], room,
					allowed[room])
			}
		}
	}
}

// codeLines counts the lines of a folder's Go files, tests excepted.
func codeLines(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(src, []byte("\n"))
	}
	return n
}

func abs(n int) int { return max(n, -n) }
