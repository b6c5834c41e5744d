package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// PROTOCOL clause 4.7 has the default times.
func TestTimesAsInTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	if err := c.Normalize(); err != nil && c.KeepAlive == 0 {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{
		fmt.Sprintf("the keep-alive time, %v s by default", c.KeepAlive.Seconds()),
		fmt.Sprintf("the dead time of silence, %v s by default", c.DeadTime.Seconds()),
	} {
		if !strings.Contains(words, want) {
			t.Errorf("clause 4.7 does not say %q", want)
		}
	}
}
