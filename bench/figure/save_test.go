package figure

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A result goes into a file in the form of its ending, or in all forms into a directory. A form that fails leaves the
// file as it was.
func TestSave(t *testing.T) {
	write := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	forms := Forms{"csv": write("a,b"), "json": write("{}"), "html": write("<html>")}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, to := range []string{"x.csv", "new/of/x.csv", "study"} {
		if err := forms.Save(at(to), "eager", nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"x.csv": "a,b", "new/of/x.csv": "a,b", "study/eager.csv": "a,b",
		"study/eager.json": "{}", "study/index.html": "<html>"} {
		if b, err := os.ReadFile(at(name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, want)
		}
	}
	forms["csv"] = func(w io.Writer) error { _, _ = w.Write([]byte("half")); return errors.New("no more") }
	if err := forms.Save(at("x.csv"), "eager", nil); err == nil {
		t.Error("a form that failed was saved")
	}
	if b, _ := os.ReadFile(at("x.csv")); string(b) != "a,b" {
		t.Errorf("after a form that failed, the file holds %q", b)
	}
}
