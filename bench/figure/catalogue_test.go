package figure

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every figure that can be built is in the catalogue, once, and every one of the catalogue can be built or says why
// not.
func TestCatalogueIsComplete(t *testing.T) {
	var rows []Source
	for _, s := range [][]Source{synthetic(), demonstration(), of(linkSweep()...), of(copySweep()...),
		of(shardSweep()...)} {
		rows = append(rows, s...)
	}
	var built []string
	for i, s := range rows {
		s.Name = string(rune('a' + i))
		for _, f := range Build([]Source{s}) {
			built = append(built, f.ID)
		}
	}
	list := Catalogue()
	for _, id := range built {
		n := 0
		for i := range list {
			if list[i].ID != "" && list[i].draws(id) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("figure %s is in the catalogue %d times", id, n)
		}
	}
	for _, d := range list {
		if d.ID == "" || d.Command == "" {
			t.Errorf("%+v does not say how it is measured", d)
		}
		elsewhere := []string{"polling", "polling-cpu", "connections", "papers"}
		if !slices.Contains(elsewhere, d.ID) && !slices.ContainsFunc(built, d.draws) {
			t.Errorf("nothing draws %s", d.ID)
		}
	}
}

// Every figure and table of the five papers is listed once, but for diagrams and set-up, and says what draws it or why
// nothing does. What draws it is there.
func TestExhibits(t *testing.T) {
	want := map[string][]string{
		"MultiEdge": {"figure 3.1", "figure 3.2", "figure 3.3", "figure 3.4", "figure 3.5", "figure 3.6", "figure 3.7",
			"figure 3.8", "figure 3.9", "figure 3.10", "figure 3.11", "table 3.1", "table 3.2"},
		"UTLB": {"table 1", "table 2", "table 3", "table 4", "table 5", "table 6", "table 7", "table 8", "figure 7",
			"figure 8"},
		"DHL": {"figure 3", "figure 4", "figure 5", "figure 6", "figure 7", "distribution"},
		"VMMC": {"table 1", "table 2", "table 3", "table 4", "figure 5", "figure 6", "figure 7", "figure 8",
			"figure 9"},
		"EDT": {"figure 8", "figure 9"},
	}
	got := map[string][]string{}
	for _, e := range Exhibits() {
		got[e.Paper] = append(got[e.Paper], e.Name)
		if e.Drawn() == (e.Why != "") {
			t.Errorf("%s %s: drawn %v, and not, because %q", e.Paper, e.Name, e.Drawn(), e.Why)
		}
		for _, id := range e.Figures {
			if !slices.ContainsFunc(Catalogue(), func(d Drawn) bool { return d.draws(id) }) {
				t.Errorf("%s %s: no figure %q is in the catalogue", e.Paper, e.Name, id)
			}
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("exhibits %v, want %v", got, want)
	}
}

func TestIndexSaysWhatIsDrawn(t *testing.T) {
	dir := t.TempDir()
	if _, err := WriteIndex(dir, "All", of(linkSweep()...), []string{"utlb"}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<a href="#links">`, "MultiEdge 3.8, upper", "not in these results",
		"a program without a module has one", "MultiEdge table 3.1", `<a href="utlb/index.html">`, "edgestudy dhl"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the index does not say %q", want)
		}
	}
	if strings.Contains(string(page), `<a href="#polling">`) {
		t.Error("the index points at a figure that is not there")
	}
}

// A comparison of numbers of links keeps its figure beside results of other files over several numbers of links and
// many sizes.
func TestLinksBesideOtherResults(t *testing.T) {
	links, base := of(linkSweep()...), synthetic()
	links[0].Name = "links"
	if !slices.ContainsFunc(Build(append(links, base...)), func(f Figure) bool { return f.ID == "links" }) {
		t.Error("there is no figure of links")
	}
}
