package inspect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/internal/config"
)

// A daemon in a container says who else is its root.
func TestSharedRoot(t *testing.T) {
	for _, c := range []struct {
		admins config.Admins
		uid    int
		want   string
	}{
		{config.Admins{0, 0}, 0, "may drain"}, {config.Admins{0, 9469}, 9469, "may drain"},
		{config.Admins{9469}, 0, "put another in its place"}, {config.Admins{9469}, 9469, ""},
	} {
		text, remedy := SharedRoot(c.admins, c.uid)
		if !strings.Contains(text, c.want) || (text == "") != (c.want == "") || (remedy == "") != (text == "") {
			t.Errorf("%+v: %q, %q", c, text, remedy)
		}
	}
}

// Container engines mark what they start by a file or a variable.
func TestInContainer(t *testing.T) {
	root := t.TempDir()
	env := map[string]string{}
	if inContainer(root, func(k string) string { return env[k] }) {
		t.Error("a host is taken for a container")
	}
	env["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
	if !inContainer(root, func(k string) string { return env[k] }) {
		t.Error("a pod is not seen")
	}
	if err := os.WriteFile(filepath.Join(root, ".dockerenv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !inContainer(root, func(string) string { return "" }) {
		t.Error("the mark of an engine is not seen")
	}
}
