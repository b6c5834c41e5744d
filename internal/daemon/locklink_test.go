package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// Where others can make files beside the socket, a symbolic link in place of the lock does not have a file of the
// daemon's user emptied.
func TestLockIsNoLink(t *testing.T) {
	dir := t.TempDir()
	precious, socket := filepath.Join(dir, "precious"), filepath.Join(dir, "edged.sock")
	must(t, os.WriteFile(precious, []byte("precious"), 0o600))
	must(t, os.Symlink(precious, socket+".lock"))
	if f, err := lockSocket(socket); err == nil {
		f.Close()
		t.Error("the lock was taken")
	}
	if b, err := os.ReadFile(precious); string(b) != "precious" {
		t.Errorf("what the link names has %q, %v", b, err)
	}
}
