package supervisor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ReplaceSelf executes this program anew in the same process, with the same arguments; it returns only on failure.
func ReplaceSelf() error {
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// KillLeftovers ends, as PID 1, every process that is left in the container, and waits until they are gone. Commands that the
// engine executes into the container are spared: their parent is outside, and someone is waiting for their answer.
func KillLeftovers(limit time.Duration) {
	if os.Getpid() != 1 {
		return
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left := leftovers("/proc")
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// leftovers lists the processes that have a parent in here.
func leftovers(proc string) []int {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == 1 {
			continue
		}
		stat, err := os.ReadFile(proc + "/" + entry.Name() + "/stat")
		if err != nil {
			continue // It ended meanwhile.
		}
		// The name, in parentheses, may contain anything: the fields after it are state and parent.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] != "0" {
			pids = append(pids, pid)
		}
	}
	return pids
}
