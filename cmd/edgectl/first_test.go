package main

import (
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
)

// A daemon of another version than the tool, as after an upgrade, is told of by what people look at first.
func TestAnotherVersionIsSaid(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	own := version
	defer func() { version = own }()
	for _, tool := range []string{"1.2.3", "1.3.0"} {
		version = tool
		for _, cmd := range []string{"status", "doctor"} {
			_, out, errs := ctl("-s", a, cmd)
			said := strings.Contains(out, "and edgectl is")
			if said != (tool != "1.2.3") || said && (!strings.Contains(out, "is version 1.2.3, and edgectl is 1.3.0") ||
				!strings.Contains(out, "systemctl restart edged")) {
				t.Errorf("%s of edgectl %s: %s%s", cmd, tool, out, errs)
			}
		}
	}
}

// What is charged is shown of the limit that holds.
func TestChargedOfTheTighterLimit(t *testing.T) {
	for _, c := range []struct {
		charges inspect.Charges
		want    string
	}{
		{inspect.Charges{PinnedLimit: 16 << 30}, "0B of 16.0GiB"},
		{inspect.Charges{PinnedLimit: 16 << 30, MemlockLimit: 8 << 20}, "0B of 8.0MiB (RLIMIT_MEMLOCK"},
		{inspect.Charges{PinnedLimit: 16 << 30, MemlockLimit: 32 << 30}, "0B of 16.0GiB"},
	} {
		if text := chargedText(&c.charges); !strings.HasPrefix(text, c.want) {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}
