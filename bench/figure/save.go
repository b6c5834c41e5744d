package figure

import (
	"bytes"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"multiedge/bench/kit"
)

// Forms are the forms in which a result can be written, by the ending of a file: csv, json, html and so on.
type Forms map[string]func(io.Writer) error

// Save writes a result: into a file, in the form of its ending, or into a directory. Directories are made if need be.
// The directory gets all forms, as NAME.json and so on (the page as index.html), and every figure as SVG.
func (f Forms) Save(to, name string, figures []Figure) error {
	if form := f[strings.TrimPrefix(filepath.Ext(to), ".")]; form != nil {
		return save(to, form)
	}
	if err := os.MkdirAll(to, 0o755); err != nil { // a result without forms has figures
		return err
	}
	for ext, form := range f {
		file := name + "." + ext
		if ext == "html" {
			file = "index.html"
		}
		if err := save(filepath.Join(to, file), form); err != nil {
			return err
		}
	}
	for i := range figures {
		if err := os.WriteFile(filepath.Join(to, figures[i].ID+".svg"), figures[i].SVG(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// save writes a file as a whole: what was there stays if the form cannot be made.
func save(name string, form func(io.Writer) error) error {
	var b bytes.Buffer
	if err := form(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// Drawing is a figure in a page.
type Drawing struct {
	ID, Title, Caption string
	SVG                template.HTML
}

// Draw draws figures for a page.
func Draw(figures []Figure) (list []Drawing) {
	for i := range figures {
		f := &figures[i]
		list = append(list, Drawing{f.ID, f.Title, f.Caption, Inline(f.SVG())})
	}
	return list
}

// WriteDir writes the page (index.html) and each figure as SVG and PNG into dir, which it makes if need be. It returns
// the files' names.
func WriteDir(dir, title string, sources []Source) ([]string, error) {
	return page{Title: title}.writeDir(dir, sources)
}

func (p page) writeDir(dir string, sources []Source) (names []string, err error) {
	err = kit.Try(func() {
		put := func(name string, form func(io.Writer) error) {
			names = append(names, filepath.Join(dir, name))
			kit.Check(save(names[len(names)-1], form))
		}
		for _, f := range p.figures(sources) {
			put(f.ID+".svg", func(w io.Writer) error { _, err := w.Write(f.SVG()); return err })
			put(f.ID+".png", f.PNG)
		}
		put("index.html", func(w io.Writer) error { return p.write(w, sources) })
	})
	return names, err
}

// WritePage writes the page alone to a file, making its directory if need be.
func WritePage(name, title string, sources []Source) error {
	return save(name, func(w io.Writer) error { return HTML(w, title, sources) })
}
