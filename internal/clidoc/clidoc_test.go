package clidoc

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// A page has what is declared: commands at every depth, arguments and options, and nothing that is hidden. What it says
// is no request of the formatter.
func TestMan(t *testing.T) {
	var c struct {
		Quick bool `short:"q" help:".Do it at once."`
		Peers struct {
			Add struct {
				Key string `arg:"" help:"The key."`
				As  string `placeholder:"NAME" help:"A name-to-be."`
			} `cmd:"" help:"Add one."`
		} `cmd:"" help:"Change peers."`
		Secret struct{} `cmd:"" hidden:"" help:"No."`
		Flags
	}
	p, err := kong.New(&c, kong.Name("tool"), kong.Description("Does things.\n\nAnd more."))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	Man(&b, p.Model)
	text := b.String()
	for _, want := range []string{".TH TOOL 1", "tool \\- Does things\n", "And more.",
		".B \\-q, \\-\\-quick\n\\&.Do it at once.", "peers add <key>", "Add one.", ".I <key>",
		".B \\-\\-as=NAME\nA name\\-to\\-be."} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, hidden := range []string{"secret", "man\\-page"} {
		if strings.Contains(text, hidden) {
			t.Errorf("%s is shown", hidden)
		}
	}
}
