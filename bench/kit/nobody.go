package kit

import (
	"context"
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
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("leaving groups: %w", err)
		}
		if err := syscall.Setresgid(nobody, nobody, nobody); err != nil {
			return fmt.Errorf("becoming group %d: %w", nobody, err)
		}
		if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
			return fmt.Errorf("becoming user %d: %w", nobody, err)
		}
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), append([]string{os.Args[0]}, argv...), os.Environ())
}

// giveFiles gives nobody the files of the daemons.
func (c *Cluster) giveFiles() error {
	if lab.Unprivileged() {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "*"))
	if err != nil {
		return err
	}
	for _, name := range append(files, c.dir) {
		if err := os.Chown(name, nobody, nobody); err != nil {
			return err
		}
	}
	return nil
}
