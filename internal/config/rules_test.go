package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/internal/ipc"
)

// Of the reservations that a name matches any may admit who offers it; users and groups that do not exist are named.
func TestReservations(t *testing.T) {
	cfg := Config{Rights: Rights{Services: []Service{{Name: "db-*", User: "1001"}, {Name: "db-shared", Group: "2002"},
		{Name: "web", User: "1003", Group: "2002"}}}}
	rs, err := cfg.ResolveServices()
	must(t, err)
	for _, tc := range []struct {
		service string
		uid     uint32
		groups  []uint32
		ok      bool
	}{
		{"db-main", 1001, nil, true}, {"db-main", 1002, nil, false}, {"db-main", 1002, []uint32{2002}, false},
		{"db-main", 0, nil, false},
		{"db-shared", 1002, []uint32{7, 2002}, true}, {"db-shared", 1001, nil, true}, {"db-shared", 1002, []uint32{7},
			false},
		{"web", 1003, nil, true}, {"web", 1, []uint32{2002}, true}, {"web", 1, nil, false}, {"other", 1, nil, true},
		{"xdb-main", 1, nil, true},
	} {
		err := rs.Allow(tc.service, tc.uid, func() ([]uint32, error) { return tc.groups, nil })
		e, _ := errors.AsType[*ipc.Error](err)
		if (err == nil) != tc.ok || err != nil && (e == nil || e.Code != ipc.CodeDenied || !strings.Contains(e.Text,
			"reserved for")) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	dir := t.TempDir()
	bad := Config{
		KeyFile:   filepath.Join(dir, "key"),
		PeersFile: filepath.Join(dir, "peers"),
		Links:     []Link{{Name: "eth1"}},
		Rights: Rights{Services: []Service{{Name: "x", User: "no-such-user"},
			{Name: "y", Group: "no-such-group"}}},
	}
	must(t, bad.Normalize())
	if err := bad.CheckFiles(); err == nil || !strings.Contains(err.Error(), `no user "no-such-user"`) ||
		!strings.Contains(err.Error(), `no group "no-such-group"`) {
		t.Errorf("check: %v", err)
	}
	for _, s := range []Service{{}, {Name: "x"}, {Name: "[", User: "1"}} {
		c := Config{Links: []Link{{Name: "eth1"}}, Rights: Rights{Services: []Service{s}}}
		if err := c.Normalize(); err == nil || !strings.Contains(err.Error(), "service") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
