package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"multiedge/internal/config"
)

// edged that is started as root with --user becomes that user before anything is opened, and keeps two capabilities.
// That is for containers: Kubernetes gives a process that starts as another user no capabilities, and makes the
// directories of the host as root. Under systemd the unit does all of it.

// keptCaps are what edged goes on with, as far as it has them: packet sockets, and memory beyond RLIMIT_MEMLOCK.
var keptCaps = []int{unix.CAP_NET_RAW, unix.CAP_IPC_LOCK}

// account is a user's number and its group's.
type account struct{ uid, gid int }

// lookUp returns the user of a name, or of a number, which need not be known here: an image has no /etc/passwd.
func lookUp(name string) (account, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return account{int(n), int(n)}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("--user: there is no user %q; create the user, or give a number", name)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, err := strconv.Atoi(u.Gid)
	return account{uid, gid}, err
}

// become gives the user what edged writes to and starts edged again as that user. It returns only if there is nothing
// to do, or with an error.
func become(name string, cfg *config.Config) error {
	who, err := lookUp(name)
	if err != nil || who.uid == os.Geteuid() {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("--user %s: only root can become another user", name)
	}
	groups := []uint32{uint32(who.gid)}
	if gid, err := cfg.GroupID(); err != nil {
		return err
	} else if gid >= 0 {
		groups = append(groups, uint32(gid)) // its members alone may give the socket to it
	}
	if err := giveFiles(cfg, who); err != nil {
		return fmt.Errorf("--user %s: %w", name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // what execs is this thread, and its identity is what the new program has
	if err := setIdentity(who, groups); err != nil {
		return fmt.Errorf("--user %s: %w (the container needs the capabilities SETUID, SETGID and CHOWN)", name, err)
	}
	return fmt.Errorf("starting again as user %d: %w", who.uid, syscall.Exec(self, os.Args, os.Environ()))
}

// giveFiles makes the directories of socket and key the user's, and the files that root's edged made there before.
func giveFiles(cfg *config.Config, who account) error {
	run := filepath.Dir(cfg.Socket)
	err := errors.Join(os.MkdirAll(run, 0o755), given(cfg.Socket+".lock", who), give(run, who))
	if err != nil || cfg.Security == config.Plaintext {
		return err
	}
	state := filepath.Dir(cfg.KeyFile)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := given(cfg.KeyFile, who); err != nil {
		return err
	}
	if rootOwns(state) {
		if err := os.Chmod(state, 0o700); err != nil {
			return err
		}
	}
	return give(state, who)
}

// given is give for a file that an earlier edged may have left. Root without CAP_DAC_OVERRIDE may not look into a
// directory that is the user's already, and need not.
func given(path string, who account) error {
	if err := give(path, who); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// give changes the owner of a file or directory that is root's; another's is left alone. A file with a second name may
// be any file of root's: who may write to the directory can have made that name. What is looked at is what is given.
func give(path string, who account) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	file, dir := st.Mode&unix.S_IFMT == unix.S_IFREG, st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case st.Uid != 0 || !file && !dir:
		return nil
	case file && st.Nlink != 1:
		return fmt.Errorf("%s has %d names (hard links) and would be given away under all of them; copy it, and put "+
			"the copy in its place", path, st.Nlink)
	}
	if err := unix.Fchownat(fd, "", who.uid, who.gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}

// rootOwns reports whether a directory is root's.
func rootOwns(path string) bool {
	st, err := os.Lstat(path)
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0 && st.IsDir()
}

// setIdentity changes user, groups and capabilities of the calling thread alone. Ambient capabilities outlive execve
// also where no new privileges may be gained (capabilities(7)).
func setIdentity(who account, groups []uint32) error {
	if err := setGroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	gid, uid := uintptr(who.gid), uintptr(who.uid)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("setresgid: %w", e)
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("setresuid: %w", e)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, keep [2]unix.CapUserData
	if err := unix.Capget(&hdr, &have[0]); err != nil {
		return err
	}
	for _, c := range keptCaps {
		keep[c/32].Permitted |= have[c/32].Permitted & (1 << (c % 32))
	}
	for i := range keep {
		keep[i].Effective, keep[i].Inheritable = keep[i].Permitted, keep[i].Permitted
	}
	if err := unix.Capset(&hdr, &keep[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	for _, c := range keptCaps {
		if keep[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("ambient capability %d: %w", c, err)
		}
	}
	return nil
}
