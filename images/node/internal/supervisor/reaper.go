package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and reaps all children that exit: its own, and orphans that the kernel reparents to PID 1.
// Do not use os/exec together with it: two callers of wait(2) would reap each other's children.
type Reaper struct {
	mu       sync.Mutex
	children map[int]chan syscall.WaitStatus
	signals  chan os.Signal
}

// NewReaper starts a reaper, which runs until the process exits. A process must have only one.
func NewReaper() *Reaper {
	r := &Reaper{children: map[int]chan syscall.WaitStatus{}, signals: make(chan os.Signal, 1)}
	signal.Notify(r.signals, syscall.SIGCHLD)
	go func() {
		r.reap() // Children of the program that executed this one may have exited before signal.Notify.
		for range r.signals {
			r.reap()
		}
	}()
	return r
}

func (r *Reaper) reap() {
	// Start holds the lock until it has registered its child, so that a child that exits immediately is not lost.
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if done, found := r.children[pid]; found {
			delete(r.children, pid)
			done <- status
		}
	}
}

// Command is a program with its arguments and environment.
type Command struct {
	Args []string // Args[0] is the path of the program
	Env  []string // nil: the environment of this process
}

// Start starts the command with out as its stdout and stderr. It returns the PID and a channel that receives the exit status.
func (r *Reaper) Start(command Command, out *os.File) (int, <-chan syscall.WaitStatus, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	env := command.Env
	if env == nil {
		env = os.Environ()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(command.Args[0], command.Args, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		// With a separate process group, Ctrl-C at an attached terminal signals only PID 1, which stops the units in order.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", command.Args[0], err)
	}
	done := make(chan syscall.WaitStatus, 1)
	r.children[pid] = done
	return pid, done, nil
}

// Output runs a command and returns its output. The error contains the output too.
func (r *Reaper) Output(ctx context.Context, args ...string) (string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer reader.Close()
	pid, done, err := r.Start(Command{Args: args}, writer)
	writer.Close()
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer stop()
	data, _ := io.ReadAll(io.LimitReader(reader, 1<<20))
	text := strings.TrimSpace(string(data))
	if status := <-done; status != 0 {
		if ctx.Err() != nil {
			return text, fmt.Errorf("%s: %w", args[0], ctx.Err())
		}
		return text, fmt.Errorf("%s: %s: %s", strings.Join(args, " "), Describe(status), text)
	}
	return text, nil
}

// Describe returns how a process ended: its exit code or signal.
func Describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
