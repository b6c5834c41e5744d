package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"multiedge/internal/lab"
)

// nobody is the user that daemons run as with ClusterSpec.Nobody, where this program may become another user.
const nobody = 65534

// commandNobody (ARGV...) runs the rest of its command line as an ordinary user without any capability.
const commandNobody = "lab-nobody"

func init() {
	AddCommand(commandNobody, 1, func(_ context.Context, args []string) error { return becomeNobody(args) })
}

// becomeNobody starts this program again, in this process. In a user namespace there is no other user to become: root
// without capabilities is as ordinary there.
func becomeNobody(argv []string) error {
	// The program may lie where nobody may not go.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the bounding set is the thread's, and exec keeps that of the thread which calls it
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("giving capability %d up: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if !lab.Unprivileged() {
		if err := BecomeUser(nobody); err != nil {
			return err
		}
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), append([]string{os.Args[0]}, argv...), os.Environ())
}

// BecomeUser gives the privileges of this process up for those of a user and of the group of the same number.
func BecomeUser(uid int) error {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("becoming user %d: %w", uid, err)
	}
	return nil
}

// giveFiles gives nobody the files of the daemons.
func (c *Cluster) giveFiles() {
	if lab.Unprivileged() {
		return
	}
	for _, name := range append(Get(filepath.Glob(filepath.Join(c.dir, "*"))), c.dir) {
		Check(os.Chown(name, nobody, nobody))
	}
}
