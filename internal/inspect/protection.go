package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/identity"
	"multiedge/internal/secure"
)

// Stranger is the PeerStatus.Security of a node that is heard and not authorised.
const Stranger = "stranger"

// notHeard is the AuthorisedStatus.State of a peer that no link heard.
const notHeard = "not heard"

// protection adds to a snapshot what protects the frames, and who is authorised.
func (out *Snapshot) protection(id *Identity) {
	st := &out.Status
	if id == nil {
		st.Security = config.Plaintext
		for i := range out.Peers {
			out.Peers[i].Security = config.Plaintext
		}
		return
	}
	now := id.Peers
	st.Security, st.Checksum, st.PublicKey, st.KeyFile, st.PeersFile, st.Authorised = config.Encrypted, "",
		id.Key, id.KeyFile, now.File, len(now.List())
	state, reason := map[string]string{}, map[string]string{}
	for i := range out.Peers {
		p := &out.Peers[i]
		state[p.Node], reason[p.Node] = p.State, p.Reason
		p.Security = Stranger
		if id, err := config.ParseNodeID(p.Node); err == nil {
			if known, ok := now.ByNode(id); ok {
				p.Security, p.Key = config.Encrypted, known.Key.String()
			}
		}
	}
	for _, p := range now.List() {
		id := engine.NodeID(p.Key.Node()).String()
		out.Authorised = append(out.Authorised, AuthorisedStatus{Name: p.Name, Key: p.Key.String(), Node: id,
			Source: now.Source(p), Endpoints: p.Endpoints, Allow: p.Allow, State: cmp.Or(state[id], notHeard),
			Reason: reason[id]})
	}
}

// CheckIdentity examines the files a daemon would start with, those of an empty name where they are unless configured.
// It needs no daemon.
func CheckIdentity(keyFile, peersFile string) []Finding {
	var f findings
	keyFile = cmp.Or(keyFile, identity.KeyPath())
	peersFile = cmp.Or(peersFile, identity.PeersPath(keyFile))
	f.keyFile(keyFile)
	var owners []uint32
	if st, err := os.Stat(keyFile); err == nil {
		owners = append(owners, st.Sys().(*syscall.Stat_t).Uid) // the daemon's user
	}
	if peers, ok := f.peersFile(peersFile, owners...); ok && len(peers) > 0 {
		f.add(FindingOK, "peers file", fmt.Sprintf("%s is in order; authorised peers: %d", peersFile, len(peers)), "")
	} else if ok {
		f.add(FindingWarning, "peers file", "nobody is authorised in "+peersFile,
			"edgectl peers add KEY NAME, with the key as edgectl key show prints it on the peer")
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

// peersFile looks at the file for a daemon whose user is one of owners, this process's if none is named.
func (f *findings) peersFile(path string, owners ...uint32) (peers []secure.Peer, ok bool) {
	peers, err := identity.ReadPeers(path, owners...)
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
func (f *findings) security(id *Identity, inMemory bool, snap *Snapshot) {
	if id == nil {
		if !inMemory {
			f.add(FindingWarning, "security", "PLAINTEXT: whoever reaches a link can read and write exported memory",
				"take security = \"plaintext\" out of the configuration, unless the wires are trusted")
		}
		return
	}
	now := id.Peers
	f.add(FindingOK, "security", "frames are encrypted; this node's key is "+id.Key, "")
	if id.KeyFile != "" {
		f.keyFile(id.KeyFile)
	}
	if len(now.List()) == 0 {
		f.add(FindingProblem, "peers", "no peer is authorised: nobody can connect, in either direction",
			"edgectl peers add KEY NAME, with the key as edgectl key show prints it on the peer")
	}
	if now.File != "" {
		if _, ok := f.peersFile(now.File); ok && stale(now) {
			f.add(FindingWarning, "peers file", now.File+" was changed and not read again", "systemctl reload edged")
		}
	}
	for i := range snap.Peers {
		if p := &snap.Peers[i]; p.Security == Stranger {
			f.add(FindingWarning, "peer "+cmp.Or(p.Name, p.Node), "is heard, and not authorised here",
				"if it is yours: edgectl peers add KEY NAME, with the key as edgectl key show prints it there")
		}
	}
}

// stale reports that reading the peers again would change them.
func stale(now *config.Authorised) bool {
	again, err := now.Read()
	return err == nil && !slices.Equal(again.List(), now.List())
}
