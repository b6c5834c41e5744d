package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Admins are the users who may change the daemon itself: drain it, see everybody's frames, have it read its peers
// again. Where they are named, nobody else may, root included: user 0 of a container is user 0 of its host
// (user_namespaces(7)), so that any container that reaches the socket could be the administrator.
type Admins []uint32

// ResolveAdmins looks the users up. All that do not exist are in the error.
func (c *Config) ResolveAdmins() (Admins, error) {
	if len(c.Admins) == 0 {
		return Admins{0, uint32(os.Geteuid())}, nil
	}
	var list Admins
	var errs []error
	for _, name := range c.Admins {
		uid, err := userID(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("admins: %w", err))
			continue
		}
		list = append(list, uint32(uid))
	}
	return list, errors.Join(errs...)
}

// Has reports whether a user is one of them.
func (a Admins) Has(uid uint32) bool { return slices.Contains(a, uid) }
