package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"multiedge/internal/engine"
	"multiedge/internal/identity"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
)

// Stranger is the PeerStatus.Security of a node that is heard and not authorised.
const Stranger = "stranger"

// fill adds to a snapshot what protects the frames, and who is authorised.
func (t *trust) fill(out *Snapshot) {
	st := &out.Status
	if t == nil {
		st.Security = Plaintext
		for i := range out.Peers {
			out.Peers[i].Security = Plaintext
		}
		return
	}
	now := t.now.Load()
	st.Security, st.Checksum, st.PublicKey, st.KeyFile, st.PeersFile, st.Authorised = Encrypted, "", t.node.Public.String(), t.keyFile, now.file, len(now.List())
	state := map[string]string{}
	for i := range out.Peers {
		p := &out.Peers[i]
		state[p.Node] = p.State
		p.Security = Stranger
		if id, err := parseNodeID(p.Node); err == nil {
			if known, ok := now.ByNode(id); ok {
				p.Security, p.Key = Encrypted, known.Key.String()
			}
		}
	}
	for _, p := range now.List() {
		id := engine.NodeID(p.Key.Node()).String()
		out.Authorised = append(out.Authorised, AuthorisedStatus{Name: p.Name, Key: p.Key.String(), Node: id, Source: now.source(p), State: orElse(state[id], "not heard")})
	}
}

// source says where a peer was found.
func (a *authorised) source(p secure.Peer) string {
	for _, s := range a.sources {
		if slices.Contains(s.Peers, p) {
			return s.Name
		}
	}
	return ""
}

// ReloadReport answers a reload request.
type ReloadReport struct {
	Schema     int `json:"schema"`
	Authorised int `json:"peers_authorised"`
}

// reload reads the authorised peers again.
func (ss *session) reload(m *ipc.Message) (*ipc.Message, error) {
	if !ss.trusted() {
		return nil, ipc.Errorf(ipc.CodeDenied, "only root and the user that runs the daemon may make it read its peers again")
	}
	n, err := ss.d.ReloadPeers()
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	reply := m.Reply()
	reply.Body, err = json.Marshal(ReloadReport{Schema: StatusSchema, Authorised: n})
	return reply, err
}

// CheckIdentity examines the files a daemon would start with, those of an empty name where they are unless configured. It needs no daemon.
func CheckIdentity(keyFile, peersFile string) []Finding {
	var f findings
	keyFile = orElse(keyFile, identity.KeyPath())
	peersFile = orElse(peersFile, identity.PeersPath(keyFile))
	f.keyFile(keyFile)
	if peers, ok := f.peersFile(peersFile); ok && len(peers) > 0 {
		f.add(FindingOK, "peers file", fmt.Sprintf("%s is in order; authorised peers: %d", peersFile, len(peers)), "")
	} else if ok {
		f.add(FindingWarning, "peers file", "nobody is authorised in "+peersFile, "edgectl peers add KEY NAME, with the key as edgectl key show prints it on the peer")
	}
	return f
}

func (f *findings) keyFile(path string) {
	switch _, err := identity.ReadKey(path); {
	case err == nil:
		f.add(FindingOK, "key file", path+" is in order and private", "")
	case errors.Is(err, fs.ErrNotExist):
		f.add(FindingOK, "key file", path+" does not exist; edged makes it when it starts", "")
	case errors.Is(err, fs.ErrPermission):
		f.add(FindingWarning, "key file", err.Error(), "run this as root, or as the user edged runs as")
	default:
		f.add(FindingProblem, "key file", err.Error(), "edged does not start until that is put right")
	}
}

func (f *findings) peersFile(path string) (peers []secure.Peer, ok bool) {
	peers, err := identity.ReadPeers(path)
	switch {
	case err == nil:
		return peers, true
	case errors.Is(err, fs.ErrPermission):
		f.add(FindingProblem, "peers file", err.Error(), "chmod a+r "+path+": public keys are no secret")
	default:
		f.add(FindingProblem, "peers file", err.Error(), "correct the file, then edgectl peers list")
	}
	return nil, false
}

// security looks at what protects the frames of a running daemon.
func (f *findings) security(d *Daemon, snap *Snapshot) {
	if d.trust == nil {
		if !d.inMemory() {
			f.add(FindingWarning, "security", "PLAINTEXT: whoever reaches a link can read and write exported memory", "take security = \"plaintext\" out of the configuration, unless the wires are trusted")
		}
		return
	}
	now := d.trust.now.Load()
	f.add(FindingOK, "security", "frames are encrypted; this node's key is "+d.PublicKey(), "")
	if d.trust.keyFile != "" {
		f.keyFile(d.trust.keyFile)
	}
	if len(now.List()) == 0 {
		f.add(FindingProblem, "peers", "no peer is authorised: nobody can connect, in either direction", "edgectl peers add KEY NAME, with the key as edgectl key show prints it on the peer")
	}
	if now.file != "" {
		if _, ok := f.peersFile(now.file); ok && d.stale(now) {
			f.add(FindingWarning, "peers file", now.file+" was changed and not read again", "systemctl reload edged")
		}
	}
	for i := range snap.Peers {
		if p := &snap.Peers[i]; p.Security == Stranger {
			f.add(FindingWarning, "peer "+orElse(p.Name, p.Node), "is heard, and not authorised here", "if it is yours: edgectl peers add KEY NAME, with the key as edgectl key show prints it there")
		}
	}
}

// stale reports that reading the peers again would change them.
func (d *Daemon) stale(now *authorised) bool {
	again := &authorised{self: now.self, file: now.file, inline: now.inline}
	return again.load() == nil && !slices.Equal(again.List(), now.List())
}
