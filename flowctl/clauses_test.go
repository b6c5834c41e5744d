package flowctl

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The table of PROTOCOL clause 8.8 has the values of the profiles.
func TestProfilesAsInTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, clause, ok := strings.Cut(string(text), "\n8.8 ")
	if !ok {
		t.Fatal("docs/PROTOCOL.md has no clause 8.8")
	}
	clause, _, _ = strings.Cut(clause, "\n## ")
	head, rows := "| value |", ""
	var cells [8][]string
	for _, p := range Profiles {
		head += fmt.Sprintf(" `%s` |", p.Name)
		exceptions, window := "yes", "by delay"
		if p.Acks.Exact {
			exceptions = "no"
		}
		if fixed := p.Congestion.Fixed(); fixed != 0 {
			window = fmt.Sprint(fixed, " frames")
		}
		for i, cell := range []string{fmt.Sprint(p.Acks.Every), written(p.Acks.Delay), fmt.Sprint(p.Acks.NackEvery),
			written(p.Acks.NackDelay), exceptions, written(p.CoarseTimeout), window, fmt.Sprint(p.Window, " frames")} {
			cells[i] = append(cells[i], cell)
		}
	}
	_, table, ok := strings.Cut(clause, head+"\n")
	if !ok {
		t.Fatalf("clause 8.8 has no table that begins %q", head)
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		_, values, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows += values + "\n"
	}
	want := ""
	for _, c := range cells {
		want += strings.Join(c, " | ") + " |\n"
	}
	if rows != want {
		t.Errorf("clause 8.8 says\n%s, the profiles are\n%s", rows, want)
	}
}

// written is a duration as documents write it.
func written(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return strings.NewReplacer("µs", " µs", "ms", " ms").Replace(d.String())
}
