package config

import (
	"errors"
	"fmt"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"

	"multiedge/internal/ipc"
)

// Reserved names of services. A name without a reservation belongs to the first client that asks for it.

// Service reserves names of services. A name that matches reservations may be offered by the users and groups of these,
// by root where root administers the daemon (Config.Admins), and by no others.
type Service struct {
	// the service, or a pattern: * stands for any text without a slash, ? for one character, [a-z] for one of these
	Name  string `toml:"name"`
	User  string `toml:"user"`  // who may offer it: name or number of a user
	Group string `toml:"group"` // and whoever is in this group, by name or number
}

// maxServices bounds the reservations: each request to offer a service looks at all of them.
const maxServices = 1024

// checkServices checks what can be checked without the host's users.
func (c *Config) checkServices(p *problems) {
	p.check(len(c.Services) <= maxServices, "service", "%d reservations; at most %d can be used", len(c.Services),
		maxServices)
	for _, s := range c.Services {
		_, err := path.Match(s.Name, "")
		p.check(s.Name != "", "service.name", "a [[service]] has no name")
		p.check(len(s.Name) <= ipc.MaxName, "service.name", "%q is longer than %d bytes", s.Name, ipc.MaxName)
		p.check(err == nil, "service.name", "%q is not a pattern: a [ has no ]", s.Name)
		p.check(s.User != "" || s.Group != "", "service", "%q names neither user nor group, so nobody could "+
			"offer it; name one",
			s.Name)
	}
}

// reservation is a Service with numbers for names.
type reservation struct {
	Service
	uid, gid int // -1: none is named
}

// Reservations are those in force.
type Reservations []reservation

// ResolveServices looks the users and groups up. All that do not exist are in the error.
func (c *Config) ResolveServices() (Reservations, error) {
	var list Reservations
	var errs []error
	for _, s := range c.Services {
		r := reservation{Service: s, uid: -1, gid: -1}
		var err error
		if s.User != "" {
			if r.uid, err = userID(s.User); err != nil {
				errs = append(errs, fmt.Errorf("service %q: %w", s.Name, err))
			}
		}
		if s.Group != "" {
			if r.gid, err = groupID(s.Group); err != nil {
				errs = append(errs, fmt.Errorf("service %q: %w", s.Name, err))
			}
		}
		list = append(list, r)
	}
	return list, errors.Join(errs...)
}

func userID(name string) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return -1, fmt.Errorf("there is no user %q; create the user, correct the name, or give a number", name)
	}
	return strconv.Atoi(u.Uid)
}

func groupID(name string) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, fmt.Errorf("there is no group %q; create it (groupadd %s), correct the name, or give a number", name,
			name)
	}
	return strconv.Atoi(g.Gid)
}

// Allow returns why a user in these groups may not offer a service; nil: he may.
func (rs Reservations) Allow(service string, uid uint32, groups func() ([]uint32, error)) error {
	var who []string
	for i := range rs {
		r := &rs[i]
		if ok, _ := path.Match(r.Name, service); !ok {
			continue
		}
		if r.uid == int(uid) {
			return nil
		}
		if r.gid >= 0 {
			if in, err := groups(); err != nil {
				return fmt.Errorf("the groups of the client: %w", err)
			} else if slices.Contains(in, uint32(r.gid)) {
				return nil
			}
		}
		who = append(who, r.who())
	}
	if who == nil {
		return nil
	}
	return ipc.Errorf(ipc.CodeDenied, "service %q is reserved for %s, and this program runs as user %d: choose "+
		"another name, or have [[service]] in the daemon's configuration changed",
		service, strings.Join(slices.Compact(who), ", "), uid)
}

func (r *reservation) who() string {
	switch {
	case r.Group == "":
		return "user " + r.User
	case r.User == "":
		return "group " + r.Group
	}
	return "user " + r.User + ", group " + r.Group
}

// GroupID looks up the group that may connect; -1 if none is named.
func (c *Config) GroupID() (int, error) {
	if c.Group == "" {
		return -1, nil
	}
	gid, err := groupID(c.Group)
	if err != nil {
		return -1, fmt.Errorf("group: %w", err)
	}
	return gid, nil
}
