package edge

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Programs of one host reach each other through their daemon, by the name of their own node (PROTOCOL clause 19). To
// each other they are peers of that name, of whom the daemon says besides which user they are.

// In the rights of a named export.
const (
	userPrefix  = "uid:"
	groupPrefix = "gid:"
)

// LocalUser returns the name by which ExportRights and Export give rights to a user of this host. No node has such a
// name.
func LocalUser(uid uint32) string { return fmt.Sprint(userPrefix, uid) }

// LocalGroup returns the name by which ExportRights and Export give rights to the users of this host whose account is
// in a group. No node has such a name.
func LocalGroup(gid uint32) string { return fmt.Sprint(groupPrefix, gid) }

// User returns the user of the program that asks if it runs on this host, as the daemon sees it. ok is false for
// programs of other nodes, whose users are unknown here.
func (r *Request) User() (uid uint32, ok bool) { return r.inside - 1, r.inside != 0 }

func isLocalName(name string) bool {
	return strings.HasPrefix(name, userPrefix) || strings.HasPrefix(name, groupPrefix)
}

// checkRightsName checks a name to which rights are given.
func checkRightsName(name string) error {
	if !isLocalName(name) {
		return nil
	}
	if id, err := strconv.ParseUint(name[len(userPrefix):], 10, 32); err != nil || fmt.Sprint(name[:4], id) != name {
		return invalid("Export: %q names no user or group: use LocalUser or LocalGroup", name)
	}
	return nil
}

// rightsOf returns what an importer may do with a named export, 0 if it may not import it.
func (n *Named) rightsOf(req *Request) Perm {
	uid, local := req.User()
	switch {
	case !local && n.rights == nil:
		return n.shared.perm
	case !local && isLocalName(req.Peer()):
		return 0 // a node that calls itself as a user here is called
	case !local:
		return n.rights[req.Peer()]
	case n.rights == nil && (uid == 0 || int(uid) == unix.Geteuid()):
		return n.shared.perm
	}
	perm := n.rights[LocalUser(uid)] | n.rights[req.Peer()]
	for name, more := range n.rights {
		if gid, ok := strings.CutPrefix(name, groupPrefix); ok && inGroup(uid, gid) {
			perm |= more
		}
	}
	return perm
}

// inGroup reports whether the account of a user is in a group.
func inGroup(uid uint32, gid string) bool {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return false
	}
	if u.Gid == gid {
		return true
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, gid)
}
