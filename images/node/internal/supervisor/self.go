package supervisor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Reexec executes this program again in the same process, with the same arguments. It returns only on failure.
func Reexec() error {
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// KillRemainingProcesses kills all other processes in the container and waits until they have exited, if this process is PID 1.
// It does not kill commands that the container engine executes in the container: their parent is outside of it.
func KillRemainingProcesses(limit time.Duration) {
	if os.Getpid() != 1 {
		return
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left := remainingProcesses("/proc")
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// remainingProcesses returns the PIDs of all processes, except PID 1, whose parent is in the container.
func remainingProcesses(proc string) []int {
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
			continue // The process has exited meanwhile.
		}
		// The second field is the name in parentheses and may contain spaces. State and parent PID follow it.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] != "0" {
			pids = append(pids, pid)
		}
	}
	return pids
}
