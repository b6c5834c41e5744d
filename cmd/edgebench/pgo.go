package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// The compiler inlines and lays out what profiles name (default.pgo beside main.go, which go build takes by itself).
// Profiles of small operations serve all: long ones spend their time in the kernel and in copies, which stay as they
// are, and with their profiles added the small ones gain less.

// profileVariable names a directory where processes of this program leave profiles.
const profileVariable = "EDGEBENCH_CPUPROFILE"

// pgoCmd renews default.pgo (make pgo).
type pgoCmd struct {
	Files []string `arg:"" help:"Files to write."`
}

func (c *pgoCmd) Run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "edgebench-pgo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, test := range []string{"rate -s 8", "ping-pong -s 8"} {
		for _, where := range []string{"", " --embedded", " --security plaintext --checksum header",
			" --security plaintext --checksum header --embedded"} {
			args := strings.Fields(test + where + " --lab -D 4 --format json")
			fmt.Fprintln(os.Stderr, "edgebench", strings.Join(args, " "))
			cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
			cmd.Env = append(os.Environ(), profileVariable+"="+dir)
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its lab
			cmd.WaitDelay = 20 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("edgebench %s: %w\n%s", strings.Join(args, " "), err, out)
			}
		}
	}
	merged, err := mergeProfiles(dir)
	if err != nil {
		return err
	}
	for _, file := range c.Files {
		if err := os.WriteFile(file, merged, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mergeProfiles adds up the profiles of a directory, without what belongs to this machine and run.
func mergeProfiles(dir string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var all []*profile.Profile
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			continue // of a process that was killed
		}
		p, err := profile.ParseData(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, m := range p.Mapping {
			m.File, m.BuildID, m.Start, m.Limit, m.Offset = "edge", "", 0, 1, 0
		}
		for _, l := range p.Location {
			l.Address = 0
		}
		p.TimeNanos, p.Comments = 0, nil
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no process left a profile in %s", dir)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = merged.Write(&b)
	return b.Bytes(), err
}

// startProfile profiles this process until the function that it returns is called, if profileVariable is set.
func startProfile() (stop func()) {
	dir := os.Getenv(profileVariable)
	if dir == "" {
		return func() {}
	}
	f, err := os.CreateTemp(dir, "cpu")
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "edgebench: no profile:", err)
		return func() {}
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}
}
