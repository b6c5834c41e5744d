package splash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"multiedge/bench/kit"
	"multiedge/edge/dsm"
)

// InC are the kernels that edge/dsm/c/test/kernel.c has, too, and what that program says of a run.
type InC struct {
	Digest uint64    `json:"digest"` // of the result, at rank 0
	Stats  dsm.Stats `json:"stats"`
}

// Mixed are the names of the kernels that are there in C.
var Mixed = []string{"radix", "ocean", "lu", "lu-rows"}

// ProgramInC finds a program in C: path, or where make -C edge/dsm/c tests puts the one of that name (kernel, cost),
// seen from the folder of this program or of the sources.
func ProgramInC(path, name string) (string, error) {
	places := []string{path}
	if path == "" {
		self, _ := os.Executable() // without it there is one place less
		place := filepath.Join("out/dsm/plain", name)
		places = []string{filepath.Join(filepath.Dir(self), "..", place), place}
	}
	for _, p := range places {
		if full, err := filepath.Abs(p); err == nil {
			if _, err := os.Stat(full); err == nil {
				return full, nil
			}
		}
	}
	return "", fmt.Errorf("there is no program in C at %s: make -C edge/dsm/c tests builds it",
		strings.Join(places, " or "))
}

// inC reports whether this rank is a program in C.
func (j *job) inC() bool { return j.Program != "" && j.Rank%2 == 1 }

// command is a rank in C of several, which ends with the thread that starts it.
func (j *job) command(ctx context.Context, ranks int, name, program string, args ...any) (cmd *exec.Cmd,
	said *bytes.Buffer) {
	cmd, said = exec.CommandContext(ctx, program, strings.Fields(fmt.Sprintln(args...))...), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), "EDGE_SOCKET="+j.Socket,
		fmt.Sprintf("%s=splash/%s,%d,%d,%s", dsm.Variable, name, j.Rank, ranks, j.Hosts[0]))
	cmd.Stderr, cmd.SysProcAttr = said, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, said
}

// failure is why a rank in C ended, in its own words.
func failure(err error, said *bytes.Buffer) error {
	if words := strings.TrimSpace(said.String()); err != nil && words != "" {
		return errors.New(words)
	}
	return err
}

// kernelInC takes this rank's part in a run of a kernel, and returns what it did.
func (j *job) kernelInC(ctx context.Context, name string, k *Kernel, size int) (s dsm.Stats, err error) {
	runtime.LockOSThread() // the process dies with the thread
	defer runtime.UnlockOSThread()
	cmd, said := j.command(ctx, j.Ranks, name, j.Program, k.Name, size, k.Memory(size, j.Ranks))
	out, err := cmd.Output()
	if err != nil {
		return s, failure(err, said)
	}
	var r InC
	if err := json.Unmarshal(out, &r); err != nil {
		return s, fmt.Errorf("%s said %q: %w", j.Program, out, err)
	}
	return r.Stats, nil
}

// barriersInC goes from barrier to barrier until the run ends, and says when it began.
func (j *job) barriersInC(ctx context.Context, p *kit.Port) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, said := j.command(ctx, j.Ranks, "kill", j.Program, "barriers", 0, killMemory)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	if n, _ := out.Read(make([]byte, 64)); n > 0 { // its line
		p.Started()
	}
	return failure(cmd.Wait(), said)
}

// costsInC has ranks 0 and 1 run the program that measures steps in C, and returns them, at rank 1.
func (j *job) costsInC(ctx context.Context) (steps []Step) {
	if j.CostsInC == "" || j.Rank > 1 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, said := j.command(ctx, 2, "costs-in-c", j.CostsInC, j.Costs)
	out, err := cmd.Output()
	kit.Check(failure(err, said))
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var s Step
		kit.Checkf(d.Decode(&s), "%s said %q", j.CostsInC, out)
		steps = append(steps, s)
	}
	return steps
}
