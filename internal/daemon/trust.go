package daemon

import "multiedge/internal/ipc"

// mayAdminister returns why the client may not do what changes the daemon itself or shows what others do.
func (ss *controlConn) mayAdminister(what string) error {
	switch {
	case ss.d.rights.admins.Has(ss.cred.UID):
		return nil
	case len(ss.d.cfg.Admins) > 0:
		return ipc.Errorf(ipc.CodeDenied, "user %d may not %s: only the users that the daemon's configuration names "+
			"in admins may", ss.cred.UID, what)
	}
	return ipc.Errorf(ipc.CodeDenied, "only root and the user that runs the daemon may %s", what)
}

// mayOffer returns why this client may not offer a service.
func (ss *controlConn) mayOffer(m *ipc.Message) error {
	rs := ss.d.rights.reserved.Load()
	if rs == nil || ss.cred.UID == 0 && ss.d.rights.admins.Has(0) {
		return nil
	}
	return rs.Allow(m.Service, ss.cred.UID, ss.conn.Groups)
}
