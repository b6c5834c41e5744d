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
		if d.ID == "" && d.Why == "" || d.ID != "" && d.Command == "" {
			t.Errorf("%+v says neither how it is measured nor why not", d)
		}
		if elsewhere := []string{"polling", "polling-cpu", "connections"}; d.ID != "" && !slices.Contains(elsewhere,
			d.ID) && !slices.ContainsFunc(built, d.draws) {
			t.Errorf("nothing draws %s", d.ID)
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
		"a program without a module has one"} {
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
