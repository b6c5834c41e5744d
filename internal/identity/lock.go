package identity

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// LockKey makes sure that one daemon of this host runs with a key file: two with one key drive every peer from one to
// the other. The lock ends with the file that is returned, or with the process, however it ends. A file system without
// locks gives none, which is no error.
func LockKey(path string) (*os.File, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return f, nil
	}
	defer f.Close()
	return nil, fmt.Errorf("another daemon%s runs with the key file %s: two with one key end each other's sessions; "+
		"stop that one (systemctl stop edged), or give this one a key of its own: "+
		"edgectl key new FILE, then --key-file FILE, and authorise that key at the peers", holder(f), path)
}

// holder names the process that has the lock of a file, if the kernel shows it.
func holder(f *os.File) string {
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	locks, err := os.Open("/proc/locks")
	if err != nil || !ok {
		return ""
	}
	defer locks.Close()
	inode := fmt.Sprintf(":%d", sys.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); { // 1: FLOCK  ADVISORY  WRITE 4711 00:2f:123456 0 EOF
		if w := strings.Fields(lines.Text()); len(w) > 5 && w[1] == "FLOCK" && strings.HasSuffix(w[5], inode) &&
			w[4] != "0" {
			return " (process " + w[4] + ")"
		}
	}
	return ""
}
