package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// residentCode brings the program's code into memory. What is rarely run, because a link failed or a client broke the
// rules, is then not read from a disk while frames wait, and what a daemon holds does not grow by what happened to it.
// Code is shared by all that run the program, and the kernel may take it away again.
func residentCode() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var access string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); n != 3 || access[1] == 'w' ||
			!strings.HasSuffix(line, program+"\n") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_POPULATE_READ); errno != 0 {
			errs = append(errs, os.NewSyscallError("madvise", errno))
		}
	}
	return errors.Join(errs...)
}
