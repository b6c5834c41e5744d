package identity

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"multiedge/internal/secure"
)

// AddPeer authorises a peer in a file, which is made if there is none. Comments and order stay. changed is false if the
// peer is there already. Endpoints and networks replace those that the peer had; without any it keeps them. A name or
// key that another line has is an error.
func AddPeer(path string, p secure.Peer) (changed bool, err error) {
	if _, err := secure.NewPeers(p); err != nil {
		return false, err
	}
	err = edit(path, func(text []byte) ([]byte, error) {
		peers, err := secure.ParsePeers(text, path)
		if err != nil {
			return nil, err
		}
		old, there := peers.ByName(p.Name)
		switch {
		case !there:
		case old.Key == p.Key:
			p.Endpoints, p.Allow = cmp.Or(p.Endpoints, old.Endpoints), cmp.Or(p.Allow, old.Allow)
			if p == old {
				return text, nil
			}
			text = without(text, old)
		default:
			return nil, fmt.Errorf("%s: %q has another key already; remove it first: edgectl peers remove %s", path,
				p.Name, p.Name)
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, p.Line()+"\n"...)
		if _, err := secure.ParsePeers(text, path); err != nil {
			return nil, err
		}
		changed = true
		return text, nil
	})
	return changed && err == nil, err
}

// RemovePeer takes a peer, by its name or the text of its key, out of a file and returns it. Comments and order of the
// others stay.
func RemovePeer(path, which string) (gone secure.Peer, err error) {
	err = edit(path, func(text []byte) ([]byte, error) {
		peers, err := secure.ParsePeers(text, path)
		if err != nil {
			return nil, err
		}
		found := false
		for _, p := range peers.List() {
			if p.Name == which || p.Key.String() == which {
				gone, found = p, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: no peer %q is authorised there (edgectl peers list shows who is)", path, which)
		}
		kept := without(text, gone)
		if len(bytes.TrimSpace(kept)) == 0 { // an empty file would look like one that was cut short (ReadPeersAgain)
			kept = []byte("# authorised peers: KEY NAME [HOST:PORT,...] [allow=NETWORK,...]\n")
		}
		return kept, nil
	})
	return gone, err
}

// without returns the lines that do not authorise p.
func without(text []byte, p secure.Peer) (kept []byte) {
	for line := range bytes.Lines(text) {
		if !holds(line, p) {
			kept = append(kept, line...)
		}
	}
	return kept
}

// holds reports whether a line of the file authorises p.
func holds(line []byte, p secure.Peer) bool {
	entry, _, _ := strings.Cut(string(line), "#")
	words := strings.Fields(entry)
	return len(words) >= 2 && words[0] == p.Key.String() && words[1] == p.Name
}

// lockTries is how often, every lockPause, an editor looks whether others are done; none of ours takes that long.
// Changed by tests alone.
var lockTries = 1000

const lockPause = 10 * time.Millisecond

// openLock opens the file beside path by which editors exclude each other. Whoever can open a file can lock it, if only
// to read; so this one is open to nobody but its owner, who is us, and stays.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, cause(err)
	}
	st, err := f.Stat()
	if err == nil {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if euid := os.Geteuid(); !ok || int(sys.Uid) != euid && euid == 0 || st.Mode().Perm()&0o077 != 0 {
			err = errors.New("others may open it, and could keep it locked: remove it")
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// waitLock locks a file, and waits while another editor has it.
func waitLock(f *os.File) error {
	for range lockTries {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		time.Sleep(lockPause)
	}
	return fmt.Errorf("another process keeps it locked: end that (fuser -v %s names it), or edit the file by hand "+
		"and reload the daemon", f.Name())
}

// edit replaces a file by what change makes of it. The file is replaced whole, keeping its mode; a symbolic link stays
// and what it names is replaced. Of several editors at once each waits for the one before: the lock is on a file
// beside it.
func edit(path string, change func(text []byte) ([]byte, error)) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	lock, err := openLock(path)
	if err != nil {
		return fmt.Errorf("peers file %s: lock file %s.lock: %w", path, path, err)
	}
	defer lock.Close()
	if err := waitLock(lock); err != nil {
		return fmt.Errorf("peers file %s: locking %s: %w", path, lock.Name(), err)
	}
	old, mode, _, err := readPeersText(path)
	if err != nil {
		return err
	}
	text, err := change(bytes.Clone(old))
	if err != nil || bytes.Equal(text, old) {
		return err
	}
	tmp, err := writeTemp(path, text, mode)
	if err == nil {
		if err = os.Rename(tmp, path); err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}
	if err != nil {
		return fmt.Errorf("peers file %s: %w", path, cause(err))
	}
	return syncDir(dir)
}
