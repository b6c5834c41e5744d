package linkdrv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOutsideGoPoller: no epoll set of the process watches the socket, see the package comment.
func TestOutsideGoPoller(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	for _, kind := range []string{KindRing, KindMmsg} {
		d := open(t, "a0", Options{Kind: kind})
		var st unix.Stat_t
		must(t, unix.Fstat(d.FD(), &st))
		infos, err := filepath.Glob("/proc/self/fdinfo/*")
		if err != nil || len(infos) == 0 {
			t.Fatal("no /proc/self/fdinfo", err)
		}
		for _, path := range infos {
			text, _ := os.ReadFile(path) // the descriptor of the listing itself is gone by now
			if strings.Contains(string(text), fmt.Sprintf(" ino:%x ", st.Ino)) {
				t.Errorf("%s: %s watches the socket:\n%s", kind, path, text)
			}
		}
	}
}
