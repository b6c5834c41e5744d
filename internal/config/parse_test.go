package config

import (
	"os"
	"reflect"
	"testing"
)

// FuzzParse reads any text as a configuration. One that is accepted and complete must be so again after it was
// completed.
func FuzzParse(f *testing.F) {
	if text, err := os.ReadFile("../../deploy/edged.toml"); err == nil {
		f.Add(text)
	}
	f.Add([]byte("name = \"a\"\n[[link]]\nname = \"eth1\"\nweight = 2.5\n[limits]\npinned = \"8GiB\"\n"))
	f.Add([]byte("lnik = 1\n[limits]\nclinets = 2\n[x.y]\nz = [{a = 1}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Parse(text, "fuzz")
		if err != nil {
			if err.Error() == "" {
				t.Fatal("refused without a word")
			}
			return
		}
		if cfg.Normalize() != nil {
			return
		}
		again := cfg
		if err := again.Normalize(); err != nil || !reflect.DeepEqual(again, cfg) {
			t.Fatalf("%+v\nbecame %+v, %v", cfg, again, err)
		}
	})
}
