package daemon

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// Of the threads one may sleep longer than it asks for.
func TestCalmMonitor(t *testing.T) {
	if err := calmMonitor(); errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("it lacks CAP_SYS_NICE: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	calm := 0
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/" + task.Name() + "/timerslack_ns")
		if err == nil && strings.TrimSpace(string(b)) == "1000000" {
			calm++
		}
	}
	if calm == 0 {
		t.Error("no thread sleeps longer")
	}
}
