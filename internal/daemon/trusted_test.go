package daemon

import (
	"os"
	"strings"
	"testing"

	"multiedge/internal/ipc"
)

// Only root and the user that runs the daemon may see others' frames, drain it, and have it read its peers again. Every
// other user is told so.
func TestOnlyTrustedUsersManage(t *testing.T) {
	a, _ := nodes(t, 1, nil)
	as := func(uid uint32) *testClient {
		c := openAs(t, a, uid)
		must(t, c.hello(64))
		return c
	}
	for _, kind := range []ipc.Kind{ipc.KindTrace, ipc.KindReload, ipc.KindDrain} {
		c := as(uint32(os.Geteuid()) + 1<<20)
		if e := c.fails(&ipc.Message{Kind: kind}, ipc.CodeDenied); !strings.Contains(e.Text, "only root") {
			t.Errorf("%s of another user: %v", kind, e)
		}
	}
	// cmd/edgectl tests that the others are granted
	if _, err := as(uint32(os.Geteuid())).call(&ipc.Message{Kind: ipc.KindDrain}); err != nil {
		t.Errorf("drain of the user that runs the daemon: %v", err)
	}
}
