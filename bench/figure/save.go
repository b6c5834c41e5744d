package figure

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
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
		svg, err := figures[i].SVG()
		if err == nil {
			err = os.WriteFile(filepath.Join(to, figures[i].ID+".svg"), svg, 0o644)
		}
		if err != nil {
			return fmt.Errorf("figure %s: %w", figures[i].ID, err)
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
func Draw(figures []Figure) (list []Drawing, err error) {
	for i := range figures {
		f := &figures[i]
		svg, err := f.SVG()
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", f.ID, err)
		}
		list = append(list, Drawing{f.ID, f.Title, f.Caption, Inline(svg)})
	}
	return list, nil
}
