package daemon

import (
	"os"
	"strings"
	"testing"

	"multiedge/internal/config"
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

// Where the configuration names the administrators, root is none of them unless it is named: user 0 of every container
// that reaches the socket is the host's root. Nor may root offer what is reserved then.
func TestNamedAdminsReplaceRoot(t *testing.T) {
	a, _ := nodes(t, 1, func(c *config.Config) {
		c.Admins, c.Services = []string{"4711"}, []config.Service{{Name: "db", User: "4712"}}
	})
	as := func(uid uint32) *testClient {
		c := openAs(t, a, uid)
		must(t, c.hello(64))
		return c
	}
	for _, uid := range []uint32{0, uint32(os.Geteuid()), 4712} {
		for _, kind := range []ipc.Kind{ipc.KindTrace, ipc.KindReload, ipc.KindDrain} {
			if e := as(uid).fails(&ipc.Message{Kind: kind}, ipc.CodeDenied); !strings.Contains(e.Text, "admins") {
				t.Errorf("%s of user %d: %v", kind, uid, e)
			}
		}
	}
	as(0).fails(&ipc.Message{Kind: ipc.KindListen, Service: "db"}, ipc.CodeDenied)
	if _, err := as(4712).call(&ipc.Message{Kind: ipc.KindListen, Service: "db"}); err != nil {
		t.Errorf("user 4712 may offer the service: %v", err)
	}
	if _, err := as(4711).call(&ipc.Message{Kind: ipc.KindDrain}); err != nil {
		t.Errorf("drain of the administrator: %v", err)
	}
}
