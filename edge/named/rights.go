package named

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"multiedge/edge"
)

// In the rights of a named export.
const (
	userPrefix  = "uid:"
	groupPrefix = "gid:"
)

// User returns the name by which ExportRights and Export give rights to a user of this host (edge.Request.User). No
// node has such a name.
func User(uid uint32) string { return fmt.Sprint(userPrefix, uid) }

// Group returns the name by which ExportRights and Export give rights to the users of this host whose account is
// in a group. No node has such a name.
func Group(gid uint32) string { return fmt.Sprint(groupPrefix, gid) }

func isLocalName(name string) bool {
	return strings.HasPrefix(name, userPrefix) || strings.HasPrefix(name, groupPrefix)
}

// checkRightsName checks a name to which rights are given.
func checkRightsName(name string) error {
	if !isLocalName(name) {
		return nil
	}
	if id, err := strconv.ParseUint(name[len(userPrefix):], 10, 32); err != nil || fmt.Sprint(name[:4], id) != name {
		return invalid("Export: %q names no user or group: use User or Group", name)
	}
	return nil
}

// rightsOf returns what an importer may do with a named export, 0 if it may not import it.
func (n *Memory) rightsOf(req *edge.Request) edge.Perm {
	uid, local := req.User()
	switch {
	case !local && n.rights == nil:
		return n.perm
	case !local && isLocalName(req.Peer()):
		return 0 // a node that calls itself as a user here is called
	case !local:
		return n.rights[req.Peer()]
	case n.rights == nil && (uid == 0 || int(uid) == unix.Geteuid()):
		return n.perm
	}
	perm := n.rights[User(uid)] | n.rights[req.Peer()]
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
