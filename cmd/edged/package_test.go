package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A removed package ends the daemon and the forwarder, each under the name that its unit has; an upgrade ends neither.
func TestPackageIsRemoved(t *testing.T) {
	script, err := os.ReadFile("../../deploy/package.preremove.sh")
	must(t, err)
	dir := t.TempDir()
	text := strings.ReplaceAll(string(script), "/run/systemd/system", dir) // as if systemd ran here
	if text == string(script) {
		t.Fatal("the script does not look whether systemd runs")
	}
	systemctl := "#!/bin/sh\necho \"$@\" >>" + dir + "/said\nexit 1\n" // units that were never enabled
	must(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o755))
	for act, ends := range map[string]bool{"remove": true, "0": true, "upgrade": false, "1": false} {
		os.Remove(dir + "/said")
		cmd := exec.Command("/bin/sh", "-c", text, "preremove", act)
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", act, err, out)
		}
		said, _ := os.ReadFile(dir + "/said")
		words := strings.Fields(string(said))
		if ends != (len(words) > 0) {
			t.Errorf("%s: systemctl %q", act, words)
		}
		for _, unit := range []string{"edged", "edge-forward"} {
			if _, err := os.Stat("../../deploy/" + unit + ".service"); err != nil {
				t.Error(err)
			}
			if ends && !slices.Contains(words, unit) {
				t.Errorf("%s: %s goes on: systemctl %q", act, unit, words)
			}
		}
		if ends && !strings.HasPrefix(string(said), "disable --now ") {
			t.Errorf("%s: systemctl %q", act, words)
		}
	}
}
