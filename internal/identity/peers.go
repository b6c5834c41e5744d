package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"multiedge/internal/secure"
)

// maxPeersFile bounds what is read of an authorised-peers file, in bytes: some 100,000 peers.
const maxPeersFile = 16 << 20

// ReadPeers reads an authorised-peers file: lines of `KEY NAME` and comments. A file that does not exist authorises nobody, which is no error.
// One that its group or others may write is refused: they could authorise themselves.
func ReadPeers(path string) ([]secure.Peer, error) {
	text, _, err := readPeersText(path)
	if err != nil {
		return nil, err
	}
	p, err := secure.ParsePeers(text, path)
	if err != nil {
		return nil, err
	}
	return p.List(), nil
}

// readPeersText returns what the file holds, and its mode; nothing and 0644 when there is none.
func readPeersText(path string) (text []byte, mode fs.FileMode, err error) {
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0o644, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("peers file %s: %w", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	if mode = st.Mode().Perm(); mode&0o022 != 0 {
		return nil, mode, fmt.Errorf("peers file %s: others than its owner may write it (mode %04o) and authorise themselves: chmod go-w %s", path, mode, path)
	}
	text, err = io.ReadAll(io.LimitReader(f, maxPeersFile+1))
	if err == nil && len(text) > maxPeersFile {
		err = fmt.Errorf("is longer than %d bytes", maxPeersFile)
	}
	if err != nil {
		return nil, mode, fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	return text, mode, nil
}

// Merge joins the peers of several sources, each described for errors. The same peer in two of them is no conflict.
func Merge(sources ...Source) (*secure.Peers, error) {
	var list []secure.Peer
	seen := map[secure.Peer]bool{}
	for _, s := range sources {
		for _, p := range s.Peers {
			if !seen[p] {
				seen[p] = true
				list = append(list, p)
			}
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
