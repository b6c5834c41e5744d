package figure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// WriteDir writes the page (index.html) and each figure as SVG and PNG into dir, which it makes if need be. It returns
// the files' names.
func WriteDir(dir, title string, sources []Source) ([]string, error) {
	return page{Title: title}.writeDir(dir, sources)
}

func (p page) writeDir(dir string, sources []Source) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var names []string
	put := func(name string, data []byte) error {
		name = filepath.Join(dir, name)
		names = append(names, name)
		return os.WriteFile(name, data, 0o644)
	}
	for _, f := range Build(sources) {
		svg, err := f.SVG()
		if err != nil {
			return names, fmt.Errorf("figure %s: %w", f.ID, err)
		}
		var png bytes.Buffer
		if err := f.PNG(&png); err != nil {
			return names, fmt.Errorf("figure %s: %w", f.ID, err)
		}
		for ext, data := range map[string][]byte{".svg": svg, ".png": png.Bytes()} {
			if err := put(f.ID+ext, data); err != nil {
				return names, err
			}
		}
	}
	var html bytes.Buffer
	if err := p.write(&html, sources); err != nil {
		return names, err
	}
	return names, put("index.html", html.Bytes())
}

// WritePage writes the page alone to a file, making its directory if need be.
func WritePage(name, title string, sources []Source) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := HTML(&page, title, sources); err != nil {
		return err
	}
	return os.WriteFile(name, page.Bytes(), 0o644)
}
