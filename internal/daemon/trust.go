package daemon

import "os"

// trusted reports whether the client may change the daemon itself.
func (ss *session) trusted() bool {
	return ss.cred.UID == 0 || int(ss.cred.UID) == os.Geteuid()
}
