package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rebind starts the program again, in this process, bound to set and without PinVariable.
func rebind(set *unix.CPUSet) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, set); err != nil {
		return fmt.Errorf("binding to processors %s: %w", os.Getenv(PinVariable), err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, PinVariable+"=") {
			env = append(env, e)
		}
	}
	return syscall.Exec(self, os.Args, env)
}
