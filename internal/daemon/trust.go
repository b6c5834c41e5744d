package daemon

import (
	"os"

	"multiedge/internal/ipc"
)

// trusted reports whether the client may change the daemon itself.
func (ss *session) trusted() bool {
	return ss.cred.UID == 0 || int(ss.cred.UID) == os.Geteuid()
}

// mayOffer returns why this client may not offer a service.
func (ss *session) mayOffer(m *ipc.Message) error {
	rs := ss.d.reserved.Load()
	if rs == nil {
		return nil
	}
	return rs.Allow(m.Service, ss.cred.UID, ss.conn.Groups)
}
