package identity

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"multiedge/internal/secure"
)

// maxPeersFile bounds what is read of an authorised-peers file, in bytes: some 100,000 peers.
const maxPeersFile = 16 << 20

// ReadPeers reads an authorised-peers file: lines of `KEY NAME`, with endpoints or without, and comments. A file that
// does not exist authorises nobody, which is no error. One that its group or others may write is refused: they could
// authorise themselves. So could its owner, who must be root, the user of this process or one of owners.
func ReadPeers(path string, owners ...uint32) ([]secure.Peer, error) {
	peers, _, err := readPeers(path, append(owners, uint32(os.Geteuid())))
	return peers, err
}

// ReadPeersAgain is ReadPeers of a file that authorised somebody when it was read last. Where nothing is in it now, not
// even a comment, it is more likely cut short or lost than meant to revoke everybody, and that is an error.
func ReadPeersAgain(path string, owners ...uint32) ([]secure.Peer, error) {
	peers, blank, err := readPeers(path, append(owners, uint32(os.Geteuid())))
	if err == nil && blank {
		return nil, fmt.Errorf("peers file %s: it is empty or gone, and had peers: they stay authorised; remove "+
			"them by edgectl peers remove, or restart the daemon to start with nobody", path)
	}
	return peers, err
}

// readPeers reads a file of root or one of owners, and reports besides whether it is empty or gone.
func readPeers(path string, owners []uint32) (peers []secure.Peer, blank bool, err error) {
	text, _, owner, err := readPeersText(path)
	if err != nil {
		return nil, false, err
	}
	if owner != 0 && !slices.Contains(owners, owner) {
		return nil, false, fmt.Errorf("peers file %s: it belongs to user %d, who could authorise himself: chown root "+
			"%s, or to the user that runs the daemon", path, owner, path)
	}
	peers, err = parsePeers(text, path)
	return peers, len(bytes.TrimSpace(text)) == 0, err
}

// ListPeers reads the file for people, whoever its owner is.
func ListPeers(path string) ([]secure.Peer, error) {
	text, _, _, err := readPeersText(path)
	if err != nil {
		return nil, err
	}
	return parsePeers(text, path)
}

func parsePeers(text []byte, path string) ([]secure.Peer, error) {
	p, err := secure.ParsePeers(text, path)
	if err != nil {
		return nil, err
	}
	return p.List(), nil
}

// readPeersText returns what the file holds, its mode and its owner; nothing, 0644 and root when there is none.
func readPeersText(path string) (text []byte, mode fs.FileMode, owner uint32, err error) {
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0o644, 0, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("peers file %s: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, 0, fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	if mode = st.Mode().Perm(); mode&0o022 != 0 {
		return nil, mode, 0,
			fmt.Errorf("peers file %s: others than its owner may write it (mode %04o) and authorise themselves: "+
				"chmod go-w %s", path, mode, path)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		owner = sys.Uid
	}
	text, err = io.ReadAll(io.LimitReader(f, maxPeersFile+1))
	if err == nil && len(text) > maxPeersFile {
		err = fmt.Errorf("is longer than %d bytes", maxPeersFile)
	}
	if err != nil {
		return nil, mode, 0, fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	return text, mode, owner, nil
}

// Merge joins the peers of several sources, each described for errors. The same peer in two of them is no conflict: it
// has the endpoints of the first that names any, and the networks of the first that names any.
func Merge(sources ...Source) (*secure.Peers, error) {
	var list []secure.Peer
	at := map[secure.Peer]int{}
	for _, s := range sources {
		for _, p := range s.Peers {
			same := secure.Peer{Name: p.Name, Key: p.Key}
			i, there := at[same]
			if !there {
				at[same] = len(list)
				list = append(list, p)
				continue
			}
			list[i].Endpoints = cmp.Or(list[i].Endpoints, p.Endpoints)
			list[i].Allow = cmp.Or(list[i].Allow, p.Allow)
		}
	}
	peers, err := secure.NewPeers(list...)
	if err != nil {
		return nil, fmt.Errorf("authorised peers%s: %w", names(sources), err)
	}
	return peers, nil
}

// Source is where some peers were found.
type Source struct {
	Name  string // for errors and status
	Peers []secure.Peer
}

func names(sources []Source) (s string) {
	for _, src := range sources {
		if len(src.Peers) > 0 {
			if s == "" {
				s = " of "
			} else {
				s += " and "
			}
			s += src.Name
		}
	}
	return s
}
