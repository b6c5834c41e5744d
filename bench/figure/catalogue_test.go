package figure

import (
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
		if (d.ID != "" || d.Elsewhere) == (d.Command == "") || (d.ID == "" && !d.Elsewhere) == (d.Why == "") {
			t.Errorf("%+v says neither how it is measured nor why not", d)
		}
		if elsewhere := []string{"polling", "polling-cpu", "connections"}; d.ID != "" && !slices.Contains(elsewhere,
			d.ID) && !slices.ContainsFunc(built, d.draws) {
			t.Errorf("nothing draws %s", d.ID)
		}
	}
}

// Every figure and table of the five papers, but for diagrams and set-up, is in the catalogue.
func TestCatalogueNamesThePapers(t *testing.T) {
	has := func(paper, what string) bool {
		return slices.ContainsFunc(Catalogue(), func(d Drawn) bool {
			return strings.HasPrefix(d.Paper, paper) && strings.Contains(d.Paper, what)
		})
	}
	for paper, all := range map[string][]string{
		"MultiEdge": {"3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.7, pinning", "3.8", "3.9", "3.10", "3.11",
			"table 3.1", "table 3.2"},
		"UTLB": {"tables 3 to 8", "figures 7, 8", "tables 1, 2"},
		"DHL":  {"figures 3, 5, 6, 7", "figure 4", "miss times"},
		"VMMC": {"tables 1 to 4", "figures 5 to 8", "figure 9"},
		"EDT":  {"figures 8, 9"},
	} {
		for _, what := range all {
			if !has(paper, what) {
				t.Errorf("the catalogue does not say what becomes of %s %s", paper, what)
			}
		}
	}
}

func TestIndexSaysWhatIsDrawn(t *testing.T) {
	dir := t.TempDir()
	if _, err := WriteIndex(dir, "All", of(linkSweep()...)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<a href="#links">`, "MultiEdge 3.8, upper", "not in these results",
		"a program without a module has one", "MultiEdge table 3.1", "UTLB tables 3 to 8", "by that command"} {
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
